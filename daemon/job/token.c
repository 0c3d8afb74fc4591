#include "job/token.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

void token_make(char token[TOKEN_MAX])
{
    uint64_t bits[2] = {0};
    if (getrandom(bits, sizeof bits, 0) != sizeof bits)
        bits[0] = clock_monotonic_us();
    snprintf(token, TOKEN_MAX, "%016" PRIx64 "%016" PRIx64, bits[0], bits[1]);
}

bool token_is(const char token[TOKEN_MAX], const char *shown)
{
    unsigned different = 0;
    if (!*token || strlen(shown) != strlen(token))
        return false;
    for (size_t i = 0; token[i]; i++)
        different |= (unsigned)(unsigned char)(token[i] ^ shown[i]);
    return different == 0;
}
