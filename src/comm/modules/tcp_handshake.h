/* Handshakes between two ranks, which prove the key of the rendezvous to each other (TCP-1). For tcp_connect.c. */
#ifndef LS_COMM_MODULES_TCP_HANDSHAKE_H
#define LS_COMM_MODULES_TCP_HANDSHAKE_H

#include "comm/modules/tcp.h"
#include "comm/rendezvous/wire.h"
#include <poll.h>

#define LS_TCP_UNPROVEN 64 /* accepted connections at once that have not proved the key */
enum { LS_TCP_CALL = 8 + LS_NONCE };

struct ls_tcp_handshake {
    struct ls_wire w; /* fd -1: none */
    enum { LS_TCP_CONNECTING, LS_TCP_CALLED, LS_TCP_CONFIRMED, LS_TCP_ACCEPTED, LS_TCP_ANSWERED } state;
    int rank;     /* the other rank; -1: not known yet */
    double since; /* start of this attempt; without a connection: its end */
    uint8_t call[LS_TCP_CALL], answer[LS_NONCE];
    struct sockaddr_storage to; /* where to connect */
    socklen_t length;
};

/* The number that a connected rank sends. */
struct ls_tcp_report {
    uint8_t bytes[4];
    size_t got;
};

struct ls_tcp_connecting {
    const struct ls_rendezvous *m;
    int listener, *sockets;
    struct ls_tcp_report *reports; /* owned; of each rank */
    /* LS_TCP_UNPROVEN accepted ones, then one for each address of each lower rank; owned */
    struct ls_tcp_handshake *handshakes;
    int n, *why;           /* why: owned; of each rank, the last error */
    struct pollfd *polled; /* owned; the listener, the handshakes, the connected ranks */
    double until;
};

/* Starts to connect; the error of a failure is in o->why. */
void ls_tcp_begin(struct ls_tcp_connecting *o, struct ls_tcp_handshake *c);
/* The socket can be read or written: takes the next step. The connection of a complete handshake is in o->sockets, and other
 * attempts for that rank end. */
enum ls_status ls_tcp_advance(struct ls_tcp_connecting *o, struct ls_tcp_handshake *c);
/* Accepts some connections. They take free entries, or those of the oldest that have sent nothing. */
void ls_tcp_accept(struct ls_tcp_connecting *o);
/* Ends an attempt. */
void ls_tcp_drop(struct ls_tcp_handshake *c);

#endif
