/* Which clearings leave a graph (CUDA-6), and who waits for whom afterwards. CUDA's graphs are played by a few nodes here; built
 * where the backend cuda is. */
#include "backend/cuda/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 16, BYTES = 4096 };

struct CUgraphNode_st {
    bool clears, gone;
    char *dst;
    size_t bytes;
    unsigned value;
    uint32_t after; /* bit i: waits for node i */
};

static struct CUgraphNode_st nodes[ROOM];
static int n_nodes;
static uint32_t stands_at; /* the stream that is captured */
static char scratch[BYTES];

#if CUDART_VERSION >= 13000
#define KINDS cudaGraphEdgeData *kinds,
#define GIVEN_KINDS const cudaGraphEdgeData *kinds,
#define NO_KINDS (void)kinds;
#else
#define KINDS
#define GIVEN_KINDS
#define NO_KINDS
#endif

/* --- what CUDA does --------------------------------------------------------------------------------------------- */

enum ls_status cuda_check(cudaError_t error, const char *what)
{
    (void)what;
    return error == cudaSuccess ? LS_OK : LS_FAILED;
}

static cudaError_t give(uint32_t set, cudaGraphNode_t *list, size_t *n)
{
    size_t found = 0;
    for (int i = 0; i < n_nodes; i++)
        if (set & 1u << i) {
            if (list)
                list[found] = &nodes[i];
            found++;
        }
    *n = found;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *list, size_t *n)
{
    (void)graph;
    return give((1u << n_nodes) - 1, list, n);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    *type = node->clears ? cudaGraphNodeTypeMemset : cudaGraphNodeTypeKernel;
    return cudaSuccess;
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *p)
{
    *p = (struct cudaMemsetParams){
        .dst = node->dst, .elementSize = 4, .width = node->bytes / 4, .height = 1, .value = node->value};
    return cudaSuccess;
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *list, KINDS size_t *n)
{
    NO_KINDS
    return give(node->after, list, n);
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *list, KINDS size_t *n)
{
    uint32_t set = 0;
    NO_KINDS
    for (int i = 0; i < n_nodes; i++)
        if (!nodes[i].gone && nodes[i].after & 1u << (node - nodes))
            set |= 1u << i;
    return give(set, list, n);
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node)
{
    node->gone = true;
    for (int i = 0; i < n_nodes; i++)
        nodes[i].after &= ~(1u << (node - nodes));
    return cudaSuccess;
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                     GIVEN_KINDS size_t n)
{
    (void)graph;
    NO_KINDS
    for (size_t i = 0; i < n; i++)
        to[i]->after |= 1u << (from[i] - nodes);
    return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **list, const cudaGraphEdgeData **kinds,
                                     size_t *n)
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **list,
                                        size_t *n)
#endif
{
    static cudaGraphNode_t at[ROOM];
    NO_KINDS(void) stream;
    (void)id;
    (void)graph;
    *status = stands_at ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    *list = at;
    return give(stands_at, at, n);
}

/* --- capturing -------------------------------------------------------------------------------------------------- */

static int add(struct CUgraphNode_st node)
{
    assert_true(n_nodes < ROOM);
    node.after = stands_at;
    nodes[n_nodes] = node;
    stands_at = 1u << n_nodes;
    return n_nodes++;
}

static int kernel(void)
{
    return add((struct CUgraphNode_st){0});
}

static int clear(char *dst, size_t bytes)
{
    return add((struct CUgraphNode_st){.clears = true, .dst = dst, .bytes = bytes});
}

/* The graph clears all of the scratch first. */
static void begin(struct fronts *f)
{
    n_nodes = 0;
    stands_at = 0;
    f->n = 0;
    clear(scratch, BYTES);
}

static void next(struct fronts *f)
{
    assert_int_equal(fronts_add(f, NULL), LS_OK);
}

static void drop(const struct fronts *f)
{
    stands_at = 0;
    assert_int_equal(drop_clears(NULL, scratch, BYTES, f), LS_OK);
}

/* --- tests ------------------------------------------------------------------------------------------------------ */

static void first_of_a_node_goes(void **state)
{
    (void)state;
    struct fronts f = {0};
    begin(&f);
    next(&f);
    int a = kernel();
    next(&f);
    int cleared = clear(scratch + 256, 4), b = kernel(), c = kernel();
    next(&f);
    int again = clear(scratch + 512, 4), d = kernel();
    drop(&f);
    assert_true(nodes[cleared].gone && nodes[again].gone);
    assert_false(nodes[0].gone);
    assert_int_equal(nodes[a].after, 1);
    assert_int_equal(nodes[b].after, 1u << a);
    assert_int_equal(nodes[c].after, 1u << b);
    assert_int_equal(nodes[d].after, 1u << c);
    ls_free(f.nodes);
}

/* After a kernel of the same node, which may have written there. */
static void later_ones_stay(void **state)
{
    (void)state;
    struct fronts f = {0};
    begin(&f);
    next(&f);
    kernel();
    int inside = clear(scratch, 4);
    kernel();
    drop(&f);
    assert_false(nodes[inside].gone);
    drop(NULL); /* where it does not matter */
    assert_true(nodes[inside].gone);
    ls_free(f.nodes);
}

static void cleared_twice_stays(void **state)
{
    (void)state;
    struct fronts f = {0};
    begin(&f);
    next(&f);
    int one = clear(scratch + 8, 8);
    kernel();
    next(&f); /* as if it were a front */
    int two = clear(scratch + 12, 4);
    kernel();
    drop(&f);
    assert_false(nodes[one].gone || nodes[two].gone);
    ls_free(f.nodes);
}

static void others_stay(void **state)
{
    (void)state;
    static char elsewhere[64];
    struct fronts f = {0};
    begin(&f);
    next(&f);
    int outside = clear(elsewhere, 4);
    next(&f);
    int ones = clear(scratch + 64, 4);
    nodes[ones].value = 1;
    next(&f);
    int beyond = clear(scratch + BYTES - 4, 8);
    kernel();
    drop(&f);
    assert_false(nodes[outside].gone || nodes[ones].gone || nodes[beyond].gone);
    ls_free(f.nodes);
}

/* A node that waits for two streams. */
static void waits_for_both(void **state)
{
    (void)state;
    struct fronts f = {0};
    begin(&f);
    next(&f);
    int a = kernel();
    stands_at = 1;
    next(&f);
    int b = kernel();
    stands_at = 1u << a | 1u << b;
    next(&f);
    int cleared = clear(scratch, 4), c = kernel();
    drop(&f);
    assert_true(nodes[cleared].gone);
    assert_int_equal(nodes[c].after, 1u << a | 1u << b);
    ls_free(f.nodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_of_a_node_goes), cmocka_unit_test(later_ones_stay),
        cmocka_unit_test(cleared_twice_stays),  cmocka_unit_test(others_stay),
        cmocka_unit_test(waits_for_both),
    };
    return cmocka_run_group_tests_name("clears", tests, NULL, NULL);
}
