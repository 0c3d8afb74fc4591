/* Every operator on every backend against the reference, forward and backward, in training and in
 * evaluation, with plain neighbours and with ones that choose layouts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "backend/backends.h"
#include "cases.h"
#include "compare.h"

/* float32 sums of up to a few hundred terms against sums in double: a few units in the last place
 * each, so 1e-5 of the largest value leaves a factor of ten. */
static const double tolerance = 1e-5;

static bool case_agrees(const Backend *backend, const OpCase *c, Surroundings surroundings,
                        bool training)
{
    _cleanup_graph_ Graph *graph = op_case_graph(c, surroundings);
    char name[160];
    snprintf(name, sizeof name, "%s (%lld,%lld,%lld,%lld) %s %s", c->name, (long long)c->batch,
             (long long)c->c, (long long)c->h, (long long)c->w,
             surroundings == ALONE ? "alone" : "between", training ? "training" : "evaluation");
    return graph_agrees(name, backend, graph, c->batch, training, tolerance);
}

static void operators_agree_with_the_reference(void **state)
{
    (void)state;
    int wrong = 0;
    for (int b = 0; b < backend_count(); b++)
        for (int i = 0; i < n_op_cases; i++)
            for (Surroundings s = ALONE; s < SURROUNDINGS_COUNT; s++)
                for (int training = 0; training < 2; training++)
                    if (backend_entry(b) != &backend_ref)
                        wrong += !case_agrees(backend_entry(b), &op_cases[i], s, training != 0);
    assert_int_equal(wrong, 0);
}

static void every_operator_has_a_case(void **state)
{
    (void)state;
    bool seen[OP_KIND_COUNT] = {false};
    for (int i = 0; i < n_op_cases; i++)
        seen[op_cases[i].kind] = true;
    for (int kind = 0; kind < OP_KIND_COUNT; kind++)
        if (!seen[kind])
            fail_msg("%s has no case", op_kind_name((OpKind)kind));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_has_a_case),
        cmocka_unit_test(operators_agree_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
