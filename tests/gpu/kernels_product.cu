/* Checks and times product.cu and product_wgmma.cu, products that make a batch normalisation's sums; needs a GPU. Build at
 * the repository's root:
 *
 *   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -DLS_CUDA_WGMMA --expt-relaxed-constexpr -I src
 *        -o kernels_product tests/gpu/kernels_product.cu
 *        src/backend/cuda/kernels/{bn/*,conv/product,conv/product_wgmma,run}.cu
 *
 *   kernels_product         as kernels_bn: ok|FAIL name error; exit 1 after a failure
 *   kernels_product bench   times at ResNet-50's shapes, bf16
 *
 * Products are compared with loops in double; sums with the kernels of bn.cu and bn_bwd.cu over the same product; those
 * with a sparse dy2 with those with the whole map, to the bit. */
#include "bn.h"

struct product_case {
    enum ls_dtype t;
    int64_t n, area, k, c, valid; /* n samples of `area` pixels; k channels become c */
    bool turned;
    enum ls_act act;
    bool dy2, kept;
    int sparse = 0;   /* of dy2 */
    int64_t high = 1; /* of the area */
    enum ls_cuda_product_way way = LS_CUDA_PRODUCT_PLAIN;
};

static std::string name_of(const product_case &k)
{
    char text[160];
    snprintf(text, sizeof text, "%s %s %ldx%ldx%ld to %ld valid %ld%s act %d%s%s%s",
             k.way == LS_CUDA_PRODUCT_WGMMA ? "wgmma" : "plain", type_name(k.t), (long)k.n, (long)k.area, (long)k.k,
             (long)k.c, (long)k.valid, k.turned ? " turned" : "", (int)k.act, k.dy2 ? " dy2" : "",
             k.kept ? " kept" : "", k.sparse ? " sparse" : "");
    return text;
}

/* The operands of a case on the device. */
struct operands {
    size_t rows, K, C;
    values vx, vw;
    buffer x, w, y, mean, rstd, stat, scratch, run;
    struct ls_cuda_bn b = {};
    struct ls_cuda_product p;

    operands(enum ls_dtype t, const product_case &k)
        : rows((size_t)(k.n * k.area)), K((size_t)k.k), C((size_t)k.c), vx(random_values(t, rows * K, 0.2, 1)),
          vw(random_values(t, K * C, 0, 0.3)), x(t, rows * K), w(t, K * C), y(t, rows * C), mean(LS_F32, C),
          rstd(LS_F32, C), stat(LS_F32, 2 * C), scratch(LS_U8, 8 << 20),
          run(LS_U8, sizeof(struct ls_cuda_run)), p{k.n * k.area, k.k, k.c, k.turned, k.way}
    {
        put_run(run, k.valid, 0.5f);
        must(cudaMemset(scratch.at, 0, LS_CUDA_BN_ZEROS), "memset");
        x.put(vx);
        w.put(vw);
        b.t = t;
        b.x = b.y = {k.n, k.high, k.area / k.high, k.c};
        b.act = k.act;
        b.eps = 1e-5f;
        b.scratch = scratch.f();
    }
    const struct ls_cuda_run *r() const
    {
        return (const struct ls_cuda_run *)run.at;
    }
    void stats()
    {
        ls_cuda_product_stats(0, &p, &b, r(), x.at, w.at, y.at, mean.f(), rstd.f(), stat.f());
        must(cudaDeviceSynchronize(), "product with statistics");
    }
    /* Some of the product's values, by loops. */
    double product_error(const values &got) const
    {
        values some, want;
        for (size_t i = 0; i < 4000; i++) {
            size_t row = i < 400 ? rows - 1 - i % rows : (i * 7919) % rows, c = (i * 31) % C;
            double sum = 0;
            for (size_t k = 0; k < K; k++)
                sum += vx[row * K + k] * (p.turned ? vw[k * C + c] : vw[c * K + k]);
            want.push_back(sum);
            some.push_back(got[row * C + c]);
        }
        return worst_of(some, want);
    }
};

