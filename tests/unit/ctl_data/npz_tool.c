/* npz_tool OUT IN NAME…: reads the arrays of IN by npz_read and writes them to OUT by NpzWriter, in
 * pieces of odd sizes. */
#include <stdio.h>

#include "ctl/data/npz.h"

static int copy(NpzWriter *writer, const char *in, const char *name, char *problem, size_t size)
{
    static const Dps__V1__DType dtypes[] = {
        [NPY_U1] = DPS__V1__DTYPE__U8,
        [NPY_I4] = DPS__V1__DTYPE__I32,
        [NPY_I8] = DPS__V1__DTYPE__I64,
        [NPY_F4] = DPS__V1__DTYPE__F32,
    };
    NpzArray array;
    int r = npz_read(in, name, &array, problem, size);

    if (r < 0)
        return r;
    /* the contract has no such dtype: its bits, flat, for the test to view */
    if (array.type == NPY_F8) {
        array.type = NPY_I8;
        array.ndim = 1;
        array.dims[0] = (int64_t)array.elements;
    }
    r = npz_writer_add(writer, name, dtypes[array.type], array.ndim, array.dims, problem, size);
    for (size_t done = 0, piece = 1; r == 0 && done < array.bytes; done += piece, piece += 997) {
        if (piece > array.bytes - done)
            piece = array.bytes - done;
        r = npz_writer_data(writer, (char *)array.data + done, piece, problem, size);
    }
    npz_array_free(&array);
    return r;
}

int main(int argc, char **argv)
{
    char problem[512] = "usage: npz_tool OUT IN NAME…";
    NpzWriter *writer;
    int r = argc < 4 ? -1 : npz_writer_new(argv[1], &writer, problem, sizeof(problem));

    if (r == 0) {
        for (int i = 3; i < argc && r == 0; i++)
            r = copy(writer, argv[2], argv[i], problem, sizeof(problem));
        if (r == 0)
            r = npz_writer_close(writer, problem, sizeof(problem));
        else
            npz_writer_free(writer);
    }
    if (r < 0)
        fprintf(stderr, "%s\n", problem);
    return r < 0;
}
