/* Headers of .npy members. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/data/npy.h"

/* Parses a dict behind a preamble of the version; the bytes stand at the end of a block of just
 * their size, so that a sanitizer sees a read past them. */
static int parse(int version, const char *dict, NpzArray *ret, size_t *at, const char **why)
{
    size_t preamble = version == 1 ? 10 : 12, length, n = strlen(dict);
    uint8_t *bytes = calloc(1, preamble + n);
    int r;

    assert_non_null(bytes);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (uint8_t)version;
    bytes[8] = (uint8_t)n;
    bytes[9] = (uint8_t)(n >> 8);
    memcpy(bytes + preamble, dict, n);
    r = npy_header_length(bytes, NPY_PREAMBLE, &length, at, why);
    if (r == 0) {
        assert_int_equal(length, preamble + n);
        r = npy_parse_header(bytes, length, ret, at, why);
    }
    free(bytes);
    return r;
}

static void good_headers_are_read(void **state)
{
    static const struct {
        int version;
        const char *dict;
        NpyType type;
        int ndim;
        int64_t dims[3];
        size_t bytes;
    } cases[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", NPY_F4, 2, {2, 3}, 24},
        {2, "{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }  \n", NPY_U1, 1, {5}, 5},
        {3, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }", NPY_I8, 0, {0}, 8},
        {1,
         "{\"shape\":(1,2,3),\"descr\":\"<i4\",\"fortran_order\":False}",
         NPY_I4,
         3,
         {1, 2, 3},
         24},
        {1,
         "{'descr': '=f8', 'fortran_order': False, 'shape': (7L, 2L)}\n",
         NPY_F8,
         2,
         {7, 2},
         112},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9)}", NPY_F4, 2, {0, 9}, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *why = "";
        NpzArray array;
        size_t at = 0;

        if (parse(cases[i].version, cases[i].dict, &array, &at, &why) < 0)
            fail_msg("%s: byte %zu: %s", cases[i].dict, at, why);
        assert_int_equal(array.type, cases[i].type);
        assert_int_equal(array.ndim, cases[i].ndim);
        assert_memory_equal(array.dims, cases[i].dims, (size_t)array.ndim * sizeof(int64_t));
        assert_int_equal(array.bytes, cases[i].bytes);
    }
}

#define F4    "'descr': '<f4', "
#define ORDER "'fortran_order': False, "