static void check_forward(const product_case &k)
{
    const std::string name = name_of(k);
    operands o(k.t, k);
    o.stats();
    values mean = o.mean.get(), rstd = o.rstd.get(), stat = o.stat.get();
    report("product " + name, o.product_error(o.y.get()), tolerance(k.t));
    ls_cuda_bn_stats(0, &o.b, o.r(), o.y.at, o.mean.f(), o.rstd.f(), o.stat.f());
    must(cudaDeviceSynchronize(), "statistics");
    /* The product's sums are of values not yet rounded: means may differ by a share of the spread. */
    values want = o.mean.get(), spread = o.rstd.get();
    double off = 0;
    for (size_t c = 0; c < o.C; c++)
        off = std::max(off, std::fabs(mean[c] - want[c]) * spread[c]);
    report("mean " + name, off, 5e-4);
    report("rstd " + name, worst_of(rstd, spread), 5e-4);
    for (size_t c = 0; c < o.C; c++) {
        stat[c] -= 0.5 * mean[c];
        want[c] = 0;
    }
    values variance = o.stat.get();
    want.insert(want.end(), variance.begin() + (ptrdiff_t)o.C, variance.end());
    report("stat " + name, worst_of(stat, want), 1e-3);
}

static void check_backward(const product_case &k)
{
    const std::string name = name_of(k);
    operands o(k.t, k);
    const size_t count = o.rows * o.C;
    buffer x(k.t, count), dy2(k.t, count), kept(LS_U8, count / 8), dz(k.t, count), apart(k.t, count);
    buffer gamma(LS_F32, o.C), beta(LS_F32, o.C), mean(LS_F32, o.C), rstd(LS_F32, o.C);
    buffer dgamma(LS_F32, o.C), dbeta(LS_F32, o.C), apart_dgamma(LS_F32, o.C), apart_dbeta(LS_F32, o.C);
    std::vector<uint8_t> bits(count / 8);
    for (size_t i = 0; i < bits.size(); i++)
        bits[i] = (uint8_t)(i * 2654435761u >> 13);
    must(cudaMemcpy(kept.at, bits.data(), bits.size(), cudaMemcpyHostToDevice), "copy");
    x.put(random_values(k.t, count, 0.3, 1));
    values vdy2 = random_values(k.t, k.sparse ? sparse_count(o.b.x, k.sparse) : count, 0, 1);
    dy2.put(k.sparse ? spread(o.b.x, k.sparse, vdy2) : vdy2);
    gamma.put(random_values(LS_F32, o.C, 0.5, 1));
    beta.put(random_values(LS_F32, o.C, 0.2, 1));
    mean.put(random_values(LS_F32, o.C, 0.3, 0.1));
    rstd.put(random_values(LS_F32, o.C, 1.2, 0.1));
    struct ls_cuda_bn_grad g = {};
    g.dy2 = k.dy2 ? dy2.at : NULL;
    g.x = x.at;
    g.kept = k.kept ? kept.at : NULL;
    g.gamma = gamma.f();
    g.beta = beta.f();
    g.mean = mean.f();
    g.rstd = rstd.f();
    g.dresidual = dz.at;
    g.dgamma = dgamma.f();
    g.dbeta = dbeta.f();
    ls_cuda_product_sums(0, &o.p, &o.b, o.r(), o.x.at, o.w.at, &g);
    must(cudaDeviceSynchronize(), "product with sums");
    if (k.sparse) {
        buffer sparse(k.t, vdy2.size());
        sparse.put(vdy2);
        const std::vector<uint8_t> whole[] = {bytes_of(dz), bytes_of(dgamma), bytes_of(dbeta)};
        for (const buffer *b : {&dz, &dgamma, &dbeta})
            must(cudaMemset(b->at, 0xff, b->count * size_of(b->t)), "memset");
        g.dy2 = sparse.at;
        g.sparse = k.sparse;
        ls_cuda_product_sums(0, &o.p, &o.b, o.r(), o.x.at, o.w.at, &g);
        must(cudaDeviceSynchronize(), "product with sums, sparse");
        bool same = bytes_of(dz) == whole[0] && bytes_of(dgamma) == whole[1] && bytes_of(dbeta) == whole[2];
        report("as the whole map " + name, same ? 0 : 1, 0);
        g.dy2 = dy2.at;
        g.sparse = 0;
    }
    o.stats(); /* the product alone */
    report("product " + name, o.product_error(o.y.get()), tolerance(k.t));
    g.dy = o.y.at;
    g.dresidual = apart.at;
    g.dgamma = apart_dgamma.f();
    g.dbeta = apart_dbeta.f();
    ls_cuda_bn_bwd_sums(0, &o.b, o.r(), &g);
    must(cudaDeviceSynchronize(), "sums");
    values left = dz.get(), right = apart.get();
    report("dz " + name, left == right ? 0 : 1, 0);
    report("dgamma " + name, worst_of(dgamma.get(), apart_dgamma.get()), 2e-4);
    report("dbeta " + name, worst_of(dbeta.get(), apart_dbeta.get()), 2e-4);
}

