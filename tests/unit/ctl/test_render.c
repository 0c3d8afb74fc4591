/* Statuses at given widths, tables, bars, units, and the JSON names that scripts rely on. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/json.h"
#include "ctl/render/bar.h"
#include "ctl/render/status.h"
#include "ctl/render/table.h"
#include "ctl/render/units.h"

enum { RANKS = 3 };

typedef struct Sample {
    Dps__V1__JobStatus job;
    Dps__V1__TrainerStatus trainers[RANKS], *pointers[RANKS];
} Sample;

static void sample_init(Sample *sample)
{
    static const char *const states[RANKS] = {"computing", "waiting", "dropped"};
    Dps__V1__JobStatus *job = &sample->job;

    dps__v1__job_status__init(job);
    for (uint32_t i = 0; i < RANKS; i++) {
        Dps__V1__TrainerStatus *trainer = &sample->trainers[i];
        dps__v1__trainer_status__init(trainer);
        trainer->rank = i;
        trainer->state = (char *)states[i];
        trainer->step = 40 + i;
        trainer->loss = i == 2 ? NAN : 0.5F;
        trainer->device = (char *)"cpu:0";
        sample->pointers[i] = trainer;
    }
    sample->trainers[1].waiting_s = 75;
    sample->trainers[1].waiting_for = (char *)"rank 0";
    job->trainers = sample->pointers;
    job->n_trainers = RANKS;
    job->id = 12;
    job->name = (char *)"digits";
    job->state = DPS__V1__JOB_STATE__RUNNING;
    job->model = (char *)"mnist-cnn";
    job->policy = (char *)"average";
    job->interval = 25;
    job->round = 1;
    job->step = 40;
    job->samples = 1000;
    job->samples_total = 4000;
    job->loss = 0.123456F;
    job->lr = 0.03F;
    job->seed = UINT64_MAX;
    job->samples_per_s = 512.25;
    job->eta_s = 90;
    job->running_s = 30;
    job->created_unix_ms = 1700000000000;
}

static const Term pipe_term = {.width = TERM_NO_LIMIT, .height = TERM_NO_LIMIT};

static char *live(const Sample *sample, const Term *term, double age_s, const char *note)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    assert_int_equal(status_print_live(out, term, &sample->job, age_s, note), 0);
    fclose(out);
    return text;
}

static size_t line_count(const char *text)
{
    size_t count = 0;

    for (; *text; text++)
        count += *text == '\n';
    return count;
}

/* Columns of the widest line; changes text. */
static size_t widest(char *text)
{
    size_t most = 0;

    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (term_columns(line) > most)
            most = term_columns(line);
    return most;
}

static void test_the_live_block_says_everything(void **state)
{
    const Term term = {.tty = true, .width = 100, .height = 30};
    Sample sample;

    (void)state;
    sample_init(&sample);
    char *text = live(&sample, &term, 10, NULL);
    assert_string_equal(
        text, "job 12  RUNNING  digits  average every 25\n"
              "[#########                             ]  25%  round 1  step 40  epoch 0\n"
              "loss 0.1235  512 samples/s  1 min 20 s left  ran 40 s  lr 0.03  1000/4000 "
              "samples\n"
              "waiting 1 min 15 s for rank 0\n"
              "  rank  state      step    loss  device  waiting for         restarts  client\n"
              "     0  computing    40  0.5000  cpu:0\n"
              "     1  waiting      41  0.5000  cpu:0   rank 0, 1 min 15 s\n"
              "     2  dropped      42     nan  cpu:0\n");
    free(text);
}

static void test_the_live_block_fits_any_terminal(void **state)
{
    Sample sample;

    (void)state;
    sample_init(&sample);
    for (int width = 10; width <= 120; width++) {
        for (int height = 4; height < 12; height++) {
            const Term term = {
                .tty = true, .colour = true, .utf8 = true, .width = width, .height = height};
            char *text = live(&sample, &term, 0, NULL);
            /* The table never leaves out its first two columns; live_draw cuts those. */
            assert_true(line_count(text) < (size_t)height || height < 4);
            assert_true(widest(text) <= (size_t)(width < 20 ? 20 : width));
            free(text);
        }
    }
}

