/* Transport `mpi`: messages over an MPI library. It is built once for each MPI library that is installed, as a module.
 *
 * All calls for a group come from the thread that opened it, and the groups of a process follow each other, so that
 * MPI_THREAD_SERIALIZED is enough.
 *
 * A process can initialise MPI once. So MPI outlives a group. It is finalised at exit if this module initialised it, it is
 * not finalised yet, and every group was closed gracefully. A process that fails does not call MPI_Finalize, which would
 * wait for the others. The launcher sees a process end without MPI_Finalize and ends the rest of the job.
 *
 * A tag must fit MPI_TAG_UB: 2^31 - 1 with Open MPI, 2^28 - 1 with MPICH. */
#define _GNU_SOURCE
#include "base/log.h"
#include "base/memory.h"
#include "comm/transport.h"

#include <limits.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct group {
    MPI_Comm comm;
    int rank, size;
    uint32_t max_tag;
};

/* MPI exists once in a process, and so does the state that its exit handler needs. */
static struct {
    atomic_int open;     /* groups that were not closed gracefully */
    atomic_int unclosed; /* groups that were not closed */
    pid_t process;       /* the process that initialised MPI; a child inherits the exit handler */
} life;

/* What a transport's request holds. */
struct request {
    MPI_Request handle;
    enum { SEND, RECEIVE, SUM, DONE } kind;
    float *data; /* of an allreduce in several calls: the part that is not begun */
    size_t left;
};
_Static_assert(sizeof(struct request) <= sizeof((struct ls_transport_request *)0)->words, "no room for a request");

static struct request *inside(struct ls_transport_request *request)
{
    return (struct request *)(void *)request->words;
}

static enum ls_status explain(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;
    MPI_Error_string(code, text, &n);
    text[strcspn(text, "\n")] = 0;
    return ls_fail(LS_FAILED, "MPI: %s failed: %s", what, text);
}

/* "Open MPI v4.1.4": the first part of the library's version string. */
static void library_name(char name[64])
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n;
    MPI_Get_library_version(text, &n);
    text[strcspn(text, ",\n")] = 0;
    for (char *tab = text; (tab = strchr(tab, '\t'));)
        *tab = ' ';
    snprintf(name, 64, "%.63s", text);
}

/* --- open and close ----------------------------------------------------------------------------------- */

/* Not every mpirun reports a process that ends like this; its exit code may even be 0. So it is reported here. */
static void finalise(void)
{
    int gone = 1, rank = -1;
    MPI_Finalized(&gone);
    if (gone || getpid() != life.process)
        return;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (atomic_load(&life.unclosed) > 0)
        (void)ls_fail(LS_FAILED, "rank %d exits without lockstep_finish, and mpirun ends the others", rank);
    if (atomic_load(&life.open) == 0)
        MPI_Finalize();
}

static enum ls_status initialise(void)
{
    int there = 0, gone = 0, level = MPI_THREAD_SINGLE, main_thread = 0;
    MPI_Initialized(&there);
    MPI_Finalized(&gone);
    if (gone)
        return ls_fail(LS_USAGE,
                       "MPI: the program has called MPI_Finalize, after which MPI cannot be used again in this "
                       "process; connect before that");
    if (!there) {
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        if (code != MPI_SUCCESS)
            return explain(code, "MPI_Init_thread");
        life.process = getpid();
        atexit(finalise);
        if (level < MPI_THREAD_FUNNELED)
            return ls_fail(LS_FAILED, "MPI: the library was built without threads (MPI_THREAD_FUNNELED is needed)");
        return LS_OK;
    }
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&main_thread);
    if (level < MPI_THREAD_SERIALIZED && !main_thread)
        return ls_fail(LS_USAGE, "MPI is initialised already, for one thread only; call MPI_Init_thread with "
                                 "MPI_THREAD_MULTIPLE, or leave it to Lockstep");
    return LS_OK;
}

/* Under the launcher of another MPI library, every process is alone in its MPI_COMM_WORLD. */
static enum ls_status check_world(const struct ls_launch *l, const struct group *g)
{
    char name[64];
    if (l->size < 0 || l->size == g->size)
        return LS_OK;
    library_name(name);
    return ls_fail(
        LS_USAGE, "%s started %d processes, but %s sees %d; start with the mpirun that belongs to this MPI library%s",
        l->how, l->size, name, g->size,
        l->mpi && strcmp(l->how, "srun with PMIx") == 0 ? ", or with srun --mpi=none and LOCKSTEP_TOKEN set" : "");
}

