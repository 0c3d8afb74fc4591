#include "ctl/data/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *descr, *name; /* as numpy writes it, without the byte order */
    size_t size;
} types[] = {
    [NPY_U1] = {"u1", "uint8", 1},   [NPY_I4] = {"i4", "int32", 4},   [NPY_I8] = {"i8", "int64", 8},
    [NPY_F4] = {"f4", "float32", 4}, [NPY_F8] = {"f8", "float64", 8},
};

enum { TYPES = sizeof(types) / sizeof(types[0]) };

size_t npy_type_size(NpyType type)
{
    return types[type].size;
}

const char *npy_type_name(NpyType type)
{
    return types[type].name;
}

int npy_header_length(const uint8_t *bytes, size_t available, size_t *ret, size_t *at,
                      const char **why)
{
    size_t length;

    *at = 0;
    *why = "is no .npy header (\\x93NUMPY)";
    if (available < NPY_PREAMBLE || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return -EINVAL;
    *at = 6;
    *why = "has a version that is none of 1.0, 2.0 and 3.0";
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
        return -EINVAL;
    *at = 8;
    *why = "has a header longer than 10000 bytes";
    if (bytes[6] == 1)
        length = 10 + (size_t)(bytes[8] | bytes[9] << 8);
    else
        length = 12 + ((size_t)bytes[8] | (size_t)bytes[9] << 8 | (size_t)bytes[10] << 16 |
                       (size_t)bytes[11] << 24);
    if (length > NPY_MAX_HEADER)
        return -EINVAL;
    if (length < NPY_PREAMBLE) {
        *why = "has a header too short for a dict";
        return -EINVAL;
    }
    *ret = length;
    return 0;
}

/* A cursor over the dict; `why` is set by whoever fails. */
typedef struct Cursor {
    const char *begin, *p, *end;
    const char *why;
} Cursor;

static void skip_space(Cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t'))
        c->p++;
}

static bool take(Cursor *c, char what)
{
    skip_space(c);
    if (c->p == c->end || *c->p != what)
        return false;
    c->p++;
    return true;
}

static int expect(Cursor *c, char what, const char *why)
{
    if (take(c, what))
        return 0;
    c->why = why;
    return -EINVAL;
}

/* A string without escapes in either kind of quotes. */
static int parse_string(Cursor *c, const char **text, size_t *length)
{
    char quote;

    skip_space(c);
    c->why = "has a header in which a string should stand";
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"'))
        return -EINVAL;
    quote = *c->p++;
    *text = c->p;
    while (c->p < c->end && *c->p != quote)
        c->p++;
    c->why = "has a header with a string that does not end";
    if (c->p == c->end)
        return -EINVAL;
    *length = (size_t)(c->p++ - *text);
    return 0;
}

static bool take_word(Cursor *c, const char *word)
{
    size_t length = strlen(word);

    skip_space(c);
    if ((size_t)(c->end - c->p) < length || memcmp(c->p, word, length) != 0)
        return false;
    c->p += length;
    return true;
}

static int parse_descr(Cursor *c, NpzArray *array)
{
    const char *start, *text;
    size_t length;

    skip_space(c);
    start = c->p;
    if (c->p < c->end && *c->p == '[') {
        c->why = "has a structured dtype, which is not read";
        return -EOPNOTSUPP;
    }
    if (parse_string(c, &text, &length) < 0)
        return -EINVAL;
    c->p = start;
    c->why = "has a dtype other than uint8, int32, int64, float32 and float64";
    if (length != 3)
        return -EOPNOTSUPP;
    if (text[0] == '>') {
        c->why = "is big-endian, which is not read";
        return -EOPNOTSUPP;
    }
    if (text[0] != '<' && text[0] != '|' && text[0] != '=')
        return -EOPNOTSUPP;
    for (int i = 0; i < TYPES; i++)
        if (memcmp(text + 1, types[i].descr, 2) == 0) {
            array->type = (NpyType)i;
            c->p = text + length + 1;
            return 0;
        }
    return -EOPNOTSUPP;
}

static int parse_order(Cursor *c, NpzArray *array)
{
    (void)array;
    if (take_word(c, "False"))
        return 0;
    if (take_word(c, "True")) {
        c->p -= strlen("True");
        c->why = "is in Fortran order; save numpy.ascontiguousarray of it";
        return -EOPNOTSUPP;
    }
    c->why = "has a header whose fortran_order is neither True nor False";
    return -EINVAL;
}

static int parse_dim(Cursor *c, int64_t *ret)
{
    int64_t value = 0;

    skip_space(c);
    c->why = "has a header whose shape is not a tuple of sizes";
    if (c->p == c->end || *c->p < '0' || *c->p > '9')
        return -EINVAL;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *c->p - '0', &value)) {
            c->why = "has a dim that does not fit 63 bits";
            return -EFBIG;
        }
    }
    /* Python 2 wrote long integers so */
    if (c->p < c->end && *c->p == 'L')
        c->p++;
    *ret = value;
    return 0;
}

