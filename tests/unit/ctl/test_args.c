/* Options, settings, addresses, near words, and text made harmless. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/args.h"
#include "ctl/client.h"
#include "ctl/known_settings.h"
#include "ctl/settings.h"
#include "ctl/text.h"
#include "ctl/verbs.h"

typedef struct Values {
    bool flag;
    const char *text;
    uint32_t small;
    uint64_t big;
    float number;
    ArgList list;
} Values;

static const ArgOption options[] = {
    {"flag", 'f', ARG_FLAG, offsetof(Values, flag), NULL, "a flag"},
    {"text", 't', ARG_STRING, offsetof(Values, text), "TEXT", "a text"},
    {"small", 0, ARG_U32, offsetof(Values, small), "N", "a number"},
    {"big", 0, ARG_U64, offsetof(Values, big), "N", "a number"},
    {"number", 0, ARG_FLOAT, offsetof(Values, number), "X", "a number"},
    {"item", 'i', ARG_LIST, offsetof(Values, list), "ITEM", "an item"},
};

static const ArgSpec spec = {.verb = "verb",
                             .positional = "JOB",
                             .summary = "Does it",
                             .options = options,
                             .count = sizeof options / sizeof *options,
                             .min_positional = 1,
                             .max_positional = 2};

/* Parses "verb" and the words; the last is NULL. */
static int parse(Values *values, CtlOptions *common, Args *args, ...)
{
    static char *argv[32];
    int argc = 0;
    va_list words;

    *values = (Values){0};
    *common = (CtlOptions){0};
    argv[argc++] = (char *)"verb";
    va_start(words, args);
    while ((argv[argc] = va_arg(words, char *)))
        argc++;
    va_end(words);
    return args_parse(&spec, argc, argv, values, common, args);
}

static void test_every_kind_of_option(void **state)
{
    Values values;
    CtlOptions common;
    Args args;

    (void)state;
    assert_int_equal(parse(&values, &common, &args, "3", "--flag", "--text=a b", "--small", "7",
                           "--big=18446744073709551615", "--number", "0.03", "-i", "x", "-iy",
                           "--address", "tcp:a:1", "--json", "4", NULL),
                     -1);
    assert_true(values.flag);
    assert_string_equal(values.text, "a b");
    assert_int_equal(values.small, 7);
    assert_true(values.big == UINT64_MAX);
    assert_true(values.number == 0.03F);
    assert_int_equal(values.list.count, 2);
    assert_string_equal(values.list.items[1], "y");
    assert_string_equal(common.address, "tcp:a:1");
    assert_true(common.json);
    assert_int_equal(args.count, 2);
    assert_string_equal(args.positional[0], "3");
    assert_string_equal(args.positional[1], "4");
}

static void test_two_dashes_end_the_options(void **state)
{
    Values values;
    CtlOptions common;
    Args args;

    (void)state;
    assert_int_equal(parse(&values, &common, &args, "--", "--flag", NULL), -1);
    assert_false(values.flag);
    assert_string_equal(args.positional[0], "--flag");
}

static void test_a_beginning_that_is_unambiguous_will_do(void **state)
{
    Values values;
    CtlOptions common;
    Args args;

    (void)state;
    assert_int_equal(parse(&values, &common, &args, "3", "--te", "x", NULL), -1);
    assert_string_equal(values.text, "x");
}

static void test_wrong_usage_ends_with_2(void **state)
{
    static const char *const wrong[][2] = {
        {"--nothing", NULL}, {"--small", "0"},  {"--small", "4294967296"},
        {"--small", "-1"},   {"--small", "1x"}, {"--small", NULL},
        {"--big", "-1"},     {"--big", " 1"},   {"--big", "18446744073709551616"},
        {"--number", "nan"}, {"--number", "0"}, {"--number", "1e99"},
        {"--number", "0,5"}, {"--text", ""},    {"--flag=1", NULL},
        {"-z", NULL},        {"a", "b"},
    };
    Values values;
    CtlOptions common;
    Args args;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(parse(&values, &common, &args, "3", wrong[i][0], wrong[i][1], NULL), 2);
    assert_int_equal(parse(&values, &common, &args, NULL), 2);
    assert_int_equal(parse(&values, &common, &args, "--address", NULL), 2);
}

static void test_too_many_items_are_refused(void **state)
{
    enum { COUNT = ARG_LIST_MAX + 1 };
    char *argv[2 + 2 * COUNT + 1] = {(char *)"verb", (char *)"3"};
    Values values = {0};
    CtlOptions common = {0};
    Args args;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        argv[2 + 2 * i] = (char *)"--item";
        argv[3 + 2 * i] = (char *)"x";
    }
    assert_int_equal(args_parse(&spec, 2 + 2 * COUNT, argv, &values, &common, &args), 2);
    assert_int_equal(values.list.count, ARG_LIST_MAX);
}

