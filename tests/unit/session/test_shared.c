/* Contexts while others step: the interleaving that breaks a shared model (A forward, B forward, A
 * backward and step, B backward and step), staleness, and the versions that contexts hold. */
#include "desk.h"

#include <string.h>

#include "base/clock.h"

static JobSpec spec_for(const char *policy)
{
    JobSpec spec = world_spec(2, 100);
    strcpy(spec.policy, policy);
    return spec;
}

static void setting(JobSpec *spec, const char *key, const char *value)
{
    SettingPair *pair = &spec->settings[spec->n_settings++];
    strcpy(pair->key, key);
    strcpy(pair->value, value);
}

/* The gradient of the seed's weights, by an engine of its own. */
static void plain_gradient(const Job *job, int rank, float bias[4])
{
    EngineSpec spec;
    Engine *engine;
    Replica *replica;
    Context *context;
    OwnedBatch batch;
    Error err = {0};
    double norm;
    float output[SAMPLES * OUTPUTS], gradient[SAMPLES * OUTPUTS];
    output_gradient(gradient);
    assert_int_equal(job_engine_spec(job, &spec, &err), 0);
    assert_int_equal(engine_new(&spec, &engine, &err), 0);
    engine_bind(engine);
    assert_int_equal(replica_new(engine, rank, &replica, &err), 0);
    world_batch(NULL, SAMPLES, &batch);
    assert_int_equal(replica_forward(replica, &batch.batch, 0, 0, output, &context, &err), 0);
    assert_int_equal(replica_backward(replica, context, gradient, &norm, &err), 0);
    assert_int_equal(replica_read_gradient(replica, context, 1, bias, &err), 0);
    context_free(context);
    replica_free(replica);
    engine_free(engine);
    batch.release(batch.owner);
}

typedef struct Interleaved {
    Reply a_forward, b_forward, a_backward, a_step, b_backward, b_gradient, b_step;
} Interleaved;

/* Without the answers of what waits for others. */
static void interleave(Desk *desk, Interleaved *replies)
{
    Session *a = desk->ranks[0].session, *b = desk->ranks[1].session;
    forward(a, &replies->a_forward);
    world_settle(&desk->world);
    forward(b, &replies->b_forward);
    world_settle(&desk->world);
    backward(a, 1, &replies->a_backward);
    step(a, 1, &replies->a_step);
    world_settle(&desk->world);
    backward(b, 1, &replies->b_backward);
    read_gradient(b, 1, &replies->b_gradient);
    step(b, 1, &replies->b_step);
    world_settle(&desk->world);
    assert_int_equal(replies->a_step.r, 0);
    assert_int_equal(replies->a_step.called, 1);
    assert_int_equal(replies->b_backward.r, 0);
    assert_int_equal(replies->b_step.called, 1);
}

static void gradients_are_right_though_the_other_has_stepped(void **state)
{
    (void)state;
    static const char *const names[] = {"average", "elastic",       "diloco",
                                        "barrier", "average-async", "async"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Desk desk = {0};
        Interleaved replies;
        float expected[4];
        JobSpec spec = spec_for(names[i]);
        desk_open_with(&desk, &spec);
        interleave(&desk, &replies);
        assert_int_equal(replies.b_step.r, 0);
        plain_gradient(desk.job, 1, expected);
        assert_memory_equal(replies.b_gradient.gradient, expected, sizeof expected);
        world_stop(&desk.world);
    }
}

static void too_old_a_gradient_is_refused_with_its_versions(void **state)
{
    (void)state;
    Desk desk = {0};
    Interleaved replies;
    JobSpec spec = spec_for("async");
    setting(&spec, "sync.max_staleness", "0");
    desk_open_with(&desk, &spec);
    interleave(&desk, &replies);
    assert_int_equal(replies.a_step.outcome.version, replies.a_forward.version + 1);
    assert_int_equal(replies.b_step.r, -ESTALE);
    assert_non_null(strstr(replies.b_step.message, "is at version"));
    assert_non_null(strstr(replies.b_step.message, "(max_staleness 0)"));
    assert_int_equal(trainer_step(&desk.ranks[1]), 0);
    world_stop(&desk.world);
}

static void old_gradient_is_applied_where_that_is_wanted(void **state)
{
    (void)state;
    static const char *const ways[][2] = {{"sync.max_staleness", "1"}, {"sync.on_stale", "apply"}};
    for (int i = 0; i < 2; i++) {
        Desk desk = {0};
        Interleaved replies;
        JobSpec spec = spec_for("async");
        if (i == 1)
            setting(&spec, "sync.max_staleness", "0");
        setting(&spec, ways[i][0], ways[i][1]);
        desk_open_with(&desk, &spec);
        interleave(&desk, &replies);
        assert_int_equal(replies.b_step.r, 0);
        assert_int_equal(replies.b_step.outcome.version, replies.a_forward.version + 2);
        assert_int_equal(trainer_step(&desk.ranks[1]), 1);
        world_stop(&desk.world);
    }
}

/* With barrier all gradients of a step are of the same parameters. */
static void barrier_refuses_a_gradient_of_an_earlier_step(void **state)
{
    (void)state;
    Desk desk = {0};
    Reply old, fresh, b, c;
    JobSpec spec = spec_for("barrier");
    spec.trainers = 1;
    desk_open_with(&desk, &spec);
    forward(desk.session, &old);
    forward(desk.session, &fresh);
    backward(desk.session, 2, &b);
    step(desk.session, 2, &c);
    world_settle(&desk.world);
    assert_int_equal(c.r, 0);
    backward(desk.session, 1, &b);
    step(desk.session, 1, &c);
    world_settle(&desk.world);
    assert_int_equal(c.r, -ESTALE);
    world_stop(&desk.world);
}

