/* When an evaluation ends a job: what is taken, what is refused, what is said of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "job/evaluation_spec.h"

typedef struct Text {
    const char *text, *says; /* says: NULL where it is taken */
    double holds, holds_not; /* values of the measure */
} Text;

static void stops_are_taken_or_refused_with_a_remedy(void **state)
{
    (void)state;
    static const Text texts[] = {
        {"accuracy>=0.98", NULL, 0.98, 0.97},
        {"accuracy>0.98", NULL, 0.99, 0.98},
        {" accuracy >= .5 ", NULL, 0.5, 0.4},
        {"accuracy>=1", NULL, 1, 0.99},
        {"loss<=0.1", NULL, 0.1, 0.2},
        {"loss<1e-1", NULL, 0.09, 0.1},
        {"", NULL, NAN, 1},
        {"accuracy>1", "no accuracy is ever above 1", 0, 0},
        {"loss<0", "no loss is ever below 0", 0, 0},
        {"accuracy>=98", "98 % is 0.98", 0, 0},
        {"accuracy<=0.98", "write accuracy>=X", 0, 0},
        {"loss>0.1", "write loss<=X", 0, 0},
        {"loss<=inf", "it takes accuracy>=X", 0, 0},
        {"loss<=1e999", "0 or more", 0, 0},
        {"loss<=-1", "it takes accuracy>=X", 0, 0},
        {"accuracy>=0x1", "it takes accuracy>=X", 0, 0},
        {"accuracy>=0.5 or so", "it takes accuracy>=X", 0, 0},
        {"accuracy>==0.5", "it takes accuracy>=X", 0, 0},
        {"accuracy=0.5", "it takes accuracy>=X", 0, 0},
        {"accuracy", "it takes accuracy>=X", 0, 0},
        {"epochs>3", "it takes accuracy>=X", 0, 0},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const Text *text = &texts[i];
        StopWhen when = {0};
        Error err = {0};
        int r = stop_when_parse(text->text, &when, &err);
        if ((r < 0) != (text->says != NULL) || (r < 0 && !strstr(err.message, text->says)))
            fail_msg("'%s': %d %s", text->text, r, err.message);
        if (r < 0)
            continue;
        assert_int_equal(stop_when_holds(&when, text->holds, text->holds), !isnan(text->holds));
        assert_false(stop_when_holds(&when, text->holds_not, text->holds_not));
        assert_false(stop_when_holds(&when, NAN, NAN));
    }
}

static void a_stop_is_explained_as_it_was_asked_for(void **state)
{
    (void)state;
    StopWhen when;
    char text[120];
    assert_int_equal(stop_when_parse("accuracy >= 0.98", &when, NULL), 0);
    stop_when_explain(&when, 0.981, 0.07, 40, text, sizeof text);
    assert_string_equal(text, "accuracy 0.981 at round 40: >= 0.98");
    assert_int_equal(stop_when_parse("loss<0.1", &when, NULL), 0);
    stop_when_explain(&when, 0.981, 0.0712, 7, text, sizeof text);
    assert_string_equal(text, "loss 0.0712 at round 7: < 0.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_are_taken_or_refused_with_a_remedy),
        cmocka_unit_test(a_stop_is_explained_as_it_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
