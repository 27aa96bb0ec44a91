/* Frames over a TCP connection, for the rendezvous and for handshakes. A frame is
 *
 *     "LSM1"   kind (4 bytes)   length (4 bytes)   body
 *
 * in little-endian order. The reader limits the length of a body before it arrives. */
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
    LS_FRAME_WELCOME,       /* rank 0: a proof of the token */
    LS_FRAME_ADDRESS,       /* the address of this process, with a proof */
    LS_FRAME_TABLE,         /* rank 0: all addresses, with a proof */
    LS_FRAME_REFUSE,        /* rank 0: a status and a message */
    LS_FRAME_CALL,          /* this and the following: between any two ranks, see modules/tcp_handshake.c */
    LS_FRAME_ANSWER,
    LS_FRAME_CONFIRM,
    LS_FRAME_TAKEN
};
enum { LS_FRAME_HEAD = 12, LS_NONCE = 32, LS_TEXT_LIMIT = 512 };
#define LS_ADDRESS_LIMIT ((size_t)65536)

enum ls_wire_state {
    LS_WIRE_MORE,  /* the frame is not complete */
    LS_WIRE_FRAME, /* the frame is complete */
    LS_WIRE_GONE,  /* the other end has closed */
    LS_WIRE_JUNK   /* not a frame, or too long */
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
/* Reads what has arrived; never waits. After a complete frame the next call begins another. */
enum ls_wire_state ls_wire_read(struct ls_wire *w);
/* Waits for a complete frame. LS_WIRE_MORE: the time is up. */
enum ls_wire_state ls_wire_wait(struct ls_wire *w, size_t limit, double until);
/* Sends a frame; waits until the time is up while the other end does not read. False: it is gone or was too slow. */
bool ls_wire_write(struct ls_wire *w, enum ls_frame kind, const void *body, size_t bytes, double until);

void ls_put32(uint8_t *at, uint32_t value);
uint32_t ls_get32(const uint8_t *at);

/* Milliseconds until a time on ls_now's clock, for poll; at most a second. */
int ls_wire_timeout_ms(double until);

/* Resolves a host name. A name that is not known is tried again until this time on ls_now's clock; 0: once. Free *list with
 * freeaddrinfo. */
enum ls_status ls_wire_resolve(const char *host, int port, double until, struct addrinfo **list);
bool ls_wire_is_loopback(const struct sockaddr *address);
/* The host name itself means loopback. */
bool ls_wire_means_loopback(const char *host);
/* The address as text. */
void ls_wire_name(const struct sockaddr *address, socklen_t length, char text[64]);

#endif
