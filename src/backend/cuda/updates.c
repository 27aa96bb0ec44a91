/* Parameter updates and BN's running statistics: neighbouring ones run as one kernel over a list in device memory. */
#include "backend/core/clip.h"
#include "backend/cuda/conv/tune.h"
#include "backend/cuda/kernels/given.h"
#include "base/log.h"
#include "graph/ops.h"

#include <string.h>

/* The optimizers, one line each: the op, the function that launches its kernel, and whether it needs norms. Optimizers that
 * share a function run in one launch. */
static const struct rule {
    const char *op;
    ls_cuda_update_launch *launch;
    bool norms;
    bool last; /* behind all others, and behind running statistics */
} rules[] = {
    {"sgd", ls_cuda_sgd, false, false},  {"lars", ls_cuda_sgd, true, false},   {"adamw", ls_cuda_adamw, false, false},
    {"lamb", ls_cuda_lamb, true, false}, {"muon", ls_cuda_muon, false, false}, {"ema", ls_cuda_ema, false, true},
};
enum { RULES = sizeof rules / sizeof *rules };

static const struct rule *rule_of(const struct ls_program *p, int node)
{
    for (int r = 0; r < RULES; r++)
        if (strcmp(p->core.g->nodes[node].op->name, rules[r].op) == 0)
            return &rules[r];
    return NULL;
}

/* The number of a rule: that of the first one with the same function. */
static int number_of(const struct rule *rule)
{
    int number = 0;
    while (rules[number].launch != rule->launch)
        number++;
    return number;
}

static int rule_number(const char *op)
{
    int number = 0;
    while (strcmp(rules[number].op, op) != 0)
        number++;
    return number;
}

static bool is_update(const struct ls_program *p, int node)
{
    return p->core.g->nodes[node].op->update;
}

static bool is_running(const struct ls_program *p, int node)
{
    return strcmp(p->core.g->nodes[node].op->name, "bn_running") == 0;
}

static enum ls_status update_prepare(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    if (!rule_of(p, node))
        return ls_fail(LS_USAGE, "--optimizer %s: --backend cuda does not have it", n->op->name);
    LS_TRY(place_default(p, n->in[0]));
    for (int i = 1; i < 2 + LS_MAX_STATES; i++)
        if (n->in[i] != LS_NONE)
            LS_TRY(place_as(p, n->in[i], &p->layouts[n->in[0]].layout, false));
    return LS_OK;
}

/* The gradient is the one whose completion it waits for, and is not read. */
static enum ls_status ema_prepare(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    LS_TRY(place_default(p, n->in[0]));
    return place_as(p, n->in[2], &p->layouts[n->in[0]].layout, false);
}

static enum ls_status running_prepare(struct ls_program *p, int node)
{
    for (int i = 0; i < 3; i++)
        LS_TRY(place_default(p, p->core.g->nodes[node].in[i]));
    return LS_OK;
}

static enum ls_status update_run(struct ls_program *p, int node)
{
    return updates_run(p, node, node + 1);
}

int updates_run_length(const struct ls_program *p, int node, int last)
{
    int end = node;
    while (end < last && (is_update(p, end) || is_running(p, end)))
        end++;
    return end - node;
}

static void describe_update(const struct ls_program *p, int node, struct ls_cuda_update *u)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct tensor_layout *param = &p->layouts[n->in[0]];
    const struct rule *rule = rule_of(p, node);
    *u = (struct ls_cuda_update){
        .param = floats(p, n->in[0]),
        .grad = data_of(p, n->in[1]),
        .half = param->half,
        .count = param->layout.count,
        .rows = param->layout.stride[0] > 0 ? param->layout.count / param->layout.stride[0] : 1,
        .filters = param->layout.dim[0],
        .hyper = n->attr.hyper,
        .rule = number_of(rule),
        .norms = rule->norms,
        .nesterov = n->attr.nesterov,
        .grad_t = LS_F32,
        .half_t = (int32_t)p->core.g->act_dtype,
    };
    for (int i = 0; i < LS_MAX_STATES; i++)
        u->state[i] = (float *)(void *)data_of(p, n->in[2 + i]);
}

static void describe_running(const struct ls_program *p, int node, struct ls_cuda_running *r)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    *r = (struct ls_cuda_running){
        .stat = (float *)(void *)data_of(p, n->in[0]),
        .mean = (float *)(void *)data_of(p, n->in[1]),
        .var = (float *)(void *)data_of(p, n->in[2]),
        .c = (int32_t)p->layouts[n->in[1]].layout.count,
        .momentum = n->attr.momentum,
    };
}

/* State that is apart gets its memory later. */
static bool has_windows(const struct ls_program *p)
{
    for (int t = 0; t < p->core.g->n_tensors; t++)
        if (p->core.g->tensors[t].apart)
            return true;
    return false;
}

/* The entries of a node in the list of what is clipped: one, or, where its layer is computed in chunks of rows, one for each chunk that
 * is here. A process that has some chunks comes to the same sums of them. Returns their number. */
