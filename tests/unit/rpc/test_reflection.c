#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/descriptors.h"
#include "rpc/reflection.h"
#include "rpc/reflection_symbols.h"

static Dps__Reflection__FileSet *set;

static bool defined(const char *symbol)
{
    bool found = false;
    for (size_t i = 0; i < set->n_file; i++) {
        Dps__Reflection__File *file =
            dps__reflection__file__unpack(NULL, set->file[i].len, set->file[i].data);
        found = found || reflection_file_defines(file, symbol);
        dps__reflection__file__free_unpacked(file, NULL);
    }
    return found;
}

static int set_up(void **state)
{
    (void)state;
    set = dps__reflection__file_set__unpack(NULL, dps_descriptors_size, dps_descriptors);
    return set ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    dps__reflection__file_set__free_unpacked(set, NULL);
    return 0;
}

static void names_of_the_contract_are_found(void **state)
{
    (void)state;
    static const char *const names[] = {
        "dps.v1.Control",
        "dps.v1.Control.Submit",
        "dps.v1.Tensor",
        "dps.v1.Tensor.dims",
        "dps.v1.DType",
        "dps.v1.BF16",
        "dps.v1.TrainRequest.kind",
        "dps.v1.JobSpec.OptionsEntry.key",
        "grpc.health.v1.Health",
        "grpc.health.v1.HealthCheckResponse.ServingStatus",
        "grpc.reflection.v1alpha.ServerReflection",
        "grpc.reflection.v1.ServerReflection",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(defined(names[i]));
}

static void other_names_are_not(void **state)
{
    (void)state;
    static const char *const names[] = {"",
                                        "dps",
                                        "dps.v1",
                                        "dps.v1.",
                                        "Tensor",
                                        "dps.v1.Tens",
                                        "dps.v1.Tensor.",
                                        ".dps.v1.Tensor",
                                        "dps.v1.DType.F32",
                                        "dps.v1.Control.Submit.x"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_false(defined(names[i]));
}

static void what_is_no_descriptor_set_is_refused(void **state)
{
    (void)state;
    Reflection *reflection = NULL;
    assert_int_equal(reflection_new((const uint8_t *)"\xff\xff", 2, &reflection), -EBADMSG);
    assert_int_equal(reflection_new((const uint8_t *)"\x0a\x01\xff", 3, &reflection), -EBADMSG);
    assert_int_equal(reflection_new(dps_descriptors, dps_descriptors_size, &reflection), 0);
    reflection_free(reflection);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_the_contract_are_found),
        cmocka_unit_test(other_names_are_not),
        cmocka_unit_test(what_is_no_descriptor_set_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