static void test_many_trainers_are_cut_to_the_height(void **state)
{
    const Term term = {.tty = true, .width = 100, .height = 9};
    Sample sample;

    (void)state;
    sample_init(&sample);
    char *text = live(&sample, &term, 0, "daemon away, reconnecting");
    assert_non_null(strstr(text, "... and 2 more"));
    assert_non_null(strstr(text, "daemon away"));
    free(text);
}

static void test_nothing_known_is_no_progress(void **state)
{
    const Term term = {.tty = true, .width = 100, .height = 30};
    Sample sample;

    (void)state;
    sample_init(&sample);
    sample.job.samples_total = 0;
    sample.job.eta_s = -1;
    char *text = live(&sample, &term, 0, NULL);
    assert_null(strchr(text, '%'));
    assert_null(strstr(text, "left"));
    free(text);
    assert_true(status_share(&sample.job) < 0);
    sample.job.samples_total = 500;
    assert_true(status_share(&sample.job) == 1);
}

static void test_a_line_for_pipes(void **state)
{
    Sample sample;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    sample_init(&sample);
    status_print_line(out, &sample.job);
    sample.job.state = DPS__V1__JOB_STATE__FAILED;
    sample.job.reason = (char *)"rank 2\nhas NaN";
    status_print_line(out, &sample.job);
    fclose(out);
    assert_string_equal(text, "job 12  RUNNING   25%  round 1  step 40  epoch 0  loss 0.1235  "
                              "512 samples/s  1 min 30 s left  waiting 1 min 15 s for rank 0\n"
                              "job 12  FAILED   25%  round 1  step 40  epoch 0  loss 0.1235  "
                              "(rank 2?has NaN)\n");
    free(text);
}

static void test_status_in_full(void **state)
{
    Sample sample;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    sample_init(&sample);
    assert_int_equal(status_print(out, &pipe_term, &sample.job, 1700000120000), 0);
    fclose(out);
    assert_non_null(strstr(text, "job 12: digits\n"));
    assert_non_null(strstr(text, "(2 min ago), ran 30 s\n"));
    assert_non_null(strstr(text, "seed 18446744073709551615\n"));
    assert_non_null(strstr(text, " 25%  1000/4000 samples\n"));
    assert_null(strchr(text, '\033'));
    free(text);
}

typedef Dps__V1__JobStatus__SettingsEntry Entry;

static char *in_full(Sample *sample, const char *const (*settings)[2], size_t count)
{
    Entry entries[16], *pointers[16];
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_true(count <= 16);
    for (size_t i = 0; i < count; i++) {
        dps__v1__job_status__settings_entry__init(&entries[i]);
        entries[i].key = (char *)settings[i][0];
        entries[i].value = (char *)settings[i][1];
        pointers[i] = &entries[i];
    }
    sample->job.settings = pointers;
    sample->job.n_settings = count;
    assert_int_equal(status_print(out, &pipe_term, &sample->job, 1700000120000), 0);
    fclose(out);
    sample->job.n_settings = 0;
    return text;
}

static void test_settings_as_usual_go_unsaid(void **state)
{
    static const char *const settings[][2] = {
        {"checkpoint.keep", "3"}, {"eval.every", "0"},       {"guard.norm", "0"},
        {"guard.strikes", "3"},   {"optimizer.clip", "0"},   {"optimizer.schedule", "constant"},
        {"sync.alpha", "0.5"},    {"sync.wait", "all"},      {"sync.outer_lr", "0.699999988"},
        {"sync.interval", "25"},  {"sync.policy", "average"}};
    Sample sample;

    (void)state;
    sample_init(&sample);
    char *text = in_full(&sample, settings, sizeof settings / sizeof *settings);
    assert_non_null(strstr(text, "Sync: average every 25 steps\n"));
    assert_non_null(strstr(text, "Optimizer: sgd, lr 0.03, batch 0\n"));
    assert_null(strstr(text, "Guard"));
    assert_null(strstr(text, "Settings"));
    assert_null(strstr(text, "Accuracy"));
    assert_null(strstr(text, "Checkpoint"));
    free(text);
}

