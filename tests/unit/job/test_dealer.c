/* The dealing of batches, without jobs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "job/dealer.h"

static Dealer *deal(uint64_t samples, uint32_t batch, uint64_t epochs, uint64_t steps,
                    uint32_t ranks)
{
    Dealer *dealer;
    DealerSpec spec = {.samples = samples,
                       .batch = batch,
                       .seed = 11,
                       .epochs = epochs,
                       .steps = steps,
                       .ranks = ranks};
    assert_int_equal(dealer_new(&spec, &dealer), 0);
    return dealer;
}

static void batch_i_n_plus_r_goes_to_rank_r(void **state)
{
    (void)state;
    Dealer *dealer = deal(40, 4, 2, 0, 3);
    assert_int_equal(dealer_batches_per_epoch(dealer), 10);
    for (uint64_t i = 0; i * 3 < 20; i++)
        for (uint32_t r = 0; r < 3; r++) {
            DealerBatch batch;
            int result = dealer_batch(dealer, r, i, &batch);
            if (i * 3 + r >= 20) {
                assert_int_equal(result, -ENODATA);
                assert_false(dealer_has_step(dealer, r, i));
                continue;
            }
            assert_int_equal(result, 0);
            assert_true(dealer_has_step(dealer, r, i));
            assert_int_equal(batch.number, i * 3 + r);
            assert_int_equal(batch.epoch, (i * 3 + r) / 10);
        }
    dealer_free(dealer);
}

/* Whoever asks first, and however far ahead. */
static void who_asks_first_does_not_matter(void **state)
{
    (void)state;
    Dealer *dealer = deal(400, 4, 1, 0, 4);
    DealerBatch batch;
    assert_int_equal(dealer_batch(dealer, 3, 20, &batch), 0);
    assert_int_equal(batch.number, 83);
    assert_int_equal(dealer_batch(dealer, 0, 0, &batch), 0);
    assert_int_equal(batch.number, 0);
    assert_int_equal(dealer_batch(dealer, 0, 0, &batch), 0); /* asked again */
    assert_int_equal(batch.number, 0);
    dealer_free(dealer);
}

static void last_batch_of_an_epoch_may_be_smaller(void **state)
{
    (void)state;
    Dealer *dealer = deal(10, 4, 2, 0, 1);
    unsigned used[2][10] = {{0}};
    for (uint64_t step = 0; step < 6; step++) {
        DealerBatch batch;
        assert_int_equal(dealer_batch(dealer, 0, step, &batch), 0);
        assert_int_equal(batch.samples, step % 3 == 2 ? 2 : 4);
        for (uint32_t i = 0; i < batch.samples; i++)
            used[batch.epoch][batch.indices[i]]++;
        dealer_done(dealer, 0);
    }
    for (int epoch = 0; epoch < 2; epoch++)
        for (int i = 0; i < 10; i++)
            assert_int_equal(used[epoch][i], 1);
    assert_false(dealer_has_step(dealer, 0, 6));
    dealer_free(dealer);
}

static void steps_end_each_rank_alike(void **state)
{
    (void)state;
    Dealer *dealer = deal(10, 4, 0, 5, 2);
    DealerBatch batch;
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(dealer_batch(dealer, r, 4, &batch), 0);
        assert_int_equal(dealer_batch(dealer, r, 5, &batch), -ENODATA);
    }
    dealer_free(dealer);
}

static void without_data_nothing_is_dealt_but_steps_are_counted(void **state)
{
    (void)state;
    Dealer *dealer = deal(0, 4, 0, 3, 2);
    DealerBatch batch;
    assert_int_equal(dealer_batches_per_epoch(dealer), 0);
    assert_int_equal(dealer_batch(dealer, 0, 0, &batch), -ENODATA);
    assert_true(dealer_has_step(dealer, 0, 2));
    assert_false(dealer_has_step(dealer, 0, 3));
    dealer_drop(dealer, 0);
    assert_false(dealer_has_step(dealer, 0, 0));
    dealer_free(dealer);
}

static void dropped_ranks_batches_go_to_the_others_before_new_ones(void **state)
{
    (void)state;
    Dealer *dealer = deal(36, 4, 1, 0, 3);
    DealerBatch batch;
    assert_int_equal(dealer_batch(dealer, 1, 1, &batch), 0); /* two rows are dealt */
    for (uint32_t r = 0; r < 3; r++)
        dealer_done(dealer, r);
    assert_int_equal(dealer_drop(dealer, 1), 0); /* gives 4 back */
    assert_false(dealer_has_step(dealer, 1, 1));
    static const uint64_t rank0[] = {3, 4, 7}, rank2[] = {5, 6, 8};
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(dealer_batch(dealer, 0, 1 + i, &batch), 0);
        assert_int_equal(batch.number, rank0[i]);
        assert_int_equal(dealer_batch(dealer, 2, 1 + i, &batch), 0);
        assert_int_equal(batch.number, rank2[i]);
    }
    assert_false(dealer_has_step(dealer, 0, 4));
    dealer_free(dealer);
}

/* ---- saving ---------------------------------------------------------------------------------- */

static Dealer *save_and_load(Dealer *dealer, uint64_t samples, uint32_t batch, uint64_t epochs,
                             uint64_t steps, uint32_t ranks)
{
    char *json, *again;
    Dealer *loaded = deal(samples, batch, epochs, steps, ranks);
    assert_int_equal(dealer_save(dealer, &json), 0);
    assert_int_equal(dealer_load(loaded, json), 0);
    assert_int_equal(dealer_save(loaded, &again), 0);
    assert_string_equal(json, again);
    free(json);
    free(again);
    dealer_free(dealer);
    return loaded;
}

