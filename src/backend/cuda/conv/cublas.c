/* Products of matrices by cuBLASLt: dense layers, and convolutions of 1x1. Its matrices are by columns, so ours are its
 * transposed ones:
 *     FORWARD      y  (out x rows)     = w (in x out)' * x (in x rows)     + bias, act
 *     BWD_DATA     dx (in x rows)      = w (in x out)  * dy (out x rows)
 *     BWD_WEIGHTS  dw (in x out), f32  = x (in x rows) * dy (out x rows)' */
#include "backend/cuda/conv/conv_algorithm.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { WORKSPACE = 32 << 20 };

struct product {
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
};

static cudaDataType_t blas_type(enum ls_dtype t)
{
    return t == LS_BF16 ? CUDA_R_16BF : t == LS_F16 ? CUDA_R_16F : CUDA_R_32F;
}

/* cuBLASLt has no relu6. */
static bool fuses(const struct linear *l)
{
    return l->conv.act != LS_ACT_RELU6;
}

static void product_release(struct product *m)
{
    if (m->a)
        cublasLtMatrixLayoutDestroy(m->a);
    if (m->b)
        cublasLtMatrixLayoutDestroy(m->b);
    if (m->d)
        cublasLtMatrixLayoutDestroy(m->d);
    if (m->what)
        cublasLtMatmulDescDestroy(m->what);
    ls_free(m);
}

