/* Frames over a TCP connection, for the few messages by which processes find each other. A frame is
 *
 *     "LSM1"   kind (4 bytes)   length (4 bytes)   body
 *
 * in little-endian order. The reader says beforehand how long a body it takes. */
#ifndef LS_COMM_RENDEZVOUS_WIRE_H
#define LS_COMM_RENDEZVOUS_WIRE_H

#include "base/status.h"
#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ls_frame {
    LS_FRAME_CHALLENGE = 1, /* rank 0: a nonce */
    LS_FRAME_JOIN,          /* rank, size, a nonce, a proof of the token over both nonces */
    LS_FRAME_WELCOME,       /* rank 0: its own proof */
    LS_FRAME_ADDRESS,       /* where to reach this process, with a proof */
    LS_FRAME_TABLE,         /* rank 0: where all are, with a proof */
    LS_FRAME_REFUSE,        /* rank 0: a status, and why, for people */
    LS_FRAME_CALL,          /* and the following: between any two ranks, see tcp_connect.c */
    LS_FRAME_ANSWER,
    LS_FRAME_CONFIRM,
    LS_FRAME_TAKEN
};
enum { LS_FRAME_HEAD = 12, LS_NONCE = 32, LS_TEXT_LIMIT = 512 };
#define LS_ADDRESS_LIMIT ((size_t)65536)

enum ls_wire_state {
    LS_WIRE_MORE,  /* a part of a frame is there */
    LS_WIRE_FRAME, /* a whole one */
    LS_WIRE_GONE,  /* the other end has closed */
    LS_WIRE_JUNK   /* not our frames, or too long */
};

struct ls_wire {
    int fd;       /* owned; not blocking; -1: none */
    size_t limit; /* of the next body */
    uint8_t head[LS_FRAME_HEAD];
    uint8_t *body; /* owned; of the last frame, `length` bytes and a 0 */
    size_t got, length;
    enum ls_frame kind;
};

void ls_wire_init(struct ls_wire *w, int fd);
void ls_wire_release(struct ls_wire *w);
/* What is there; never waits. After a whole frame the next call begins another. */
enum ls_wire_state ls_wire_read(struct ls_wire *w);
/* Wait for a whole frame until the time is up (then LS_WIRE_MORE). */
enum ls_wire_state ls_wire_wait(struct ls_wire *w, size_t limit, double until);
/* Send; waits until the time is up where the other end does not read. False: it is gone, or was too slow. */
bool ls_wire_write(struct ls_wire *w, enum ls_frame kind, const void *body, size_t bytes, double until);

void ls_put32(uint8_t *at, uint32_t value);
uint32_t ls_get32(const uint8_t *at);

/* Milliseconds for poll until a time on ls_now's clock, at most a second. */
int ls_wire_timeout_ms(double until);

/* Resolve a host; *list is freed by freeaddrinfo. */
enum ls_status ls_wire_resolve(const char *host, int port, struct addrinfo **list);
bool ls_wire_is_loopback(const struct sockaddr *address);
/* The name itself says that all processes are on one host. */
bool ls_wire_means_loopback(const char *host);
/* The address as text. */
void ls_wire_name(const struct sockaddr *address, socklen_t length, char text[64]);

#endif
