#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "ctl/cleanup.h"
#include "ctl/report.h"

enum { MESSAGE_SIZE = 1024 };

static void print_json(const char *code, const char *message)
{
    cJSON *object = cJSON_CreateObject();
    _cleanup_free_ char *text = NULL;

    if (object && cJSON_AddStringToObject(object, "error", message) &&
        cJSON_AddStringToObject(object, "code", code))
        text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    fprintf(stderr, "%s\n", text ? text : "{\"error\":\"out of memory\",\"code\":\"MEMORY\"}");
}

void ctl_error(const CtlOptions *options, const char *code, const char *format, ...)
{
    char message[MESSAGE_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    ctl_sanitise(message);
    fflush(stdout); /* what was printed before comes before */
    if (options->json)
        print_json(code, message);
    else
        fprintf(stderr, "dpsctl: %s\n", message);
}

void ctl_note(const char *format, ...)
{
    char message[MESSAGE_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    fflush(stdout);
    fprintf(stderr, "dpsctl: %s\n", ctl_sanitise(message));
}

int ctl_report_status(const CtlOptions *options, const ClientStatus *status)
{
    const char *code = status->lost ? "UNREACHABLE" : grpc_status_name(status->code);

    if (status->code == GRPC_OK)
        return CTL_EXIT_DONE;
    ctl_error(options, code, "%s", status->message[0] ? status->message : code);
    if (status->lost)
        return CTL_EXIT_UNREACHABLE;
    return status->code == GRPC_NOT_FOUND ? CTL_EXIT_NO_JOB : CTL_EXIT_FAILED;
}

int ctl_connect(const CtlOptions *options, Client **ret)
{
    enum { CONNECT_MS = 5000 };
    ClientStatus status;

    if (client_open(options->address, CONNECT_MS, ret, &status) == -EINVAL) {
        ctl_error(options, "USAGE", "%s", status.message);
        return CTL_EXIT_USAGE;
    }
    return ctl_report_status(options, &status);
}
