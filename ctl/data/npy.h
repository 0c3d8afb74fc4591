/* The header of a .npy member: magic, version, and a Python dict that says what follows. Pure
 * functions, no I/O. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/data/npz.h"

enum {
    NPY_PREAMBLE = 12, /* bytes that are enough to learn how long the header is */
    /* numpy itself refuses longer ones when it does not trust a file. */
    NPY_MAX_HEADER = 10000,
    /* What npy_format_header needs at most, for NPZ_MAX_DIMS dims of 19 digits. */
    NPY_HEADER_SPACE = 384,
};

/* Largest array read into memory. */
#define NPZ_MAX_BYTES ((size_t)8 << 30)

size_t npy_type_size(NpyType type);
const char *npy_type_name(NpyType type); /* "float32" */

/* From the first bytes of a member (NPY_PREAMBLE, or all there are): how many bytes stand before
 * the data. -EINVAL; *at is then the byte that is wrong and *why a phrase. */
int npy_header_length(const uint8_t *bytes, size_t available, size_t *ret, size_t *at,
                      const char **why);

/* Parses a header of the length that npy_header_length told; fills in type, dims and sizes, not
 * data. Returns 0, -EINVAL, -EOPNOTSUPP or -EFBIG, with *at and *why. */
int npy_parse_header(const uint8_t *bytes, size_t length, NpzArray *ret, size_t *at,
                     const char **why);

/* A version 1.0 header, padded to a multiple of 64; returns its length. `descr` as numpy writes it
 * ("<f4"). */
size_t npy_format_header(const char *descr, int ndim, const int64_t *dims,
                         char header[static NPY_HEADER_SPACE]);
