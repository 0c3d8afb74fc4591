/* Trainers on the Train stream, with what rpc/training_stream.c does between them and the session:
 * leases ahead, a window of batches, results in order. */
#include <string.h>

#include "fake_replica.h"
#include "trainer.h"

static void on_attach(void *data, uint64_t life);
static void on_send(void *data, uint64_t life);
static void read_next(Trainer *trainer);

static void take_leases(Trainer *trainer, Session *session)
{
    DealerBatch batch;
    uint64_t step;
    while (!trainer->own_data && trainer->n_leases < TRAINER_LEASES &&
           session_next_lease(session, world.limits.window, &batch, &step) == 0) {
        ledger_lease(trainer->job, &batch);
        trainer->leases[trainer->n_leases++] =
            (TrainerLease){.number = batch.number, .step = step, .samples = batch.samples};
    }
    read_next(trainer);
}

/* The server's end of a stream: it may outlive the process that opened it. */
typedef struct ServerEnd {
    Trainer *trainer; /* NULL: free place */
    uint64_t life;
} ServerEnd;

enum { SERVER_ENDS = 256 };

static ServerEnd server_ends[SERVER_ENDS];

void streams_forget(void)
{
    memset(server_ends, 0, sizeof server_ends);
}

static ServerEnd *server_end_new(Trainer *trainer)
{
    for (unsigned i = 0; i < SERVER_ENDS; i++)
        if (!server_ends[i].trainer) {
            server_ends[i] = (ServerEnd){.trainer = trainer, .life = trainer->life};
            return &server_ends[i];
        }
    sim_fail("%d streams are open", SERVER_ENDS);
}

void stream_detach(Trainer *trainer, Session *session)
{
    for (unsigned i = 0; i < SERVER_ENDS; i++)
        if (server_ends[i].trainer == trainer && server_ends[i].life == trainer->life)
            server_ends[i].trainer = NULL;
    session_detach_stream(session);
    trainer->attached = false;
}

static void on_ready(void *data)
{
    const ServerEnd *end = data;
    Trainer *trainer = end->trainer;
    Session *session = trainer->life == end->life ? trainer_session(trainer) : NULL;
    if (session && trainer->attached)
        take_leases(trainer, session);
}

static bool is_final(const char *reason)
{
    return strcmp(reason, "completed") == 0 || strcmp(reason, "cancelled") == 0 ||
           strcmp(reason, "failed") == 0;
}

static void on_end(void *data, const char *reason)
{
    ServerEnd *end = data;
    Trainer *trainer = end->trainer;
    bool same = trainer->life == end->life;
    end->trainer = NULL;
    if (same)
        trainer_lost_session(trainer, is_final(reason));
}

static const StreamEvents stream_events = {.on_ready = on_ready, .on_end = on_end};

/* ---- sending -----------------------------------------------------------------------------------
 */

/* The batch to send next, if there is one and a place in the window. */
static bool next_batch(const Trainer *trainer, TrainerLease *ret)
{
    if (trainer->under_way >= world.limits.window || trainer->upset)
        return false;
    if (trainer->own_data)
        *ret = (TrainerLease){.number = SIM_NO_NUMBER,
                              .step = trainer->next_step,
                              .samples = trainer->job->spec.batch};
    else if (trainer->n_leases)
        *ret = trainer->leases[0];
    return trainer->own_data || trainer->n_leases;
}

static void read_next(Trainer *trainer)
{
    TrainerLease lease;
    if (trainer->reading || !trainer->attached || !next_batch(trainer, &lease))
        return;
    trainer->reading = true;
    trainer_later(trainer, trainer_pause(trainer), "trainer sends", on_send);
}

static void break_stream(Trainer *trainer, Session *session)
{
    if (session && trainer->attached)
        stream_detach(trainer, session);
    trainer->attached = false;
    trainer->n_leases = 0;
    trainer_later(trainer, sim_between(0, 300) * SIM_MS, "trainer opens a stream", on_attach);
}

static void check_refusal(const Trainer *trainer, const Question *question, int r, const Error *err)
{
    bool expected = r == -ECANCELED || (r == -EIO && question->b) ||
                    (r == -EINVAL && (question->b || trainer->upset));
    if (!expected)
        sim_fail("job %llu rank %u: batch of step %llu: %s", (unsigned long long)trainer->job->id,
                 trainer->rank, (unsigned long long)question->a, err->message);
}