static enum ls_status join(struct ls_launch *l, struct group *g)
{
    int *max_tag, found = 0;
    LS_TRY(initialise());
    MPI_Comm_size(MPI_COMM_WORLD, &g->size);
    MPI_Comm_rank(MPI_COMM_WORLD, &g->rank);
    LS_TRY(check_world(l, g));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &g->comm);
    if (code != MPI_SUCCESS)
        return explain(code, "MPI_Comm_dup");
    MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
    MPI_Comm_get_attr(g->comm, MPI_TAG_UB, (void *)&max_tag, &found);
    g->max_tag = found ? (uint32_t)*max_tag : 32767;
    l->rank = g->rank;
    l->size = g->size;
    return LS_OK;
}

static void mpi_close(void *state, bool graceful)
{
    struct group *g = state;
    int gone = 0;
    MPI_Finalized(&gone);
    if (graceful && !gone && g->comm != MPI_COMM_NULL)
        MPI_Comm_free(&g->comm);
    if (graceful)
        atomic_fetch_sub(&life.open, 1);
    atomic_fetch_sub(&life.unclosed, 1);
    ls_free(g);
}

/* MPI_Init has no deadline; ls_thread_start limits the wait. */
static enum ls_status mpi_open(struct ls_launch *launch, double deadline, void **state)
{
    (void)deadline;
    struct group *g = ls_alloc(1, sizeof *g);
    if (!g)
        return LS_FAILED;
    g->comm = MPI_COMM_NULL;
    atomic_fetch_add(&life.open, 1);
    atomic_fetch_add(&life.unclosed, 1);
    enum ls_status st = join(launch, g);
    if (st != LS_OK) {
        mpi_close(g, g->size == 1);
        return st;
    }
    *state = g;
    return LS_OK;
}

/* --- messages -------------------------------------------------------------------------------------------- */