static int list_clipped(const struct ls_program *p, int node, struct ls_cuda_update *list)
{
    const struct ls_cuda_update *u = &p->host_updates[node];
    int param = p->core.g->nodes[node].in[0];
    struct ls_split_range r;
    list[0] = *u;
    if (!(u->hyper.clip_norm > 0) || ls_split_layer_of(p->core.g, param, &r) == LS_NONE)
        return 1;
    int64_t chunk = r.chunk * p->layouts[param].layout.stride[0];
    int n = r.end - r.first;
    for (int c = 0; c < n; c++) {
        list[c] = *u;
        list[c].grad = (const float *)u->grad + c * chunk;
        list[c].count = c + 1 < n ? chunk : u->count - c * chunk;
    }
    return n;
}

/* Nothing is given at first. */
static enum ls_status take_clip(struct ls_program *p)
{
    static const struct ls_cuda_clip_head none;
    size_t n = (size_t)p->first_clipped[p->core.g->n_nodes];
    LS_TRY(device_take(n * sizeof *p->clipped, "the list of updates", (void **)&p->clipped));
    LS_TRY(device_take(ls_cuda_clip_scratch(p->host_clipped, (int)n), "norms", (void **)&p->clip));
    p->host_squares = ls_alloc(n, sizeof *p->host_squares);
    return p->host_squares ? device_put(p->clip, &none, sizeof none) : LS_FAILED;
}

static enum ls_status bind_clipped(struct ls_program *p)
{
    int n = p->core.g->n_nodes, used = 0;
    if (ls_cuda_clip_scratch(p->host_updates, n) == 0)
        return LS_OK;
    if (!p->host_clipped) {
        p->host_clipped = ls_alloc((size_t)n * LS_SPLIT_CHUNKS, sizeof *p->host_clipped);
        p->first_clipped = ls_alloc((size_t)n + 1, sizeof *p->first_clipped);
    }
    if (!p->host_clipped || !p->first_clipped)
        return LS_FAILED;
    for (int i = 0; i < n; i++) {
        p->first_clipped[i] = used;
        used += list_clipped(p, i, p->host_clipped + used);
    }
    p->first_clipped[n] = used;
    if (ls_cuda_update_number(p->host_clipped, used) < 0)
        return ls_fail(LS_FAILED, "the model has more parameters than one update can clip");
    if (!p->clip)
        LS_TRY(take_clip(p));
    return device_put(p->clipped, p->host_clipped, (size_t)used * sizeof *p->clipped);
}

/* Clips all gradients. */
static void clip_all(struct ls_program *p, double limit)
{
    ls_cuda_clip(p->device->compute, p->scale, limit, p->clipped, p->host_clipped, p->first_clipped[p->core.g->n_nodes],
                 p->clip);
}

/* Addresses are known now. */
enum ls_status updates_bind(struct ls_program *p)
{
    int n = p->core.g->n_nodes;
    struct ls_cuda_running *running = ls_alloc((size_t)n, sizeof *running);
    enum ls_status st = running ? LS_OK : LS_FAILED;
    for (int i = 0; i < n && running; i++)
        if (is_update(p, i))
            describe_update(p, i, &p->host_updates[i]);
        else if (is_running(p, i))
            describe_running(p, i, &running[i]);
    if (st == LS_OK && ls_cuda_update_number(p->host_updates, n) < 0)
        st = ls_fail(LS_FAILED, "the model has more parameters than one update can take");
    size_t scratch = ls_cuda_update_scratch(p->host_updates, n);
    size_t muon = ls_cuda_muon_scratch(p->host_updates, n, rule_number("muon"));
    scratch = muon > scratch ? muon : scratch;
    if (st == LS_OK && !p->updates)
        st = device_take((size_t)n * sizeof *p->updates, "the list of updates", (void **)&p->updates);
    if (st == LS_OK && !p->window && has_windows(p))
        st = device_take(sizeof *p->window, "the list of updates", (void **)&p->window);
    if (st == LS_OK && !p->running)
        st = device_take((size_t)n * sizeof *p->running, "the list of updates", (void **)&p->running);
    if (st == LS_OK && scratch > 0 && !p->norms)
        st = device_take(scratch, "norms", (void **)&p->norms);
    if (st == LS_OK)
        st = bind_clipped(p);
    if (st == LS_OK)
        st = cuda_check(cudaMemcpyAsync(p->updates, p->host_updates, (size_t)n * sizeof *p->updates,
                                        cudaMemcpyHostToDevice, p->device->compute),
                        "the list of updates");
    if (st == LS_OK)
        st = cuda_check(cudaMemcpyAsync(p->running, running, (size_t)n * sizeof *running, cudaMemcpyHostToDevice,
                                        p->device->compute),
                        "the list of updates");
    if (st == LS_OK)
        st = cuda_check(cudaStreamSynchronize(p->device->compute), "the list of updates");
    ls_free(running);
    return st;
}

static void launch(struct ls_program *p, int first, int last, const bool *present, bool late)
{
    for (int r = 0; r < RULES; r++)
        if (present[r] && rules[r].last == late)
            rules[r].launch(p->device->compute, p->run, p->scale, p->updates + first, p->host_updates + first,
                            last - first, r, p->norms);
}

