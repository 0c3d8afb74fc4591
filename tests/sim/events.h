/* Time, chance and order of the simulation: a queue of events on a virtual clock, random numbers of
 * one seed, and the trace. One world at a time; everything is a function of the seed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* An event's own code. */
typedef void (*EventFn)(void *data, uint64_t arg);

void events_begin(uint64_t seed, bool tracing);
void events_end(void);

uint64_t sim_now(void); /* microseconds, from 1 s on */
uint64_t sim_random(void);
/* low … high, both included */
uint64_t sim_between(uint64_t low, uint64_t high);
bool sim_chance(unsigned of_thousand);

/* `kind` is a literal: it names the event in the trace. */
void event_in(uint64_t delay_us, const char *kind, EventFn run, void *data, uint64_t arg);
/* The same, of the daemon: a kill before it comes takes it away. */
void event_of_daemon(uint64_t delay_us, const char *kind, EventFn run, void *data, uint64_t arg);
/* The daemon is gone: what event_of_daemon was told is never run. */
void events_forget_daemon(void);

/* When the first event is due; UINT64_MAX: there is none. */
uint64_t events_next_at(void);
/* Puts the clock forward, for a timer that is due before the next event. */
void events_advance(const char *kind, uint64_t at_us);
/* Runs the first event. */
void events_run_one(void);

uint64_t events_count(void);
/* Over time and kind of every event, and all that was mixed in. */
uint64_t events_hash(void);
void events_mix(uint64_t value);
bool events_tracing(void);
/* A line of the trace, where one is written. */
void trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A broken invariant: tells it with seed and event, and ends the world. Does not return. */
void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