/* Everything but the algorithm; NULL: not available. */
static struct product *product_new(const struct linear *l)
{
    const struct ls_cuda_conv *c = &l->conv;
    int64_t rows = c->x.n * c->x.h * c->x.w, in = c->x.c, out = c->y.c;
    cudaDataType_t t = blas_type(c->t);
    cublasOperation_t ta = l->pass == FORWARD ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tb = l->pass == BWD_WEIGHTS ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasComputeType_t compute = l->tf32 && c->t == LS_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    struct product *m = ls_alloc(1, sizeof *m);
    if (!m)
        return NULL;
    cublasStatus_t st = cublasLtMatmulDescCreate(&m->what, compute, CUDA_R_32F);
    if (!st)
        st = cublasLtMatmulDescSetAttribute(m->what, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    if (!st)
        st = cublasLtMatmulDescSetAttribute(m->what, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    if (!st && l->pass == FORWARD && fuses(l) && (l->bias || c->act != LS_ACT_NONE)) {
        cublasLtEpilogue_t e = c->act == LS_ACT_NONE ? CUBLASLT_EPILOGUE_BIAS
                               : l->bias             ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                     : CUBLASLT_EPILOGUE_RELU;
        st = cublasLtMatmulDescSetAttribute(m->what, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e);
    }
    if (!st && l->pass == BWD_WEIGHTS) {
        st = cublasLtMatrixLayoutCreate(&m->a, t, (uint64_t)in, (uint64_t)rows, in);
        if (!st)
            st = cublasLtMatrixLayoutCreate(&m->b, t, (uint64_t)out, (uint64_t)rows, out);
        if (!st)
            st = cublasLtMatrixLayoutCreate(&m->d, CUDA_R_32F, (uint64_t)in, (uint64_t)out, in);
    } else if (!st) {
        int64_t from = l->pass == FORWARD ? in : out, to = l->pass == FORWARD ? out : in;
        st = cublasLtMatrixLayoutCreate(&m->a, t, (uint64_t)in, (uint64_t)out, in);
        if (!st)
            st = cublasLtMatrixLayoutCreate(&m->b, t, (uint64_t)from, (uint64_t)rows, from);
        if (!st)
            st = cublasLtMatrixLayoutCreate(&m->d, t, (uint64_t)to, (uint64_t)rows, to);
    }
    if (st) {
        product_release(m);
        return NULL;
    }
    return m;
}

/* In-place reductions add in whatever order they come. */
static int heuristics(struct device *d, const struct linear *l, const struct product *m,
                      cublasLtMatmulHeuristicResult_t *results, int room)
{
    cublasLtMatmulPreference_t wish;
    size_t workspace = WORKSPACE;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK & ~(l->fast ? 0u : (uint32_t)CUBLASLT_REDUCTION_SCHEME_INPLACE);
    int n = 0;
    if (cublasLtMatmulPreferenceCreate(&wish))
        return 0;
    cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    if (cublasLtMatmulAlgoGetHeuristic(d->blas, m->what, m->a, m->b, m->d, m->d, wish, room, results, &n))
        n = 0;
    cublasLtMatmulPreferenceDestroy(wish);
    return n;
}

static int algo_value(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t key, size_t size)
{
    int value = 0;
    size_t written;
    cublasLtMatmulAlgoConfigGetAttribute(algo, key, &value, size, &written);
    return value;
}

static void algo_name(const cublasLtMatmulAlgo_t *a, char *name, size_t room)
{
    snprintf(
        name, room, "blas %d.%d.%d.%d.%d.%d.%d.%d.%d", algo_value(a, CUBLASLT_ALGO_CONFIG_ID, 4),
        algo_value(a, CUBLASLT_ALGO_CONFIG_TILE_ID, 4), algo_value(a, CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
        algo_value(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4), algo_value(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
        algo_value(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4), algo_value(a, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
        algo_value(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2), algo_value(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4));
}

static int list(struct device *d, const struct linear *l, struct conv_algorithm *list, int room)
{
    enum { MOST = 6 };
    cublasLtMatmulHeuristicResult_t results[MOST];
    if (!linear_is_product(l))
        return 0;
    struct product *m = product_new(l);
    int n = m ? heuristics(d, l, m, results, MOST < room ? MOST : room) : 0, found = 0;
    for (int i = 0; i < n; i++) {
        struct product *own = results[i].state == CUBLAS_STATUS_SUCCESS ? product_new(l) : NULL;
        if (!own)
            continue;
        own->algo = results[i].algo;
        algo_name(&own->algo, list[found].name, sizeof list[found].name);
        list[found].state = own;
        list[found].workspace = results[i].workspaceSize;
        list[found++].after = l->pass == FORWARD && !fuses(l);
    }
    if (m)
        product_release(m);
    return found;
}

static bool build(struct device *d, const struct linear *l, struct conv_algorithm *algorithm)
{
    (void)d, (void)l;
    return algorithm->state != NULL;
}

static enum ls_status run(struct device *d, const struct linear *l, const struct conv_algorithm *algorithm,
                          const struct operands *o)
{
    static const float one = 1, zero = 0;
    const struct product *m = algorithm->state;
    const struct ls_cuda_conv *c = &l->conv;
    void *a = l->pass == BWD_WEIGHTS ? o->x : o->w, *b = l->pass == FORWARD ? o->x : o->y;
    void *to = l->pass == FORWARD ? o->y : l->pass == BWD_DATA ? o->x : o->w;
    if (l->pass == FORWARD && fuses(l) && l->bias)
        LS_TRY(blas_check(cublasLtMatmulDescSetAttribute(m->what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->half_bias,
                                                         sizeof o->half_bias),
                          "bias"));
    LS_TRY(blas_check(cublasLtMatmul(d->blas, m->what, &one, a, m->a, b, m->b, &zero, to, m->d, to, m->d, &m->algo,
                                     o->workspace, algorithm->workspace, d->compute),
                      "cublasLtMatmul"));
    if (algorithm->after)
        ls_cuda_bias(d->compute, c->t, c->act, o->y, o->bias, o->y, c->y.n * c->y.h * c->y.w, c->y.c);
    return LS_OK;
}

static void release(struct conv_algorithm *algorithm)
{
    if (algorithm->state)
        product_release(algorithm->state);
}

const struct conv_library ls_cuda_cublas = {.list = list, .build = build, .run = run, .release = release};
