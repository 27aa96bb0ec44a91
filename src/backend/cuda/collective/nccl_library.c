#include "backend/cuda/collective/nccl_library.h"
#include "base/log.h"
#include "base/system/clock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool nccl_load(struct nccl_library *lib, char *why, size_t room)
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
        {&lib->send, "ncclSend"},
        {&lib->receive, "ncclRecv"},
        {&lib->async_error, "ncclCommGetAsyncError"},
        {&lib->destroy, "ncclCommDestroy"},
        {&lib->end, "ncclCommAbort"},
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
    struct nccl_library lib;
    int version = 0;
    if (!nccl_load(&lib, text, room))
        return false;
    lib.version(&version);
    snprintf(text, room, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return true;
}

void nccl_describe(const struct nccl_library *lib, const struct nccl_result *result, ncclComm_t comm,
                   char why[COLLECTIVE_WHY])
{
    const char *more = result->nccl == ncclSuccess ? "" : lib->last(comm);
    *why = 0;
    if (result->cuda != cudaSuccess)
        snprintf(why, COLLECTIVE_WHY, "CUDA: %s", cudaGetErrorString(result->cuda));
    else if (result->nccl != ncclSuccess)
        snprintf(why, COLLECTIVE_WHY, "NCCL: %s%s%.120s", lib->text(result->nccl), more && *more ? ": " : "",
                 more ? more : "");
}

/* --- meeting ---------------------------------------------------------------------------------------------------- */

static cudaError_t find_place(const struct device *d, struct nccl_place *place)
{
    const char *host = getenv("NCCL_HOSTID");
    snprintf(place->host, sizeof place->host, "%s", host ? host : "");
    return cudaDeviceGetPCIBusId(place->bus, sizeof place->bus, d->number);
}

void nccl_prepare(struct nccl_library *lib, const struct device *d, int n_ids, struct nccl_word *mine)
{
    struct nccl_result result = {ncclSuccess, cudaSuccess};
    *mine = (struct nccl_word){.why = ""};
    if (!nccl_load(lib, mine->why, sizeof mine->why))
        return;
    result.cuda = find_place(d, &mine->place);
    for (int i = 0; i < n_ids && result.cuda == cudaSuccess && result.nccl == ncclSuccess; i++)
        result.nccl = lib->unique_id(&mine->ids[i]);
    nccl_describe(lib, &result, NULL, mine->why);
}

/* NCCL finds these itself, but says little. */
static void find_shared_card(const int *nodes, int size, const struct nccl_word *all, char *why, size_t room)
{
    for (int b = 1; b < size; b++)
        for (int a = 0; a < b; a++) {
            const struct nccl_place *one = &all[a].place, *other = &all[b].place;
            if (nodes[a] != nodes[b] || strcmp(one->bus, other->bus) != 0 || strcmp(one->host, other->host) != 0)
                continue;
            snprintf(why, room,
                     "ranks %d and %d compute on the same card (%s), and NCCL wants one for each; start no more "
                     "processes than there are cards, or leave --collective out: then they may share one",
                     a, b, one->bus);
            return;
        }
}

enum ls_status nccl_meet(const struct ls_peers_group *g, const struct nccl_word *mine, struct nccl_word *all, char *why,
                         size_t room)
{
    LS_TRY(g->gather(g->context, mine, sizeof *mine, all));
    *why = 0;
    for (int rank = 0; rank < g->size && !*why; rank++)
        snprintf(why, room, "%s", all[rank].why);
    if (!*why)
        find_shared_card(g->nodes, g->size, all, why, room);
    return LS_OK;
}

enum ls_status nccl_agree(const struct nccl_library *lib, const struct nccl_result *result, ncclComm_t comm,
                          const struct ls_peers_group *g, char *why, size_t room)
{
    char mine[COLLECTIVE_WHY];
    nccl_describe(lib, result, comm, mine);
    if (*mine)
        ls_warn("rank %d: %s", g->rank, mine);
    return collective_agree(g, mine, why, room);
}

/* --- errands ------------------------------------------------------------------------------------------------------ */

static void *run_errand(void *argument)
{
    struct nccl_errand *e = argument;
    e->error = cudaSetDevice(e->device->number);
    if (e->error == cudaSuccess)
        e->run(e->context);
    atomic_store(&e->over, true);
    return NULL;
}

enum ls_status nccl_run(struct nccl_errand *errand, enum ls_status (*check)(void *context, double seconds),
                        void *check_context)
{
    pthread_t thread;
    atomic_store(&errand->over, false);
    int code = pthread_create(&thread, NULL, run_errand, errand);
    if (code != 0)
        return ls_fail(LS_FAILED, "a thread for NCCL cannot be started: %s", strerror(code));
    for (double start = ls_now(); !atomic_load(&errand->over);) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        enum ls_status st = check(check_context, ls_now() - start);
        if (st != LS_OK) {
            errand->device->lost = true;
            pthread_detach(thread);
            return st;
        }
    }
    pthread_join(thread, NULL);
    return LS_OK;
}
