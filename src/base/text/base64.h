/* Base64 with padding (RFC 4648), for bytes within JSON and HTML. */
#ifndef LS_BASE_BASE64_H
#define LS_BASE_BASE64_H

#include <stddef.h>

/* Returns the text, owned by the caller; NULL: out of memory. */
char *ls_base64(const void *bytes, size_t n);

#endif
