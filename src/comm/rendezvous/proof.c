#include "comm/rendezvous/proof.h"
#include "base/log.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>

/* The HMAC covers digests of fixed size, so that the boundaries of the parts are covered as well. */
enum ls_status ls_proof_make(const void *key, size_t key_bytes, const char *purpose, const struct ls_proof_part *parts,
                             uint8_t proof[LS_PROOF])
{
    uint8_t digests[8][LS_PROOF];
    unsigned n = 0, length = 0;
    bool good = EVP_Digest(purpose, strlen(purpose), digests[n++], NULL, EVP_sha256(), NULL) == 1;
    for (; good && parts->data && n < 8; parts++)
        good = EVP_Digest(parts->data, parts->bytes, digests[n++], NULL, EVP_sha256(), NULL) == 1;
    good = good && HMAC(EVP_sha256(), key, (int)key_bytes, digests[0], n * LS_PROOF, proof, &length);
    return good && length == LS_PROOF ? LS_OK : ls_fail(LS_FAILED, "libcrypto cannot make an HMAC-SHA256");
}

bool ls_proof_same(const uint8_t a[LS_PROOF], const uint8_t b[LS_PROOF])
{
    return CRYPTO_memcmp(a, b, LS_PROOF) == 0;
}

enum ls_status ls_proof_random(void *bytes, size_t n)
{
    return getrandom(bytes, n, 0) == (ssize_t)n
               ? LS_OK
               : ls_fail(LS_FAILED, "the system gives no random numbers: %s", strerror(errno));
}
