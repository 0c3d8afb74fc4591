/* What most verbs begin with: parse, connect, find the job, call. Failures are reported here; the
 * functions return CTL_GO_ON or the exit status to end with. */
#pragma once

#include "ctl/args.h"
#include "ctl/client.h"
#include "ctl/messages.h"
#include "ctl/report.h"
#include "ctl/settings.h"

enum {
    CTL_GO_ON = -1,
    REQUEST_MS = 30 * 1000,       /* what the daemon answers from memory or by a write */
    REQUEST_LONG_MS = 600 * 1000, /* what waits for a meeting or for a disk */
};

/* A verb under way. The options are a copy, which --json and --address after the verb change. */
typedef struct Request {
    CtlOptions options;
    Args args;
    Client *client;
    uint64_t job;
} Request;

/* Parses only. */
int request_parse(const ArgSpec *spec, int argc, char **argv, void *values,
                  const CtlOptions *options, Request *ret);
/* Parses and connects; request_end frees the client. */
int request_begin(const ArgSpec *spec, int argc, char **argv, void *values,
                  const CtlOptions *options, Request *ret);
/* Connects after request_parse, and finds the job that the first argument names: a number, or a
 * name that only one job has. */
int request_connect_job(Request *request);
/* All of it: parses, connects, finds the job. */
int request_begin_job(const ArgSpec *spec, int argc, char **argv, void *values,
                      const CtlOptions *options, Request *ret);
void request_end(Request *request);

/* A call of service Control. */
int request_call(Request *request, const char *method, const ProtobufCMessage *message,
                 int timeout_ms, void *ret_reply);
/* The same for a call that brings settings along: where the server refuses one that looks misspelt,
 * what was likely meant is said, too. */
int request_call_settings(Request *request, const char *method, const ProtobufCMessage *message,
                          const Settings *settings, void *ret_reply);
/* Pages of service Control; a callback that returns false ends them without an error. */
int request_pages(Request *request, const char *method, const ProtobufCMessage *message,
                  ClientOnReply on_page, void *user);

/* Ends a verb that printed: stdout's errors count. */
int request_printed(const Request *request, int r);

#define _cleanup_request_ _cleanup_(request_end)