static void bad_headers_are_named(void **state)
{
    static const struct {
        const char *dict;
        int code;
        const char *words;
    } cases[] = {
        {"               ", -EINVAL, "no dict"},
        {"{" F4 ORDER "'shape': (1,)", -EINVAL, "no dict"},
        {"{" F4 ORDER "'shape': (1,)} x", -EINVAL, "goes on after"},
        {"{" F4 ORDER "}", -EINVAL, "lacks one of"},
        {"{" F4 F4 ORDER "'shape': (1,)}", -EINVAL, "comes twice"},
        {"{" F4 ORDER "'shape': (1,), 'more': 1}", -EINVAL, "unknown"},
        {"{" F4 "'fortran_order': True, 'shape': (1,)}", -EOPNOTSUPP, "Fortran"},
        {"{" F4 "'fortran_order': 0, 'shape': (1,)}", -EINVAL, "neither True nor False"},
        {"{'descr': '>f4', " ORDER "'shape': (1,)}", -EOPNOTSUPP, "big-endian"},
        {"{'descr': '<f2', " ORDER "'shape': (1,)}", -EOPNOTSUPP, "dtype"},
        {"{'descr': '<U8', " ORDER "'shape': (1,)}", -EOPNOTSUPP, "dtype"},
        {"{'descr': '|O', " ORDER "'shape': (1,)}", -EOPNOTSUPP, "dtype"},
        {"{'descr': [('a', '<f4')], " ORDER "'shape': (1,)}", -EOPNOTSUPP, "structured"},
        {"{'descr': '<f4, " ORDER, -EOPNOTSUPP, "dtype"},
        {"{'descr': '<f4", -EINVAL, "does not end"},
        {"{'descr' '<f4', " ORDER "'shape': (1,)}", -EINVAL, "no value"},
        {"{" F4 ORDER "'shape': (-1,)}", -EINVAL, "tuple of sizes"},
        {"{" F4 ORDER "'shape': (1 2)}", -EINVAL, "tuple of sizes"},
        {"{" F4 ORDER "'shape': 3}", -EINVAL, "tuple of sizes"},
        {"{" F4 ORDER "'shape': (1,", -EINVAL, "tuple of sizes"},
        {"{" F4 ORDER "'shape': (1.5,)}", -EINVAL, "tuple of sizes"},
        {"{" F4 ORDER "'shape': (9223372036854775808,)}", -EFBIG, "63 bits"},
        {"{" F4 ORDER "'shape': (9223372036854775807,)}", -EFBIG, "8 GiB"},
        {"{" F4 ORDER "'shape': (4294967296, 4294967296, 4294967296)}", -EFBIG, "8 GiB"},
        {"{" F4 ORDER "'shape': (1,1,1,1,1,1,1,1,1)}", -EFBIG, "8 dims"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *why = "";
        NpzArray array;
        size_t at = 0;
        int r = parse(1, cases[i].dict, &array, &at, &why);

        if (r != cases[i].code || !strstr(why, cases[i].words))
            fail_msg("%s: %d, '%s' where '%s' should be said", cases[i].dict, r, why,
                     cases[i].words);
        assert_true(at <= 10 + strlen(cases[i].dict));
    }
}

/* No dims of zero hide a product that overflows. */
static void a_zero_dim_makes_an_empty_array(void **state)
{
    const char *why;
    NpzArray array;
    size_t at;

    (void)state;
    assert_int_equal(parse(1,
                           "{" F4 ORDER "'shape': (9223372036854775807, 9223372036854775807, 0)}",
                           &array, &at, &why),
                     0);
    assert_int_equal(array.bytes, 0);
}

static void bad_preambles_are_named(void **state)
{
    static const struct {
        const char *bytes;
        size_t available;
        const char *words;
    } cases[] = {
        {"\x93NUMPX\x01\x00\x20\x00{ ", 12, "no .npy header"},
        {"\x93NUMPY\x01\x00\x20\x00{", 11, "no .npy header"},
        {"\x93NUMPY\x04\x00\x20\x00{ ", 12, "version"},
        {"\x93NUMPY\x00\x00\x20\x00{ ", 12, "version"},
        {"\x93NUMPY\x01\x01\x20\x00{ ", 12, "version"},
        {"\x93NUMPY\x01\x00\xff\xff{ ", 12, "longer than 10000"},
        {"\x93NUMPY\x02\x00\xff\xff\xff\xff", 12, "longer than 10000"},
        {"\x93NUMPY\x01\x00\x01\x00{ ", 12, "too short"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *why = "";
        size_t length, at;

        assert_int_equal(npy_header_length((const uint8_t *)cases[i].bytes, cases[i].available,
                                           &length, &at, &why),
                         -EINVAL);
        if (!strstr(why, cases[i].words))
            fail_msg("case %zu: '%s' lacks '%s'", i, why, cases[i].words);
    }
}

/* Each prefix and each change of a byte: an answer, and no read past the end. */
static void damage_does_no_harm(void **state)
{
    const char *good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n";
    const char *why;
    char text[80];
    NpzArray array;
    size_t at;

    (void)state;
    for (size_t n = 2; n <= strlen(good); n++) {
        memcpy(text, good, n);
        text[n] = '\0';
        parse(1, text, &array, &at, &why);
    }
    for (size_t i = 0; i < strlen(good); i++)
        for (int c = 1; c < 256; c++) {
            strcpy(text, good);
            text[i] = (char)c;
            parse(1 + c % 3, text, &array, &at, &why);
        }
}

static void written_headers_are_read_back(void **state)
{
    const int64_t dims[8] = {1, 22, 333, 4, 5, 6, 7, 1};
    const int64_t long_dims[8] = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX,
                                  INT64_MAX, INT64_MAX, INT64_MAX, 0};
    char header[NPY_HEADER_SPACE];
    const char *why;
    NpzArray array;
    size_t at, length, n;

    (void)state;
    for (int ndim = 0; ndim <= 8; ndim++) {
        length = npy_format_header("<f4", ndim, ndim == 8 ? long_dims : dims, header);
        assert_int_equal(length % 64, 0);
        assert_int_equal(header[length - 1], '\n');
        assert_int_equal(npy_header_length((uint8_t *)header, NPY_PREAMBLE, &n, &at, &why), 0);
        assert_int_equal(n, length);
        assert_int_equal(npy_parse_header((uint8_t *)header, n, &array, &at, &why), 0);
        assert_int_equal(array.ndim, ndim);
        assert_memory_equal(array.dims, ndim == 8 ? long_dims : dims,
                            (size_t)ndim * sizeof(int64_t));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_headers_are_read),
        cmocka_unit_test(bad_headers_are_named),
        cmocka_unit_test(a_zero_dim_makes_an_empty_array),
        cmocka_unit_test(bad_preambles_are_named),
        cmocka_unit_test(damage_does_no_harm),
        cmocka_unit_test(written_headers_are_read_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
