#include "service/notify.h"

#include <stdarg.h>
#include <stdio.h>
#include <systemd/sd-daemon.h>

void notify_ready(void)
{
    (void)sd_notify(0, "READY=1");
}

void notify_stopping(void)
{
    (void)sd_notify(0, "STOPPING=1");
}

void notify_status(const char *format, ...)
{
    char status[256];
    va_list args;
    va_start(args, format);
    vsnprintf(status, sizeof status, format, args);
    va_end(args);
    (void)sd_notifyf(0, "STATUS=%s", status);
}

void notify_extend(uint64_t microseconds)
{
    (void)sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%llu", (unsigned long long)microseconds);
}

void notify_watchdog(void)
{
    (void)sd_notify(0, "WATCHDOG=1");
}

uint64_t notify_watchdog_interval_us(void)
{
    uint64_t interval = 0;
    return sd_watchdog_enabled(0, &interval) > 0 ? interval : 0;
}

int notify_listen_fds(int *first)
{
    *first = SD_LISTEN_FDS_START;
    return sd_listen_fds(1);
}
