/* What systemd is told, and what it hands over. Without systemd every call does nothing. Loop
 * thread. */
#pragma once

#include <stdint.h>

void notify_ready(void);
void notify_stopping(void);
void notify_status(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Asks for this much more time to start or stop in. */
void notify_extend(uint64_t microseconds);
void notify_watchdog(void);
/* Microseconds within which notify_watchdog is expected; 0: no watchdog. */
uint64_t notify_watchdog_interval_us(void);
/* Listening sockets handed over by socket activation: they begin at *first. */
int notify_listen_fds(int *first);
