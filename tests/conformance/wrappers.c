/* The registry, what the wrappers refuse, and the fault that they can inject in place of any call:
 * whichever call of a training step fails, the error comes back and nothing is left behind. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backends.h"
#include "cases.h"
#include "harness.h"

static void backends_are_found_by_name(void **state)
{
    (void)state;
    static const char *const best[] = {NULL, "", "auto"};
    const Backend *found = NULL;
    for (size_t i = 0; i < sizeof best / sizeof *best; i++) {
        assert_int_equal(backend_find(best[i], &found, NULL), 0);
        assert_ptr_equal(found, backend_entry(0));
    }
    for (int b = 0; b < backend_count(); b++) {
        assert_int_equal(backend_find(backend_entry(b)->name, &found, NULL), 0);
        assert_ptr_equal(found, backend_entry(b));
    }
    assert_int_equal(backend_find("ref", &found, NULL), 0);
    assert_ptr_equal(found, &backend_ref);
}

static void an_unknown_name_is_answered_with_the_known_ones(void **state)
{
    (void)state;
    Error err = {0};
    const Backend *found = &backend_ref;
    assert_int_equal(backend_find("tpu", &found, &err), -ENOENT);
    assert_ptr_equal(found, &backend_ref);
    assert_non_null(strstr(err.message, "\"tpu\""));
    for (int b = 0; b < backend_count(); b++)
        assert_non_null(strstr(err.message, backend_entry(b)->name));
}

static void every_slot_of_every_table_is_filled(void **state)
{
    (void)state;
    for (int b = 0; b < backend_count(); b++) {
        void *const *slots = (void *const *)backend_entry(b);
        for (size_t i = 0; i < sizeof(Backend) / sizeof *slots; i++)
            if (!slots[i])
                fail_msg("%s has nothing in slot %zu", backend_entry(b)->name, i);
    }
}

static void devices_and_sizes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    for (int b = 0; b < backend_count(); b++) {
        Accelerator a = {0};
        void *memory = NULL;
        Error err = {0};
        assert_int_equal(accelerator_open(backend_entry(b), -1, 1, &a, &err), -EINVAL);
        assert_int_equal(accelerator_open(backend_entry(b), 0, 0, &a, &err), -EINVAL);
        assert_true(err.message[0] != '\0');
        assert_int_equal(accelerator_open(backend_entry(b), 0, 1, &a, &err), 0);
        assert_int_equal(accelerator_alloc(&a, SIZE_MAX, &memory), -ENOMEM);
        assert_null(memory);
        assert_int_equal(accelerator_alloc(&a, 0, &memory), 0);
        assert_int_equal((uintptr_t)memory % 64, 0);
        assert_int_equal(accelerator_read(&a, memory, NULL, 4), -EINVAL);
        assert_int_equal(accelerator_write(&a, NULL, memory, 4), -EINVAL);
        assert_int_equal(accelerator_zero(&a, NULL, 4), -EINVAL);
        assert_int_equal(accelerator_read(&a, NULL, NULL, 0), 0);
        accelerator_release(&a, memory);
        accelerator_release(&a, NULL);
        accelerator_close(&a);
        accelerator_close(&a); /* twice is fine */
    }
}

static void memory_comes_zeroed_and_aligned(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 63, 64, 65, 100000};
    static unsigned char host[100000];
    for (int b = 0; b < backend_count(); b++) {
        Accelerator a;
        assert_int_equal(accelerator_open(backend_entry(b), 0, 1, &a, NULL), 0);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *memory = NULL;
            assert_int_equal(accelerator_alloc(&a, sizes[i], &memory), 0);
            assert_int_equal((uintptr_t)memory % 64, 0);
            memset(host, 1, sizes[i]);
            assert_int_equal(accelerator_read(&a, memory, host, sizes[i]), 0);
            for (size_t j = 0; j < sizes[i]; j++)
                assert_int_equal(host[j], 0);
            accelerator_release(&a, memory);
        }
        accelerator_close(&a);
    }
}

