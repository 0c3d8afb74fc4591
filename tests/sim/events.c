#include "events.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "sim.h"

typedef struct Event {
    uint64_t at, number; /* ordered by both */
    const char *kind;
    EventFn run;
    void *data;
    uint64_t arg;
    uint64_t daemon; /* 0: not of a daemon */
} Event;

static struct {
    uint64_t now, seed, random, count, hash, next_number, daemon;
    Event *heap;
    size_t n, capacity;
    bool tracing;
} events;

/* ---- random numbers: splitmix64 ----------------------------------------------------------------
 */

static uint64_t scramble(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t sim_random(void)
{
    events.random += UINT64_C(0x9e3779b97f4a7c15);
    return scramble(events.random);
}

uint64_t sim_between(uint64_t low, uint64_t high)
{
    return low + sim_random() % (high - low + 1);
}

bool sim_chance(unsigned of_thousand)
{
    return sim_random() % 1000 < of_thousand;
}

/* ---- the queue ---------------------------------------------------------------------------------
 */

void events_begin(uint64_t seed, bool tracing)
{
    Event *heap = events.heap;
    size_t capacity = events.capacity;
    memset(&events, 0, sizeof events);
    events.heap = heap;
    events.capacity = capacity;
    events.seed = seed;
    events.random = scramble(seed + 1);
    events.now = 1000000;
    events.daemon = 1;
    events.tracing = tracing;
}

void events_end(void)
{
    sim_release(events.heap);
    events.heap = NULL;
    events.n = events.capacity = 0;
}

static bool before(const Event *a, const Event *b)
{
    return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void push(Event event)
{
    if (events.n == events.capacity) {
        events.capacity = events.capacity ? events.capacity * 2 : 256;
        events.heap = sim_resize(events.heap, events.capacity * sizeof *events.heap);
    }
    size_t i = events.n++;
    while (i > 0 && before(&event, &events.heap[(i - 1) / 2])) {
        events.heap[i] = events.heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    events.heap[i] = event;
}

static Event pop(void)
{
    Event first = events.heap[0], last = events.heap[--events.n];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < events.n) {
        if (child + 1 < events.n && before(&events.heap[child + 1], &events.heap[child]))
            child++;
        if (!before(&events.heap[child], &last))
            break;
        events.heap[i] = events.heap[child];
        i = child;
    }
    if (events.n)
        events.heap[i] = last;
    return first;
}

static void add(uint64_t delay, const char *kind, EventFn run, void *data, uint64_t arg,
                uint64_t daemon)
{
    push((Event){.at = events.now + delay,
                 .number = events.next_number++,
                 .kind = kind,
                 .run = run,
                 .data = data,
                 .arg = arg,
                 .daemon = daemon});
}

void event_in(uint64_t delay_us, const char *kind, EventFn run, void *data, uint64_t arg)
{
    add(delay_us, kind, run, data, arg, 0);
}

void event_of_daemon(uint64_t delay_us, const char *kind, EventFn run, void *data, uint64_t arg)
{
    add(delay_us, kind, run, data, arg, events.daemon);
}

void events_forget_daemon(void)
{
    events.daemon++;
}

static void drop_forgotten(void)
{
    while (events.n && events.heap[0].daemon && events.heap[0].daemon != events.daemon)
        (void)pop();
}

uint64_t events_next_at(void)
{
    drop_forgotten();
    return events.n ? events.heap[0].at : UINT64_MAX;
}

void events_advance(const char *kind, uint64_t at_us)
{
    events.now = at_us;
    events.count++;
    events_mix(at_us);
    trace("%s", kind);
}

void events_run_one(void)
{
    Event event = pop();
    events_advance(event.kind, event.at);
    events_mix((uint64_t)event.kind[0] << 32 | strlen(event.kind) << 16 | (event.arg & 0xffff));
    event.run(event.data, event.arg);
}

/* ---- what is told ------------------------------------------------------------------------------
 */

uint64_t sim_now(void)
{
    return events.now;
}

uint64_t events_count(void)
{
    return events.count;
}

uint64_t events_hash(void)
{
    return events.hash;
}

void events_mix(uint64_t value)
{
    events.hash = scramble(events.hash ^ value) + UINT64_C(0x9e3779b97f4a7c15);
}

bool events_tracing(void)
{
    return events.tracing;
}

static void print_line(const char *format, va_list args)
{
    printf("%8llu %12.6f  ", (unsigned long long)events.count, (double)events.now / 1e6);
    vprintf(format, args);
    putchar('\n');
}

void trace(const char *format, ...)
{
    if (!events.tracing)
        return;
    va_list args;
    va_start(args, format);
    print_line(format, args);
    va_end(args);
}

void sim_fail(const char *format, ...)
{
    va_list args;
    int used = snprintf(world.failure, sizeof world.failure,
                        "seed %llu, event %llu at %.6f s: ", (unsigned long long)events.seed,
                        (unsigned long long)events.count, (double)events.now / 1e6);
    va_start(args, format);
    vsnprintf(world.failure + used, sizeof world.failure - (size_t)used, format, args);
    va_end(args);
    longjmp(world.out, 1);
}
