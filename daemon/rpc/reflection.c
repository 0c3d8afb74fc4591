#include "rpc/reflection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "grpc/reflection/names.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "rpc/reflection_symbols.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest Request;
typedef Grpc__Reflection__V1__ServerReflectionResponse Response;
typedef Grpc__Reflection__V1__ServiceResponse ServiceResponse;

struct Reflection {
    Dps__Reflection__FileSet *set; /* the bytes of each file */
    Dps__Reflection__File **files; /* the names in them, same order */
    char **services;               /* "dps.v1.Control" */
    size_t n_services;
};

/* ---- the answers ----------------------------------------------------------------------------- */

static void send_error(Call *call, Response *response, GrpcStatus status, const char *what,
                       const char *name)
{
    char sentence[320];
    snprintf(sentence, sizeof sentence, "there is no %s %.200s", what, name);
    char text[320]; /* a name cut in the middle of a character must not spoil the answer */
    snprintf(text, sizeof text, "%s",
             grpc_text_is_utf8(sentence) ? sentence : "there is no such name");
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    error.error_code = status;
    error.error_message = text;
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    response->error_response = &error;
    call_send(call, &response->base);
}

static void send_file(Call *call, Response *response, const Reflection *reflection, size_t i)
{
    Grpc__Reflection__V1__FileDescriptorResponse files =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    files.n_file_descriptor_proto = 1;
    files.file_descriptor_proto = &reflection->set->file[i];
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    response->file_descriptor_response = &files;
    call_send(call, &response->base);
}

static void by_filename(Call *call, Response *response, const Request *request,
                        const Reflection *reflection)
{
    for (size_t i = 0; i < reflection->set->n_file; i++)
        if (strcmp(reflection->files[i]->name, request->file_by_filename) == 0) {
            send_file(call, response, reflection, i);
            return;
        }
    send_error(call, response, GRPC_NOT_FOUND, "file", request->file_by_filename);
}

static void by_symbol(Call *call, Response *response, const Request *request,
                      const Reflection *reflection)
{
    for (size_t i = 0; i < reflection->set->n_file; i++)
        if (reflection_file_defines(reflection->files[i], request->file_containing_symbol)) {
            send_file(call, response, reflection, i);
            return;
        }
    send_error(call, response, GRPC_NOT_FOUND, "symbol", request->file_containing_symbol);
}

/* proto3 files have no extensions. */
static void by_extension(Call *call, Response *response, const Request *request,
                         const Reflection *reflection)
{
    (void)reflection;
    send_error(call, response, GRPC_NOT_FOUND, "extension of",
               request->file_containing_extension->containing_type);
}

static void extension_numbers(Call *call, Response *response, const Request *request,
                              const Reflection *reflection)
{
    const char *type = request->all_extension_numbers_of_type;
    Grpc__Reflection__V1__ExtensionNumberResponse numbers =
        GRPC__REFLECTION__V1__EXTENSION_NUMBER_RESPONSE__INIT;
    numbers.base_type_name = (char *)type;
    for (size_t i = 0; i < reflection->set->n_file; i++)
        if (reflection_file_defines(reflection->files[i], type)) {
            response->message_response_case =
                GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
            response->all_extension_numbers_response = &numbers;
            call_send(call, &response->base);
            return;
        }
    send_error(call, response, GRPC_NOT_FOUND, "type", type);
}

static void list_services(Call *call, Response *response, const Request *request,
                          const Reflection *reflection)
{
    (void)request;
    size_t n = reflection->n_services;
    _cleanup_free_ ServiceResponse *services = calloc(n + 1, sizeof *services);
    _cleanup_free_ ServiceResponse **pointers = calloc(n + 1, sizeof *pointers);
    if (!services || !pointers) {
        send_error(call, response, GRPC_RESOURCE_EXHAUSTED, "memory for", "the list");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        services[i] = (ServiceResponse)GRPC__REFLECTION__V1__SERVICE_RESPONSE__INIT;
        services[i].name = reflection->services[i];
        pointers[i] = &services[i];
    }
    Grpc__Reflection__V1__ListServiceResponse list =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    list.n_service = n;
    list.service = pointers;
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    response->list_services_response = &list;
    call_send(call, &response->base);
}

