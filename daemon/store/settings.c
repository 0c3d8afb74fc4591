#include <stdio.h>
#include <stdlib.h>

#include "store/events.h"
#include "store/request.h"
#include "store/rows.h"
#include "store/statement.h"

/* Adding and loading hold the same things: an array of records. */
typedef struct SettingsRequest {
    Request request;
    uint64_t job; /* load */
    SettingRecord *settings;
    size_t n, capacity;
    StoreSettingsLoaded loaded;
} SettingsRequest;

static void release_settings(Request *request)
{
    SettingsRequest *settings = (SettingsRequest *)request;
    for (size_t i = 0; i < settings->n; i++) {
        free(settings->settings[i].key);
        free(settings->settings[i].value);
        free(settings->settings[i].who);
    }
    free(settings->settings);
}

/* ---- add ------------------------------------------------------------------------------------- */

static int add_event(Db *db, const SettingRecord *setting, Error *err)
{
    _cleanup_free_ char *text = NULL;
    if (asprintf(&text, "%s = %s from round %llu on", setting->key, setting->value,
                 (unsigned long long)setting->round) < 0) {
        text = NULL;
        return error_set(err, -ENOMEM, "out of memory");
    }
    EventRecord event = {.job = setting->job,
                         .unix_ms = setting->unix_ms,
                         .round = setting->round,
                         .kind = "setting",
                         .who = setting->who,
                         .text = text};
    return event_insert(db, &event, err);
}

static int run_add(Request *request, Db *db, Error *err)
{
    const SettingsRequest *add = (SettingsRequest *)request;
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db,
                              "INSERT INTO settings (job, round, unix_ms, key, value, who)"
                              " VALUES (?, ?, ?, ?, ?, ?)",
                              &statement, err);
    for (size_t i = 0; r >= 0 && i < add->n; i++) {
        const SettingRecord *setting = &add->settings[i];
        statement_bind_u64(&statement, setting->job);
        statement_bind_u64(&statement, setting->round);
        statement_bind_u64(&statement, setting->unix_ms);
        statement_bind_text(&statement, setting->key);
        statement_bind_text(&statement, setting->value);
        statement_bind_text(&statement, setting->who);
        r = statement_run(&statement, err);
        if (r >= 0)
            r = add_event(db, setting, err);
    }
    return r;
}

static const RequestKind add_kind = {.what = "record the change of settings",
                                     .transaction = true,
                                     .run = run_add,
                                     .answer = request_answer_done,
                                     .release = release_settings};

static int copy_record(const SettingRecord *from, SettingRecord *to)
{
    *to = (SettingRecord){.job = from->job, .round = from->round, .unix_ms = from->unix_ms};
    int r = text_copy(from->key, &to->key);
    if (r >= 0)
        r = text_copy(from->value, &to->value);
    if (r >= 0)
        r = text_copy(from->who, &to->who);
    return r;
}

int store_settings_add(Store *store, const SettingRecord *settings, size_t n, StoreDone done,
                       void *data)
{
    _cleanup_(request_freep) Request *request = NULL;
    int r = request_new(store, &add_kind, sizeof(SettingsRequest), data, &request);
    if (r < 0)
        return r;
    request->done = done;
    SettingsRequest *add = (SettingsRequest *)request;
    add->settings = calloc(n ? n : 1, sizeof *add->settings);
    if (!add->settings)
        return -ENOMEM;
    while (add->n < n) {
        r = copy_record(&settings[add->n], &add->settings[add->n]);
        add->n++;
        if (r < 0)
            return r;
    }
    request_post(MOVE(request));
    return 0;
}

/* ---- load ------------------------------------------------------------------------------------ */

static int read_record(const Statement *row, SettingRecord *setting, Error *err)
{
    setting->job = statement_u64(row, 0);
    setting->round = statement_u64(row, 1);
    setting->unix_ms = statement_u64(row, 2);
    int r = statement_text(row, 3, &setting->key, err);
    if (r >= 0)
        r = statement_text(row, 4, &setting->value, err);
    if (r >= 0)
        r = statement_text(row, 5, &setting->who, err);
    return r;
}

static int run_load(Request *request, Db *db, Error *err)
{
    SettingsRequest *load = (SettingsRequest *)request;
    _cleanup_(statement_end) Statement statement = {0};
    int r = statement_prepare(db,
                              "SELECT job, round, unix_ms, key, value, who FROM settings"
                              " WHERE job = ? ORDER BY id",
                              &statement, err);
    if (r < 0)
        return r;
    statement_bind_u64(&statement, load->job);
    while (r >= 0 && (r = statement_step(&statement, err)) > 0) {
        r = rows_grow((void **)&load->settings, load->n, &load->capacity, sizeof *load->settings);
        if (r >= 0)
            r = read_record(&statement, &load->settings[load->n++], err);
    }
    return r;
}

static void answer_load(Request *request)
{
    const SettingsRequest *load = (SettingsRequest *)request;
    bool failed = request->result < 0;
    load->loaded(request->data, request->result, request_error(request),
                 failed ? NULL : load->settings, failed ? 0 : load->n);
}

static const RequestKind load_kind = {.what = "read the settings",
                                      .run = run_load,
                                      .answer = answer_load,
                                      .release = release_settings};

int store_settings_load(Store *store, uint64_t job, StoreSettingsLoaded done, void *data)
{
    Request *request;
    int r = request_new(store, &load_kind, sizeof(SettingsRequest), data, &request);
    if (r < 0)
        return r;
    SettingsRequest *load = (SettingsRequest *)request;
    load->job = job;
    load->loaded = done;
    request_post(request);
    return 0;
}
