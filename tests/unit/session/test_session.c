/* Sessions over real jobs: the order of work, contexts, limits, and ends at any moment. */
#include "desk.h"

#include <string.h>

#include "base/clock.h"

/* ---- one piece after the other --------------------------------------------------------------- */

static void requests_are_answered_in_order(void **state)
{
    (void)state;
    Desk desk = {0};
    Reply a, b, c, d, e;
    desk_open(&desk, 1, 100);
    forward(desk.session, &a);
    backward(desk.session, 1, &b);
    d = (Reply){0};
    session_gradient(desk.session, 1, 1, on_gradient, &d);
    step(desk.session, 1, &c);
    train(desk.session, 1, &e);
    assert_int_equal(session_pending(desk.session), 5);
    world_settle(&desk.world);
    assert_int_equal(a.r + b.r + c.r + d.r + e.r, 0);
    assert_true(a.place < b.place && b.place < d.place && d.place < c.place && c.place < e.place);
    assert_int_equal(a.context, 1);
    assert_true(b.norm > 0);
    assert_int_equal(c.outcome.step, 1);
    assert_false(c.outcome.done);
    assert_int_equal(c.outcome.version, a.version + 1);
    assert_int_equal(trainer_step(&desk.ranks[0]), 2);
    world_stop(&desk.world);
}

static void contexts_refuse_what_cannot_be(void **state)
{
    (void)state;
    Desk desk = {0};
    Reply a, b, c;
    float few[OUTPUTS] = {0};
    desk_open(&desk, 1, 100);
    forward(desk.session, &a);
    step(desk.session, 1, &b);
    world_settle(&desk.world);
    assert_int_equal(b.r, -ENODATA); /* no backward yet */
    b = (Reply){0};
    session_backward(desk.session, 1, few, OUTPUTS, on_backward, &b);
    world_settle(&desk.world);
    assert_int_equal(b.r, -EINVAL);
    assert_non_null(strstr(b.message, "(1, 10)"));
    assert_non_null(strstr(b.message, "(4, 10)"));
    backward(desk.session, 1, &b);
    backward(desk.session, 1, &c);
    world_settle(&desk.world);
    assert_int_equal(b.r, 0);
    assert_int_equal(c.r, -EALREADY);
    step(desk.session, 1, &b);
    step(desk.session, 1, &c);
    world_settle(&desk.world);
    assert_int_equal(b.r, 0);
    assert_int_equal(c.r, -ENOENT);
    assert_string_equal(c.message, "context 1 was stepped or discarded before; run Forward again");
    backward(desk.session, 77, &c);
    world_settle(&desk.world);
    assert_int_equal(c.r, -ENOENT);
    assert_non_null(strstr(c.message, "there is no context 77"));
    world_stop(&desk.world);
}

