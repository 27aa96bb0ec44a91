/* How processes that no MPI launcher started find each other: each brings the address that its network library gave it
 * and gets everybody's.
 *
 *   M1  Nothing of a process is used before it has proved that it knows the token; until then it can make the others
 *       keep a hundred bytes for ten seconds, and nothing more.
 *       Without a token, over the loopback interface only, it must belong to the same user.
 *   M2  The token itself never travels, nor does the key that the meeting ends with.
 *   M3  Everything ends at the given time; who has not come by then is named, by every rank that has. */
#ifndef LS_COMM_RENDEZVOUS_RENDEZVOUS_H
#define LS_COMM_RENDEZVOUS_RENDEZVOUS_H

#include "base/status.h"
#include "comm/rendezvous/proof.h"
#include "launch/launch.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_address {
    void *data; /* owned */
    size_t bytes;
};

struct ls_rendezvous {
    int rank, size;
    uint8_t key[LS_PROOF];      /* what only those who met know */
    struct ls_address *address; /* owned; of each rank */
    char *folder;               /* owned; FILE: where, and the number of the session there */
    int session;
};

/* By launch->kind, TCP or FILE, until that time on ls_now's clock. All must have the same transport, a name of at most
 * eight messages. On failure nothing is left in *m. */
enum ls_status ls_rendezvous_run(const struct ls_launch *launch, const char *transport, const void *address,
                                 size_t bytes, double until, struct ls_rendezvous *m);
/* All have read all: what the meeting left in the file system goes. Called by rank 0 when everyone has been heard. */
void ls_rendezvous_clean(const struct ls_rendezvous *m);
void ls_rendezvous_release(struct ls_rendezvous *m);

/* The two ways, and what they share. */
enum ls_status ls_rendezvous_host(const struct ls_launch *launch, double until,
                                  struct ls_rendezvous *m); /* rank 0 of TCP */
enum ls_status ls_rendezvous_join(const struct ls_launch *launch, double until,
                                  struct ls_rendezvous *m); /* the others */
enum ls_status ls_rendezvous_file(const struct ls_launch *launch, double until, struct ls_rendezvous *m);
/* Without a token only a machine's own processes may meet. */
enum ls_status ls_rendezvous_check_token(const struct ls_launch *launch);
enum ls_status ls_rendezvous_keep(struct ls_rendezvous *m, int rank, const void *address, size_t bytes);
/* Keeps the addresses of all ranks from a list of them; !*whole: it is cut off, or longer than it should be. */
enum ls_status ls_rendezvous_read_table(struct ls_rendezvous *m, const uint8_t *list, size_t size, bool *whole);
/* "rank 2", "ranks 1, 2 and 5": those without an address. */
void ls_rendezvous_missing(const struct ls_rendezvous *m, char *text, size_t room);

#endif
