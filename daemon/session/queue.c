/* The work of a session, in the order in which it was asked for. */
#include "session/session_internal.h"

#include <stdarg.h>
#include <stdio.h>

int op_new(const OpType *type, size_t size, Op **ret)
{
    Op *op = calloc(1, size);
    if (!op)
        return -ENOMEM;
    op->type = type;
    *ret = op;
    return 0;
}

void op_refuse(Op *op, int r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(op->err.message, sizeof op->err.message, format, args);
    va_end(args);
    op->err.code = op->r = r;
}

static void answer(Op *op)
{
    if (op->answered)
        return;
    op->answered = true;
    op->type->answer(op);
}

static void op_free(Op *op)
{
    if (op->type->clear)
        op->type->clear(op);
    free(op);
}

static void put_first(Session *session, Op *op)
{
    op->next = session->first;
    session->first = op;
    if (!session->last)
        session->last = op;
    session->queued++;
}

static void finish(Op *op)
{
    Session *session = op->session;
    OpBooked booked = op->type->book(op);
    if (booked == BOOKED_WAITS && session) {
        session->awaiting = op;
    } else if (booked == BOOKED_AGAIN && session) {
        put_first(session, op);
    } else {
        answer(op);
        op_free(op);
    }
}

static void on_lane(MemberTask *task)
{
    Op *op = (Op *)task;
    op->started_us = clock_monotonic_us();
    op->type->work(op);
}

/* job_advance follows and pumps the session again. */
static void off_lane(MemberTask *task)
{
    Op *op = (Op *)task;
    if (op->session)
        op->session->running = NULL;
    finish(op);
}

static Op *take_first(Session *session)
{
    Op *op = session->first;
    session->first = op->next;
    if (!session->first)
        session->last = NULL;
    session->queued--;
    op->next = NULL;
    return op;
}

static bool may_run(Session *session, const Op *op)
{
    return op->type->takes_step ? member_may_step(session->member)
                                : member_may_touch(session->member);
}

/* A callback of a refused op may end the session: nothing of it is touched after the last one. */
void session_pump(Session *session)
{
    while (session->first && !session->running && may_run(session, session->first) &&
           member_pin(session->member)) {
        Op *op = take_first(session);
        if (op->type->prepare)
            op->type->prepare(op);
        if (op->r < 0) {
            bool last = !session->first;
            member_unpin(session->member);
            finish(op);
            if (last)
                return;
            continue;
        }
        session->running = op;
        op->task.work = on_lane;
        op->task.finished = off_lane;
        member_set_reading(session->member, false);
        member_run(session->member, &op->task);
    }
    if (!session->running)
        member_set_reading(session->member, !session->first);
}

void op_submit(Session *session, Op *op)
{
    op->session = session;
    op->queued_us = clock_monotonic_us();
    if (op->r < 0) {
        op->session = NULL; /* never counted: nothing to book */
        answer(op);
        op_free(op);
        return;
    }
    if (session->queued >= session->table->limits.queue) {
        op_refuse(op, -ENOBUFS, "%u requests of this session wait already; wait for answers",
                  session->queued);
        finish(op);
        return;
    }
    if (session->last)
        session->last->next = op;
    else
        session->first = op;
    session->last = op;
    session->queued++;
    session_pump(session);
}

static void cancel(Op *op, const char *reason)
{
    op->session = NULL;
    if (!op->answered)
        op_refuse(op, -ECANCELED, "the session has ended: %s", reason);
    answer(op);
}

void session_cancel_ops(Session *session, const char *reason)
{
    while (session->first) {
        Op *op = take_first(session);
        cancel(op, reason);
        op_free(op);
    }
    if (session->awaiting) {
        cancel(session->awaiting, reason);
        op_free(session->awaiting);
        session->awaiting = NULL;
    }
    if (session->running) { /* its memory is in use on the lane: off_lane frees it */
        session->running->session = NULL;
        session->running = NULL;
    }
}

void session_book_again(Session *session, bool completed)
{
    Op *op = session->awaiting;
    if (!op)
        return;
    OpBooked booked = op->type->book(op);
    if (completed) /* there is nothing left to wait for */
        booked = BOOKED;
    if (booked == BOOKED_WAITS)
        return;
    session->awaiting = NULL;
    if (booked == BOOKED_AGAIN) {
        put_first(session, op);
        return;
    }
    answer(op);
    op_free(op);
}
