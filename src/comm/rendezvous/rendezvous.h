/* The rendezvous: how processes find each other when no MPI launcher started them. Each brings the address of its transport
 * and gets the addresses of all.
 *
 *   RENDEZVOUS-1  Nothing that a process sends is used before it has proved that it knows the token. Until then it can
 *                 make the others keep a hundred bytes for ten seconds. Without a token, which is allowed on the loopback
 *                 interface only, it must belong to the same user.
 *   RENDEZVOUS-2  Neither the token nor the key that results from the rendezvous travels over the network.
 *   RENDEZVOUS-3  Everything ends at the given time. Every rank that came names those that did not. */
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
    uint8_t key[LS_PROOF];      /* a secret that only these processes know */
    struct ls_address *address; /* owned; of each rank */
    char *folder;               /* owned; FILE: the folder, and the number of the session in it */
    int session;
};

/* By TCP or in a folder, depending on launch->kind, until this time on ls_now's clock. All processes must have the same
 * transport; its name has at most eight letters. On failure *m is empty. */
enum ls_status ls_rendezvous_run(const struct ls_launch *launch, const char *transport, const void *address,
                                 size_t bytes, double until, struct ls_rendezvous *m);
/* Removes what the rendezvous left in the file system. Rank 0 calls it when all are connected. */
void ls_rendezvous_clean(const struct ls_rendezvous *m);
void ls_rendezvous_release(struct ls_rendezvous *m);

/* The ways of launch->kind, and what they share. */
enum ls_status ls_rendezvous_host(const struct ls_launch *launch, double until,
                                  struct ls_rendezvous *m); /* rank 0 of TCP */
enum ls_status ls_rendezvous_join(const struct ls_launch *launch, double until,
                                  struct ls_rendezvous *m); /* the others */
enum ls_status ls_rendezvous_file(const struct ls_launch *launch, double until, struct ls_rendezvous *m);
/* Listens at the address and port of rank 0. The caller closes *listener; -1: it failed. */
enum ls_status ls_rendezvous_listen(const struct ls_launch *launch, int *listener);
enum ls_status ls_rendezvous_set_address(struct ls_rendezvous *m, int rank, const void *address, size_t bytes);
/* Reads the addresses of all ranks from a list; !*whole: the list is too short or too long. */
enum ls_status ls_rendezvous_read_table(struct ls_rendezvous *m, const uint8_t *list, size_t size, bool *whole);
/* "rank 2", "ranks 1, 2 and 5": the ranks without an address. */
void ls_rendezvous_missing(const struct ls_rendezvous *m, char *text, size_t room);

#endif
