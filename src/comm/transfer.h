/* Messages under way in a transport that matches them itself (shm, tcp): queues of sends and receives, and messages that
 * came before their receive.
 *
 * A short message travels in one record. A long one is announced first and sent in pieces once its receive is posted, so
 * that no large message waits at the receiver and none blocks another:
 *
 *     sender                 receiver
 *     SHORT  bytes  ----->   into a posted receive, or kept until there is one
 *     ASK    size   ----->
 *            <-----  GRANT   once a receive is posted
 *     PIECE  bytes  ----->   ... until the message is complete */
#ifndef LS_COMM_TRANSFER_H
#define LS_COMM_TRANSFER_H

#include "comm/transport.h"

enum ls_transfer_stage {
    LS_TRANSFER_NEW,      /* a send of which nothing has left */
    LS_TRANSFER_ASKED,    /* a long message is announced */
    LS_TRANSFER_GRANTED,  /* the send may go on */
    LS_TRANSFER_POSTED,   /* a receive without a message */
    LS_TRANSFER_ARRIVING, /* a receive whose message is under way */
    LS_TRANSFER_DONE
};

/* A send or receive, in the words of a struct ls_transport_request. */
struct __attribute__((may_alias)) ls_transfer {
    struct ls_transfer *next;
    char *data;
    uint64_t size, moved; /* bytes of the message; of a receive, its room until it is matched */
    uint64_t id, other;   /* of this side; of the other side */
    uint32_t tag;
    int32_t peer; /* -1: any */
    uint32_t stage;
};
_Static_assert(sizeof(struct ls_transfer) <= sizeof(((struct ls_transport_request *)0)->words), "it fits a request");

static inline struct ls_transfer *ls_transfer_of(struct ls_transport_request *r)
{
    return (struct ls_transfer *)(void *)r->words;
}

static inline struct ls_transport_request *ls_transfer_request(struct ls_transfer *t)
{
    return (struct ls_transport_request *)(void *)t; /* words come first */
}

struct ls_transfer_queue {
    struct ls_transfer *head, **end;
};

void ls_transfer_queue_init(struct ls_transfer_queue *q);
void ls_transfer_queue_add(struct ls_transfer_queue *q, struct ls_transfer *t);
/* Nothing happens when it is not in the queue. */
void ls_transfer_queue_remove(struct ls_transfer_queue *q, const struct ls_transfer *t);
/* By this side's id; NULL: there is none. */
struct ls_transfer *ls_transfer_queue_find(struct ls_transfer_queue *q, uint64_t id, int peer);
/* Takes the first receive for a message out of the queue; NULL: there is none. */
struct ls_transfer *ls_transfer_queue_match(struct ls_transfer_queue *q, int peer, uint32_t tag);

/* A receive got a short message; it may be longer than the room. */
void ls_transfer_take_short(struct ls_transfer *t, int peer, const void *data, uint64_t bytes);
/* A receive is done. */
void ls_transfer_received(struct ls_transfer *t, int peer, uint64_t bytes, bool too_long);

/* A message that came before its receive. */
struct ls_unexpected {
    struct ls_unexpected *next;
    uint64_t bytes, id; /* id: of an ASK; 0: the bytes are here */
    uint32_t tag;
    int32_t peer;
    char data[];
};

struct ls_unexpected_list {
    struct ls_unexpected *head, **end, *spare; /* owned */
    size_t room;                               /* bytes of the longest short message */
};

/* Takes memory for `spares` messages at once; more is taken when more come. */
enum ls_status ls_unexpected_init(struct ls_unexpected_list *l, size_t room, int spares);
void ls_unexpected_release(struct ls_unexpected_list *l);
/* data NULL: the message is only announced, under this id. False: there is no memory. */
bool ls_unexpected_keep(struct ls_unexpected_list *l, int peer, uint32_t tag, uint64_t id, uint64_t bytes,
                        const void *data);
/* Takes the oldest message for this receive out of the list; NULL: there is none. Give it back with _recycle. */
struct ls_unexpected *ls_unexpected_find(struct ls_unexpected_list *l, const struct ls_transfer *receive);
void ls_unexpected_recycle(struct ls_unexpected_list *l, struct ls_unexpected *u);

#endif
