/* Errors for the user: one line "dpsctl: …" on stderr, or {"error", "code"} with --json. Text that
 * came from elsewhere is printed without its control characters. */
#pragma once

#include "ctl/client.h"
#include "ctl/options.h"
#include "ctl/text.h"

/* `code` is the name of a gRPC status ("INVALID_ARGUMENT") or of the kind of failure ("USAGE",
 * "UNREACHABLE", "FILE"); it appears with --json only. */
void ctl_error(const CtlOptions *options, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for a note that is no error: "dpsctl: …" on stderr, also with --json. */
void ctl_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reports how a call ended and returns the exit status for it: CTL_EXIT_UNREACHABLE when lost,
 * CTL_EXIT_NO_JOB for NOT_FOUND, else CTL_EXIT_FAILED. */
int ctl_report_status(const CtlOptions *options, const ClientStatus *status);
/* Opens a client for a verb; reports when it cannot. 0 or the exit status. */
int ctl_connect(const CtlOptions *options, Client **ret);
