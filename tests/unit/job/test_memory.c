/* Without memory for one thing at a time, on the loop: a job fails with a reason or goes on, and
 * everything ends. */
#include "play.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "job/job_internal.h"

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static _Thread_local bool counts;   /* this is the loop, doing a job's work */
static _Thread_local unsigned left; /* allocations that succeed; 0: all do */

void *__wrap_calloc(size_t n, size_t size)
{
    if (counts && left > 0 && --left == 0)
        return NULL;
    return __real_calloc(n, size);
}

/* What comes back from lanes and store is worked on without memory. */
static bool beat(World *world)
{
    counts = true;
    bool any = world_step(world);
    counts = false;
    return any;
}

static void job_without_memory_fails_or_goes_on(void **state)
{
    (void)state;
    static const char *const policies[] = {"average", "elastic",       "diloco",
                                           "barrier", "average-async", "async"};
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (unsigned n = 1; n <= 60; n++) {
            World world = {0};
            Trainer ranks[2];
            unsigned seed = n;
            JobSpec spec = world_spec(2, 2);
            strcpy(spec.policy, policies[p]);
            spec.checkpoint_rounds = 1;
            world_start(&world);
            Job *job = world_submit(&world, &spec);
            trainers_join(&world, job, ranks, 2);
            left = n;
            for (int idle = 0; idle < 3;) {
                bool fed = trainer_feed(&ranks[0]);
                fed |= trainer_feed(&ranks[1]);
                idle = beat(&world) || fed ? 0 : idle + 1;
            }
            left = 0;
            while (play(&world, ranks, 2, &seed))
                ;
            world_wait(&world, 20 * USEC_PER_SEC); /* a result is saved in another attempt */
            JobStatus status;
            job_status(job, &status);
            if (status.state == JOB_FAILED)
                assert_true(*status.reason);
            else if (status.state != JOB_COMPLETED)
                fail_msg("%s, allocation %u: %s", policies[p], n, job_state_name(status.state));
            world_stop(&world);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(job_without_memory_fails_or_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
