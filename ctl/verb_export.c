/* dpsctl export JOB -o FILE: the averaged parameters as an .npz file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/data/npz.h"
#include "ctl/json.h"
#include "ctl/render/units.h"
#include "ctl/request.h"
#include "ctl/verbs.h"

typedef struct Export {
    const char *output;
    uint64_t checkpoint;
} Export;

static const ArgOption options_of[] = {
    {"output", 'o', ARG_STRING, offsetof(Export, output), "FILE", "the .npz file to write"},
    {"checkpoint", 'c', ARG_U64, offsetof(Export, checkpoint), "ID",
     "from this checkpoint (default: as the job stands)"},
};

static const ArgSpec spec = {
    .verb = "export",
    .positional = "JOB",
    .summary = "Write a job's averaged parameters and buffers to a file",
    .details = "The file is a numpy archive: numpy.load(FILE)['conv1.weight'].\n",
    .options = options_of,
    .count = sizeof options_of / sizeof *options_of,
    .min_positional = 1,
    .max_positional = 1,
};

/* A file under way. Chunks of a tensor come in order, tensors one after the other. */
typedef struct Target {
    NpzWriter *writer;
    uint64_t next; /* offset that the next chunk of the tensor has, unless it begins another */
    uint64_t tensors, bytes;
    int error;
    char problem[512];
} Target;

static bool on_chunk(const ProtobufCMessage *message, void *user)
{
    const Dps__V1__TensorChunk *chunk = (const Dps__V1__TensorChunk *)message;
    Target *target = user;
    char *problem = target->problem;

    if (chunk->offset == 0) {
        target->error =
            npz_writer_add(target->writer, chunk->name, chunk->dtype, (int)chunk->n_dims,
                           chunk->dims, problem, sizeof target->problem);
        target->next = 0;
        target->tensors++;
    } else if (chunk->offset != target->next) {
        snprintf(problem, sizeof target->problem, "a piece of %s is missing at byte %" PRIu64,
                 chunk->name, target->next);
        target->error = -EPROTO;
    }
    if (target->error == 0)
        target->error = npz_writer_data(target->writer, chunk->data.data, chunk->data.len, problem,
                                        sizeof target->problem);
    target->next += chunk->data.len;
    target->bytes += chunk->data.len;
    return target->error == 0;
}

static int failed(const Request *request, const Export *values, const char *problem)
{
    ctl_error(&request->options, "FILE", "cannot write %s: %s", values->output, problem);
    return CTL_EXIT_FAILED;
}

static int print_result(const Request *request, const Export *values, const Target *target)
{
    char size[UNITS_SIZE];

    if (request->options.json) {
        cJSON *object = cJSON_CreateObject();
        json_add_text(object, "file", values->output);
        json_add_u64(object, "tensors", target->tensors);
        json_add_u64(object, "bytes", target->bytes);
        return request_printed(request, json_print(object));
    }
    printf("%s: %" PRIu64 " arrays, %s\n", values->output, target->tensors,
           units_bytes(target->bytes, size));
    return request_printed(request, 0);
}

static int export_to(Request *request, const Export *values)
{
    Dps__V1__ExportRequest message = DPS__V1__EXPORT_REQUEST__INIT;
    Target target = {0};
    int r = npz_writer_new(values->output, &target.writer, target.problem, sizeof target.problem);

    if (r < 0)
        return failed(request, values, target.problem);
    message.job = request->job;
    message.checkpoint = values->checkpoint;
    r = request_pages(request, "Export", &message.base, on_chunk, &target);
    if (r == CTL_GO_ON && target.error < 0)
        r = failed(request, values, target.problem);
    if (r != CTL_GO_ON) {
        npz_writer_free(target.writer);
        return r;
    }
    if (npz_writer_close(target.writer, target.problem, sizeof target.problem) < 0)
        return failed(request, values, target.problem);
    return print_result(request, values, &target);
}

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    Export values = {0};
    int r = request_parse(&spec, argc, argv, &values, options, &request);

    if (r == CTL_GO_ON && !values.output) {
        ctl_error(&request.options, "USAGE", "-o FILE is missing: the .npz file to write");
        r = CTL_EXIT_USAGE;
    }
    if (r == CTL_GO_ON)
        r = request_connect_job(&request);
    return r == CTL_GO_ON ? export_to(&request, &values) : r;
}

const Verb verb_export = {&spec, run};
