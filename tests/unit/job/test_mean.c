/* The averaged model: of a job that runs, and of a checkpoint. */
#include "world.h"

#include <math.h>

#include "base/clock.h"
#include "job/job_internal.h"

static void snapshot_freep(Snapshot **snapshot)
{
    snapshot_free(*snapshot);
}

typedef struct MeanAnswer {
    int called, r;
    Snapshot *mean;
} MeanAnswer;

static void on_mean(void *data, int r, const Error *err, Snapshot *mean)
{
    MeanAnswer *answer = data;
    (void)err;
    answer->called++;
    answer->r = r;
    answer->mean = mean;
}

static Snapshot *mean_of(World *world, Job *job, uint64_t checkpoint)
{
    MeanAnswer answer = {0};
    job_mean(job, checkpoint, on_mean, &answer);
    world_settle(world);
    assert_int_equal(answer.called, 1);
    assert_int_equal(answer.r, 0);
    return answer.mean;
}

static void mean_of_a_running_job_is_that_of_its_replicas(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[3];
    JobSpec spec = world_spec(3, 2);
    spec.epochs = 2;
    Job *job = world_with_job(&world, &spec, ranks);
    trainers_run(&world, ranks, 3, 3);
    uint64_t id = world_checkpoint(&world, job);
    _cleanup_(snapshot_freep) Snapshot *live = mean_of(&world, job, 0);
    _cleanup_(snapshot_freep) Snapshot *stored = mean_of(&world, job, id);
    assert_memory_equal(live->params, stored->params, live->n_params * sizeof(float));
    for (size_t i = 0; i < live->n_params; i++) {
        float sum = 0;
        for (int r = 0; r < 3; r++)
            sum += replica_weights(job->members[r].replica)->params[i];
        assert_true(fabsf(sum / 3 - live->params[i]) < 1e-6F);
    }
    world_stop(&world);
}

/* A rank that was dropped is not part of the model, wherever it is read from. */
static void mean_of_a_checkpoint_leaves_dropped_ranks_out(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[3];
    JobSpec spec = world_spec(3, 4);
    spec.epochs = 2;
    Job *job = world_with_job(&world, &spec, ranks);
    trainers_run(&world, ranks, 3, 2);
    trainer_die(&ranks[1]);
    world_wait(&world, 31 * USEC_PER_SEC);
    uint64_t id = world_checkpoint(&world, job);
    _cleanup_(snapshot_freep) Snapshot *live = mean_of(&world, job, 0);
    _cleanup_(snapshot_freep) Snapshot *stored = mean_of(&world, job, id);
    assert_memory_equal(live->params, stored->params, live->n_params * sizeof(float));
    world_stop(&world);
}

static void mean_of_a_running_job_leaves_infinite_replicas_out(void **state)
{
    (void)state;
    World world = {0};
    Trainer ranks[2];
    JobSpec spec = world_spec(2, 4);
    Job *job = world_with_job(&world, &spec, ranks);
    ranks[1].poisoned = true;
    trainers_run(&world, ranks, 2, 2);
    _cleanup_(snapshot_freep) Snapshot *mean = mean_of(&world, job, 0);
    assert_memory_equal(mean->params, replica_weights(job->members[0].replica)->params,
                        mean->n_params * sizeof(float));
    world_stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mean_of_a_running_job_is_that_of_its_replicas),
        cmocka_unit_test(mean_of_a_checkpoint_leaves_dropped_ranks_out),
        cmocka_unit_test(mean_of_a_running_job_leaves_infinite_replicas_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