static void stale_context_is_refused_with_both_versions(void **state)
{
    (void)state;
    Desk desk = {0};
    Reply old, fresh, b, c;
    desk_open(&desk, 1, 100);
    forward(desk.session, &old);
    forward(desk.session, &fresh);
    backward(desk.session, 2, &b);
    step(desk.session, 2, &c);
    world_settle(&desk.world);
    assert_int_equal(c.r, 0);
    backward(desk.session, 1, &b);
    world_settle(&desk.world);
    assert_int_equal(b.r, -ESTALE);
    assert_non_null(strstr(b.message, "version"));
    world_stop(&desk.world);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void contexts_are_limited_and_come_back(void **state)
{
    (void)state;
    Desk desk = {.world.limits = session_default_limits};
    Reply replies_[4], discarded = {0};
    desk.world.limits.contexts = 3;
    desk_open(&desk, 1, 100);
    for (int i = 0; i < 4; i++)
        forward(desk.session, &replies_[i]);
    world_settle(&desk.world);
    for (int i = 0; i < 3; i++)
        assert_int_equal(replies_[i].r, 0);
    assert_int_equal(replies_[3].r, -ENOBUFS);
    assert_non_null(strstr(replies_[3].message, "3 contexts"));
    session_discard(desk.session, 2, on_done, &discarded);
    world_settle(&desk.world);
    assert_int_equal(discarded.r, 0);
    forward(desk.session, &replies_[0]);
    world_settle(&desk.world);
    assert_int_equal(replies_[0].r, 0);
    assert_int_equal(replies_[0].context, 4);
    session_discard(desk.session, 2, on_done, &discarded);
    world_settle(&desk.world);
    assert_int_equal(discarded.r, -ENOENT);
    world_stop(&desk.world);
}

/* What is refused because the queue is full takes no place, in the window or among the contexts. */
static void full_queue_refuses_and_forgets(void **state)
{
    (void)state;
    Desk desk = {.world.limits = session_default_limits};
    Reply waiting[3], refused[20], after;
    desk.world.limits.contexts = 8;
    desk.world.limits.queue = 2;
    desk_open(&desk, 1, 100);
    desk.job->exclusive = true; /* as during a meeting */
    for (int i = 0; i < 2; i++)
        forward(desk.session, &waiting[i]);
    for (int i = 0; i < 10; i++) {
        forward(desk.session, &refused[i]);
        train(desk.session, 0, &refused[10 + i]);
    }
    for (int i = 0; i < 20; i++)
        assert_int_equal(refused[i].r, -ENOBUFS);
    desk.job->exclusive = false;
    job_advance(desk.job);
    world_settle(&desk.world);
    assert_int_equal(waiting[0].r + waiting[1].r, 0);
    forward(desk.session, &after);
    world_settle(&desk.world);
    assert_int_equal(after.r, 0);
    train(desk.session, 0, &after);
    world_settle(&desk.world);
    assert_int_equal(after.r, 0);
    world_stop(&desk.world);
}

static void window_bounds_the_batches_under_way(void **state)
{
    (void)state;
    Desk desk = {0};
    Reply batches[6];
    desk_open(&desk, 1, 100);
    for (uint64_t i = 0; i < 6; i++)
        train(desk.session, i, &batches[i]);
    assert_int_equal(batches[4].r, -ENOBUFS);
    assert_non_null(strstr(batches[4].message, "4 batches are under way"));
    world_settle(&desk.world);
    for (int i = 0; i < 4; i++)
        assert_int_equal(batches[i].r, 0);
    train(desk.session, 6, &batches[0]);
    world_settle(&desk.world);
    assert_int_equal(batches[0].r, -EINVAL);
    assert_string_equal(batches[0].message,
                        "this batch is for step 6; the next step of rank 0 is 4");
    world_stop(&desk.world);
}

static void leases_go_out_up_to_the_window_once(void **state)
{
    (void)state;
    Desk desk = {0};
    DealerBatch lease;
    uint64_t number;
    Reply batch;
    desk_open(&desk, 1, 100);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(session_next_lease(desk.session, 4, &lease, &number), 0);
        assert_int_equal(number, i);
    }
    assert_int_equal(session_next_lease(desk.session, 4, &lease, &number), -EAGAIN);
    assert_int_equal(session_current_lease(desk.session, &lease, &number), 0);
    assert_int_equal(number, 0);
    train(desk.session, 0, &batch);
    world_settle(&desk.world);
    assert_int_equal(session_next_lease(desk.session, 4, &lease, &number), 0);
    assert_int_equal(number, 4);
    world_stop(&desk.world);
}

static void batch_of_another_size_than_its_lease_is_refused(void **state)
{
    (void)state;
    Desk desk = {0};
    Reply reply = {0};
    OwnedBatch batch;
    desk_open(&desk, 1, 100);
    world_batch(NULL, 3, &batch);
    session_train(desk.session, 0, &batch, false, on_train, &reply);
    world_settle(&desk.world);
    assert_int_equal(reply.r, -EINVAL);
    assert_string_equal(reply.message, "the batch has 3 samples; its lease has 4");
    world_stop(&desk.world);
}

/* A stream that begins while batches of an earlier one wait would be given their leases again. */
static void stream_waits_for_the_batches_of_the_one_before(void **state)
{
    (void)state;
    static const StreamEvents events = {0};
    Desk desk = {0};
    Reply batch;
    Error err;
    desk_open(&desk, 1, 100);
    assert_int_equal(session_attach_stream(desk.session, &events, NULL, &err), -EBUSY);
    train(desk.session, 0, &batch);
    session_detach_stream(desk.session);
    assert_int_equal(session_attach_stream(desk.session, &events, NULL, &err), -EAGAIN);
    world_settle(&desk.world);
    assert_int_equal(batch.r, 0);
    world_stop(&desk.world);
}

static void sessions_are_limited(void **state)
{
    (void)state;
    Desk desk = {.world.limits = session_default_limits};
    Error err;
    desk.world.limits.sessions = 1;
    JobSpec spec = world_spec(2, 100);
    world_start(&desk.world);
    desk.job = world_submit(&desk.world, &spec);
    trainer_join(&desk.world, desk.job, 0, &desk.ranks[0]);
    assert_int_equal(trainer_try_join(&desk.world, desk.job, 1, &desk.ranks[1], &err), -ENOBUFS);
    assert_int_equal(session_count(desk.world.sessions), 1);
    world_stop(&desk.world);
}

