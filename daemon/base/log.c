#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024 };

static atomic_int log_level = LOG_INFO;
static atomic_bool log_journal = false;

static const char *const level_names[] = {"emerg",   "alert",  "crit", "error",
                                          "warning", "notice", "info", "debug"};

void log_set_level(int level)
{
    log_level = level;
}

int log_level_from_name(const char *name)
{
    for (int i = 0; i < (int)(sizeof level_names / sizeof *level_names); i++)
        if (strcmp(name, level_names[i]) == 0)
            return i;
    return -EINVAL;
}

void log_set_journal(bool journal)
{
    log_journal = journal;
}

static int write_prefix(char *line, size_t size, int priority)
{
    if (log_journal)
        return snprintf(line, size, "<%d>", priority);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm tm;
    gmtime_r(&now.tv_sec, &tm);
    return snprintf(line, size, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %-7s ", tm.tm_year + 1900,
                    tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                    now.tv_nsec / 1000000, level_names[priority & 7]);
}

static void write_record(int priority, const char *about, const char *format, va_list args)
{
    char line[LINE_MAX_BYTES];
    size_t used = (size_t)write_prefix(line, sizeof line, priority);
    used += (size_t)snprintf(line + used, sizeof line - used, "%s", about);
    int body = vsnprintf(line + used, sizeof line - used, format, args);
    if (body < 0)
        return;
    used += (size_t)body;
    if (used > sizeof line - 1)
        used = sizeof line - 1;
    for (size_t i = 0; i < used; i++) /* a client's text must not forge a second record */
        if (line[i] == '\n' || line[i] == '\r')
            line[i] = ' ';
    line[used++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, used);
    (void)ignored; /* where stderr is gone there is nowhere left to say so */
}

void log_message(int priority, const char *format, ...)
{
    if (priority > log_level)
        return;
    va_list args;
    va_start(args, format);
    write_record(priority, "", format, args);
    va_end(args);
}

void log_job(int priority, uint64_t job, int rank, const char *format, ...)
{
    if (priority > log_level)
        return;
    char about[64];
    if (rank >= 0)
        snprintf(about, sizeof about, "job %llu rank %d: ", (unsigned long long)job, rank);
    else
        snprintf(about, sizeof about, "job %llu: ", (unsigned long long)job);
    va_list args;
    va_start(args, format);
    write_record(priority, about, format, args);
    va_end(args);
}