static void test_numbers(void **state)
{
    uint64_t number = 5;

    (void)state;
    assert_int_equal(args_number("0", &number), 0);
    assert_true(number == 0);
    assert_int_equal(args_number("18446744073709551615", &number), 0);
    assert_true(number == UINT64_MAX);
    assert_int_equal(args_number("18446744073709551616", &number), -ERANGE);
    assert_int_equal(args_number("", &number), -EINVAL);
    assert_int_equal(args_number("+1", &number), -EINVAL);
    assert_int_equal(args_number("0x1", &number), -EINVAL);
    assert_int_equal(args_number("1 ", &number), -EINVAL);
}

static void test_settings(void **state)
{
    static const char *const good[] = {"sync.interval=50", "a=b=c", "x_-9= "};
    static const char *const wrong[] = {"", "=", "a", "a=", "=b", "a b=c", "ä=1"};
    const char *twice[] = {"a=1", "b=2", "a=3"};
    Settings settings;
    char problem[128];

    (void)state;
    assert_int_equal(settings_parse(good, 3, &settings, problem, sizeof problem), 0);
    assert_int_equal(settings.count, 3);
    assert_string_equal(settings.keys[1], "a");
    assert_string_equal(settings.values[1], "b=c");
    assert_string_equal(settings.values[2], " ");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(settings_parse(&wrong[i], 1, &settings, problem, sizeof problem), -EINVAL);
    assert_int_equal(settings_parse(twice, 3, &settings, problem, sizeof problem), -EINVAL);
    assert_string_equal(problem, "'a' is given twice");
}

static void test_settings_have_limits(void **state)
{
    static char words[SETTINGS_MAX + 1][16], huge[SETTINGS_TEXT + 8];
    const char *pairs[SETTINGS_MAX + 1], *one = huge;
    Settings settings;
    char problem[128];

    (void)state;
    for (int i = 0; i <= SETTINGS_MAX; i++) {
        snprintf(words[i], sizeof words[i], "k%d=v", i);
        pairs[i] = words[i];
    }
    assert_int_equal(settings_parse(pairs, SETTINGS_MAX, &settings, problem, sizeof problem), 0);
    assert_int_equal(settings_parse(pairs, SETTINGS_MAX + 1, &settings, problem, sizeof problem),
                     -EINVAL);
    memset(huge, 'x', sizeof huge - 1);
    huge[1] = '=';
    assert_int_equal(settings_parse(&one, 1, &settings, problem, sizeof problem), -EINVAL);
}

static void test_settings_one_by_one(void **state)
{
    const char *pair = "sync.alpha=0.1";
    Settings settings;
    char problem[128], huge[SETTINGS_TEXT];

    (void)state;
    assert_int_equal(settings_parse(&pair, 1, &settings, problem, sizeof problem), 0);
    assert_int_equal(settings_add(&settings, "sync.wait", "all", problem, sizeof problem), 0);
    assert_true(settings_has(&settings, "sync.alpha") && settings_has(&settings, "sync.wait"));
    assert_false(settings_has(&settings, "sync"));
    assert_string_equal(settings.values[1], "all");
    assert_int_equal(settings_add(&settings, "sync.alpha", "1", problem, sizeof problem), -EINVAL);
    assert_string_equal(problem, "'sync.alpha' is given twice");
    memset(huge, 'x', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    assert_int_equal(settings_add(&settings, "k", huge, problem, sizeof problem), -EINVAL);
    assert_int_equal(settings.count, 2);
}

static const char *meant(const char *pair)
{
    const char *pairs[] = {"sync.interval=5", pair}, *near = NULL, *key;
    Settings settings;
    char problem[128];

    assert_int_equal(settings_parse(pairs, 2, &settings, problem, sizeof problem), 0);
    key = known_settings_misspelt(&settings, &near);
    assert_true(!key || key == settings.keys[1]);
    return key ? near : NULL;
}

static void test_settings_that_are_misspelt(void **state)
{
    (void)state;
    assert_string_equal(meant("sync.intervall=5"), "sync.interval");
    assert_string_equal(meant("optimiser.lr=1"), "optimizer.lr");
    assert_string_equal(meant("alpha=1"), "sync.alpha");
    assert_string_equal(meant("lr=1"), "optimizer.lr");
    assert_string_equal(meant("trainer=1"), "trainers");
    assert_null(meant("trainers=1"));
    assert_null(meant("moon.phase=full"));
}

static void test_settings_as_usual(void **state)
{
    const KnownSetting *rate = known_setting_find("sync.outer_lr");

    (void)state;
    assert_non_null(rate);
    assert_true(known_setting_is_usual(rate, "0.7"));
    assert_true(known_setting_is_usual(rate, "0.70"));
    assert_false(known_setting_is_usual(rate, "0.71"));
    assert_false(known_setting_is_usual(rate, "0.7x"));
    assert_false(known_setting_is_usual(rate, ""));
    /* what is usual depends on the trainers, and on the job */
    assert_false(known_setting_is_usual(known_setting_find("sync.alpha"), "0.225"));
    /* as dpsd writes the float that 0.9 becomes */
    assert_true(known_setting_is_usual(known_setting_find("sync.outer_momentum"), "0.899999976"));
    assert_false(known_setting_is_usual(known_setting_find("sync.policy"), "average"));
    assert_null(known_setting_find("sync"));
}

static void test_addresses_that_are_none(void **state)
{
    static const char *const wrong[] = {"",           "unix:", "tcp:",       "tcp::1",
                                        "tcp:h:",     "tcp:h", "tcp:::1:5",  "tcp:[]:5",
                                        "tcp:[::1:5", "h:1",   "/run/x.sock"};
    Client *client = NULL;
    ClientStatus status;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(client_open(wrong[i], 10, &client, &status), -EINVAL);
        assert_null(client);
        assert_non_null(strstr(status.message, "unix:PATH nor tcp:HOST:PORT"));
    }
    assert_int_equal(client_open("unix:/nowhere/x", 10, &client, &status), -ENOENT);
    assert_true(status.lost && status.code == GRPC_UNAVAILABLE);
    assert_int_equal(client_open("tcp:[::1]:1", 10, &client, &status) < 0, 1);
    assert_null(strstr(status.message, "unix:PATH"));
}