static int parse_shape(Cursor *c, NpzArray *array)
{
    int r = expect(c, '(', "has a header whose shape is not a tuple of sizes");

    if (r < 0)
        return r;
    for (array->ndim = 0; !take(c, ')');) {
        if (array->ndim == NPZ_MAX_DIMS) {
            c->why = "has more than 8 dims";
            return -EFBIG;
        }
        r = parse_dim(c, &array->dims[array->ndim++]);
        if (r < 0)
            return r;
        if (!take(c, ',') && (skip_space(c), c->p == c->end || *c->p != ')')) {
            c->why = "has a header whose shape is not a tuple of sizes";
            return -EINVAL;
        }
    }
    return 0;
}

static const struct {
    const char *name;
    int (*parse)(Cursor *c, NpzArray *array);
} keys[] = {
    {"descr", parse_descr},
    {"fortran_order", parse_order},
    {"shape", parse_shape},
};

enum { KEYS = sizeof(keys) / sizeof(keys[0]) };

static int parse_entry(Cursor *c, NpzArray *array, unsigned *seen)
{
    const char *name;
    size_t length;
    int r = parse_string(c, &name, &length);

    if (r < 0)
        return r;
    for (unsigned i = 0; i < KEYS; i++) {
        if (length != strlen(keys[i].name) || memcmp(name, keys[i].name, length) != 0)
            continue;
        if (*seen & 1U << i)
            break;
        *seen |= 1U << i;
        r = expect(c, ':', "has a header with a key that has no value");
        return r < 0 ? r : keys[i].parse(c, array);
    }
    c->p = name;
    c->why = "has a header with a key that is unknown or comes twice";
    return -EINVAL;
}

static int parse_dict(Cursor *c, NpzArray *array)
{
    unsigned seen = 0;
    int r = expect(c, '{', "has a header that is no dict");

    while (r == 0 && !take(c, '}')) {
        r = parse_entry(c, array, &seen);
        if (r == 0 && !take(c, ',') && (skip_space(c), c->p == c->end || *c->p != '}'))
            r = expect(c, '}', "has a header that is no dict");
    }
    if (r < 0)
        return r;
    skip_space(c);
    if (c->p != c->end) {
        c->why = "has a header that goes on after the dict";
        return -EINVAL;
    }
    if (seen != (1U << KEYS) - 1) {
        c->why = "has a header that lacks one of descr, fortran_order and shape";
        return -EINVAL;
    }
    return 0;
}

static int count_bytes(NpzArray *array, const char **why)
{
    size_t elements = 1, bytes;
    bool huge = false, empty = false;

    for (int i = 0; i < array->ndim; i++) {
        empty |= array->dims[i] == 0;
        huge |= __builtin_mul_overflow(elements, (size_t)array->dims[i], &elements);
    }
    if (empty)
        elements = 0;
    huge =
        !empty && (huge || __builtin_mul_overflow(elements, npy_type_size(array->type), &bytes) ||
                   bytes > NPZ_MAX_BYTES);
    if (huge) {
        *why = "has a shape of more than the 8 GiB that are allowed";
        return -EFBIG;
    }
    array->elements = elements;
    array->bytes = elements * npy_type_size(array->type);
    return 0;
}

int npy_parse_header(const uint8_t *bytes, size_t length, NpzArray *ret, size_t *at,
                     const char **why)
{
    const char *text = (const char *)bytes;
    size_t preamble = bytes[6] == 1 ? 10 : 12;
    Cursor c = {.begin = text, .p = text + preamble, .end = text + length};
    NpzArray array = {.header_bytes = length};
    int r = parse_dict(&c, &array);

    if (r == 0)
        r = count_bytes(&array, &c.why);
    if (r < 0) {
        *at = (size_t)(c.p - c.begin);
        *why = c.why;
        return r;
    }
    *ret = array;
    return 0;
}

size_t npy_format_header(const char *descr, int ndim, const int64_t *dims,
                         char header[static NPY_HEADER_SPACE])
{
    size_t used = 10, total;

    used += (size_t)snprintf(header + used, NPY_HEADER_SPACE - used,
                             "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < ndim; i++)
        used += (size_t)snprintf(header + used, NPY_HEADER_SPACE - used, "%s%" PRId64,
                                 i ? ", " : "", dims[i]);
    used +=
        (size_t)snprintf(header + used, NPY_HEADER_SPACE - used, "%s), }", ndim == 1 ? "," : "");
    /* spaces and a newline, so that the data is aligned */
    total = (used + 1 + 63) / 64 * 64;
    memset(header + used, ' ', total - used - 1);
    header[total - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01", 8);
    header[8] = (char)((total - 10) & 0xff);
    header[9] = (char)((total - 10) >> 8);
    return total;
}
