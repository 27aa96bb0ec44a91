/* NCCL, loaded at run time. Calls that wait for other processes run in a thread, so that this process can give up on a process
 * that never comes. */
#include "backend/cuda/collective/collective.h"
#include "base/system/clock.h"
#include "base/log.h"

#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct library {
    __typeof__(&ncclGetVersion) version;
    __typeof__(&ncclGetUniqueId) unique_id;
    __typeof__(&ncclCommInitRank) init;
    __typeof__(&ncclAllReduce) all_reduce;
    __typeof__(&ncclCommGetAsyncError) async_error;
    __typeof__(&ncclCommDestroy) destroy;
    __typeof__(&ncclGetErrorString) text;
    __typeof__(&ncclGetLastError) last;
};

struct nccl {
    struct library lib;
    struct collective *collective; /* borrowed */
    ncclUniqueId id;
    ncclComm_t comm; /* owned */
    /* an errand under way */
    void (*errand)(struct nccl *n);
    atomic_bool over;
    ncclResult_t result;
    cudaError_t error;
};

/* --- the library ---------------------------------------------------------------------------------------------------- */

static bool load(struct library *lib, char *why, size_t room)
{
    void *file = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL); /* for good */
    if (!file) {
        snprintf(why, room, "NCCL was not found; install libnccl2, or leave --collective out");
        return false;
    }
    const struct {
        void *function;
        const char *name;
    } list[] = {
        {&lib->version, "ncclGetVersion"},
        {&lib->unique_id, "ncclGetUniqueId"},
        {&lib->init, "ncclCommInitRank"},
        {&lib->all_reduce, "ncclAllReduce"},
        {&lib->async_error, "ncclCommGetAsyncError"},
        {&lib->destroy, "ncclCommDestroy"},
        {&lib->text, "ncclGetErrorString"},
        {&lib->last, "ncclGetLastError"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        void *symbol = dlsym(file, list[i].name);
        if (!symbol) {
            snprintf(why, room, "libnccl.so.2 is too old: it has no %s; install a newer libnccl2", list[i].name);
            return false;
        }
        memcpy(list[i].function, &symbol, sizeof symbol);
    }
    return true;
}

bool nccl_there(char *text, size_t room)
{
    struct library lib;
    int version = 0;
    if (!load(&lib, text, room))
        return false;
    lib.version(&version);
    snprintf(text, room, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return true;
}

/* "": all went well. */
static void say_error(const struct nccl *n, char why[COLLECTIVE_WHY])
{
    const char *more = n->result == ncclSuccess ? "" : n->lib.last(n->comm);
    *why = 0;
    if (n->error != cudaSuccess)
        snprintf(why, COLLECTIVE_WHY, "CUDA: %s", cudaGetErrorString(n->error));
    else if (n->result != ncclSuccess)
        snprintf(why, COLLECTIVE_WHY, "NCCL: %s%s%.120s", n->lib.text(n->result), more && *more ? ": " : "",
                 more ? more : "");
}

/* Said here too: the others may still be in a call that waits for this rank, and then never hear it. */
static enum ls_status agree(struct nccl *n, char *why, size_t room)
{
    char mine[COLLECTIVE_WHY];
    say_error(n, mine);
    if (*mine)
        ls_warn("rank %d: %s", n->collective->g.rank, mine);
    return collective_agree(n->collective, mine, why, room);
}

/* --- errands ---------------------------------------------------------------------------------------------------------- */

static void *run_errand(void *argument)
{
    struct nccl *n = argument;
    n->error = cudaSetDevice(n->collective->device->number);
    if (n->error == cudaSuccess)
        n->errand(n);
    atomic_store(&n->over, true);
    return NULL;
}

/* An errand that is given up keeps what it holds, for the end of the process. */
static enum ls_status send(struct nccl *n, void (*errand)(struct nccl *n))
{
    struct collective *s = n->collective;
    pthread_t thread;
    n->errand = errand;
    n->result = ncclSuccess;
    atomic_store(&n->over, false);
    int code = pthread_create(&thread, NULL, run_errand, n);
    if (code != 0)
        return ls_fail(LS_FAILED, "a thread for NCCL cannot be started: %s", strerror(code));
    for (double start = ls_now(); !atomic_load(&n->over);) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        enum ls_status st = s->g.check_wait(s->g.context, ls_now() - start);
        if (st != LS_OK) {
            s->device->lost = true;
            pthread_detach(thread);
            return st;
        }
    }
    pthread_join(thread, NULL);
    return LS_OK;
}

