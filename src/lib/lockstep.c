/* liblockstep over src/comm: include/lockstep.h is the contract. */
#include "lib/handle.h"
#include "base/log.h"
#include "base/memory.h"
#include "sync/compress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OPTIONS 16 /* at least the number of settings of struct lockstep_options */

/* --- failures and checks ----------------------------------------------------------------------------------------- */

enum ls_status lib_record(struct lockstep *l, enum ls_status status)
{
    if (l->status == LS_OK && status != LS_OK) {
        l->status = status;
        ls_log_last_copy(l->error, sizeof l->error);
        if (status != LS_PEER_LOST && l->comm)
            ls_comm_abort(l->comm, status, l->error);
    }
    return lib_status(l);
}

static void describe(const struct ls_call *call, char *text, size_t room)
{
    const char *op = call->op == LOCKSTEP_MEAN ? "mean" : "sum";
    switch ((enum lib_what)call->what) {
    case LIB_SUBMIT:
        snprintf(text, room, "submits tensor %d of %" PRIu64 " floats (%s)", call->id, call->amount, op);
        return;
    case LIB_ALLREDUCE:
        snprintf(text, room, "calls lockstep_allreduce for %" PRIu64 " floats (%s)", call->amount, op);
        return;
    case LIB_BROADCAST:
        snprintf(text, room, "calls lockstep_broadcast for %" PRIu64 " bytes from rank %d", call->amount, call->id);
        return;
    case LIB_BARRIER:
        snprintf(text, room, "calls lockstep_barrier");
        return;
    case LIB_ALLOC:
        snprintf(text, room, "calls lockstep_alloc for %" PRIu64 " bytes", call->amount);
        return;
    case LIB_FINISH:
        snprintf(text, room, "calls lockstep_finish");
        return;
    }
    snprintf(text, room, "does something else");
}

struct ls_call lib_call(struct lockstep *l, enum lib_what what, int id, enum lockstep_op op, uint64_t amount)
{
    return (struct ls_call){.number = ++l->calls, .amount = amount, .id = id, .what = (uint8_t)what, .op = (uint8_t)op};
}

/* Makes a collective call that transfers nothing else. */
static enum ls_status make_call(struct lockstep *l, enum lib_what what, uint64_t amount)
{
    struct ls_work w = {.kind = LS_WORK_BARRIER, .call = lib_call(l, what, 0, LOCKSTEP_SUM, amount), .bucket = -1};
    return ls_comm_do(l->comm, &w);
}

enum ls_status lib_check_op(enum lockstep_op op)
{
    if (op == LOCKSTEP_SUM || op == LOCKSTEP_MEAN)
        return LS_OK;
    return ls_fail(LS_USAGE, "operation %d is unknown; expected LOCKSTEP_SUM or LOCKSTEP_MEAN", (int)op);
}

enum ls_status lib_check_data(const char *call, const void *data, size_t amount)
{
    if (data || amount == 0)
        return LS_OK;
    return ls_fail(LS_USAGE, "%s: data is NULL; was memory asked for and not given?", call);
}

void lib_divide(const struct lockstep *l, float *data, size_t count)
{
    float size = (float)ls_comm_size(l->comm);
    if (size == 1)
        return;
    for (size_t i = 0; i < count; i++)
        data[i] /= size;
}

/* --- init and finish ------------------------------------------------------------------------------------------- */

/* Converts the settings to command-line words, which are checked and take precedence over the environment. */
static enum ls_status to_words(const struct lockstep_options *o, struct ls_arena *arena, char **words, int *n)
{
    int k = 0;
    if (o->deadline != 0)
        words[k++] = ls_arena_format(arena, "--deadline=%.17g", o->deadline);
    if (o->compress)
        words[k++] = ls_arena_format(arena, "--compress=%s", o->compress);
    if (o->num_nodes != 0)
        words[k++] = ls_arena_format(arena, "--num-nodes=%d", o->num_nodes);
    if (o->num_nodes != 0 && o->rank != -1)
        words[k++] = ls_arena_format(arena, "--rank=%d", o->rank);
    if (o->master_ip)
        words[k++] = ls_arena_format(arena, "--master-ip=%s", o->master_ip);
    if (o->master_port != 0)
        words[k++] = ls_arena_format(arena, "--master-port=%d", o->master_port);
    if (o->rendezvous)
        words[k++] = ls_arena_format(arena, "--rendezvous=%s", o->rendezvous);
    if (o->token)
        words[k++] = ls_arena_format(arena, "--token=%s", o->token);
    *n = k;
    for (int i = 0; i < k; i++)
        if (!words[i])
            return LS_FAILED;
    return LS_OK;
}

