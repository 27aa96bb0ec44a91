/* Proofs that one knows a secret: HMAC-SHA256 over a purpose and a few parts. A proof for one purpose is none for
 * another, so that nothing a peer says can be played back to it. */
#ifndef LS_COMM_RENDEZVOUS_PROOF_H
#define LS_COMM_RENDEZVOUS_PROOF_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_PROOF = 32 }; /* bytes */

struct ls_part {
    const void *data;
    size_t bytes;
};

/* parts ends with an entry whose data is NULL; the length of each goes into the proof. */
enum ls_status ls_proof_make(const void *key, size_t key_bytes, const char *purpose, const struct ls_part *parts,
                             uint8_t proof[LS_PROOF]);
/* In constant time. */
bool ls_proof_same(const uint8_t a[LS_PROOF], const uint8_t b[LS_PROOF]);
/* Random bytes that nobody can guess. */
enum ls_status ls_proof_random(void *bytes, size_t n);

#endif
