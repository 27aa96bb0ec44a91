/* Connections between all processes of a rendezvous, for transport `tcp`.
 *
 *   TCP-1  A connection carries no message before both ends have proved the key of the rendezvous, each over a nonce of
 *          the other.
 *   TCP-2  The listening socket is closed when all are connected: during a run no port is open.
 *   TCP-3  No call blocks, and everything ends at the given time. The error names a rank that was not reached and why. */
#ifndef LS_COMM_MODULES_TCP_H
#define LS_COMM_MODULES_TCP_H

#include "comm/rendezvous/rendezvous.h"
#include <sys/socket.h>

/* The socket on which this process accepts connections. */
struct ls_tcp_listener {
    int socket;    /* owned; -1: none */
    uint8_t *text; /* owned; a port (4 bytes) and endpoints, for the rendezvous */
    size_t bytes;
};

/* An endpoint is a family (4 or 6) and an address. */
enum { LS_TCP_ENDPOINT = 17 /* bytes */, LS_TCP_ENDPOINTS = 16 /* at most, of one rank */ };

/* The port of an address, in network order. */
uint16_t ls_tcp_port(const struct sockaddr_storage *address);
void ls_tcp_set_port(struct sockaddr_storage *address, uint16_t port);

/* Listens on the address that leads to rank 0, or, where that is not known, on all. */
enum ls_status ls_tcp_listen(const struct ls_launch *launch, struct ls_tcp_listener *listener);
void ls_tcp_close_listener(struct ls_tcp_listener *listener);
/* Puts a connected, non-blocking socket for each other rank into sockets (-1 before). The caller closes them, also after a
 * failure. */
enum ls_status ls_tcp_connect(const struct ls_rendezvous *rendezvous, const struct ls_tcp_listener *listener,
                              double until, int *sockets);

#endif