#define ASKS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what

static const struct {
    Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase asks;
    void (*answer)(Call *call, Response *response, const Request *request,
                   const Reflection *reflection);
} answers[] = {
    {ASKS(FILE_BY_FILENAME), by_filename},
    {ASKS(FILE_CONTAINING_SYMBOL), by_symbol},
    {ASKS(FILE_CONTAINING_EXTENSION), by_extension},
    {ASKS(ALL_EXTENSION_NUMBERS_OF_TYPE), extension_numbers},
    {ASKS(LIST_SERVICES), list_services},
};

/* ---- the stream ------------------------------------------------------------------------------ */

static void on_message(Call *call, const ProtobufCMessage *message, void *data)
{
    const Request *request = (const Request *)message;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        if (answers[i].asks != request->message_request_case)
            continue;
        Response response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
        response.valid_host = request->host;
        response.original_request = (Request *)request;
        answers[i].answer(call, &response, request, data);
        if (!call_is_full(call))
            call_resume(call);
        return;
    }
    call_fail(call, GRPC_INVALID_ARGUMENT, "the reflection request asks for nothing");
}

static void on_writable(Call *call, void *data)
{
    (void)data;
    call_resume(call);
}

static void on_half_close(Call *call, void *data)
{
    (void)data;
    call_finish(call);
}

static void info(Call *call, const ProtobufCMessage *message, void *server)
{
    static const CallEvents events = {
        .on_message = on_message, .on_writable = on_writable, .on_half_close = on_half_close};
    (void)message;
    call_set_events(call, &events, server);
}

MethodTable reflection_methods(Reflection *reflection)
{
    static const Method methods[] = {
        {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
         &grpc__reflection__v1__server_reflection_request__descriptor, true, true, info},
        {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
         &grpc__reflection__v1__server_reflection_request__descriptor, true, true, info},
    };
    return (MethodTable){methods, sizeof methods / sizeof *methods, reflection};
}

/* ---- the set --------------------------------------------------------------------------------- */

static int add_service(Reflection *reflection, const char *package, const char *name)
{
    char **services =
        realloc(reflection->services, (reflection->n_services + 1) * sizeof *reflection->services);
    if (!services)
        return -ENOMEM;
    reflection->services = services;
    char *full = NULL;
    if (asprintf(&full, "%s%s%s", package, *package ? "." : "", name) < 0)
        return -ENOMEM;
    services[reflection->n_services++] = full;
    return 0;
}

static int read_set(Reflection *reflection, const uint8_t *descriptors, size_t size)
{
    reflection->set = dps__reflection__file_set__unpack(NULL, size, descriptors);
    if (!reflection->set)
        return -EBADMSG;
    size_t n = reflection->set->n_file;
    reflection->files = calloc(n + 1, sizeof(Dps__Reflection__File *));
    if (!reflection->files)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const ProtobufCBinaryData *bytes = &reflection->set->file[i];
        Dps__Reflection__File *file = dps__reflection__file__unpack(NULL, bytes->len, bytes->data);
        reflection->files[i] = file;
        if (!file)
            return -EBADMSG;
        for (size_t s = 0; s < file->n_service; s++) {
            int r = add_service(reflection, file->package, file->service[s]->name);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

int reflection_new(const uint8_t *descriptors, size_t size, Reflection **ret)
{
    Reflection *reflection = calloc(1, sizeof *reflection);
    if (!reflection)
        return -ENOMEM;
    int r = read_set(reflection, descriptors, size);
    if (r < 0) {
        reflection_free(reflection);
        return r;
    }
    *ret = reflection;
    return 0;
}

Reflection *reflection_free(Reflection *reflection)
{
    if (!reflection)
        return NULL;
    for (size_t i = 0; i < reflection->n_services; i++)
        free(reflection->services[i]);
    free(reflection->services);
    for (size_t i = 0; reflection->files && i < reflection->set->n_file; i++)
        if (reflection->files[i])
            dps__reflection__file__free_unpacked(reflection->files[i], NULL);
    free(reflection->files);
    if (reflection->set)
        dps__reflection__file_set__free_unpacked(reflection->set, NULL);
    free(reflection);
    return NULL;
}
