/* A cut as named parts of a checkpoint ("rank0/params", "common/state0"), and back. */
#include "job/job_internal.h"

#include <stdio.h>
#include <string.h>

static void visit_one(const char *whose, const char *name, void *bytes, size_t size,
                      PartVisitor visit, void *data)
{
    char full[48];
    if (size == 0)
        return;
    snprintf(full, sizeof full, "%s/%s", whose, name);
    visit(data, full, bytes, size);
}

void snapshot_visit(const char *whose, Snapshot *snapshot, PartVisitor visit, void *data)
{
    size_t params = snapshot->n_params * sizeof(float);
    visit_one(whose, "params", snapshot->params, params, visit, data);
    visit_one(whose, "buffers", snapshot->buffers, snapshot->n_buffers * sizeof(float), visit,
              data);
    visit_one(whose, "counters", snapshot->counters, snapshot->n_counters * sizeof(int64_t), visit,
              data);
    for (int i = 0; i < snapshot->n_states; i++) {
        char name[16];
        snprintf(name, sizeof name, "state%d", i);
        visit_one(whose, name, snapshot->states[i], params, visit, data);
    }
}

void rank_name(uint32_t rank, char name[RANK_NAME_MAX])
{
    snprintf(name, RANK_NAME_MAX, "rank%u", rank);
}

typedef struct Reader {
    const CheckpointPart *parts;
    size_t n;
    int r;
    Error *err;
} Reader;

static void read_part(void *data, const char *name, void *bytes, size_t size)
{
    Reader *reader = data;
    if (reader->r < 0)
        return;
    for (size_t i = 0; i < reader->n; i++) {
        const CheckpointPart *part = &reader->parts[i];
        if (strcmp(part->name, name) != 0)
            continue;
        if (part->bytes != size) {
            reader->r =
                error_set(reader->err, -EBADMSG, "part %s has %zu bytes; the model needs %zu", name,
                          part->bytes, size);
            return;
        }
        memcpy(bytes, part->data, size);
        return;
    }
    reader->r = error_set(reader->err, -EBADMSG, "part %s is missing", name);
}

int snapshot_from_parts(const char *whose, Snapshot *snapshot, const CheckpointPart *parts,
                        size_t n, Error *err)
{
    Reader reader = {.parts = parts, .n = n, .err = err};
    snapshot_visit(whose, snapshot, read_part, &reader);
    return reader.r;
}
