/* Trainers that call one by one: NextLease, Forward, Backward, Gradients, Step, Discard. */
#include "fake_replica.h"
#include "trainer.h"

enum { OUTPUT_WIDTH = 10 };

static void on_lease(void *data, uint64_t life);
static void on_next(void *data, uint64_t life);

static float zeros[JOB_MAX_BATCH / 16 * OUTPUT_WIDTH];

static Question *ask(const char *what, Trainer *trainer)
{
    Question *question = question_new(what, trainer);
    question->c = (void *)(uintptr_t)trainer->life;
    trainer->waits = true;
    return question;
}

/* False: the trainer that asked is no more, or its session is not. */
static bool answered(Question *question, int r)
{
    Trainer *trainer = question->owner;
    question_answered(question);
    events_mix((uint64_t)(uint32_t)r);
    if ((uintptr_t)question->c != trainer->life)
        return false;
    trainer->waits = false;
    if (r != -ECANCELED)
        return true;
    trainer_lost_session(trainer, false);
    return false;
}

static void again(Trainer *trainer)
{
    trainer_later(trainer, trainer_pause(trainer), "trainer wants a lease", on_lease);
}

static void unexpected(const Trainer *trainer, const char *what, int r, const Error *err)
{
    sim_fail("job %llu rank %u: %s: %d, %s", (unsigned long long)trainer->job->id, trainer->rank,
             what, r, err->message);
}

/* ---- the calls ---------------------------------------------------------------------------------
 */

static void on_discarded(void *data, int r, const Error *err)
{
    Question *question = data;
    if (!answered(question, r))
        return;
    Trainer *trainer = question->owner;
    if (r < 0 && !(r == -ENOENT && trainer->upset)) /* a stale step may have taken it along */
        unexpected(trainer, "Discard", r, err);
    trainer->upset = false;
    again(trainer);
}

static void discard(Trainer *trainer, Session *session)
{
    uint64_t context = trainer->context;
    trainer->context = 0;
    session_discard(session, context, on_discarded, ask("discard", trainer));
}

static void on_stepped(void *data, int r, const Error *err, const StepOutcome *outcome)
{
    Question *question = data;
    Trainer *trainer = question->owner;
    if (!answered(question, r))
        return;
    if (r == 0) {
        if (outcome->step != question->a + 1)
            sim_fail("job %llu rank %u: after its step %llu it is at step %llu",
                     (unsigned long long)trainer->job->id, trainer->rank,
                     (unsigned long long)question->a, (unsigned long long)outcome->step);
        trainer->context = 0;
        again(trainer);
    } else if (r == -ESTALE) {
        trainer->upset = true;
        trainer_later(trainer, 0, "trainer gives up a context", on_next);
    } else {
        unexpected(trainer, "Step", r, err);
    }
}

static void on_gradient(void *data, int r, const Error *err, const float *gradient)
{
    Question *question = data;
    (void)gradient;
    if (!answered(question, r))
        return;
    if (r < 0)
        unexpected(question->owner, "Gradients", r, err);
    trainer_later(question->owner, 0, "trainer steps", on_next);
}

static void on_backwarded(void *data, int r, const Error *err, double norm)
{
    Question *question = data;
    Trainer *trainer = question->owner;
    (void)norm;
    if (!answered(question, r))
        return;
    if (r == -EINVAL && question->b)
        r = 0; /* it had the wrong shape, and is to be done again */
    else if (r < 0 && r != -ESTALE)
        unexpected(trainer, "Backward", r, err);
    else if (r == 0)
        trainer->samples = 0; /* as a mark that backward was done */
    trainer->upset |= r == -ESTALE;
    trainer_later(trainer, trainer_pause(trainer) / 4, "trainer goes on", on_next);
}

static void on_forwarded(void *data, int r, const Error *err, uint64_t context, uint64_t version,
                         const float *output, int64_t elements)
{
    Question *question = data;
    Trainer *trainer = question->owner;
    (void)version;
    (void)output;
    if (!answered(question, r))
        return;
    if (r == 0) {
        trainer->context = context;
        trainer->samples = (uint32_t)(elements / OUTPUT_WIDTH);
        trainer_later(trainer, trainer_pause(trainer) / 4, "trainer goes on", on_next);
    } else if (r == -EIO && question->b) {
        again(trainer);
    } else {
        unexpected(trainer, "Forward", r, err);
    }
}

static void backward(Trainer *trainer, Session *session)
{
    Question *question = ask("backward", trainer);
    question->b = !world_is_calm() && sim_chance(5);
    session_backward(session, trainer->context, zeros,
                     ((int64_t)trainer->samples + (int64_t)question->b) * OUTPUT_WIDTH,
                     on_backwarded, question);
}

static void step(Trainer *trainer, Session *session)
{
    if (sim_chance(100)) {
        session_gradient(session, trainer->context, 0, on_gradient, ask("gradient", trainer));
        return;
    }
    Question *question = ask("step", trainer);
    question->a = member_step(session_member(session));
    session_step(session, trainer->context, 0.5F, on_stepped, question);
}

/* After Forward: Backward, then Step; or the context is given up, as it has to be when it is stale.
 */
static void on_next(void *data, uint64_t life)
{
    Trainer *trainer = data;
    if (!trainer_goes_on(trainer, life, "trainer goes on", on_next))
        return;
    Session *session = trainer_session(trainer);
    if (!session)
        trainer_lost_session(trainer, false);
    else if (trainer->upset || sim_chance(30))
        discard(trainer, session);
    else if (trainer->samples)
        backward(trainer, session);
    else
        step(trainer, session);
}

static void on_lease(void *data, uint64_t life)
{
    Trainer *trainer = data;
    DealerBatch batch;
    TrainerLease lease = {.number = SIM_NO_NUMBER, .samples = trainer->job->spec.batch};
    if (!trainer_goes_on(trainer, life, "trainer wants a lease", on_lease))
        return;
    Session *session = trainer_session(trainer);
    if (!session) {
        trainer_lost_session(trainer, false);
        return;
    }
    int r = trainer->own_data ? 0 : session_current_lease(session, &batch, &lease.step);
    if (r < 0) { /* no more batches, as things stand */
        trainer_later(trainer, sim_between(100, 1000) * SIM_MS, "trainer wants a lease", on_lease);
        return;
    }
    if (trainer->own_data) {
        lease.step = member_step(session_member(session));
    } else {
        ledger_lease(trainer->job, &batch);
        lease.number = batch.number;
        lease.samples = batch.samples;
    }
    OwnedBatch owned;
    trainer_batch(trainer, &lease, false, &owned);
    Question *question = ask("forward", trainer);
    question->b = ((const SimBatch *)owned.batch.x)->fails;
    session_forward(session, &owned, on_forwarded, question);
}

void unary_begin(Trainer *trainer)
{
    again(trainer);
}
