/* What a process that dpsd starts shows to prove that it is the one. Any thread. */
#pragma once

#include <stdbool.h>

enum { TOKEN_MAX = 33 };

void token_make(char token[TOKEN_MAX]);
/* An empty token is nobody's. The time that it takes tells nothing of the token. */
bool token_is(const char token[TOKEN_MAX], const char *shown);
