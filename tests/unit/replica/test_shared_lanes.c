/* Shared parameters as a job uses them: lanes with threads of their own, a loop that pins, posts and
 * publishes. What the sanitizers see is the point; the gradients are checked too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "replica/lane.h"
#include "shared_world.h"

enum { STEPS = 60, MAX_PARAMS = 4096 };

typedef struct Rig Rig;

typedef struct Worked {
    Task task; /* first */
    Rig *rig;
    int member;
    uint64_t step;
    Batch batch;
    SharedVersion *pin;
    StepResult result;
    /* an update's */
    SharedUpdate update;
    SharedGradient gradient;
    SharedResult done;
    int r;
} Worked;

struct Rig {
    SharedWorld world;
    Mailbox *loop;
    Lane *lanes[MEMBERS];
    Worked members[MEMBERS];
    int waiting[MEMBERS], n_waiting; /* gradients, in the order in which they came */
    bool updating, in_place;
    int finished;
    uint64_t copies;
};

static void gradient_work(Task *task)
{
    Worked *self = (Worked *)task;
    Replica *replica = self->rig->world.members[self->member];
    engine_bind(replica_engine(replica));
    replica_attach(replica, self->pin);
    self->r = replica_gradient(replica, &self->batch, self->step, &(StepRule){.lr = 0.01F},
                               &self->result, NULL);
    replica_attach(replica, NULL);
}

static void update_work(Task *task)
{
    Worked *self = (Worked *)task;
    engine_bind(self->rig->world.engines[self->member]);
    self->r = shared_params_update(&self->update, &self->gradient, 1, &(StepRule){.lr = 0.01F},
                                   &self->done, NULL);
}

static void update_done(Task *task);

static void gradient_done(Task *task)
{
    Worked *self = (Worked *)task;
    Rig *rig = self->rig;
    assert_int_equal(self->r, 0);
    shared_params_unpin(rig->world.shared, self->pin);
    self->pin = NULL;
    rig->waiting[rig->n_waiting++] = self->member;
}

static void begin_update(Rig *rig)
{
    Worked *self = &rig->members[rig->waiting[0]];
    rig->n_waiting--;
    memmove(rig->waiting, rig->waiting + 1, (size_t)rig->n_waiting * sizeof *rig->waiting);
    self->gradient = (SharedGradient){replica_gradients(rig->world.members[self->member]), 1};
    assert_int_equal(shared_params_prepare_update(
                         rig->world.shared, rig->world.engines[self->member], true, &self->update),
                     0);
    rig->updating = true;
    rig->copies += !self->update.in_place;
    self->task = (Task){.work = update_work, .done = update_done};
    lane_post(rig->lanes[self->member], &self->task);
}

static void update_done(Task *task)
{
    Worked *self = (Worked *)task;
    assert_int_equal(self->r, 0);
    assert_int_equal(self->done.contributors, 1);
    shared_params_publish(&self->update);
    self->rig->updating = false;
    if (++self->step == STEPS)
        self->rig->finished++;
}

/* Whatever can begin begins: an update, and the gradients of those who have nothing to wait for. */
static void advance(Rig *rig, bool *busy)
{
    if (!rig->updating && rig->n_waiting > 0)
        begin_update(rig);
    for (int i = 0; i < MEMBERS; i++) {
        Worked *self = &rig->members[i];
        if (busy[i] || self->step >= STEPS)
            continue;
        self->pin = shared_params_pin(rig->world.shared);
        if (!self->pin)
            continue; /* an update in place is under way */
        busy[i] = true;
        self->task = (Task){.work = gradient_work, .done = gradient_done};
        lane_post(rig->lanes[i], &self->task);
    }
}

static void start(Rig *rig)
{
    memset(rig, 0, sizeof *rig);
    shared_start(&rig->world, "sgd,momentum=0.9");
    assert_int_equal(mailbox_new(&rig->loop), 0);
    for (int i = 0; i < MEMBERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu:%d", i);
        assert_int_equal(lane_new(name, i, rig->loop, &rig->lanes[i]), 0);
        rig->members[i] = (Worked){.rig = rig, .member = i, .batch = rig->world.fixture.batch};
    }
}

static void stop(Rig *rig)
{
    for (int i = 0; i < MEMBERS; i++)
        lane_free(rig->lanes[i]);
    mailbox_free(rig->loop);
    shared_stop(&rig->world);
}

static void async_members_on_lanes_of_their_own(void **state)
{
    (void)state;
    Rig rig;
    bool busy[MEMBERS] = {false};
    start(&rig);
    while (rig.finished < MEMBERS) {
        advance(&rig, busy);
        Task *task = mailbox_wait(rig.loop);
        Worked *self = (Worked *)task;
        bool was_update = task->done == update_done;
        task->done(task);
        if (was_update)
            busy[self->member] = false;
    }
    assert_int_equal(shared_params_version(rig.world.shared), MEMBERS * STEPS);
    assert_true(shared_params_versions(rig.world.shared) <= MEMBERS + 1);
    print_message("%llu of %d updates by copy\n", (unsigned long long)rig.copies, MEMBERS * STEPS);
    for (int i = 0; i < MEMBERS; i++)
        assert_int_equal(replica_weights(rig.world.members[i])->counters[0], STEPS);
    Snapshot *snapshot = shared_copy(&rig.world);
    assert_int_equal(snapshot->updates, MEMBERS * STEPS);
    snapshot_free(snapshot);
    stop(&rig);
}

/* A gradient computed while others update is that of the version that it was given. */
static void gradient_beside_updates_is_right(void **state)
{
    (void)state;
    static float plain[MAX_PARAMS];
    Rig rig;
    start(&rig);
    Worked *reader = &rig.members[1], *writer = &rig.members[2];
    Snapshot *before = shared_copy(&rig.world);
    shared_plain_gradient(&rig.world, before, 1, 0, plain);
    (void)shared_gradient(&rig.world, 2, 0, &(StepRule){.lr = 0.01F});
    for (int round = 0; round < 20; round++) {
        reader->pin = shared_params_pin(rig.world.shared);
        if (round > 0) {
            snapshot_free(before);
            before = shared_copy(&rig.world);
            shared_plain_gradient(&rig.world, before, 1, 0, plain);
        }
        reader->task = (Task){.work = gradient_work, .done = gradient_done};
        writer->task = (Task){.work = update_work, .done = update_done};
        writer->gradient = (SharedGradient){replica_gradients(rig.world.members[2]), 1};
        assert_int_equal(shared_params_prepare_update(rig.world.shared, rig.world.engines[2], true,
                                                      &writer->update),
                         0);
        assert_false(writer->update.in_place);
        lane_post(rig.lanes[1], &reader->task);
        lane_post(rig.lanes[2], &writer->task);
        for (int k = 0; k < 2; k++) {
            Task *task = mailbox_wait(rig.loop);
            task->done(task);
        }
        rig.n_waiting = 0;
        assert_memory_equal(replica_gradients(rig.world.members[1]), plain,
                            before->n_params * sizeof(float));
    }
    snapshot_free(before);
    stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(async_members_on_lanes_of_their_own),
        cmocka_unit_test(gradient_beside_updates_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