static void what_is_no_position_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"ranks\":[{}]}",
        "{\"ranks\":[1,2]}",
        "{\"returned\":[\"x\"],\"ranks\":[{},{}]}",
        "{\"ranks\":[{\"todo\":[true]},{}]}",
        "{\"ranks\":[{},{},{}]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Dealer *dealer = deal(36, 4, 1, 0, 2);
        assert_int_equal(dealer_load(dealer, bad[i]), -EBADMSG);
        dealer_free(dealer);
    }
}

/* ---- memory that is missing ------------------------------------------------------------------ */

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);

static bool no_memory;

void *__wrap_realloc(void *old, size_t size)
{
    return no_memory ? NULL : __real_realloc(old, size);
}

static void missing_memory_loses_no_batch(void **state)
{
    (void)state;
    Dealer *dealer = deal(400, 4, 1, 0, 2);
    DealerBatch batch;
    unsigned used[100] = {0};
    uint64_t step[2] = {0};
    no_memory = true;
    assert_int_equal(dealer_batch(dealer, 0, 0, &batch), -ENOMEM);
    assert_true(dealer_has_step(dealer, 0, 0));
    no_memory = false;
    assert_int_equal(dealer_batch(dealer, 0, 15, &batch), 0);
    no_memory = true;
    assert_int_equal(dealer_batch(dealer, 1, 16, &batch), -ENOMEM);
    assert_int_equal(dealer_drop(dealer, 1), -ENOMEM);
    no_memory = false;
    for (int i = 0; i < 100; i++) {
        uint32_t rank = i % 2;
        assert_int_equal(dealer_batch(dealer, rank, step[rank], &batch), 0);
        used[batch.number]++;
        dealer_done(dealer, rank);
        step[rank]++;
    }
    for (int i = 0; i < 100; i++)
        assert_int_equal(used[i], 1);
    dealer_free(dealer);
}

/* ---- any sequence of events ------------------------------------------------------------------ */

enum { MAX_RANKS = 6, SAMPLES = 53, BATCH = 4, EPOCHS = 3 };

typedef struct Play {
    Dealer *dealer;
    uint32_t ranks;
    bool live[MAX_RANKS];
    uint64_t step[MAX_RANKS], round;
    unsigned used[EPOCHS][SAMPLES];
    uint64_t random;
} Play;

static uint32_t draw(Play *play, uint32_t n)
{
    play->random = play->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(play->random >> 33) % n;
}

static unsigned live_ranks(const Play *play)
{
    unsigned n = 0;
    for (uint32_t r = 0; r < play->ranks; r++)
        n += play->live[r];
    return n;
}

static bool do_step(Play *play, uint32_t rank)
{
    DealerBatch batch, ahead;
    if (!play->live[rank] || !dealer_has_step(play->dealer, rank, play->step[rank]))
        return false;
    (void)dealer_batch(play->dealer, rank, play->step[rank] + draw(play, 5), &ahead);
    assert_int_equal(dealer_batch(play->dealer, rank, play->step[rank], &batch), 0);
    for (uint32_t i = 0; i < batch.samples; i++)
        play->used[batch.epoch][batch.indices[i]]++;
    dealer_done(play->dealer, rank);
    play->step[rank]++;
    return true;
}

static void come_or_go(Play *play, uint32_t rank)
{
    if (play->live[rank]) {
        assert_int_equal(dealer_drop(play->dealer, rank), 0);
        play->live[rank] = false;
        return;
    }
    for (uint32_t r = 0; r < play->ranks; r++) /* where the others are, as at a round's end */
        if (play->live[r] && play->step[r] > play->step[rank])
            play->step[rank] = play->step[r];
    dealer_admit(play->dealer, rank, play->step[rank]);
    play->live[rank] = true;
}

static bool all_done(Play *play)
{
    if (live_ranks(play) == 0)
        return false;
    for (uint32_t r = 0; r < play->ranks; r++)
        if (play->live[r] && dealer_has_step(play->dealer, r, play->step[r]))
            return false;
    return true;
}

static void play_once(uint64_t seed)
{
    Play play = {.random = seed};
    play.ranks = 1 + draw(&play, MAX_RANKS);
    play.dealer = deal(SAMPLES, BATCH, EPOCHS, 0, play.ranks);
    for (uint32_t r = 0; r < play.ranks; r++)
        play.live[r] = true;
    for (unsigned moves = 0; !all_done(&play); moves++) {
        uint32_t rank = draw(&play, play.ranks);
        assert_true(moves < 10000);
        switch (draw(&play, 12)) {
        case 0:
            come_or_go(&play, rank);
            break;
        case 1:
            play.dealer = save_and_load(play.dealer, SAMPLES, BATCH, EPOCHS, 0, play.ranks);
            break;
        default:
            (void)do_step(&play, rank);
        }
    }
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        for (int i = 0; i < SAMPLES; i++)
            if (play.used[epoch][i] != 1)
                fail_msg("seed %llu: sample %d of epoch %d was used %u times",
                         (unsigned long long)seed, i, epoch, play.used[epoch][i]);
    dealer_free(play.dealer);
}

static void every_sample_once_whoever_comes_and_goes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++)
        play_once(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_i_n_plus_r_goes_to_rank_r),
        cmocka_unit_test(who_asks_first_does_not_matter),
        cmocka_unit_test(last_batch_of_an_epoch_may_be_smaller),
        cmocka_unit_test(steps_end_each_rank_alike),
        cmocka_unit_test(without_data_nothing_is_dealt_but_steps_are_counted),
        cmocka_unit_test(dropped_ranks_batches_go_to_the_others_before_new_ones),
        cmocka_unit_test(what_is_no_position_is_refused),
        cmocka_unit_test(missing_memory_loses_no_batch),
        cmocka_unit_test(every_sample_once_whoever_comes_and_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
