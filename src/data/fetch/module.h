/* What the module lockstep-fetch.so exports as ls_fetch_module: HTTP by libcurl, and checksums by OpenSSL. */
#ifndef LS_DATA_FETCH_MODULE_H
#define LS_DATA_FETCH_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_http_request {
    const char *url;
    int64_t offset; /* first byte that is asked for */
    /* Takes the next bytes of the file. Returns false to end the transfer. */
    bool (*take)(void *context, const void *data, size_t size);
    /* Called about once a second, and more often while data arrives. Returns false to end the transfer. */
    bool (*go_on)(void *context);
    void *context;
};

enum ls_http_end {
    LS_HTTP_DONE,
    LS_HTTP_ENDED,  /* by take or go_on */
    LS_HTTP_ANEW,   /* the server cannot begin at the offset: begin at 0 */
    LS_HTTP_BROKEN, /* the connection was lost or became too slow; another try may succeed */
    LS_HTTP_FAILED  /* no such host, a refused connection, an error of the server */
};

struct ls_fetch_module {
    /* Writes the cause to why, except for DONE and ENDED. */
    enum ls_http_end (*get)(const struct ls_http_request *request, char why[256]);
    /* kind: "sha256" or "md5". Returns NULL if the kind is unknown or forbidden on this machine. */
    void *(*digest_new)(const char *kind);
    void (*digest_add)(void *digest, const void *data, size_t size);
    /* Writes the checksum in hexadecimal digits and frees the digest. */
    void (*digest_end)(void *digest, char hex[65]);
};

#endif
