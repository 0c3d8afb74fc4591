/* Log records to stderr or, under systemd, to the journal through the <N> prefix that it parses.
 *
 * Any thread. A record is one write. The layer that gives up on something logs it, once. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <syslog.h>

/* LOG_ERR … LOG_DEBUG; records above the level are dropped. */
void log_set_level(int level);
int log_level_from_name(const char *name); /* "debug", "info", …; -EINVAL */

/* With journal true each line begins with "<priority>", else with time and level. */
void log_set_journal(bool journal);

void log_message(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As log_message, about a job: the line begins with "job N: " or, with rank >= 0, "job N rank R: ".
 */
void log_job(int priority, uint64_t job, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define log_error(...)   log_message(LOG_ERR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_WARNING, __VA_ARGS__)
#define log_notice(...)  log_message(LOG_NOTICE, __VA_ARGS__)
#define log_info(...)    log_message(LOG_INFO, __VA_ARGS__)
#define log_debug(...)   log_message(LOG_DEBUG, __VA_ARGS__)
