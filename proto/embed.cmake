# cmake -DIN=FILE -DOUT=FILE.c -DSYMBOL=NAME -P embed.cmake: the bytes of IN as a C array.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
string(REPEAT "0x..," 16 line)
string(REGEX REPLACE "(${line})" "\\1\n    " bytes "${bytes}")
file(WRITE ${OUT} "/* Made from ${SYMBOL}.set. */
#include <stddef.h>
#include <stdint.h>

extern const uint8_t ${SYMBOL}[];
extern const size_t ${SYMBOL}_size;

const uint8_t ${SYMBOL}[] = {
    ${bytes}
};
const size_t ${SYMBOL}_size = sizeof ${SYMBOL};
")
