/* Removing the memsets of small scratches from graphs (CUDA-6). */
#include "backend/cuda/program.h"

/* Functions of CUDA 13 also take the kinds of edges. */
#if CUDART_VERSION >= 13000
#define NO_KINDS NULL,
#else
#define NO_KINDS
#endif

enum { MOST = 8 }; /* dependencies, and dependents, of a node that is removed; a node with more stays */

/* Remove a node. Its dependents then depend on its dependencies. */
static cudaError_t cut_out(cudaGraph_t graph, cudaGraphNode_t node)
{
    cudaGraphNode_t before[MOST], after[MOST];
    size_t n_before = MOST, n_after = 0;
    cudaError_t error = cudaGraphNodeGetDependencies(node, before, NO_KINDS & n_before);
    if (error == cudaSuccess)
        error = cudaGraphNodeGetDependentNodes(node, NULL, NO_KINDS & n_after);
    if (error != cudaSuccess || n_after > MOST)
        return error;
    error = cudaGraphNodeGetDependentNodes(node, after, NO_KINDS & n_after);
    if (error == cudaSuccess)
        error = cudaGraphDestroyNode(node);
    for (size_t i = 0; i < n_before * n_after && error == cudaSuccess; i++)
        error = cudaGraphAddDependencies(graph, &before[i / n_after], &after[i % n_after], NO_KINDS 1);
    return error;
}

/* --- fronts ---------------------------------------------------------------------------------------------------- */

enum ls_status fronts_add(struct fronts *f, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *nodes = NULL;
    size_t n = 0;
#if CUDART_VERSION >= 13000
    const cudaGraphEdgeData *kinds = NULL;
    CUDA_TRY(cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, &kinds, &n));
#else
    CUDA_TRY(cudaStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, &nodes, &n));
#endif
    if (f->n + n > f->room) {
        size_t room = 2 * (f->n + n);
        cudaGraphNode_t *more = ls_realloc(f->nodes, f->n, room, sizeof *more);
        if (!more)
            return LS_FAILED;
        f->nodes = more;
        f->room = room;
    }
    for (size_t i = 0; i < n; i++)
        f->nodes[f->n++] = nodes[i];
    return LS_OK;
}

static bool is_front(const struct fronts *f, cudaGraphNode_t node)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->nodes[i] == node)
            return true;
    return false;
}

/* --- memsets -------------------------------------------------------------------------------------------------- */

struct clear {
    cudaGraphNode_t node;
    const char *from, *end;
};

/* Is it a memset of some of these bytes, before everything else of its program node? */
static cudaError_t look_at(cudaGraphNode_t node, const char *from, size_t bytes, const struct fronts *fronts,
                           struct clear *clear)
{
    enum cudaGraphNodeType type;
    struct cudaMemsetParams m = {0};
    cudaGraphNode_t before[MOST];
    size_t n = 0;
    *clear = (struct clear){0};
    cudaError_t error = cudaGraphNodeGetType(node, &type);
    if (error != cudaSuccess || type != cudaGraphNodeTypeMemset)
        return error;
    error = cudaGraphMemsetNodeGetParams(node, &m);
    if (error == cudaSuccess)
        error = cudaGraphNodeGetDependencies(node, NULL, NO_KINDS & n);
    const char *start = m.dst, *end = start + m.elementSize * m.width;
    if (error != cudaSuccess || m.value != 0 || m.height != 1 || start < from || end > from + bytes || n == 0 ||
        n > MOST)
        return error;
    error = cudaGraphNodeGetDependencies(node, before, NO_KINDS & n);
    for (size_t i = 0; i < n && error == cudaSuccess && fronts; i++)
        if (!is_front(fronts, before[i]))
            return error;
    *clear = (struct clear){node, start, end};
    return error;
}

/* A scratch that is cleared twice is used between the two memsets. */
static bool cleared_once(const struct clear *all, size_t n, size_t which)
{
    for (size_t i = 0; i < n; i++)
        if (i != which && all[i].from < all[which].end && all[which].from < all[i].end)
            return false;
    return true;
}

enum ls_status drop_clears(cudaGraph_t graph, const char *from, size_t bytes, const struct fronts *fronts)
{
    size_t n = 0, found = 0;
    CUDA_TRY(cudaGraphGetNodes(graph, NULL, &n));
    cudaGraphNode_t *nodes = ls_alloc(n, sizeof *nodes);
    struct clear *clears = ls_alloc(n, sizeof *clears);
    cudaError_t error = nodes && clears ? cudaGraphGetNodes(graph, nodes, &n) : cudaErrorMemoryAllocation;
    for (size_t i = 0; i < n && error == cudaSuccess; i++) {
        error = look_at(nodes[i], from, bytes, fronts, &clears[found]);
        found += clears[found].node != NULL;
    }
    for (size_t i = 0; i < found && error == cudaSuccess; i++)
        if (cleared_once(clears, found, i))
            error = cut_out(graph, clears[i].node);
    ls_free(nodes);
    ls_free(clears);
    return cuda_check(error, "removing memsets from a graph");
}
