/* C6: the clearing of small scratches, taken out of graphs. */
#include "backend/cuda/program.h"

/* CUDA 13 can also tell, and be told, what kind of edge it is. */
#if CUDART_VERSION >= 13000
#define NO_KINDS NULL,
#else
#define NO_KINDS
#endif

/* Whoever waits for this node waits for those that it waits for. */
static cudaError_t cut_out(cudaGraph_t graph, cudaGraphNode_t node)
{
    enum { MOST = 8 };
    cudaGraphNode_t before[MOST], after[MOST];
    size_t n_before = MOST, n_after = MOST;
    cudaError_t error = cudaGraphNodeGetDependencies(node, before, NO_KINDS & n_before);
    if (error == cudaSuccess)
        error = cudaGraphNodeGetDependentNodes(node, after, NO_KINDS & n_after);
    if (error == cudaSuccess)
        error = cudaGraphDestroyNode(node);
    for (size_t i = 0; i < n_before * n_after && error == cudaSuccess; i++)
        error = cudaGraphAddDependencies(graph, &before[i / n_after], &after[i % n_after], NO_KINDS 1);
    return error;
}

static bool clears_part_of(const struct cudaMemsetParams *m, const char *from, size_t bytes)
{
    const char *start = m->dst;
    size_t length = m->elementSize * m->width;
    return m->value == 0 && m->height == 1 && start >= from && start + length <= from + bytes;
}

enum ls_status drop_clears(cudaGraph_t graph, const char *from, size_t bytes)
{
    size_t n = 0;
    CUDA_TRY(cudaGraphGetNodes(graph, NULL, &n));
    cudaGraphNode_t *nodes = ls_alloc(n, sizeof *nodes);
    if (!nodes)
        return LS_FAILED;
    cudaError_t error = cudaGraphGetNodes(graph, nodes, &n);
    for (size_t i = 0; i < n && error == cudaSuccess; i++) {
        enum cudaGraphNodeType type;
        struct cudaMemsetParams clear = {0};
        size_t before = 0;
        error = cudaGraphNodeGetType(nodes[i], &type);
        if (error != cudaSuccess || type != cudaGraphNodeTypeMemset)
            continue;
        error = cudaGraphMemsetNodeGetParams(nodes[i], &clear);
        if (error == cudaSuccess)
            error = cudaGraphNodeGetDependencies(nodes[i], NULL, NO_KINDS & before);
        if (error == cudaSuccess && before > 0 && clears_part_of(&clear, from, bytes))
            error = cut_out(graph, nodes[i]);
    }
    ls_free(nodes);
    return cuda_check(error, "taking clearings out of a graph");
}