/* Batches that are refused are computed again, by dpsd: their trainer has nothing to do. */
static void batches_that_are_too_old_are_computed_again(void **state)
{
    (void)state;
    Desk desk = {0};
    JobSpec spec = spec_for("async");
    setting(&spec, "sync.max_staleness", "0");
    desk_open_with(&desk, &spec);
    trainers_run(&desk.world, desk.ranks, 2, UINT64_MAX);
    assert_int_equal(world_state(desk.job), JOB_COMPLETED);
    world_assert_used_once(&desk.world, 1, 40);
    world_stop(&desk.world);
}

/* ---- versions -------------------------------------------------------------------------------- */

static int versions(const Desk *desk)
{
    return shared_params_versions(desk->job->common.shared);
}

/* However they end: stepped, discarded, or with their session. */
static void versions_go_with_the_contexts_that_hold_them(void **state)
{
    (void)state;
    for (int end = 0; end < 4; end++) {
        Desk desk = {0};
        Reply forwards[8], done[8], other;
        JobSpec spec = spec_for("async");
        spec.steps = 100;
        spec.epochs = 0;
        desk_open_with(&desk, &spec);
        for (int i = 0; i < 8; i++) { /* each of another version */
            forward(desk.session, &forwards[i]);
            world_settle(&desk.world);
            assert_int_equal(forwards[i].r, 0);
            train(desk.ranks[1].session, (uint64_t)i, &other);
            world_settle(&desk.world);
            assert_int_equal(other.r, 0);
        }
        int held = versions(&desk);
        assert_true(held >= 9 && held <= 11);
        for (uint64_t id = 1; id <= 8 && end < 2; id++) {
            if (end == 0)
                backward(desk.session, id, &done[id - 1]);
            else
                discard(desk.session, id, &done[id - 1]);
            world_settle(&desk.world);
            assert_int_equal(done[id - 1].r, 0);
        }
        if (end == 2)
            session_leave(desk.session);
        else if (end == 3)
            trainer_die(&desk.ranks[0]);
        world_settle(&desk.world);
        for (uint64_t i = 8; i < 20; i++) { /* each gives one back */
            train(desk.ranks[1].session, i, &other);
            world_settle(&desk.world);
        }
        assert_int_equal(other.r, 0);
        assert_true(versions(&desk) <= 6); /* a few are kept for updates to come */
        assert_int_equal(shared_params_version(desk.job->common.shared), forwards[0].version + 20);
        world_stop(&desk.world);
    }
}

typedef struct Eager {
    Desk *desk;
    Session *session;
    unsigned said;
} Eager;

static void forward_again(Eager *eager);

static void on_forwarded(void *data, int r, const Error *err, uint64_t context, uint64_t version,
                         const float *output, int64_t elements)
{
    Eager *eager = data;
    (void)version;
    (void)output;
    (void)elements;
    static Reply unread;
    if (r == -ECANCELED)
        return;
    assert_int_equal(r, 0);
    (void)err;
    discard(eager->session, context, &unread);
    if (++eager->said < 200)
        forward_again(eager);
}

static void forward_again(Eager *eager)
{
    OwnedBatch batch;
    world_batch(NULL, SAMPLES, &batch);
    session_forward(eager->session, &batch, on_forwarded, eager);
}

/* The next task is begun by the answer of the one before, before that one has let go of its
 * parameters. */
static void tasks_begun_by_answers_hold_their_own_version(void **state)
{
    (void)state;
    Desk desk = {0};
    JobSpec spec = spec_for("async");
    spec.steps = 1000;
    spec.epochs = 0;
    desk_open_with(&desk, &spec);
    Eager eager = {.desk = &desk, .session = desk.session};
    forward_again(&eager);
    while (eager.said < 200) {
        trainer_feed(&desk.ranks[1]);
        world_step(&desk.world);
    }
    world_settle(&desk.world);
    assert_true(versions(&desk) <= 6); /* a few are kept for updates to come */
    world_stop(&desk.world);
}

/* A context that dies with its job, in every state of the job's end. */
static void job_ends_while_contexts_hold_versions(void **state)
{
    (void)state;
    static const char *const names[] = {"async", "barrier"};
    for (int i = 0; i < 2; i++)
        for (int delay = 0; delay < 12; delay++) {
            Desk desk = {0};
            Reply work[8];
            Answer answer = {0};
            JobSpec spec = spec_for(names[i]);
            desk_open_with(&desk, &spec);
            for (int k = 0; k < 4; k++)
                forward(desk.session, &work[k]);
            backward(desk.session, 1, &work[4]);
            step(desk.session, 1, &work[5]);
            train(desk.ranks[1].session, 0, &work[6]);
            backward(desk.session, 2, &work[7]);
            for (int k = 0; k < delay; k++)
                world_step(&desk.world);
            if (delay % 2)
                job_cancel(desk.job, "uid=0", answer_done, &answer);
            else
                trainer_die(&desk.ranks[0]);
            world_settle(&desk.world);
            for (int k = 0; k < 8; k++)
                assert_true(work[k].called == 1 || k == 6);
            world_stop(&desk.world);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_right_though_the_other_has_stepped),
        cmocka_unit_test(too_old_a_gradient_is_refused_with_its_versions),
        cmocka_unit_test(old_gradient_is_applied_where_that_is_wanted),
        cmocka_unit_test(barrier_refuses_a_gradient_of_an_earlier_step),
        cmocka_unit_test(batches_that_are_too_old_are_computed_again),
        cmocka_unit_test(versions_go_with_the_contexts_that_hold_them),
        cmocka_unit_test(tasks_begun_by_answers_hold_their_own_version),
        cmocka_unit_test(job_ends_while_contexts_hold_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
