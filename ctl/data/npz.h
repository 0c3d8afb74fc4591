/* Arrays in .npz files: zip archives of .npy members, as numpy.savez writes them and numpy.load
 * reads them. No thread affinity: a writer belongs to whoever made it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dps.pb-c.h"

enum { NPZ_MAX_DIMS = 8 };

typedef struct NpzWriter NpzWriter;

/* Arrays are spooled beside `path` and the file is built when it is closed: it appears whole, by a
 * rename, or not at all. Memory does not grow with the arrays. */
int npz_writer_new(const char *path, NpzWriter **ret, char *problem, size_t size);

/* Begins an array of that name ("conv1.weight"); its data follows by npz_writer_data, row-major,
 * in pieces of any size. No dims: a scalar. The array before must be whole. -EINVAL: a name that is
 * empty, has a '/', or came before; a negative dim; a dtype that numpy lacks (BF16). */
int npz_writer_add(NpzWriter *writer, const char *name, Dps__V1__DType dtype, int ndim,
                   const int64_t *dims, char *problem, size_t size);
/* -EINVAL: more bytes than dims and dtype say. */
int npz_writer_data(NpzWriter *writer, const void *data, size_t bytes, char *problem, size_t size);

/* Writes the file and frees the writer, whatever it returns. -EINVAL: the last array is not whole.
 */
int npz_writer_close(NpzWriter *writer, char *problem, size_t size);
/* Frees the writer and leaves no file behind. NULL is fine; returns NULL. */
NpzWriter *npz_writer_free(NpzWriter *writer);

/* What a .npy member holds. */
typedef enum NpyType {
    NPY_U1,
    NPY_I4,
    NPY_I8,
    NPY_F4,
    NPY_F8,
} NpyType;

/* One array read whole; data is malloc'ed and belongs to the array. */
typedef struct NpzArray {
    NpyType type;
    int ndim;
    int64_t dims[NPZ_MAX_DIMS];
    size_t elements, bytes;
    size_t header_bytes; /* data begins at this byte of the member */
    void *data;          /* aligned for the type */
} NpzArray;

/* Reads the array `name` of the file. -ENOENT: no such file, or no such array in it; -EINVAL: not
 * what numpy writes; -EFBIG: more than NPZ_MAX_BYTES; -EOPNOTSUPP: big-endian, Fortran order or a
 * dtype not listed above. */
int npz_read(const char *path, const char *name, NpzArray *ret, char *problem, size_t size);
void npz_array_free(NpzArray *array);
