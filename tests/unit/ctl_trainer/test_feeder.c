/* Reading ahead: order, bounds, and the thread's end. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/trainer/feeder.h"

enum { WINDOW = 3, BATCH = 4, PIXELS = 28 * 28 };

static Dataset *dataset;
static Fit fit;

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(dataset_open("synthetic:1:100", DATASET_TRAIN, 0, &dataset, NULL, 0), 0);
    fit = (Fit){.batch = BATCH,
                .window = WINDOW,
                .ndim = 3,
                .dims = {1, 28, 28},
                .x_dtype = DPS__V1__DTYPE__U8,
                .y_dtype = DPS__V1__DTYPE__U8,
                .sample_bytes = PIXELS,
                .label_bytes = 1,
                .classes = 10};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dataset_free(dataset);
    return 0;
}

static Feeder *make(void)
{
    Feeder *feeder;

    assert_int_equal(feeder_new(dataset, &fit, &feeder), 0);
    return feeder;
}

static const FeederBatch *wait_front(Feeder *feeder)
{
    struct pollfd item = {.fd = feeder_fd(feeder), .events = POLLIN};
    const FeederBatch *batch;

    while (!(batch = feeder_front(feeder))) {
        assert_int_equal(poll(&item, 1, 20000), 1);
        feeder_clear(feeder);
    }
    return batch;
}

static int push(Feeder *feeder, uint64_t step)
{
    uint64_t indices[2] = {step % 100, (step * 7) % 100};

    return feeder_push(feeder, step, step / 10, indices, 2);
}

static void batches_come_in_the_order_of_their_leases(void **state)
{
    Feeder *feeder = make();
    uint8_t x[2 * PIXELS];
    int64_t y[2];

    (void)state;
    for (uint64_t step = 0; step < 5; step++)
        assert_int_equal(push(feeder, step), 0);
    for (uint64_t step = 0; step < 200; step++) {
        const FeederBatch *batch = wait_front(feeder);
        uint64_t indices[2] = {step % 100, (step * 7) % 100};
        uint8_t got_x[2 * PIXELS], got_y[2];

        assert_int_equal(batch->step, step);
        assert_int_equal(batch->epoch, step / 10);
        assert_int_equal(batch->error, 0);
        assert_int_equal(batch->samples, 2);
        assert_int_equal(batch->x_bytes, 2 * PIXELS);
        assert_int_equal(batch->y_bytes, 2);
        memcpy(got_x, batch->x, sizeof(got_x));
        memcpy(got_y, batch->y, 2);
        feeder_pop(feeder);
        if (step < 195)
            assert_int_equal(push(feeder, step + 5), 0);
        /* the data set is the feeder's: read again only when it sleeps */
        if (step == 199) {
            assert_int_equal(dataset_read(dataset, indices, 2, x, y), 0);
            assert_memory_equal(got_x, x, sizeof(x));
            assert_int_equal(got_y[0], y[0]);
            assert_int_equal(got_y[1], y[1]);
        }
    }
    assert_null(feeder_front(feeder));
    feeder_free(feeder);
}

static void wide_labels_are_sent_wide(void **state)
{
    Feeder *feeder;
    int64_t y[2];

    (void)state;
    fit.y_dtype = DPS__V1__DTYPE__I64;
    fit.label_bytes = 8;
    feeder = make();
    assert_int_equal(push(feeder, 3), 0);
    assert_int_equal(wait_front(feeder)->y_bytes, 16);
    memcpy(y, feeder_front(feeder)->y, 16);
    assert_in_range(y[0], 0, 9);
    feeder_free(feeder);
}

static void a_lease_behind_the_front_is_known(void **state)
{
    Feeder *feeder = make();

    (void)state;
    assert_false(feeder_has_next(feeder));
    assert_int_equal(push(feeder, 0), 0);
    assert_false(feeder_has_next(feeder));
    assert_int_equal(push(feeder, 1), 0);
    assert_true(feeder_has_next(feeder));
    wait_front(feeder);
    feeder_pop(feeder);
    assert_false(feeder_has_next(feeder));
    feeder_free(feeder);
}

static void leases_are_bounded(void **state)
{
    Feeder *feeder = make();
    const size_t most = FEEDER_LEASES(WINDOW) + WINDOW; /* with those that were read */
    uint64_t indices[BATCH + 1] = {0};
    size_t pushed = 0;

    (void)state;
    while (pushed < 1000 && push(feeder, pushed) == 0)
        pushed++;
    assert_in_range(pushed, FEEDER_LEASES(WINDOW), most);
    assert_int_equal(feeder_push(feeder, 0, 0, indices, BATCH + 1), -EMSGSIZE);
    assert_int_equal(feeder_push(feeder, 0, 0, indices, 0), -EMSGSIZE);
    for (size_t step = 0; step < pushed; step++) {
        assert_int_equal(wait_front(feeder)->step, step);
        feeder_pop(feeder);
    }
    feeder_free(feeder);
}

static void what_cannot_be_read_says_why(void **state)
{
    uint64_t beyond = 100;
    Feeder *feeder = make();

    (void)state;
    assert_int_equal(feeder_push(feeder, 8, 0, &beyond, 1), 0);
    assert_int_equal(wait_front(feeder)->error, -ERANGE);
    assert_non_null(strstr(feeder_front(feeder)->problem, "step 8"));
    feeder_free(feeder);
    fit.classes = 1;
    feeder = make();
    for (uint64_t i = 0; i < WINDOW; i++)
        assert_int_equal(push(feeder, i + 10), 0);
    assert_int_equal(wait_front(feeder)->error, -EINVAL);
    assert_non_null(strstr(feeder_front(feeder)->problem, "1 classes"));
    feeder_free(feeder);
}

static void can_be_freed_at_any_moment(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        Feeder *feeder = make();

        for (int k = 0; k < i % 7; k++)
            assert_int_equal(push(feeder, (uint64_t)k), 0);
        if (i % 3 == 0 && i % 7 > 0)
            wait_front(feeder);
        feeder_free(feeder);
    }
    assert_null(feeder_free(NULL));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(batches_come_in_the_order_of_their_leases),
        TEST(wide_labels_are_sent_wide),
        TEST(a_lease_behind_the_front_is_known),
        TEST(leases_are_bounded),
        TEST(what_cannot_be_read_says_why),
        TEST(can_be_freed_at_any_moment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