/* ---- meetings -------------------------------------------------------------------------------- */

static void step_is_answered_after_the_meeting_that_it_leads_to(void **state)
{
    (void)state;
    Desk desk = {0};
    Reply a, b, c, next;
    desk_open(&desk, 2, 1);
    forward(desk.session, &a);
    backward(desk.session, 1, &b);
    step(desk.session, 1, &c);
    forward(desk.session, &next); /* of the next round: it waits, too */
    world_settle(&desk.world);
    assert_int_equal(b.called, 1);
    assert_int_equal(c.called + next.called, 0);
    trainers_run(&desk.world, &desk.ranks[1], 1, 1);
    assert_int_equal(c.r, 0);
    assert_int_equal(c.outcome.step, 1);
    assert_int_equal(c.outcome.round, 1);
    assert_int_equal(next.r, 0);
    assert_true(next.version > c.outcome.version); /* the mean */
    world_stop(&desk.world);
}

static void last_step_is_answered_when_the_job_has_completed(void **state)
{
    (void)state;
    Desk desk = {0};
    Reply a, b, c;
    desk_open(&desk, 1, 3);
    trainers_run(&desk.world, desk.ranks, 1, 9);
    forward(desk.session, &a);
    backward(desk.session, 1, &b);
    step(desk.session, 1, &c);
    world_settle(&desk.world);
    assert_int_equal(world_state(desk.job), JOB_COMPLETED);
    assert_int_equal(c.called, 1);
    assert_int_equal(c.r, 0);
    assert_true(c.outcome.done);
    world_stop(&desk.world);
}

typedef struct Chatter {
    Session *session;
    uint64_t context;
    unsigned said;
    bool stop;
} Chatter;

static void say_again(void *data, int r, const Error *err, double norm)
{
    Chatter *chatter = data;
    float gradient[SAMPLES * OUTPUTS] = {0};
    (void)err;
    (void)norm;
    chatter->said++;
    if (r != -ECANCELED && !chatter->stop)
        session_backward(chatter->session, chatter->context, gradient, SAMPLES * OUTPUTS, say_again,
                         chatter);
}

