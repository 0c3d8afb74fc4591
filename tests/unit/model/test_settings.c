/* Optimizers and losses by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "model/loss.h"
#include "model/optimizer.h"

static Optimizer parse(const char *text)
{
    Optimizer optimizer;
    Error err = {0};
    if (optimizer_parse(text, 0.03F, &optimizer, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return optimizer;
}

static void refused(const char *text, const char *words)
{
    Optimizer optimizer;
    Error err = {0};
    assert_int_equal(optimizer_parse(text, 0.03F, &optimizer, &err), -EINVAL);
    if (!strstr(err.message, words))
        fail_msg("%s: \"%s\" lacks \"%s\"", text, err.message, words);
}

static void defaults_are_those_of_torch_optim(void **state)
{
    (void)state;
    Optimizer sgd = parse("sgd"), adam = parse("adam"), adamw = parse("adamw");
    assert_true(sgd.kind == OPTIMIZER_SGD && sgd.lr == 0.03F && sgd.momentum == 0);
    assert_true(sgd.dampening == 0 && sgd.weight_decay == 0 && !sgd.nesterov);
    assert_true(adam.kind == OPTIMIZER_ADAM && adam.beta1 == 0.9F && adam.beta2 == 0.999F);
    assert_true(adam.eps == 1e-8F && adam.weight_decay == 0);
    assert_true(adamw.kind == OPTIMIZER_ADAMW && adamw.weight_decay == 1e-2F);
}

static void settings_are_read(void **state)
{
    (void)state;
    Optimizer sgd = parse("sgd,momentum=0.9,nesterov=true,weight_decay=5e-4,lr=0.5");
    assert_true(sgd.momentum == 0.9F && sgd.nesterov && sgd.weight_decay == 5e-4F);
    assert_true(sgd.lr == 0.5F);
    assert_true(parse("sgd,momentum=0.5,dampening=-0.25").dampening == -0.25F);
    Optimizer adam = parse("adam,beta1=0,beta2=0.99,eps=1e-3");
    assert_true(adam.beta1 == 0 && adam.beta2 == 0.99F && adam.eps == 1e-3F);
}

static void wrong_settings_are_refused_with_a_remedy(void **state)
{
    (void)state;
    refused("rmsprop", "sgd, adam and adamw");
    refused("", "sgd, adam and adamw");
    refused("sgd,beta1=0.9", "it takes lr, weight_decay, momentum, dampening, nesterov");
    refused("adam,momentum=0.9", "it takes lr, weight_decay, beta1, beta2, eps");
    refused("sgd,momentum", "must be KEY=VALUE");
    refused("sgd,", "must be KEY=VALUE");
    refused("sgd,lr=-1", "0 or more, not \"-1\"");
    refused("sgd,lr=fast", "a number");
    refused("sgd,lr=1x", "a number");
    refused("sgd,lr=nan", "a number");
    refused("sgd,lr=1e99", "a number");
    refused("sgd,weight_decay=-0.1", "0 or more");
    refused("sgd,momentum=-0.1", "0 or more");
    refused("sgd,nesterov=maybe", "true or false");
    refused("sgd,nesterov=true", "needs momentum above 0");
    refused("sgd,nesterov=true,momentum=0.9,dampening=0.1", "no dampening");
    refused("adam,beta1=1", "from 0 to below 1");
    refused("adamw,beta2=-0.1", "from 0 to below 1");
    refused("adam,eps=-1e-8", "0 or more");
    char longest[OPTIMIZER_TEXT_MAX + 1];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    refused(longest, "shorter than 160");
}

static void format_reads_back_as_the_same(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "sgd",
        "sgd,weight_decay=0.0005,momentum=0.9,nesterov=true",
        "sgd,momentum=0.12345678,dampening=-0.5",
        "adam,beta1=0.1",
        "adamw,weight_decay=0",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char text[OPTIMIZER_TEXT_MAX], again[OPTIMIZER_TEXT_MAX];
        Optimizer a = parse(texts[i]);
        assert_string_equal(optimizer_format(&a, text, sizeof text), texts[i]);
        Optimizer b = parse(text);
        assert_string_equal(optimizer_format(&b, again, sizeof again), text);
    }
}

static void state_arrays_are_counted(void **state)
{
    (void)state;
    Optimizer sgd = parse("sgd"), momentum = parse("sgd,momentum=0.9"), adam = parse("adam");
    assert_int_equal(optimizer_state_count(&sgd), 0);
    assert_int_equal(optimizer_state_count(&momentum), 1);
    assert_int_equal(optimizer_state_count(&adam), 2);
}

static void losses_go_by_name(void **state)
{
    (void)state;
    for (int i = 0; i < LOSS_KIND_COUNT; i++) {
        LossKind kind = LOSS_KIND_COUNT;
        assert_int_equal(loss_from_name(loss_name((LossKind)i), &kind, NULL), 0);
        assert_int_equal(kind, i);
    }
    assert_true(loss_takes_classes(LOSS_NLL) && loss_takes_classes(LOSS_CROSS_ENTROPY));
    assert_false(loss_takes_classes(LOSS_MSE));
    LossKind kind;
    Error err = {0};
    assert_int_equal(loss_from_name("hinge", &kind, &err), -EINVAL);
    assert_non_null(strstr(err.message, "nll, cross-entropy and mse"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_torch_optim),
        cmocka_unit_test(settings_are_read),
        cmocka_unit_test(wrong_settings_are_refused_with_a_remedy),
        cmocka_unit_test(format_reads_back_as_the_same),
        cmocka_unit_test(state_arrays_are_counted),
        cmocka_unit_test(losses_go_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
