/* A transport connects processes and carries messages between them. Only the communication thread calls it, so it needs
 * no locks. It is a const struct of functions. mpi, tcp and ucx are modules that are loaded when a launch needs them, so
 * that the program itself does not depend on their libraries.
 *
 * A tag is below 2^28. Messages between two ranks under one tag arrive in the order in which they were sent. No call but
 * open blocks: send and receive start a request, and `test` makes progress on all of them. */
#ifndef LS_COMM_TRANSPORT_H
#define LS_COMM_TRANSPORT_H

#include "base/status.h"
#include "launch/launch.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_transport_request {
    uint64_t words[8]; /* for the transport */
    size_t bytes;      /* receive: the length of the message */
    int peer;          /* receive: the sender */
    bool too_long;     /* receive: done, but the message was longer than the room; the data is undefined */
};

struct ls_transport {
    const char *name;
    /* Connects all processes and fills launch->rank and size. Takes until the deadline at most; an error names the missing
     * ranks. */
    enum ls_status (*open)(struct ls_launch *launch, double deadline, void **state);
    /* graceful: all ranks close, and messages under way still arrive. Otherwise waits for no other rank. */
    void (*close)(void *state, bool graceful);
    enum ls_status (*send)(void *state, int peer, uint32_t tag, const void *data, size_t bytes,
                           struct ls_transport_request *request);
    enum ls_status (*receive)(void *state, int peer, uint32_t tag, void *data, size_t room,
                              struct ls_transport_request *request); /* peer -1: any */
    /* Makes progress; *done: this request is finished. LS_PEER_LOST: the rank request->peer is gone. */
    enum ls_status (*test)(void *state, struct ls_transport_request *request, bool *done);
    /* Gives up a request that is under way. May wait for a second. The transport no longer uses the buffer. Exception:
     * MPI may read the buffer of a send until close. */
    void (*cancel)(void *state, struct ls_transport_request *request);
    /* The library's allreduce in f32, started like a message and finished by test. NULL: it has none. */
    enum ls_status (*allreduce)(void *state, float *data, size_t count, struct ls_transport_request *request);
    /* A descriptor that becomes readable when a message may have come; asked for before each sleep. -1: one is there
     * already, call test. NULL: the transport has no descriptor and must be polled. */
    int (*descriptor)(void *state);
    /* The library and its version: "Open MPI v4.1.4". NULL: the transport is Lockstep's own. */
    void (*library)(char text[64]);
};

#endif