/* The values of a node's window, of which those behind the tensor's last are padding. */
static void run_window(struct ls_program *p, int node)
{
    const struct ls_window *w = &p->core.g->nodes[node].window;
    struct ls_cuda_update u;
    describe_update(p, node, &u);
    int64_t left = u.count - (int64_t)w->first;
    u.count = left < (int64_t)w->count ? left : (int64_t)w->count;
    if (u.count <= 0)
        return;
    u.param = w->apart ? w->apart + w->at : u.param + w->first;
    u.grad = (const float *)u.grad + w->first;
    u.half = u.half && !w->apart ? (char *)u.half + 2 * w->first : NULL; /* passes read copies elsewhere */
    for (int i = 0; i < LS_MAX_STATES; i++)
        u.state[i] = u.state[i] ? u.state[i] + w->at : NULL;
    ls_cuda_set_update(p->device->compute, p->window, &u);
    rules[u.rule].launch(p->device->compute, p->run, p->scale, p->window, &u, 1, u.rule, p->norms);
}

/* Aside: they depend on no update, and take their few microseconds beside the updates. */
static enum ls_status begin_running(struct ls_program *p, int first, int last)
{
    struct device *d = p->device;
    CUDA_TRY(cudaEventRecord(p->fork, d->compute));
    CUDA_TRY(cudaStreamWaitEvent(d->aside, p->fork, 0));
    ls_cuda_bn_running(d->aside, p->running + first, last - first);
    CUDA_TRY(cudaEventRecord(p->joined, d->aside));
    return LS_OK;
}

enum ls_status updates_run(struct ls_program *p, int first, int last)
{
    cudaStream_t stream = p->device->compute;
    const struct ls_window *window = &p->core.g->nodes[first].window;
    if (window->on && window->count > 0) {
        run_window(p, first);
        return LS_OK;
    }
    if (window->on) { /* it only checks and clips: all of them */
        if (p->scale)
            ls_cuda_scale_check(stream, p->scale, p->updates, p->host_updates, p->core.g->n_nodes);
        if (p->clip)
            clip_all(p, ls_clip_limit(&p->core.g->nodes[first]));
        return LS_OK;
    }
    bool present[RULES] = {false}, any = false, running = false;
    double clip = 0;
    for (int n = first; n < last; n++) {
        clip = ls_clip_limit(&p->core.g->nodes[n]) > 0 ? ls_clip_limit(&p->core.g->nodes[n]) : clip;
        if (is_update(p, n))
            any = present[p->host_updates[n].rule] = true;
        running = running || is_running(p, n);
    }
    if (running)
        LS_TRY(begin_running(p, first, last));
    if (any && p->scale)
        ls_cuda_scale_check(stream, p->scale, p->updates + first, p->host_updates + first, last - first);
    if (clip > 0) /* updates of clipped gradients run together, behind all of them */
        clip_all(p, clip);
    launch(p, first, last, present, false);
    if (running)
        CUDA_TRY(cudaStreamWaitEvent(stream, p->joined, 0));
    launch(p, first, last, present, true);
    return LS_OK;
}

enum ls_status updates_inspect(struct ls_program *p, const struct ls_run *run, bool *overflow)
{
    cudaStream_t stream = p->device->compute;
    int n = p->core.g->n_nodes, clipped = p->clip ? p->first_clipped[n] : 0;
    struct ls_cuda_scale scale = {0};
    LS_TRY(program_feed(p, run, false));
    if (p->clip)
        ls_cuda_squares(stream, p->clipped, p->host_clipped, clipped, p->clip);
    if (p->scale)
        ls_cuda_scale_check(stream, p->scale, p->updates, p->host_updates, n);
    program_fed(p);
    CUDA_TRY(cudaEventRecord(p->here, stream));
    LS_TRY(program_await(p, p->here));
    if (p->clip)
        CUDA_TRY(cudaMemcpy(p->host_squares, (char *)p->clip + sizeof(struct ls_cuda_clip_head),
                            (size_t)clipped * sizeof *p->host_squares, cudaMemcpyDeviceToHost));
    if (p->scale)
        CUDA_TRY(cudaMemcpy(&scale, p->scale, sizeof scale, cudaMemcpyDeviceToHost));
    *overflow = scale.overflow != 0;
    return LS_OK;
}

int updates_squares(const struct ls_program *p, int node, double sums[LS_SPLIT_CHUNKS])
{
    if (ls_clip_limit(&p->core.g->nodes[node]) <= 0)
        return 0;
    int first = p->first_clipped[node], n = p->first_clipped[node + 1] - first;
    memcpy(sums, p->host_squares + first, (size_t)n * sizeof *sums);
    return n;
}

const struct kernel ls_cuda_ops_updates[] = {
#define X(name, ...) {.op = #name, .prepare = update_prepare, .run = update_run, .joins = true},
#include "config/lists/optimizers.def"
    {.op = "ema", .prepare = ema_prepare, .run = update_run, .joins = true},
    {.op = "bn_running", .prepare = running_prepare, .run = update_run, .joins = true},
    {0},
};