/* MPI counts in int. A longer message is one element of a type of that length: full blocks and the rest. */
static enum ls_status long_type(size_t bytes, MPI_Datatype *type)
{
    const size_t block = (size_t)1 << 24;
    MPI_Datatype one, parts[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int lengths[2] = {(int)(bytes / block), (int)(bytes % block)};
    MPI_Aint at[2] = {0, (MPI_Aint)(bytes / block * block)};
    if (bytes / block > INT_MAX)
        return ls_fail(LS_FAILED, "MPI: a message of %zu bytes is too long", bytes);
    int code = MPI_Type_contiguous((int)block, MPI_BYTE, &one);
    parts[0] = one;
    if (code == MPI_SUCCESS)
        code = MPI_Type_create_struct(2, lengths, at, parts, type);
    if (code == MPI_SUCCESS)
        code = MPI_Type_commit(type);
    if (one != MPI_DATATYPE_NULL)
        MPI_Type_free(&one);
    return code == MPI_SUCCESS ? LS_OK : explain(code, "making a long type");
}

static enum ls_status check_tag(const struct group *g, uint32_t tag)
{
    return tag <= g->max_tag
               ? LS_OK
               : ls_fail(LS_FAILED, "MPI: tag %u is above the %u that this library takes", tag, g->max_tag);
}

static enum ls_status begun(int code, enum ls_status st, struct ls_transport_request *r, int peer)
{
    if (st != LS_OK || code == MPI_SUCCESS)
        return st;
    r->peer = peer;
    explain(code, "a message");
    return LS_PEER_LOST;
}

static enum ls_status mpi_send(void *state, int peer, uint32_t tag, const void *data, size_t bytes,
                               struct ls_transport_request *request)
{
    struct group *g = state;
    struct request *r = inside(request);
    MPI_Datatype type = MPI_BYTE;
    LS_TRY(check_tag(g, tag));
    if (bytes > INT_MAX)
        LS_TRY(long_type(bytes, &type));
    *r = (struct request){.kind = SEND};
    request->peer = peer;
    request->bytes = bytes;
    int code = MPI_Isend(data, bytes > INT_MAX ? 1 : (int)bytes, type, peer, (int)tag, g->comm, &r->handle);
    if (type != MPI_BYTE)
        MPI_Type_free(&type);
    return begun(code, LS_OK, request, peer);
}

static enum ls_status mpi_receive(void *state, int peer, uint32_t tag, void *data, size_t room,
                                  struct ls_transport_request *request)
{
    struct group *g = state;
    struct request *r = inside(request);
    MPI_Datatype type = MPI_BYTE;
    LS_TRY(check_tag(g, tag));
    if (room > INT_MAX)
        LS_TRY(long_type(room, &type));
    *r = (struct request){.kind = RECEIVE};
    request->peer = peer;
    request->too_long = false;
    int code = MPI_Irecv(data, room > INT_MAX ? 1 : (int)room, type, peer < 0 ? MPI_ANY_SOURCE : peer, (int)tag,
                         g->comm, &r->handle);
    if (type != MPI_BYTE)
        MPI_Type_free(&type);
    return begun(code, LS_OK, request, peer);
}

/* --- sums ------------------------------------------------------------------------------------------------ */

static enum ls_status sum_next(struct group *g, struct request *r)
{
    size_t n = r->left < INT_MAX ? r->left : INT_MAX / 16 * 16;
    float *data = r->data;
    r->data += n;
    r->left -= n;
    int code = MPI_Iallreduce(MPI_IN_PLACE, data, (int)n, MPI_FLOAT, MPI_SUM, g->comm, &r->handle);
    return code == MPI_SUCCESS ? LS_OK : explain(code, "MPI_Iallreduce");
}

/* A buffer of more than INT_MAX values takes several calls; `test` begins the later ones. */
static enum ls_status mpi_allreduce(void *state, float *data, size_t count, struct ls_transport_request *request)
{
    struct request *r = inside(request);
    *r = (struct request){.kind = SUM, .data = data, .left = count};
    request->peer = -1;
    return sum_next(state, r);
}

/* --- progress -------------------------------------------------------------------------------------------- */

static enum ls_status finish(struct group *g, struct ls_transport_request *request, const MPI_Status *status,
                             bool *done)
{
    struct request *r = inside(request);
    MPI_Count bytes = 0;
    if (r->kind == SUM && r->left > 0)
        return sum_next(g, r);
    if (r->kind == RECEIVE) {
        MPI_Get_elements_x(status, MPI_BYTE, &bytes);
        request->bytes = (size_t)bytes;
        request->peer = status->MPI_SOURCE;
    }
    r->kind = DONE;
    *done = true;
    return LS_OK;
}

/* A message that is longer than its room is reported as too_long; any other error counts as a lost peer. */
static enum ls_status broken(struct ls_transport_request *request, const MPI_Status *status, int code, bool *done)
{
    struct request *r = inside(request);
    int class = code, inner = code;
    bool any = r->kind == RECEIVE && request->peer < 0;
    if (code == MPI_ERR_IN_STATUS)
        inner = status->MPI_ERROR;
    MPI_Error_class(inner, &class);
    r->kind = DONE;
    if (class == MPI_ERR_TRUNCATE) {
        request->peer = any ? status->MPI_SOURCE : request->peer;
        *done = request->too_long = true;
        return LS_OK;
    }
    if (any && status->MPI_SOURCE >= 0)
        request->peer = status->MPI_SOURCE;
    explain(inner, "a message");
    return LS_PEER_LOST;
}

static enum ls_status mpi_test(void *state, struct ls_transport_request *request, bool *done)
{
    struct request *r = inside(request);
    MPI_Status status;
    int through = 0;
    *done = r->kind == DONE;
    if (*done)
        return LS_OK;
    memset(&status, 0, sizeof status);
    int code = MPI_Test(&r->handle, &through, &status);
    if (code != MPI_SUCCESS)
        return broken(request, &status, code, done);
    return through ? finish(state, request, &status, done) : LS_OK;
}

static void mpi_cancel(void *state, struct ls_transport_request *request)
{
    (void)state;
    struct request *r = inside(request);
    if (r->kind == RECEIVE)
        MPI_Cancel(&r->handle);
    if ((r->kind == RECEIVE || r->kind == SEND) && r->handle != MPI_REQUEST_NULL)
        MPI_Request_free(&r->handle);
    r->kind = DONE;
}

const struct ls_transport ls_transport_module = {
    .name = "mpi",
    .library = library_name,
    .open = mpi_open,
    .close = mpi_close,
    .send = mpi_send,
    .receive = mpi_receive,
    .test = mpi_test,
    .cancel = mpi_cancel,
    .allreduce = mpi_allreduce,
};