static void connect(struct nccl *n)
{
    n->result = n->lib.init(&n->comm, n->collective->g.size, n->id, n->collective->g.rank);
}

static ncclResult_t sum(struct nccl *n, int cut)
{
    const struct collective *s = n->collective;
    float *grads = s->g.grads + s->cuts[cut].first;
    return n->lib.all_reduce(grads, grads, s->cuts[cut].count, ncclFloat32, ncclSum, n->comm, s->sums);
}

/* Connections are made when a sum first needs them. */
static void sum_zeros(struct nccl *n)
{
    for (int cut = 0; cut < n->collective->n_cuts && n->result == ncclSuccess; cut++)
        n->result = sum(n, cut);
    n->error = cudaStreamSynchronize(n->collective->sums);
}

/* --- meeting ---------------------------------------------------------------------------------------------------------- */

struct word {
    char why[COLLECTIVE_WHY];
    char bus[24];
    ncclUniqueId id; /* rank 0's */
};

static void prepare_word(struct nccl *n, struct word *w)
{
    if (!load(&n->lib, w->why, sizeof w->why))
        return;
    n->error = cudaDeviceGetPCIBusId(w->bus, sizeof w->bus, n->collective->device->number);
    if (n->error == cudaSuccess && n->collective->g.rank == 0)
        n->result = n->lib.unique_id(&w->id);
    say_error(n, w->why);
}

/* NCCL finds these itself, but says little. */
static void find_shared_card(const struct collective *s, const struct word *all, char *why, size_t room)
{
    for (int b = 1; b < s->g.size; b++)
        for (int a = 0; a < b; a++)
            if (s->g.nodes[a] == s->g.nodes[b] && strcmp(all[a].bus, all[b].bus) == 0) {
                snprintf(why, room,
                         "ranks %d and %d compute on the same card (%s), and NCCL wants one for each; start no more "
                         "processes than there are cards, or leave --collective out: then they may share one",
                         a, b, all[a].bus);
                return;
            }
}

static enum ls_status meet(struct nccl *n, char *why, size_t room)
{
    struct collective *s = n->collective;
    struct word mine = {.why = ""}, *all = ls_alloc((size_t)s->g.size, sizeof *all);
    if (!all)
        return LS_FAILED;
    prepare_word(n, &mine);
    enum ls_status st = s->g.gather(s->g.context, &mine, sizeof mine, all);
    for (int rank = 0; st == LS_OK && rank < s->g.size && !*why; rank++)
        snprintf(why, room, "%s", all[rank].why);
    if (st == LS_OK && !*why)
        find_shared_card(s, all, why, room);
    n->id = all[0].id;
    ls_free(all);
    return st;
}

enum ls_status nccl_open(struct collective *s, char *why, size_t room)
{
    enum ls_status st = LS_OK;
    struct nccl *n = ls_alloc(1, sizeof *n);
    if (!n)
        return LS_FAILED;
    n->collective = s;
    *why = 0;
    LS_TRY_GOTO(failed, meet(n, why, room));
    if (*why)
        goto failed;
    LS_TRY(send(n, connect));
    LS_TRY_GOTO(failed, agree(n, why, room));
    if (*why)
        goto failed;
    s->nccl = n;
    return LS_OK;
failed:
    ls_free(n); /* a communicator that only some have is left to the end of the process */
    return st;
}

enum ls_status nccl_share(struct collective *s)
{
    char why[COLLECTIVE_WHY];
    LS_TRY(send(s->nccl, sum_zeros));
    LS_TRY(agree(s->nccl, why, sizeof why));
    return *why ? ls_fail(LS_FAILED, "%s", why) : LS_OK;
}

/* --- steps ------------------------------------------------------------------------------------------------------------ */

enum ls_status nccl_sum(struct collective *s, int cut)
{
    char why[COLLECTIVE_WHY];
    s->nccl->result = sum(s->nccl, cut);
    say_error(s->nccl, why);
    return *why ? ls_fail(LS_FAILED, "%s", why) : LS_OK;
}

const char *nccl_trouble(const struct collective *s)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = s->nccl->lib.async_error(s->nccl->comm, &state);
    if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
        return s->nccl->lib.text(asked != ncclSuccess ? asked : state);
    return NULL;
}

void nccl_close(struct collective *s)
{
    if (!s->nccl)
        return;
    s->nccl->lib.destroy(s->nccl->comm);
    ls_free(s->nccl);
    s->nccl = NULL;
}
