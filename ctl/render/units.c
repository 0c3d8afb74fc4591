#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ctl/render/units.h"

const char *units_bytes(uint64_t bytes, char text[UNITS_SIZE])
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < sizeof names / sizeof *names) {
        value /= 1024;
        unit++;
    }
    snprintf(text, UNITS_SIZE, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value,
             names[unit]);
    return text;
}

const char *units_duration(double seconds, char text[UNITS_SIZE])
{
    if (!(seconds >= 0) || seconds > 1e12) {
        snprintf(text, UNITS_SIZE, "?");
        return text;
    }
    uint64_t whole = (uint64_t)(seconds + 0.5);
    if (seconds < 9.95)
        snprintf(text, UNITS_SIZE, "%.1f s", seconds);
    else if (whole < 60)
        snprintf(text, UNITS_SIZE, "%" PRIu64 " s", whole);
    else if (whole < 3600)
        snprintf(text, UNITS_SIZE, "%" PRIu64 " min %" PRIu64 " s", whole / 60, whole % 60);
    else if (whole < 86400)
        snprintf(text, UNITS_SIZE, "%" PRIu64 " h %" PRIu64 " min", whole / 3600,
                 whole % 3600 / 60);
    else
        snprintf(text, UNITS_SIZE, "%" PRIu64 " d %" PRIu64 " h", whole / 86400,
                 whole % 86400 / 3600);
    return text;
}

const char *units_ago(uint64_t unix_ms, uint64_t now_unix_ms, char text[UNITS_SIZE])
{
    uint64_t seconds = now_unix_ms > unix_ms ? (now_unix_ms - unix_ms) / 1000 : 0;

    if (unix_ms == 0)
        snprintf(text, UNITS_SIZE, "?");
    else if (seconds < 1)
        snprintf(text, UNITS_SIZE, "just now");
    else if (seconds < 60)
        snprintf(text, UNITS_SIZE, "%" PRIu64 " s ago", seconds);
    else if (seconds < 3600)
        snprintf(text, UNITS_SIZE, "%" PRIu64 " min ago", seconds / 60);
    else if (seconds < 86400)
        snprintf(text, UNITS_SIZE, "%" PRIu64 " h ago", seconds / 3600);
    else
        snprintf(text, UNITS_SIZE, "%" PRIu64 " d ago", seconds / 86400);
    return text;
}

const char *units_rate(double per_second, char text[UNITS_SIZE])
{
    if (!(per_second >= 0) || !isfinite(per_second))
        snprintf(text, UNITS_SIZE, "?");
    else
        snprintf(text, UNITS_SIZE, per_second < 100 ? "%.1f" : "%.0f", per_second);
    return text;
}

const char *units_loss(double loss, char text[UNITS_SIZE])
{
    if (isnan(loss)) /* "-nan" says no more */
        snprintf(text, UNITS_SIZE, "nan");
    else
        snprintf(text, UNITS_SIZE, fabs(loss) < 1e5 ? "%.4f" : "%.4g", loss);
    return text;
}

const char *units_time(uint64_t unix_ms, char text[UNITS_SIZE])
{
    time_t seconds = (time_t)(unix_ms / 1000);
    char date[32];
    struct tm broken;

    if (!gmtime_r(&seconds, &broken) ||
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &broken) == 0)
        snprintf(text, UNITS_SIZE, "?");
    else
        snprintf(text, UNITS_SIZE, "%s.%03uZ", date, (unsigned)(unix_ms % 1000));
    return text;
}

const char *units_clock(uint64_t unix_ms, char text[UNITS_SIZE])
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm broken;

    if (!localtime_r(&seconds, &broken) ||
        strftime(text, UNITS_SIZE, "%Y-%m-%d %H:%M:%S", &broken) == 0)
        snprintf(text, UNITS_SIZE, "?");
    return text;
}

const char *units_float(float number, char text[UNITS_SIZE])
{
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, UNITS_SIZE, "%.*g", digits, (double)number);
        if (strtof(text, NULL) == number)
            break;
    }
    return text;
}

uint64_t units_now_unix_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