static enum ls_status read_options(const struct lockstep_options *given, struct ls_options *o)
{
    struct ls_arena arena = {0};
    char *words[OPTIONS];
    bool help;
    int n;
    enum ls_status st = to_words(given, &arena, words, &n);
    if (st == LS_OK)
        st = ls_options_parse(o, LS_CMD_TRAIN, n, words, &help);
    ls_arena_release(&arena);
    return st;
}

/* The struct of the caller may be of an earlier version, and shorter. */
static enum ls_status copy_options(const struct lockstep_options *given, struct lockstep_options *o)
{
    *o = (struct lockstep_options){0};
    if (!given)
        return LS_OK;
    if (given->size < sizeof given->size || given->size > sizeof *o)
        return ls_fail(LS_USAGE,
                       "lockstep_init: options of size %zu, %zu are known: set size to sizeof(struct lockstep_options)",
                       given->size, sizeof *o);
    memcpy(o, given, given->size);
    return LS_OK;
}

static enum ls_status find_codec(const char *name, const struct ls_codec **codec)
{
    *codec = NULL;
    if (strcmp(name, "none") == 0)
        return LS_OK;
    *codec = ls_compress_find(name);
    if (*codec)
        return LS_OK;
    return ls_fail(
        LS_USAGE, "compress: %s needs to know matrices, and the library is given flat tensors; take fp16, bf16 or 1bit",
        name);
}

static enum ls_status connect_all(struct lockstep *l, const struct ls_options *o)
{
    struct ls_launch launch;
    struct ls_comm_options options = {.collective = LS_COLLECTIVE_AUTO,
                                      .deadline = o->deadline,
                                      .max_bytes = LIB_PIECE,
                                      .describe = describe,
                                      .name_rank = true};
    LS_TRY(find_codec(o->compress, &l->codec));
    LS_TRY(ls_launch_detect(o, &launch));
    if (launch.workers > 0 && launch.size > 1) {
        ls_launch_release(&launch);
        return ls_fail(LS_USAGE,
                       "a program cannot start workers itself; type: `lockstep run -n N [options] -- PROGRAM` on "
                       "each node, without workers, npernode and hostfile in its own environment");
    }
    enum ls_status st = ls_comm_open(&launch, &options, &l->comm);
    ls_launch_release(&launch);
    return st;
}

static enum ls_status open_handle(struct lockstep *l, const struct lockstep_options *options)
{
    struct lockstep_options given;
    struct ls_options o;
    LS_TRY(copy_options(options, &given));
    ls_log_quiet(given.quiet);
    LS_TRY(read_options(&given, &o));
    enum ls_status st = connect_all(l, &o);
    ls_options_release(&o);
    LS_TRY(st);
    if (ls_comm_size(l->comm) > 1)
        ls_log_place("rank %d (%s): ", ls_comm_rank(l->comm), ls_comm_host(l->comm, ls_comm_rank(l->comm)));
    ls_comm_position(l->comm, 0, -1, LS_STAGE_COMPUTE);
    return LS_OK;
}

struct lockstep *lockstep_init(const struct lockstep_options *options)
{
    ls_log_set_filter(lib_rename_options);
    struct lockstep *l = ls_alloc(1, sizeof *l);
    if (l)
        lib_record(l, open_handle(l, options));
    return l;
}

int lockstep_status(const struct lockstep *l)
{
    return (int)lib_status(l);
}

/* The last collective call. */
static enum ls_status leave(struct lockstep *l)
{
    LS_TRY((enum ls_status)lockstep_wait_all(l));
    return lib_record(l, make_call(l, LIB_FINISH, 0));
}

int lockstep_finish(struct lockstep *l, int status)
{
    if (!l)
        return status != 0 ? status : LOCKSTEP_FAILED;
    if (status != 0 && lib_status(l) == LS_OK)
        ls_comm_abort(l->comm, LS_FAILED, "its program has failed and left");
    enum ls_status st = status != 0 ? LS_FAILED : leave(l);
    st = ls_comm_close(l->comm, st);
    ls_log_place(NULL);
    ls_log_quiet(false);
    lib_tensors_release(l);
    ls_free(l);
    return status != 0 ? status : (int)st;
}

/* Only the first call counts. */
void lockstep_abort(struct lockstep *l, const char *why)
{
    int none = 0;
    if (!l || !l->comm || !atomic_compare_exchange_strong(&l->aborted, &none, 1))
        return;
    snprintf(l->why, sizeof l->why, "%s", why ? why : "the program has called lockstep_abort");
    atomic_store(&l->aborted, 2);
    ls_comm_abort(l->comm, ls_fail(LS_FAILED, "%s", l->why), l->why);
}

