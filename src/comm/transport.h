/* A transport carries messages between processes: nothing more. Only the communication thread calls it, so it needs no
 * locks. It is a const struct of functions in transports.c's list; mpi and ucx live in modules that are loaded only when
 * a launch asks for them, so that the program itself needs neither library.
 *
 * A tag is below 2^28. Messages between two ranks under one tag arrive in the order they were sent. Nothing blocks: a request is started, and
 * `test` moves all of them forward. */
#ifndef LS_COMM_TRANSPORT_H
#define LS_COMM_TRANSPORT_H

#include "base/status.h"
#include "launch/launch.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ls_transport_request {
    uint64_t words[8]; /* the transport's own */
    size_t bytes;      /* receive: what came */
    int peer;          /* receive: from whom */
    bool too_long;     /* receive: through, but it was longer than the room made for it, and nothing of it counts */
};

struct ls_transport {
    const char *name;
    /* Connect all processes; fills launch->rank and size. May take until the deadline; an error names who is missing. */
    enum ls_status (*open)(struct ls_launch *launch, double deadline, void **state);
    /* graceful: all is well and everyone closes; else leave without waiting for anybody. */
    void (*close)(void *state, bool graceful);
    enum ls_status (*send)(void *state, int peer, uint32_t tag, const void *data, size_t bytes,
                           struct ls_transport_request *request);
    enum ls_status (*receive)(void *state, int peer, uint32_t tag, void *data, size_t room,
                              struct ls_transport_request *request); /* peer -1: any */
    /* Move things forward; *done says whether this request is through. LS_PEER_LOST with request->peer set: the peer is
     * known to be gone. */
    enum ls_status (*test)(void *state, struct ls_transport_request *request, bool *done);
    /* Give up a request that is under way. */
    void (*cancel)(void *state, struct ls_transport_request *request);
    /* The library's own sum, in f32; NULL: it has none. Started like a message, finished by test. */
    enum ls_status (*allreduce)(void *state, float *data, size_t count, struct ls_transport_request *request);
    /* To sleep until something may have come: a descriptor to poll for reading, asked for anew before each sleep. -1:
     * something is there already, call test. NULL: there is none, look again and again. */
    int (*descriptor)(void *state);
    /* The library and its version: "Open MPI v4.1.4". NULL: the transport is Lockstep's own. */
    void (*library)(char text[64]);
};

#endif
