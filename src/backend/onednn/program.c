#include "backend/core/clip.h"
#include "backend/onednn/program.h"
#include "backend/onednn/updates.h"
#include "backend/host_queue.h"
#include "base/log.h"
#include "graph/ops.h"
#include "graph/plan.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum ls_status kernel_find(struct ls_program *p, int node, const struct kernel **kernel)
{
    static const void *const kernels[] = {
#define X(name) ls_onednn_ops_##name,
#include "backend/onednn/ops/list.def"
        NULL};
    const void *found;
    LS_TRY(ls_kernel_find("onednn", &p->core.g->nodes[node], kernels, sizeof **kernel, &found));
    *kernel = found;
    return LS_OK;
}

/* --- prepare ------------------------------------------------------------------------------------------------- */

static bool is_plain_map(const struct ls_program *p, int tensor)
{
    const struct ls_tensor *t = &p->core.g->tensors[tensor];
    return t->shape.rank == 4 && (t->role == LS_ROLE_INPUT || (t->role == LS_ROLE_ACT && !p->layouts[tensor].blocked));
}

/* Vector kernels read blocked maps, and images, mixed or not, are plain. oneDNN reads plain images. */
static enum ls_status block_images(struct ls_program *p, int *n)
{
    for (int i = 0; i < LS_MAX_IN; i++) {
        int copy, in = p->core.g->nodes[*n].in[i];
        if (in == LS_NONE || !is_plain_map(p, in))
            continue;
        struct dnn_md md = {0};
        LS_TRY(dnn_md_init(&md, 4, p->core.g->tensors[in].shape.dim, p->core.g->act_dtype,
                           p->k.block == 16 ? DNN_BLOCKED_16 : DNN_BLOCKED_8));
        enum ls_status st = insert_reorder_before(p, n, in, &md, &copy);
        dnn_md_release(&md);
        LS_TRY(st);
        p->layouts[copy].blocked = true;
        p->core.g->nodes[*n].in[i] = copy;
    }
    return LS_OK;
}

/* A node that was inserted, or moved by an insertion, already has its kernel. */
static enum ls_status prepare_node(struct ls_program *p, int n)
{
    const struct ls_node *node = &p->core.g->nodes[n];
    LS_TRY(ls_program_reserve(p));
    LS_TRY(ensure_execs(p, p->core.g->n_nodes));
    if (p->execs[n].kernel)
        return LS_OK;
    const struct kernel *kernel;
    LS_TRY(kernel_find(p, n, &kernel));
    p->execs[n] = (struct node_exec){.kernel = kernel};
    for (int i = 0; i < LS_MAX_IN; i++)
        if (node->in[i] != LS_NONE && p->core.g->tensors[node->in[i]].role == LS_ROLE_INPUT)
            LS_TRY(place_default(p, node->in[i]));
    if (!kernel->bind)
        LS_TRY(block_images(p, &n));
    return kernel->prepare(p, n);
}

static void release(struct ls_program *p)
{
    if (!p)
        return;
    for (int n = 0; n < p->core.g->n_nodes && n < p->exec_room; n++) {
        dnn_prim_release(&p->execs[n].prim);
        ls_axis_release(&p->execs[n].y);
        ls_axis_release(&p->execs[n].x);
    }
    for (int t = 0; t < p->layout_room; t++)
        dnn_md_release(&p->layouts[t].md);
    ls_free(p->layouts);
    ls_free(p->execs);
    ls_program_release(p);
    dnn_close(&p->dnn);
    ls_free(p);
}

/* Called before anything else, so that the guard runs before oneDNN decides to use AMX. */
static const char *refuses(enum ls_dtype dtype)
{
    if (dtype == LS_F16)
        return LS_GPU_DTYPES;
    if (dtype == LS_BF16)
        switch (dnn_guard_amx()) {
        case DNN_AMX_FINE:
            break;
        case DNN_AMX_OFF:
            if (!ls_amx_usable())
                ls_warn("this machine advertises AMX and faults on it; bf16 runs without it");
            break;
        case DNN_AMX_FAULTS:
            return "this machine advertises AMX and faults on it; set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16";
        }
    if (dtype == LS_BF16 && dnn_isa())
        return "oneDNN computes in bf16 only with AVX-512, which this processor lacks or ONEDNN_MAX_CPU_ISA leaves out; use "
               "--dtype f32";
    return NULL;
}

/* Without instructions for bf16 every product costs conversions. */
static const char *faster(enum ls_dtype dtype, bool tf32)
{
    if (dtype != LS_BF16 || tf32 || dnn_isa())
        return NULL;
    return ls_amx_usable()                        ? "because AMX multiplies it"
           : __builtin_cpu_supports("avx512bf16") ? "because AVX512-BF16 multiplies it at twice the rate of f32"
                                                  : NULL;
}