static void batchnorm_of_one_value_a_channel_is_refused_in_training(void **state)
{
    (void)state;
    static const OpCase single = {
        "norm", OP_BATCHNORM2D, 1, 3, 1, 1, .attrs.norm = {.eps = 1e-5F, .momentum = 0.1F}};
    _cleanup_graph_ Graph *graph = op_case_graph(&single, ALONE);
    for (int b = 0; b < backend_count(); b++) {
        _cleanup_run_ Run *run = NULL;
        Error err = {0};
        assert_int_equal(run_new(backend_entry(b), graph, 1, true, &run, &err), -EOPNOTSUPP);
        assert_non_null(strstr(err.message, "more than one value"));
        assert_non_null(strstr(err.message, "(1, 3, 1, 1)"));
        assert_int_equal(run_new(backend_entry(b), graph, 1, false, &run, &err), 0);
    }
}

static void memory_off_the_line_is_refused(void **state)
{
    (void)state;
    static const OpCase relu = {"relu", OP_RELU, 2, 5, 0, 0};
    _Alignas(64) char memory[512] = {0};
    _cleanup_graph_ Graph *graph = op_case_graph(&relu, ALONE);
    for (int b = 0; b < backend_count(); b++) {
        Accelerator a;
        Layout *layout = NULL;
        Kernel *kernel = NULL;
        KernelInfo info;
        Shape shape = {2, {2, 5}};
        assert_int_equal(accelerator_open(backend_entry(b), 0, 1, &a, NULL), 0);
        accelerator_bind(&a);
        assert_int_equal(accelerator_layout_plain(&a, &shape, &layout), 0);
        KernelSpec spec = {.graph = graph, .node = graph_node(graph, 0), .batch = 2};
        assert_int_equal(kernel_compile(&a, &spec, &kernel, &info, NULL), -EINVAL); /* no layout */
        spec.inputs[0] = layout;
        assert_int_equal(kernel_compile(&a, &spec, &kernel, &info, NULL), 0);
        KernelArgs args = {.inputs = {memory + 4}, .output = memory + 256};
        assert_int_equal(kernel_forward(&a, kernel, &args), -EINVAL);
        args.inputs[0] = memory;
        args.output = NULL;
        assert_int_equal(kernel_forward(&a, kernel, &args), -EINVAL);
        args.output_gradient = memory + 8;
        assert_int_equal(kernel_backward(&a, kernel, &args), -EINVAL);
        kernel_free(&a, kernel);
        kernel_free(&a, NULL);
        accelerator_layout_free(&a, layout);
        accelerator_close(&a);
    }
    Accelerator none = {0};
    Layout *unused = NULL;
    Shape symbolic = {2, {DIM_BATCH, 3}};
    assert_int_equal(accelerator_layout_plain(&none, &symbolic, &unused), -EINVAL);
}

static int train_once(const Backend *backend, const Graph *graph)
{
    _cleanup_run_ Run *run = NULL;
    Error err = {0};
    int r = run_new(backend, graph, 2, true, &run, &err);
    if (r < 0)
        return r;
    run_fill(run, 1);
    r = run_forward(run);
    return r < 0 ? r : run_backward(run);
}

static const OpCase *case_named(const char *name)
{
    for (int i = 0; i < n_op_cases; i++)
        if (strcmp(op_cases[i].name, name) == 0)
            return &op_cases[i];
    fail_msg("no case \"%s\"", name);
    return NULL;
}

/* Leaks on the way out are the address sanitizer's to find. */
static void whichever_call_fails_the_error_comes_back(void **state)
{
    (void)state;
    _cleanup_graph_ Graph *graph = op_case_graph(case_named("conv relu"), BETWEEN);
    for (int b = 0; b < backend_count(); b++) {
        unsigned failures = 0;
        for (unsigned n = 1;; n++) {
            backend_fail_after(n);
            int r = train_once(backend_entry(b), graph);
            backend_fail_after(0);
            if (r == 0)
                break; /* it takes fewer calls than n */
            assert_true(r == -EIO || r == -ENOMEM);
            failures++;
        }
        assert_true(failures > 30);
        assert_int_equal(train_once(backend_entry(b), graph), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_are_found_by_name),
        cmocka_unit_test(an_unknown_name_is_answered_with_the_known_ones),
        cmocka_unit_test(every_slot_of_every_table_is_filled),
        cmocka_unit_test(devices_and_sizes_that_cannot_be_are_refused),
        cmocka_unit_test(memory_comes_zeroed_and_aligned),
        cmocka_unit_test(batchnorm_of_one_value_a_channel_is_refused_in_training),
        cmocka_unit_test(memory_off_the_line_is_refused),
        cmocka_unit_test(whichever_call_fails_the_error_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