const char *lockstep_error(const struct lockstep *l)
{
    if (!l)
        return "out of memory";
    return l->status == LS_OK && atomic_load(&l->aborted) == 2 ? l->why : l->error;
}

const char *lockstep_version(void)
{
    return LS_VERSION;
}

/* --- rank and size --------------------------------------------------------------------------------------------- */

int lockstep_rank(const struct lockstep *l)
{
    return l && l->comm ? ls_comm_rank(l->comm) : 0;
}

int lockstep_size(const struct lockstep *l)
{
    return l && l->comm ? ls_comm_size(l->comm) : 1;
}

int lockstep_local_rank(const struct lockstep *l)
{
    return l && l->comm ? ls_comm_local_rank(l->comm, ls_comm_rank(l->comm)) : 0;
}

int lockstep_local_size(const struct lockstep *l)
{
    return l && l->comm ? ls_comm_local_size(l->comm) : 1;
}

void lockstep_shard(const struct lockstep *l, size_t n, size_t *first, size_t *last)
{
    size_t size = (size_t)lockstep_size(l), rank = (size_t)lockstep_rank(l);
    size_t each = n / size, extra = n % size;
    *first = rank * each + (rank < extra ? rank : extra);
    *last = *first + each + (rank < extra);
}

void lockstep_allow(struct lockstep *l, double seconds)
{
    if (l && l->comm)
        ls_comm_allow(l->comm, seconds);
}

/* --- blocking calls ---------------------------------------------------------------------------------------------- */

void *lockstep_alloc(struct lockstep *l, size_t bytes)
{
    void *memory = NULL;
    enum ls_status st = lib_status(l);
    if (st != LS_OK)
        return NULL;
    st = make_call(l, LIB_ALLOC, bytes);
    if (st == LS_OK)
        st = ls_comm_region(l->comm, bytes, &memory);
    return lib_record(l, st) == LS_OK ? memory : NULL;
}

static enum ls_status broadcast(struct lockstep *l, int root, void *data, size_t bytes)
{
    struct ls_work w = {.kind = LS_WORK_BROADCAST,
                        .peer = root,
                        .data = data,
                        .bytes = bytes,
                        .call = lib_call(l, LIB_BROADCAST, root, LOCKSTEP_SUM, bytes),
                        .step = l->step,
                        .bucket = -1};
    return ls_comm_do(l->comm, &w);
}

int lockstep_broadcast(struct lockstep *l, int root, void *data, size_t bytes)
{
    enum ls_status st = lib_status(l);
    if (st != LS_OK)
        return (int)st;
    if (root < 0 || root >= ls_comm_size(l->comm))
        st = ls_fail(LS_USAGE, "lockstep_broadcast: rank %d; ranks are 0 to %d", root, ls_comm_size(l->comm) - 1);
    if (st == LS_OK)
        st = lib_check_data("lockstep_broadcast", data, bytes);
    if (st == LS_OK)
        st = broadcast(l, root, data, bytes);
    return (int)lib_record(l, st);
}

/* A sum of 0 floats is a collective call too. */
static enum ls_status sum_in_pieces(struct lockstep *l, float *data, size_t count, enum lockstep_op op)
{
    const size_t most = LIB_PIECE / sizeof(float);
    const struct ls_call call = lib_call(l, LIB_ALLREDUCE, 0, op, count);
    size_t first = 0;
    do {
        size_t n = count - first < most ? count - first : most;
        struct ls_work w = {.kind = LS_WORK_ALLREDUCE,
                            .data = count > 0 ? data + first : NULL,
                            .bytes = n * sizeof(float),
                            .call = call,
                            .step = l->step,
                            .bucket = -1};
        LS_TRY(ls_comm_do(l->comm, &w));
        first += n;
    } while (first < count);
    return LS_OK;
}

int lockstep_allreduce(struct lockstep *l, float *data, size_t count, enum lockstep_op op)
{
    enum ls_status st = lib_status(l);
    if (st != LS_OK)
        return (int)st;
    LS_TRY_GOTO(out, lib_check_op(op));
    LS_TRY_GOTO(out, lib_check_data("lockstep_allreduce", data, count));
    LS_TRY_GOTO(out, sum_in_pieces(l, data, count, op));
    if (op == LOCKSTEP_MEAN)
        lib_divide(l, data, count);
out:
    return (int)lib_record(l, st);
}

int lockstep_barrier(struct lockstep *l)
{
    enum ls_status st = lib_status(l);
    if (st != LS_OK)
        return (int)st;
    return (int)lib_record(l, make_call(l, LIB_BARRIER, 0));
}
