#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "base/log.h"

/* What fd 2 got between the calls. */
static int saved_stderr, pipe_fds[2];

static void capture_begin(void)
{
    assert_int_equal(pipe(pipe_fds), 0);
    saved_stderr = dup(STDERR_FILENO);
    dup2(pipe_fds[1], STDERR_FILENO);
    close(pipe_fds[1]);
}

static const char *capture_end(void)
{
    static char text[4096];
    dup2(saved_stderr, STDERR_FILENO); /* the pipe has no writer left */
    close(saved_stderr);
    size_t used = 0;
    ssize_t n;
    while ((n = read(pipe_fds[0], text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)n;
    close(pipe_fds[0]);
    text[used] = '\0';
    return text;
}

static int count_of(const char *text, char c)
{
    int count = 0;
    for (; *text; text++)
        count += *text == c;
    return count;
}

static void newlines_cannot_forge_a_second_record(void **state)
{
    (void)state;
    log_set_journal(true);
    capture_begin();
    log_error("job \"%s\" failed", "a\n<3>forged: root logged in\r\nb");
    const char *text = capture_end();
    assert_string_equal(text, "<3>job \"a <3>forged: root logged in  b\" failed\n");
    capture_begin();
    log_job(LOG_INFO, 5, 2, "%s", "x\ny\n");
    text = capture_end();
    assert_string_equal(text, "<6>job 5 rank 2: x y \n");
}

static void records_name_the_job(void **state)
{
    (void)state;
    log_set_journal(true);
    capture_begin();
    log_job(LOG_WARNING, 12, -1, "slow");
    assert_string_equal(capture_end(), "<4>job 12: slow\n");
}

static void records_above_the_level_are_dropped(void **state)
{
    (void)state;
    log_set_journal(true);
    log_set_level(LOG_WARNING);
    capture_begin();
    log_info("quiet");
    log_job(LOG_INFO, 1, 0, "quiet");
    log_warning("loud");
    assert_string_equal(capture_end(), "<4>loud\n");
    log_set_level(LOG_INFO);
}

static void long_records_are_cut_to_one_line(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    log_set_journal(true);
    capture_begin();
    log_error("%s", text);
    const char *line = capture_end();
    size_t length = strlen(line);
    assert_in_range(length, 512, 1100);
    assert_int_equal(line[length - 1], '\n');
    assert_int_equal(count_of(line, '\n'), 1);
}

static void without_journal_a_record_has_time_and_level(void **state)
{
    (void)state;
    int year = 0, used = 0;
    log_set_journal(false);
    capture_begin();
    log_notice("ready");
    const char *text = capture_end();
    assert_int_equal(
        sscanf(text, "%4d-%*2d-%*2dT%*2d:%*2d:%*2d.%*3dZ notice  ready%n", &year, &used), 1);
    assert_true(year >= 2024 && text[used] == '\n');
}

static void level_names_are_known(void **state)
{
    (void)state;
    assert_int_equal(log_level_from_name("debug"), LOG_DEBUG);
    assert_int_equal(log_level_from_name("error"), LOG_ERR);
    assert_int_equal(log_level_from_name("loud"), -EINVAL);
    assert_int_equal(log_level_from_name(""), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newlines_cannot_forge_a_second_record),
        cmocka_unit_test(records_name_the_job),
        cmocka_unit_test(records_above_the_level_are_dropped),
        cmocka_unit_test(long_records_are_cut_to_one_line),
        cmocka_unit_test(without_journal_a_record_has_time_and_level),
        cmocka_unit_test(level_names_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
