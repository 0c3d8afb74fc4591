/* Who is at the other end of a socket. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Fills text with "uid=1000 (ada)" for a Unix socket, "tcp 127.0.0.1:5555" otherwise, and *ret_uid
 * with the uid or -1. Never fails: what cannot be found out reads "unknown". */
void peer_describe(int fd, char *text, size_t size, int64_t *ret_uid);

/* "tcp:127.0.0.1:5555", "tcp:[::1]:5555", "unix:/path": the address that the socket is bound to. */
int peer_local_address(int fd, char *text, size_t size);
