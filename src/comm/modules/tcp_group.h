/* The inside of transport `tcp`. Records are those of comm/transfer.h, and two more: DENY answers an ASK whose receive has
 * too little room; GOODBYE is the last record of a rank that closes. */
#ifndef LS_COMM_MODULES_TCP_GROUP_H
#define LS_COMM_MODULES_TCP_GROUP_H

#include "comm/modules/tcp.h"
#include "comm/transfer.h"

enum ls_tcp_kind { LS_TCP_SHORT = 1, LS_TCP_ASK, LS_TCP_GRANT, LS_TCP_DENY, LS_TCP_PIECE, LS_TCP_GOODBYE };
enum { LS_TCP_SHORT_MOST = 32768, LS_TCP_PIECE_MOST = 262144 };

struct ls_tcp_record {
    uint32_t kind, tag;
    uint64_t id;    /* ASK, GRANT, DENY: the send's; PIECE: the receive's */
    uint64_t bytes; /* ASK: of the message; GRANT: the receive's id; SHORT, PIECE: of the data that follows */
};

/* A record that is being written or read, and the data that follows it. */
struct ls_tcp_frame {
    struct ls_tcp_record head;
    size_t moved;                 /* bytes of the head */
    char *data;                   /* NULL when reading: into the peer's box, from its beginning */
    size_t left;                  /* bytes of data */
    struct ls_transfer *transfer; /* whose data it is; NULL: none */
    bool busy;
};

struct ls_tcp_peer {
    int in, out;                    /* owned; the same socket, except for this rank itself; -1: none */
    bool lost, goodbye;             /* the connection has ended; the peer has closed */
    bool mute;                      /* nothing can be sent any more */
    bool watched;                   /* for room to write */
    bool retrying;                  /* see ls_tcp_retry */
    uint64_t written, acknowledged; /* bytes */
    double stalled;                 /* since when nothing more was acknowledged */
    struct ls_tcp_frame coming, going;
    struct ls_transfer_queue sends, asked, granted;
    struct ls_tcp_record *answers; /* owned; GRANT, DENY and GOODBYE to be sent */
    size_t n_answers, answer_room;
    char *rest;                  /* owned; data of a send that was cancelled half-way */
    char box[LS_TCP_SHORT_MOST]; /* for an incoming short message, or for data that is dropped */
};

struct ls_tcp_group {
    struct ls_rendezvous rendezvous;
    struct ls_tcp_listener listener;
    struct ls_tcp_peer *peers; /* owned; size of them */
    struct ls_transfer_queue receives, arriving;
    struct ls_unexpected_list unexpected;
    uint64_t last_id;
    double checked, retry;           /* the last ls_tcp_retry; the longest time between two attempts to send again */
    int epoll, rank, size, any_lost; /* any_lost: a rank, -1: none */
};

/* The connection to a rank has ended. This is a loss unless the rank has sent a goodbye. */
void ls_tcp_lose(struct ls_tcp_group *g, int rank);

/* tcp_write.c */
/* Queues a record without data; false: there is no memory. */
bool ls_tcp_answer(struct ls_tcp_peer *p, enum ls_tcp_kind kind, uint64_t id, uint64_t other);
/* Writes to a rank as long as its socket takes data; true: something was written. */
bool ls_tcp_write(struct ls_tcp_group *g, int rank);
/* A transfer is cancelled: the rest of a frame that is half out is sent from a copy. */
void ls_tcp_orphan(struct ls_tcp_peer *p);
/* Makes TCP try soon to send again what was not acknowledged. */
void ls_tcp_retry(struct ls_tcp_group *g);

/* tcp_read.c */
/* Reads from a rank once; false: there is nothing more now, or the connection has ended. */
bool ls_tcp_read(struct ls_tcp_group *g, int rank);
/* A receive matches an announced message: queues the request for its data. False: there is no memory. */
bool ls_tcp_grant(struct ls_tcp_group *g, struct ls_transfer *t, int peer, uint64_t id, uint64_t bytes);

#endif