/* Other multiples of 8 and of 64 than any network has; maps whose last tile is not full, or that have few tiles. */
static void check_wgmma(enum ls_dtype t)
{
    const enum ls_cuda_product_way way = LS_CUDA_PRODUCT_WGMMA;
    for (int64_t c : {8, 64, 72, 128, 200, 512, 2048})
        for (int64_t k : {8, 64, 136, 256, 512}) {
            const int64_t area = c * k > 100000 ? 17 : 149;
            check_forward({t, 37, area, k, c, k % 64 ? 36 : 37, false, LS_ACT_RELU, false, false, 0, 1, way});
            check_backward({t, 37, area, k, c, 36, true, LS_ACT_RELU, c % 64 == 0, k % 64 == 0, 0, 1, way});
        }
    for (int64_t c : {64, 120, 256}) {
        check_backward({t, 37, 156, 64, c, 35, true, LS_ACT_RELU, true, true, 2, 12, way});
        check_backward({t, 37, 143, 24, c, 37, true, LS_ACT_NONE, true, false, 2, 13, way});
        check_backward({t, 600, 15, 512, c, 599, true, LS_ACT_RELU6, true, true, 4, 3, way});
    }
    check_forward({t, 2, 30, 192, 256, 1, false, LS_ACT_NONE, false, false, 0, 1, way});
    check_forward({t, 300, 3, 64, 64, 0, false, LS_ACT_NONE, false, false, 0, 1, way});
}

static void check_all(void)
{
    const struct ls_cuda_product p = {1 << 20, 64, 64, false, LS_CUDA_PRODUCT_WGMMA};
    struct ls_cuda_bn b = {};
    b.t = LS_BF16;
    b.x = b.y = {1024, 32, 32, 64};
    for (enum ls_dtype t : {LS_BF16, LS_F16})
        if (ls_cuda_product_can(&p, &b, false))
            check_wgmma(t);
    for (enum ls_dtype t : {LS_BF16, LS_F16}) {
        for (int64_t c : {64, 120, 128, 256, 384})
            for (int64_t k : {8, 24, 32, 64, 104, 256})
                for (int turned = 0; turned < 2; turned++) {
                    check_forward({t, 37, 149, k, c, c % 64 ? 36 : 37, turned != 0, LS_ACT_RELU, false, false});
                    check_backward({t, 37, 149, k, c, k % 64 ? 35 : 37, turned != 0, (enum ls_act)(c % 5 % 3),
                                    k % 64 == 0, false});
                    check_backward({t, 37, 149, k, c, 37, turned != 0, LS_ACT_RELU, true, true});
                }
        for (int64_t c : {64, 120, 256})
            for (int turned = 0; turned < 2; turned++) {
                check_backward({t, 37, 156, 64, c, 35, turned != 0, LS_ACT_RELU, true, true, 2, 12});
                check_backward({t, 37, 143, 24, c, 37, turned != 0, LS_ACT_NONE, true, false, 2, 13});
                check_backward({t, 600, 15, 128, c, 599, turned != 0, LS_ACT_RELU6, true, true, 4, 3});
            }
        check_forward({t, 256, 784, 128, 512, 256, false, LS_ACT_NONE, false, false});
        check_backward({t, 256, 784, 128, 512, 250, true, LS_ACT_RELU, true, true});
        check_forward({t, 300, 3, 64, 64, 0, false, LS_ACT_NONE, false, false});
    }
}

/* --- times ------------------------------------------------------------------------------------------------------- */

