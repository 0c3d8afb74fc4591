/* kill -9 at random moments while checkpoints are saved: what was acknowledged is there, whole. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "fixture.h"

enum { KILLS = 30, PART = 300000 };

typedef struct Ack {
    uint64_t round, id;
} Ack;

/* The child: saves one checkpoint after the other and says through the pipe which are done. */
static void save_for_ever(Fixture *f, uint64_t job, uint64_t round, int to)
{
    fixture_start(f);
    for (;; round++) {
        RoundRecord row = {.job = job, .round = round};
        store_rounds_add(f->store, &row, 1, NULL, NULL);
        Answer saved = fixture_save(f, job, round, 4, PART, 3);
        Ack ack = {.round = round, .id = saved.id};
        if (saved.r < 0 || write(to, &ack, sizeof ack) != sizeof ack)
            _exit(1);
    }
}

static void sleep_us(uint64_t us)
{
    struct timespec time = {.tv_sec = (time_t)(us / USEC_PER_SEC),
                            .tv_nsec = (long)(us % USEC_PER_SEC) * 1000};
    nanosleep(&time, NULL);
}

/* Waits for a few acknowledgements and then for anything up to the time of one and a half saves,
 * so that the kill hits a save wherever it is, on slow machines and fast ones. */
static void wait_some_time(int from, Ack *last)
{
    static uint64_t longest_us = 20000;
    for (long n = random() % 4; n > 0; n--) {
        uint64_t start = clock_monotonic_us();
        assert_int_equal(read(from, last, sizeof *last), sizeof *last);
        longest_us = clock_monotonic_us() - start;
    }
    sleep_us((uint64_t)random() % (longest_us + longest_us / 2 + 1));
}

/* *last is the latest acknowledgement of all. */
static void run_and_kill(Fixture *f, uint64_t job, Ack *last)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no process */
        close(pipes[0]);
        save_for_ever(f, job, last->round + 1, pipes[1]);
    }
    close(pipes[1]);
    wait_some_time(pipes[0], last);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    while (read(pipes[0], last, sizeof *last) == sizeof *last)
        ;
    close(pipes[0]);
}

static void acknowledged_checkpoints_survive_kill_9(void **state)
{
    Fixture *f = *state;
    uint64_t job = fixture_job(f);
    fixture_stop(f);
    Ack last = {0};
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srandom(seed);
    for (int i = 0; i < KILLS; i++) {
        run_and_kill(f, job, &last);
        fixture_start(f);
        Answer latest = fixture_load(f, job, 0);
        if (last.id > 0)
            assert_int_equal(latest.r, 0);
        assert_true(latest.id >= last.id);
        Answer listed = fixture_list(f, job, true);
        assert_int_equal(listed.id, listed.n); /* all that count are whole */
        assert_true(listed.n <= 3);
        assert_int_equal(fixture_count_events(f, job, "checkpoint-invalid"), 0);
        if (latest.id > last.id) /* saved, but killed before it could say so */
            last = (Ack){.round = last.round + 1, .id = latest.id};
        fixture_stop(f);
    }
    print_message("%llu checkpoints were saved over %d kills\n", (unsigned long long)last.round,
                  KILLS);
    assert_true(last.round > KILLS / 3);
    assert_true(fixture_file_size(f, "") < 3 * 3 * PART + (4 << 20));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(acknowledged_checkpoints_survive_kill_9, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests_name("store kill", tests, NULL, NULL);
}