static enum ls_status prepare(const struct ls_backend_options *options, struct ls_graph *g, struct ls_store *store,
                              struct ls_program **program)
{
    enum ls_status st = LS_OK;
    struct ls_program *p = ls_alloc(1, sizeof *p);
    if (!p)
        return LS_FAILED;
    ls_program_init(p, options, g, store);
    omp_set_num_threads(options->threads);
    const char *why_not = refuses(g->act_dtype);
    if (why_not) {
        st = ls_fail(LS_USAGE, "%s", why_not);
        goto release_program;
    }
    if (!ls_kernels_pick(g->act_dtype, dnn_isa(), &p->k)) {
        st = ls_fail(LS_FAILED, "no kernels for this processor were built");
        goto release_program;
    }
    LS_TRY_GOTO(release_program, dnn_open(&p->dnn));
    LS_TRY_GOTO(release_program, tune_open(p));
    for (int n = 0; n < g->n_nodes && st == LS_OK; n++)
        st = prepare_node(p, n);
    enum ls_status kept = tune_close(p);
    st = st == LS_OK ? kept : st;
    if (st == LS_OK)
        st = ls_program_plan(p, &(struct ls_plan_rules){.align = LS_ALIGN});
release_program:
    if (st != LS_OK) {
        release(p);
        return st;
    }
    *program = p;
    return LS_OK;
}

static enum ls_status bind(struct ls_program *p, void *arena, void *grads)
{
    ls_program_bind(p, arena, grads);
    p->clip_node = ls_clip_node(p->core.g);
    for (int n = 0; n < p->core.g->n_nodes; n++)
        if (p->execs[n].kernel->bind)
            p->execs[n].kernel->bind(p, n);
    return LS_OK;
}

/* --- run ----------------------------------------------------------------------------------------------------- */

static enum ls_status run_nodes(struct ls_program *p, int first, int last, const struct ls_run *run)
{
    for (int n = first; n < last; n++) {
        if (n == p->clip_node && ls_clip_now(&p->core.g->nodes[n]))
            clip_gradients(p, run);
        if (!ls_window_is_empty(&p->core.g->nodes[n].window))
            LS_TRY(p->execs[n].kernel->run(p, n, run));
    }
    return LS_OK;
}

static enum ls_status input(struct ls_program *p, int tensor, const void *values)
{
    if (p->core.places[tensor].data == values)
        return LS_OK;
    p->core.places[tensor].data = (char *)(uintptr_t)values;
    for (int n = 0; n < p->core.g->n_nodes; n++)
        for (int i = 0; i < LS_MAX_IN; i++)
            if (p->core.g->nodes[n].in[i] == tensor && p->execs[n].kernel->bind)
                p->execs[n].kernel->bind(p, n);
    return LS_OK;
}

static size_t stored(const struct ls_program *p, int tensor)
{
    return (size_t)tensor_stored(p, tensor);
}

static void describe(const struct ls_program *p, int node, char *text, size_t room)
{
    int out = p->core.g->nodes[node].out[0];
    char layout[48] = "", where[64];
    if (out != LS_NONE)
        dnn_md_text(&p->layouts[out].md, layout, sizeof layout);
    snprintf(text, room, "%-28s %-16s %s", p->execs[node].note[0] ? p->execs[node].note : p->k.isa, layout,
             ls_program_where(p, out, where));
}

static void about(struct ls_backend_about *a)
{
    struct ls_kernels k = {0};
    char version[32];
    *a = (struct ls_backend_about){.caution = ""};
    snprintf(a->library, sizeof a->library, "oneDNN %s", dnn_version(version));
    snprintf(a->isa, sizeof a->isa, "%s", ls_kernels_pick(LS_F32, dnn_isa(), &k) ? k.isa : "unknown");
}

static const char *fault(void)
{
    if (dnn_guard_amx() == DNN_AMX_FINE)
        return NULL;
    return ls_amx_usable()
               ? "oneDNN faults on AMX here; in bf16 Lockstep's own convolutions and large dense layers use it, other dense layers do not"
               : "the processor advertises AMX and faults on it; bf16 runs without it";
}

static enum ls_status results(struct ls_program *p, int slot, const float **loss, const int32_t **rank)
{
    (void)slot;
    *loss = (const float *)(const void *)tensor_data(p, p->core.g->loss);
    *rank = (const int32_t *)(const void *)tensor_data(p, p->core.g->label_rank);
    return LS_OK;
}

static const struct ls_backend_queue queue = LS_HOST_QUEUE(results);

const struct ls_backend ls_backend_onednn = {
    .queue = &queue,
    .name = "onednn",
    .dense_1x1 = true,
    .summary = "CPU: oneDNN and Lockstep's own vector kernels",
    .about = about,
    .fault = fault,
    .refuses = refuses,
    .faster = faster,
    .prepare = prepare,
    .release = release,
    .arena_bytes = ls_program_arena_bytes,
    .grad_bytes = ls_program_grad_bytes,
    .bind = bind,
    .run = run_nodes,
    .read = read_tensor,
    .write = write_tensor,
    .input = input,
    .memory = ls_program_memory,
    .stored = stored,
    .point = ls_program_point,
    .matrix = tensor_matrix,
    .squares = gradient_squares,
    .choices = ls_program_choices,
    .describe = describe,
};