static void test_settings_that_differ_are_said(void **state)
{
    static const char *const settings[][2] = {{"optimizer.schedule", "cosine,steps=100"},
                                              {"sync.timeout", "30"},
                                              {"sync.alpha", "0.100000001"},
                                              {"sync.newer", "x"},
                                              {"guard.norm", "10"},
                                              {"checkpoint.rounds", "8"},
                                              {"eval.every", "2"},
                                              {"moon.phase", "full\033"}};
    Sample sample;

    (void)state;
    sample_init(&sample);
    sample.job.policy = (char *)"elastic";
    sample.job.max_trainers = 8;
    char *text = in_full(&sample, settings, sizeof settings / sizeof *settings);
    assert_non_null(strstr(text, "Sync: elastic every 25 steps, timeout 30, alpha 0.1, newer x\n"));
    assert_non_null(strstr(text, "batch 0, schedule cosine,steps=100\n"));
    assert_non_null(strstr(text, "Guard: norm 10\n"));
    assert_non_null(strstr(text, "Settings: moon.phase full?\n"));
    assert_non_null(strstr(text, "Accuracy: not yet; evaluated every 2 rounds\n"));
    assert_non_null(strstr(text, "Checkpoint: none yet, rounds 8\n"));
    assert_non_null(strstr(text, "Trainers: 3, at most 8\n"));
    free(text);
}

static void test_shared_parameters_have_rounds(void **state)
{
    Sample sample;

    (void)state;
    sample_init(&sample);
    sample.job.policy = (char *)"async";
    char *text = in_full(&sample, NULL, 0);
    assert_non_null(strstr(text, "Sync: async, rounds of 25 steps\n"));
    free(text);
}

static void test_the_latest_evaluation(void **state)
{
    const Term term = {.tty = true, .width = 100, .height = 30};
    Sample sample;

    (void)state;
    sample_init(&sample);
    assert_false(status_is_evaluated(&sample.job)); /* a dpsd that does not say */
    sample.job.accuracy = -1;
    sample.job.accuracy_round = 3;
    assert_false(status_is_evaluated(&sample.job));
    sample.job.accuracy = 0.91254;
    char *text = in_full(&sample, NULL, 0);
    assert_non_null(strstr(text, "Accuracy: 0.9125, of round 3\n"));
    free(text);
    text = live(&sample, &term, 0, NULL);
    assert_non_null(strstr(text, "loss 0.1235  accuracy 0.9125 (round 3)  512"));
    free(text);
}

static void test_who_is_waited_for(void **state)
{
    static const char awaited[] = "rank 2 (no word for 12 s), rank 3 (reading data)";
    const Term narrow = {.tty = true, .width = 70, .height = 30};
    Sample sample;

    (void)state;
    sample_init(&sample);
    sample.trainers[0].waiting_for = sample.trainers[1].waiting_for = (char *)awaited;
    sample.trainers[0].waiting_s = 3;
    sample.trainers[1].waiting_s = 13;
    assert_ptr_equal(status_longest_waiting(&sample.job), &sample.trainers[1]);
    char *text = in_full(&sample, NULL, 0);
    assert_non_null(strstr(text, "Waiting for: rank 2 (no word for 12 s), rank 3 (reading data), "
                                 "for 13 s\n"));
    free(text);
    text = live(&sample, &narrow, 0, NULL); /* where the table has no room for it */
    assert_non_null(strstr(text, "\nwaiting 13 s for rank 2 (no word for 12 s), rank 3"));
    free(text);
    sample.trainers[1].waiting_s = 4; /* nobody is held up */
    assert_false(status_is_held_up(&sample.job));
    text = live(&sample, &narrow, 0, NULL);
    assert_null(strstr(text, "\nwaiting"));
    free(text);
}

static void test_colours_of_trainers(void **state)
{
    (void)state;
    assert_int_equal(status_trainer_colour("computing"), TERM_GREEN);
    assert_int_equal(status_trainer_colour("waiting (for the others)"), TERM_BLUE);
    assert_int_equal(status_trainer_colour("computing (2 strikes)"), TERM_RED);
    assert_int_equal(status_trainer_colour("quarantined"), TERM_RED);
    assert_int_equal(status_trainer_colour("wait"), TERM_PLAIN);
    assert_int_equal(status_trainer_colour(""), TERM_PLAIN);
}

