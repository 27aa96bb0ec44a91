/* Proofs of knowing a secret: HMAC-SHA256 over a purpose and a few parts. A proof for one purpose is not valid for another,
 * so that a message cannot be replayed in another role. */
#ifndef LS_COMM_RENDEZVOUS_PROOF_H
#define LS_COMM_RENDEZVOUS_PROOF_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_PROOF = 32 }; /* bytes */

struct ls_proof_part {
    const void *data;
    size_t bytes;
};

/* parts ends with an entry whose data is NULL. The length of each part is covered by the proof. */
enum ls_status ls_proof_make(const void *key, size_t key_bytes, const char *purpose, const struct ls_proof_part *parts,
                             uint8_t proof[LS_PROOF]);
/* In constant time. */
bool ls_proof_same(const uint8_t a[LS_PROOF], const uint8_t b[LS_PROOF]);
/* Cryptographically secure random bytes. */
enum ls_status ls_proof_random(void *bytes, size_t n);

#endif