/* a: the step, b: whether it was made to fail, c: the life of the trainer. */
static void on_trained(void *data, int r, const Error *err, const TrainResult *result)
{
    Question *question = data;
    Trainer *trainer = question->owner;
    question_answered(question);
    if (r == 0 && result->step != question->a)
        sim_fail("the result of step %llu comes for step %llu", (unsigned long long)result->step,
                 (unsigned long long)question->a);
    events_mix((uint64_t)(uint32_t)r);
    if ((uintptr_t)question->c != trainer->life)
        return; /* the process that asked is no more */
    trainer->under_way--;
    if (r < 0)
        check_refusal(trainer, question, r, err);
    if (r == -ECANCELED)
        return; /* on_end tells why */
    Session *session = trainer_session(trainer);
    if (r < 0 && !trainer->upset) {
        trainer->upset = true;
        break_stream(trainer, session);
    } else if (r == 0 && session && trainer->attached) {
        take_leases(trainer, session);
    }
}

/* Only with the lease of a later batch in hand: there must be a step that ends it. */
static bool holds_next(Trainer *trainer)
{
    bool hold = trainer->holding + 1 < trainer->accumulate && trainer->n_leases > 0;
    trainer->holding = hold ? trainer->holding + 1 : 0;
    return hold;
}

static void on_send(void *data, uint64_t life)
{
    Trainer *trainer = data;
    TrainerLease lease;
    if (!trainer_goes_on(trainer, life, "trainer sends", on_send))
        return;
    Session *session = trainer_session(trainer);
    trainer->reading = false;
    if (!session || !trainer->attached || !next_batch(trainer, &lease))
        return;
    bool bad = !world_is_calm() && !trainer->own_data && sim_chance(2);
    OwnedBatch batch;
    trainer_batch(trainer, &lease, bad, &batch);
    Question *question = question_new("train", trainer);
    question->a = lease.step;
    question->b = bad || ((const SimBatch *)batch.batch.x)->fails;
    question->c = (void *)(uintptr_t)trainer->life;
    if (trainer->own_data)
        trainer->next_step++;
    else
        memmove(trainer->leases, trainer->leases + 1,
                --trainer->n_leases * sizeof *trainer->leases);
    trainer->under_way++;
    bool hold = holds_next(trainer);
    session_train(session, lease.step, &batch, hold, on_trained, question);
    if (trainer->life == life)
        read_next(trainer);
}

/* ---- streams -----------------------------------------------------------------------------------
 */

static void on_attach(void *data, uint64_t life)
{
    Trainer *trainer = data;
    Error err = {0};
    if (!trainer_goes_on(trainer, life, "trainer opens a stream", on_attach))
        return;
    Session *session = trainer_session(trainer);
    if (!session) { /* it has ended without a stream to say so */
        trainer_lost_session(trainer, false);
        return;
    }
    ServerEnd *end = server_end_new(trainer);
    int r = session_attach_stream(session, &stream_events, end, &err);
    if (r < 0)
        end->trainer = NULL;
    if (r == -EAGAIN) {
        trainer_later(trainer, sim_between(5, 100) * SIM_MS, "trainer opens a stream", on_attach);
        return;
    }
    if (r < 0)
        sim_fail("job %llu rank %u cannot open a stream: %s", (unsigned long long)trainer->job->id,
                 trainer->rank, err.message);
    trainer->attached = true;
    trainer->upset = false;
    trainer->holding = SIM_MAX_HELD; /* what is held already is not known: the next one steps */
    trainer->next_step = member_step(session_member(session));
    take_leases(trainer, session);
}

void stream_begin(Trainer *trainer)
{
    trainer_later(trainer, sim_between(0, 20) * SIM_MS, "trainer opens a stream", on_attach);
}

/* As a cancelled call: batches under way are done all the same. */
void stream_mishap(Trainer *trainer)
{
    Session *session = trainer_session(trainer);
    if (!session || trainer->unary || !trainer->attached || trainer->upset)
        return;
    trainer->upset = true;
    break_stream(trainer, session);
}