static void test_a_path_too_long_for_a_socket(void **state)
{
    char address[256] = "unix:/";
    Client *client = NULL;
    ClientStatus status;

    (void)state;
    memset(address + 6, 'x', sizeof address - 7);
    assert_int_equal(client_open(address, 10, &client, &status), -ENAMETOOLONG);
}

static void test_the_default_address(void **state)
{
    (void)state;
    unsetenv("DPS_ADDRESS");
    assert_string_equal(client_default_address(), "unix:/run/dpsd/dpsd.sock");
    setenv("DPS_ADDRESS", "", 1);
    assert_string_equal(client_default_address(), "unix:/run/dpsd/dpsd.sock");
    setenv("DPS_ADDRESS", "tcp:h:1", 1);
    assert_string_equal(client_default_address(), "tcp:h:1");
    unsetenv("DPS_ADDRESS");
}

static void test_near_words(void **state)
{
    (void)state;
    assert_string_equal(verb_nearest("sumbit"), "submit");
    assert_string_equal(verb_nearest("stauts"), "status");
    assert_string_equal(verb_nearest("metric"), "metrics");
    assert_string_equal(verb_nearest("che"), "checkpoint");
    assert_null(verb_nearest("frobnicate"));
    assert_null(verb_nearest(""));
}

static void test_harmless_text(void **state)
{
    static const char *const cases[][2] = {
        {"plain äöü 日本 🙂", "plain äöü 日本 🙂"},
        {"a\033[31mb\r\n\tc\x7f", "a?[31mb???c?"},
        {"\xC2\x9B"
         "2J",
         "?2J"},                                /* C1 CSI */
        {"x\xE2\x80\xAEy", "x?y"},              /* right-to-left override */
        {"\xFF\xC0\x80\xED\xA0\x80", "??????"}, /* not UTF-8: stray, overlong, surrogate */
        {"cut \xE2\x82", "cut ??"},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i][0]);
        assert_string_equal(ctl_sanitise(text), cases[i][1]);
        assert_string_equal(ctl_sanitise_to(cases[i][0], text, sizeof text), cases[i][1]);
    }
    char small[8];
    assert_string_equal(ctl_sanitise_to("ääääää", small, sizeof small), "ää");
    assert_string_equal(ctl_sanitise_to(NULL, small, sizeof small), "");
    assert_null(ctl_sanitise(NULL));
}

static void test_every_verb_has_its_help(void **state)
{
    (void)state;
    for (size_t i = 0; i < verb_count; i++) {
        const ArgSpec *one = verbs[i]->spec;
        assert_ptr_equal(verb_find(one->verb), verbs[i]);
        assert_non_null(verbs[i]->run);
        assert_true(one->count <= ARGS_MAX_OPTIONS);
        assert_true(strlen(one->summary) > 0 && strlen(one->summary) < 66);
        for (size_t j = 0; j < one->count; j++)
            assert_true((one->options[j].kind == ARG_FLAG) == !one->options[j].metavar);
    }
    assert_null(verb_find("nothing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_of_option),
        cmocka_unit_test(test_two_dashes_end_the_options),
        cmocka_unit_test(test_a_beginning_that_is_unambiguous_will_do),
        cmocka_unit_test(test_wrong_usage_ends_with_2),
        cmocka_unit_test(test_too_many_items_are_refused),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_settings_have_limits),
        cmocka_unit_test(test_settings_one_by_one),
        cmocka_unit_test(test_settings_that_are_misspelt),
        cmocka_unit_test(test_settings_as_usual),
        cmocka_unit_test(test_addresses_that_are_none),
        cmocka_unit_test(test_a_path_too_long_for_a_socket),
        cmocka_unit_test(test_the_default_address),
        cmocka_unit_test(test_near_words),
        cmocka_unit_test(test_harmless_text),
        cmocka_unit_test(test_every_verb_has_its_help),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