static void test_tables_leave_out_what_does_not_fit(void **state)
{
    static const TableColumn columns[] = {{"id", true}, {"name", false}, {"state", false}};
    Term term = pipe_term;
    Table *table = table_new(columns, 3);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    table_cell(table, "1");
    table_cell(table, "日本\033");
    table_cell(table, "RUNNING");
    table_cellf(table, "%d", 10);
    table_cell(table, "b");
    table_cell(table, "");
    assert_int_equal(table_rows(table), 2);
    assert_int_equal(table_print(table, out, &term, 0), 0);
    term.width = 12;
    assert_int_equal(table_print(table, out, &term, 0), 0);
    term.width = 5;
    assert_int_equal(table_print(table, out, &term, 0), 0);
    fclose(out);
    assert_string_equal(text, "id  name   state\n 1  日本?  RUNNING\n10  b\n"
                              "id  name\n 1  日本?\n10  b\n"
                              "id  n\n 1  \n10  b\n");
    free(text);
    table_free(table);
    table_free(NULL);
}

static void assert_bar(double share, size_t width, bool utf8, const char *expected)
{
    const Term term = {.utf8 = utf8};
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    bar_print(out, &term, share, width);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
}

static void test_bars(void **state)
{
    (void)state;
    assert_bar(0.5, 10, false, "[####    ]");
    assert_bar(0, 5, false, "[   ]");
    assert_bar(1, 5, false, "[###]");
    assert_bar(7, 5, true, "[███]");
    assert_bar(NAN, 5, false, "[   ]");
    assert_bar(0.5, 5, true, "[█▌ ]");
    assert_bar(0.5, 2, true, "");
}

static void test_rows_of_wrapped_lines(void **state)
{
    const size_t columns[] = {0, 10, 20, 21, 45};

    (void)state;
    assert_int_equal(live_rows(columns, 5, 20), 1 + 1 + 1 + 2 + 3);
    assert_int_equal(live_rows(columns, 0, 20), 0);
}

static void test_units(void **state)
{
    char text[UNITS_SIZE];

    (void)state;
    assert_string_equal(units_bytes(0, text), "0 B");
    assert_string_equal(units_bytes(1536, text), "1.5 KiB");
    assert_string_equal(units_bytes(UINT64_MAX, text), "16.0 EiB");
    assert_string_equal(units_duration(0.25, text), "0.2 s");
    assert_string_equal(units_duration(59.6, text), "1 min 0 s");
    assert_string_equal(units_duration(3725, text), "1 h 2 min");
    assert_string_equal(units_duration(200000, text), "2 d 7 h");
    assert_string_equal(units_duration(NAN, text), "?");
    assert_string_equal(units_duration(INFINITY, text), "?");
    assert_string_equal(units_ago(1000, 500, text), "just now");
    assert_string_equal(units_ago(1000, 7201000, text), "2 h ago");
    assert_string_equal(units_ago(0, 5, text), "?");
    assert_string_equal(units_loss(-NAN, text), "nan");
    assert_string_equal(units_float(0.1F, text), "0.1");
    assert_string_equal(units_float(16777217.0F, text), "16777216");
    assert_string_equal(units_time(1700000000123, text), "2023-11-14T22:13:20.123Z");
    assert_string_equal(units_time(UINT64_MAX, text)[0] ? "told" : "", "told");
}

static void test_columns_of_text(void **state)
{
    (void)state;
    assert_int_equal(term_columns("abc"), 3);
    assert_int_equal(term_columns("\033[31ma\033[0m"), 1);
    assert_int_equal(term_columns("日本"), 4);
    assert_int_equal(term_columns("e\xCC\x81"), 1); /* a combining accent */
    assert_int_equal(term_columns("\033["), 0);
    assert_int_equal(term_columns("a\xE2\x82"), 2); /* cut off: no reading past the end */
}

static void assert_names(const cJSON *object, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!cJSON_HasObjectItem(object, names[i]))
            fail_msg("no \"%s\"", names[i]);
}

