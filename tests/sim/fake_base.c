/* In place of base/clock.c, base/log.c and the kernel's random numbers: everything is the seed's.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "sim.h"

uint64_t clock_monotonic_us(void)
{
    return sim_now();
}

uint64_t clock_unix_ms(void)
{
    return UINT64_C(1700000000000) + sim_now() / 1000;
}

/* Tokens and session numbers. Takes the place of the C library's. */
ssize_t getrandom(void *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)memory)[i] = (unsigned char)sim_random();
    return (ssize_t)bytes;
}

void log_set_level(int level)
{
    (void)level;
}

void log_set_journal(bool journal)
{
    (void)journal;
}

int log_level_from_name(const char *name)
{
    (void)name;
    return LOG_INFO;
}

/* Sentences that the daemon has for what cannot be. */
static const char *const impossible[] = {"refused to go from", "out of memory"};

static void note(const char *about, const char *format, va_list args)
{
    char line[1024];
    bool bad = false;
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++)
        bad |= strstr(format, impossible[i]) != NULL;
    if (!bad && !events_tracing())
        return;
    vsnprintf(line, sizeof line, format, args);
    trace("  log: %s%s", about, line);
    if (bad)
        sim_fail("it says: %s%s", about, line);
}

void log_message(int priority, const char *format, ...)
{
    va_list args;
    (void)priority;
    va_start(args, format);
    note("", format, args);
    va_end(args);
}

void log_job(int priority, uint64_t job, int rank, const char *format, ...)
{
    char about[64];
    va_list args;
    (void)priority;
    snprintf(about, sizeof about,
             rank < 0 ? "job %llu: " : "job %llu rank %d: ", (unsigned long long)job, rank);
    va_start(args, format);
    note(about, format, args);
    va_end(args);
}
