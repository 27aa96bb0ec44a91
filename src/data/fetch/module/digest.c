#include "data/fetch/module/digest.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

void *ls_digest_new(const char *kind)
{
    const EVP_MD *md = strcmp(kind, "sha256") == 0 ? EVP_sha256() : strcmp(kind, "md5") == 0 ? EVP_md5() : NULL;
    EVP_MD_CTX *digest = md ? EVP_MD_CTX_new() : NULL;
    if (digest && EVP_DigestInit_ex(digest, md, NULL) != 1) {
        EVP_MD_CTX_free(digest);
        return NULL;
    }
    return digest;
}

void ls_digest_add(void *digest, const void *data, size_t size)
{
    EVP_DigestUpdate(digest, data, size);
}

void ls_digest_end(void *digest, char hex[65])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(digest, bytes, &size);
    EVP_MD_CTX_free(digest);
    hex[0] = 0;
    for (unsigned i = 0; i < size && i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
}