#define ASSERT_NAMES(object, ...)                                                                  \
    assert_names(object, (const char *const[]){__VA_ARGS__},                                       \
                 sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void test_json_has_the_names_of_the_design(void **state)
{
    Dps__V1__CheckpointInfo checkpoint = DPS__V1__CHECKPOINT_INFO__INIT;
    Dps__V1__MetricsRow row = DPS__V1__METRICS_ROW__INIT;
    Dps__V1__EvaluateReply reply = DPS__V1__EVALUATE_REPLY__INIT;
    Sample sample;
    cJSON *object;

    (void)state;
    sample_init(&sample);
    object = json_job(&sample.job);
    ASSERT_NAMES(object, "id", "name", "state", "reason", "model", "policy", "interval", "round",
                 "step", "epoch", "samples", "loss", "lr", "seed", "device", "checksum",
                 "trainers");
    assert_string_equal(cJSON_GetObjectItem(object, "state")->valuestring, "RUNNING");
    ASSERT_NAMES(cJSON_GetArrayItem(cJSON_GetObjectItem(object, "trainers"), 0), "rank", "state",
                 "step", "loss", "device", "waiting_s", "waiting_for");
    cJSON_Delete(object);
    sample.job.accuracy = 0.5;
    sample.job.accuracy_round = 4;
    object = json_job(&sample.job);
    ASSERT_NAMES(object, "settings", "accuracy", "accuracy_round", "max_trainers");
    assert_true(cJSON_IsObject(cJSON_GetObjectItem(object, "settings")));
    assert_false(cJSON_IsNull(cJSON_GetObjectItem(object, "accuracy")));
    cJSON_Delete(object);
    object = json_checkpoint(&checkpoint);
    ASSERT_NAMES(object, "id", "job", "step", "round", "created", "bytes", "valid");
    cJSON_Delete(object);
    object = json_metrics_row(&row);
    ASSERT_NAMES(object, "round", "rank", "step", "loss", "samples", "compute_ms", "wait_ms",
                 "bytes_in", "bytes_out", "lr", "contributed");
    cJSON_Delete(object);
    object = json_evaluation(&reply);
    ASSERT_NAMES(object, "accuracy", "loss", "samples");
    cJSON_Delete(object);
}

static void test_json_numbers_keep_their_digits(void **state)
{
    cJSON *object = cJSON_CreateObject();

    (void)state;
    json_add_u64(object, "u", UINT64_MAX);
    json_add_float(object, "f", 0.1F);
    json_add_double(object, "d", 0.1);
    json_add_double(object, "third", 1.0 / 3);
    json_add_double(object, "nan", NAN);
    json_add_float(object, "inf", INFINITY);
    json_add_text(object, "t", "a\xFF\"");
    char *text = cJSON_PrintUnformatted(object);
    assert_string_equal(text, "{\"u\":18446744073709551615,\"f\":0.1,\"d\":0.1,"
                              "\"third\":0.3333333333333333,\"nan\":null,\"inf\":null,"
                              "\"t\":\"a?\\\"\"}");
    free(text);
    cJSON_Delete(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_live_block_says_everything),
        cmocka_unit_test(test_the_live_block_fits_any_terminal),
        cmocka_unit_test(test_many_trainers_are_cut_to_the_height),
        cmocka_unit_test(test_nothing_known_is_no_progress),
        cmocka_unit_test(test_a_line_for_pipes),
        cmocka_unit_test(test_status_in_full),
        cmocka_unit_test(test_settings_as_usual_go_unsaid),
        cmocka_unit_test(test_settings_that_differ_are_said),
        cmocka_unit_test(test_shared_parameters_have_rounds),
        cmocka_unit_test(test_the_latest_evaluation),
        cmocka_unit_test(test_who_is_waited_for),
        cmocka_unit_test(test_colours_of_trainers),
        cmocka_unit_test(test_tables_leave_out_what_does_not_fit),
        cmocka_unit_test(test_bars),
        cmocka_unit_test(test_rows_of_wrapped_lines),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_columns_of_text),
        cmocka_unit_test(test_json_has_the_names_of_the_design),
        cmocka_unit_test(test_json_numbers_keep_their_digits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
