/* Numbers for people. Each writes into `text` and returns it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { UNITS_SIZE = 48 };

const char *units_bytes(uint64_t bytes, char text[UNITS_SIZE]);    /* "1.2 MiB" */
const char *units_duration(double seconds, char text[UNITS_SIZE]); /* "3 min 12 s"; "?" if < 0 */
const char *units_ago(uint64_t unix_ms, uint64_t now_unix_ms, char text[UNITS_SIZE]);
const char *units_rate(double per_second, char text[UNITS_SIZE]); /* "1234", "12.3" */
const char *units_loss(double loss, char text[UNITS_SIZE]);       /* 4 decimals; "nan" */
const char *units_time(uint64_t unix_ms, char text[UNITS_SIZE]);  /* 2026-01-31T12:00:00.123Z */
const char *units_clock(uint64_t unix_ms, char text[UNITS_SIZE]); /* local "2026-01-31 12:00:00" */
/* The fewest digits that read back as the same float; "nan" and "inf" as C prints them. */
const char *units_float(float number, char text[UNITS_SIZE]);

uint64_t units_now_unix_ms(void);