static void bench_shape(enum ls_cuda_product_way way, int64_t side, int64_t k, int64_t c)
{
    const int64_t rows = 256 * side * side;
    struct ls_cuda_bn b = {};
    b.t = LS_BF16;
    b.x = b.y = {256, side, side, c};
    b.act = LS_ACT_RELU;
    b.eps = 1e-5f;
    const size_t count = (size_t)(rows * c), C = (size_t)c;
    buffer x(LS_BF16, (size_t)(rows * k)), w(LS_BF16, (size_t)(k * c)), y(LS_BF16, count), from(LS_BF16, count),
        dy2(LS_BF16, count), kept(LS_U8, count / 8), scratch(LS_U8, 8 << 20), run(LS_U8, sizeof(struct ls_cuda_run));
    buffer mean(LS_F32, C), rstd(LS_F32, C), stat(LS_F32, 2 * C), dgamma(LS_F32, C), dbeta(LS_F32, C);
    put_run(run, 256, 1);
    must(cudaMemset(scratch.at, 0, LS_CUDA_BN_ZEROS), "memset");
    ls_cuda_fill(0, LS_BF16, x.at, rows * k);
    ls_cuda_fill(0, LS_BF16, w.at, k * c);
    ls_cuda_fill(0, LS_BF16, from.at, rows * c);
    ls_cuda_fill(0, LS_BF16, dy2.at, rows * c);
    mean.put(values(C, 0.1));
    rstd.put(values(C, 1));
    b.scratch = scratch.f();
    const struct ls_cuda_run *r = (const struct ls_cuda_run *)run.at;
    struct ls_cuda_bn_grad g = {};
    g.dy2 = dy2.at;
    g.x = from.at;
    g.kept = kept.at;
    g.gamma = g.rstd = rstd.f();
    g.beta = g.mean = mean.f();
    g.dresidual = y.at;
    g.dgamma = dgamma.f();
    g.dbeta = dbeta.f();
    const double in = 2.0 * (double)(rows * k), out = 2.0 * (double)count;
    printf("%s, %ldx%ld, %ld to %ld\n", way == LS_CUDA_PRODUCT_WGMMA ? "wgmma" : "plain", (long)side, (long)side,
           (long)k, (long)c);
    struct ls_cuda_product p = {rows, k, c, false, way};
    bench("statistics", in + out,
          [&](cudaStream_t s) { ls_cuda_product_stats(s, &p, &b, r, x.at, w.at, y.at, mean.f(), rstd.f(), stat.f()); });
    bench("statistics alone", out,
          [&](cudaStream_t s) { ls_cuda_bn_stats(s, &b, r, y.at, mean.f(), rstd.f(), stat.f()); });
    p.turned = true;
    bench("sums, dy2, kept", in + 3.0625 * out,
          [&](cudaStream_t s) { ls_cuda_product_sums(s, &p, &b, r, x.at, w.at, &g); });
    buffer dy(LS_BF16, count);
    g.dy = dy.at;
    g.sparse = 2;
    bench("sums, sparse dy2, kept", in + 2.3125 * out,
          [&](cudaStream_t s) { ls_cuda_product_sums(s, &p, &b, r, x.at, w.at, &g); });
    bench("sums alone, sparse dy2, kept", 3.3125 * out, [&](cudaStream_t s) { ls_cuda_bn_bwd_sums(s, &b, r, &g); });
    g.sparse = 0;
    bench("sums alone, dy2, kept", 4.0625 * out, [&](cudaStream_t s) { ls_cuda_bn_bwd_sums(s, &b, r, &g); });
    g.dy2 = g.kept = NULL;
    bench("sums", in + 2 * out, [&](cudaStream_t s) { ls_cuda_product_sums(s, &p, &b, r, x.at, w.at, &g); });
}

static void bench_all(void)
{
    const int64_t shapes[][3] = {{56, 64, 256}, {56, 64, 64}, {56, 256, 64}, {56, 128, 256}, {28, 128, 512}};
    for (const int64_t *s : shapes)
        bench_shape(LS_CUDA_PRODUCT_PLAIN, s[0], s[1], s[2]);
    const int64_t more[][3] = {{28, 512, 128}, {14, 256, 1024}, {7, 512, 2048}};
    for (const int64_t *s : shapes)
        bench_shape(LS_CUDA_PRODUCT_WGMMA, s[0], s[1], s[2]);
    for (const int64_t *s : more)
        bench_shape(LS_CUDA_PRODUCT_WGMMA, s[0], s[1], s[2]);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv, bench_all, check_all);
}