/* Whoever has arrived may still read and discard; when all have, the meeting comes first. */
static void requests_without_end_do_not_put_off_the_meeting(void **state)
{
    (void)state;
    Desk desk = {0};
    Reply a, b, c;
    desk_open(&desk, 2, 1);
    Chatter chatter = {.session = desk.session, .context = 2};
    forward(desk.session, &a);
    forward(desk.session, &a);
    backward(desk.session, 1, &b);
    step(desk.session, 1, &c);
    say_again(&chatter, 0, NULL, 0);
    while (chatter.said < 10)
        world_step(&desk.world);
    trainer_feed(&desk.ranks[1]);
    for (int i = 0; i < 300 && !c.called; i++)
        world_step(&desk.world);
    chatter.stop = true;
    assert_int_equal(c.called, 1);
    assert_int_equal(world_round(desk.job), 2);
    world_stop(&desk.world);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Everything in every state: nothing may leak, each request is answered once. */
static void ends_with_work_in_every_state(void **state)
{
    (void)state;
    for (int end = 0; end < 4; end++)
        for (int delay = 0; delay < 12; delay++) {
            Desk desk = {0};
            Reply work[12];
            desk_open(&desk, 2, 2);
            for (int i = 0; i < 4; i++)
                forward(desk.session, &work[i]);
            backward(desk.session, 1, &work[4]);
            backward(desk.session, 2, &work[5]);
            step(desk.session, 1, &work[6]);
            step(desk.session, 2, &work[7]);
            train(desk.session, 1, &work[8]);
            forward(desk.session, &work[9]);
            backward(desk.session, 5, &work[10]);
            work[11] = (Reply){0};
            session_discard(desk.session, 3, on_done, &work[11]);
            for (int i = 0; i < delay; i++)
                world_step(&desk.world);
            Answer answer = {0};
            if (end == 0)
                trainer_die(&desk.ranks[0]);
            else if (end == 1)
                session_leave(desk.session);
            else if (end == 2)
                job_cancel(desk.job, "uid=0", answer_done, &answer);
            else
                job_restore(desk.job, 0, "uid=0", answer_done, &answer);
            world_settle(&desk.world);
            if (end != 3) /* there is no checkpoint to restore: it goes on */
                for (int i = 0; i < 12; i++)
                    assert_int_equal(work[i].called, 1);
            world_stop(&desk.world);
        }
}

static void ended_session_is_remembered_with_its_reason(void **state)
{
    (void)state;
    Desk desk = {0};
    Error err;
    Session *found;
    desk_open(&desk, 1, 100);
    uint64_t id = session_id(desk.session);
    assert_int_equal(session_find(desk.world.sessions, id, &found, &err), 0);
    assert_ptr_equal(found, desk.session);
    session_leave(desk.session);
    assert_int_equal(session_find(desk.world.sessions, id, &found, &err), -ENOENT);
    assert_non_null(strstr(err.message, "has ended: left; join again"));
    assert_int_equal(session_find(desk.world.sessions, 0, &found, &err), -ENOENT);
    world_stop(&desk.world);
}

static void silence_ends_a_session_and_its_connection(void **state)
{
    (void)state;
    Desk desk = {0};
    desk_open(&desk, 2, 100);
    desk.world.silence_us = 9 * USEC_PER_SEC;
    world_wait(&desk.world, 3 * USEC_PER_SEC);
    assert_int_equal(session_count(desk.world.sessions), 2);
    desk.world.silence_us = 11 * USEC_PER_SEC;
    world_wait(&desk.world, 3 * USEC_PER_SEC);
    assert_int_equal(session_count(desk.world.sessions), 0);
    assert_int_equal(desk.world.closed, 2);
    assert_string_equal(desk.ranks[0].end, "no word for 11 s");
    assert_int_equal(world_events(&desk.world, desk.job, "trainer", "lost its trainer"), 2);
    world_stop(&desk.world);
}

static void connection_takes_all_its_sessions_with_it(void **state)
{
    (void)state;
    enum { N = 5 };
    World world = {0};
    Session *sessions[N];
    Error err;
    JobSpec spec = world_spec(N, 100);
    world_start(&world);
    Job *job = world_submit(&world, &spec);
    for (uint32_t r = 0; r < N; r++) {
        JoinWant want = {.rank = r, .token = "", .client = "a test"};
        assert_int_equal(
            session_open(world.sessions, job, &want, r == 2 ? 8 : 9, &sessions[r], &err), 0);
    }
    session_table_disconnected(world.sessions, 9);
    assert_int_equal(session_count(world.sessions), 1);
    session_table_disconnected(world.sessions, 8);
    assert_int_equal(session_count(world.sessions), 0);
    world_stop(&world);
}

static void joins_and_deaths_leave_nothing(void **state)
{
    (void)state;
    Desk desk = {0};
    desk_open(&desk, 1, 100);
    for (int i = 0; i < 300; i++) {
        Reply reply;
        forward(desk.ranks[0].session, &reply);
        if (i % 3 == 0)
            world_settle(&desk.world);
        trainer_die(&desk.ranks[0]);
        world_settle(&desk.world);
        trainer_join(&desk.world, desk.job, 0, &desk.ranks[0]);
    }
    assert_int_equal(session_count(desk.world.sessions), 1);
    assert_int_equal(desk.job->tasks, 0);
    world_stop(&desk.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_answered_in_order),
        cmocka_unit_test(contexts_refuse_what_cannot_be),
        cmocka_unit_test(stale_context_is_refused_with_both_versions),
        cmocka_unit_test(contexts_are_limited_and_come_back),
        cmocka_unit_test(full_queue_refuses_and_forgets),
        cmocka_unit_test(window_bounds_the_batches_under_way),
        cmocka_unit_test(leases_go_out_up_to_the_window_once),
        cmocka_unit_test(batch_of_another_size_than_its_lease_is_refused),
        cmocka_unit_test(stream_waits_for_the_batches_of_the_one_before),
        cmocka_unit_test(sessions_are_limited),
        cmocka_unit_test(step_is_answered_after_the_meeting_that_it_leads_to),
        cmocka_unit_test(last_step_is_answered_when_the_job_has_completed),
        cmocka_unit_test(requests_without_end_do_not_put_off_the_meeting),
        cmocka_unit_test(ends_with_work_in_every_state),
        cmocka_unit_test(ended_session_is_remembered_with_its_reason),
        cmocka_unit_test(silence_ends_a_session_and_its_connection),
        cmocka_unit_test(connection_takes_all_its_sessions_with_it),
        cmocka_unit_test(joins_and_deaths_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
