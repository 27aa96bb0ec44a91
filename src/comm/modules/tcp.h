/* Connections between all processes of a meeting, for the transport `tcp`.
 *
 *   T1  A connection carries nothing before both ends have proved the key of the meeting, each over a nonce of the other.
 *   T2  Listening ends when all are connected: during a run there is no port to reach.
 *   T3  Nothing blocks, and all ends at the given time; the error names a rank that was not reached and why. */
#ifndef LS_COMM_MODULES_TCP_H
#define LS_COMM_MODULES_TCP_H

#include "comm/rendezvous/rendezvous.h"

/* Where this process listens. */
struct ls_tcp_listener {
    int listener;  /* owned; -1: none */
    uint8_t *text; /* owned; what the others need to connect, for the meeting */
    size_t bytes;
};

/* Listen on the address that leads to rank 0, or on all where nothing says which one that is. */
enum ls_status ls_tcp_listen(const struct ls_launch *launch, struct ls_tcp_listener *door);
void ls_tcp_close_listener(struct ls_tcp_listener *door);
/* A connected, non-blocking socket for each rank but the own into sockets (-1 before); the caller closes them, also after
 * a failure. */
enum ls_status ls_tcp_connect(const struct ls_rendezvous *meeting, const struct ls_tcp_listener *door, double until,
                              int *sockets);

#endif
