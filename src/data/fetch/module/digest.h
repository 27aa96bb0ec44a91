/* Checksums by OpenSSL; data/fetch/module.h explains them. */
#ifndef LS_DATA_FETCH_MODULE_DIGEST_H
#define LS_DATA_FETCH_MODULE_DIGEST_H

#include <stddef.h>

void *ls_digest_new(const char *kind);
void ls_digest_add(void *digest, const void *data, size_t size);
void ls_digest_end(void *digest, char hex[65]);

#endif
