/* Checks and times taps_wgmma.cu, 3x3 convolutions that make a batch normalisation's sums; needs a Hopper GPU. Build at the
 * repository's root:
 *
 *   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -DLS_CUDA_WGMMA --expt-relaxed-constexpr -I src
 *        -o kernels_taps tests/gpu/kernels_taps.cu
 *        src/backend/cuda/kernels/{bn/*,conv/product_wgmma,conv/product_dz,conv/fold_apply,conv/taps_wgmma,run}.cu
 *
 *   kernels_taps         as kernels_bn: ok|FAIL name error; exit 1 after a failure
 *   kernels_taps bench   times at ResNet's and VGG's shapes, bf16
 *
 * Convolutions are compared with loops in double; sums with the kernels of bn.cu and bn_bwd.cu over the same convolution. */
#include "bn.h"

struct taps_case {
    enum ls_dtype t;
    int64_t n, h, w, k, c, valid; /* n samples of h x w pixels; k channels become c */
    enum ls_act act = LS_ACT_RELU;
    bool bias = false;
};

static std::string name_of(const taps_case &k)
{
    char text[160];
    snprintf(text, sizeof text, "%s %ldx%ldx%ldx%ld to %ld valid %ld act %d%s", type_name(k.t), (long)k.n, (long)k.h,
             (long)k.w, (long)k.k, (long)k.c, (long)k.valid, (int)k.act, k.bias ? " bias" : "");
    return text;
}

/* The operands of a case on the device. w: of a convolution of k channels to c, or turned: of one of c channels to k. */
struct operands {
    size_t N, H, W, K, C;
    bool biased;
    values vx, vw, vbias;
    buffer bias, x, w, turned, y, mean, rstd, stat, scratch, run;
    struct ls_cuda_bn b = {};
    struct ls_cuda_taps c = {};

    operands(enum ls_dtype t, const taps_case &k)
        : N((size_t)k.n), H((size_t)k.h), W((size_t)k.w), K((size_t)k.k), C((size_t)k.c), biased(k.bias),
          vx(random_values(t, N * H * W * K, 0.2, 1)), vw(random_values(t, C * 9 * K, 0, 0.3)),
          vbias(random_values(LS_F32, C, 0, 3)), bias(LS_F32, C), x(t, N * H * W * K), w(t, C * 9 * K),
          turned(t, C * 9 * K), y(t, N * H * W * C), mean(LS_F32, C), rstd(LS_F32, C), stat(LS_F32, 2 * C),
          scratch(LS_U8, 8 << 20), run(LS_U8, sizeof(struct ls_cuda_run))
    {
        put_run(run, k.valid, 0.5f);
        must(cudaMemset(scratch.at, 0, LS_CUDA_BN_ZEROS), "memset");
        x.put(vx);
        w.put(vw);
        bias.put(vbias);
        values other(vw.size());
        for (size_t o = 0; o < C; o++)
            for (size_t tap = 0; tap < 9; tap++)
                for (size_t i = 0; i < K; i++)
                    other[(i * 9 + 8 - tap) * C + o] = vw[(o * 9 + tap) * K + i];
        turned.put(other);
        b.t = t;
        b.x = b.y = {k.n, k.h, k.w, k.c};
        b.act = k.act;
        b.eps = 1e-5f;
        b.scratch = scratch.f();
        c.x = {k.n, k.h, k.w, k.k};
        c.out = k.c;
    }
    const struct ls_cuda_run *r() const
    {
        return (const struct ls_cuda_run *)run.at;
    }
    void stats()
    {
        ls_cuda_taps_stats(0, &c, &b, r(), x.at, w.at, biased ? bias.f() : NULL, y.at, mean.f(), rstd.f(), stat.f());
        must(cudaDeviceSynchronize(), "convolution with statistics");
    }
    double value(size_t n, size_t row, size_t column, size_t out) const
    {
        double sum = biased ? vbias[out] : 0;
        for (size_t r = 0; r < 3; r++)
            for (size_t s = 0; s < 3; s++)
                if (row + r >= 1 && row + r <= H && column + s >= 1 && column + s <= W)
                    for (size_t k = 0; k < K; k++)
                        sum += vx[((n * H + row + r - 1) * W + column + s - 1) * K + k] *
                               vw[(out * 9 + r * 3 + s) * K + k];
        return sum;
    }
    /* Some of the convolution's values, by loops; says where the first of them is wrong. */
    double error(const values &got, double allowed) const
    {
        values some, want;
        bool said = false;
        for (size_t i = 0; i < 900; i++) {
            size_t p = i < 300 ? i % (N * H * W) : i < 600 ? N * H * W - 1 - i % (N * H * W) : i * 7919 % (N * H * W);
            size_t out = i * 31 % C, n = p / (H * W), row = p / W % H, column = p % W;
            want.push_back(value(n, row, column, out));
            some.push_back(got[p * C + out]);
            if (!said && !(std::fabs(some.back() - want.back()) <= 20 * allowed * (1 + std::fabs(want.back())))) {
                printf("# sample %zu row %zu column %zu channel %zu: %g, not %g\n", n, row, column, out, some.back(),
                       want.back());
                said = true;
            }
        }
        return worst_of(some, want);
    }
};

static bool can(const taps_case &k)
{
    struct ls_cuda_taps c = {{k.n, k.h, k.w, k.k}, k.c, false};
    struct ls_cuda_bn b = {};
    b.t = k.t;
    b.x = b.y = {k.n, k.h, k.w, k.c};
    b.act = k.act;
    return ls_cuda_taps_can(&c, &b, false);
}

static void check_forward(const taps_case &k)
{
    const std::string name = name_of(k);
    if (!can(k)) {
        printf("# not for %s\n", name.c_str());
        return;
    }
    operands o(k.t, k);
    o.stats();
    values mean = o.mean.get(), rstd = o.rstd.get(), stat = o.stat.get();
    report("convolution " + name, o.error(o.y.get(), tolerance(k.t)), tolerance(k.t));
    ls_cuda_bn_stats(0, &o.b, o.r(), o.y.at, o.mean.f(), o.rstd.f(), o.stat.f());
    must(cudaDeviceSynchronize(), "statistics");
    values want = o.mean.get(), spread = o.rstd.get();
    double off = 0;
    for (size_t c = 0; c < o.C; c++)
        off = std::max(off, std::fabs(mean[c] - want[c]) * spread[c]);
    report("mean " + name, off, 1e-5);
    report("rstd " + name, worst_of(rstd, spread), 1e-5);
    report("stat " + name, worst_of(stat, o.stat.get()), 1e-4);
}

static void check_backward(const taps_case &k)
{
    const std::string name = "backward " + name_of(k);
    if (!can(k)) {
        printf("# not for %s\n", name.c_str());
        return;
    }
    operands o(k.t, k);
    const size_t count = o.N * o.H * o.W * o.C;
    buffer x(k.t, count), dz(k.t, count), apart(k.t, count);
    buffer gamma(LS_F32, o.C), beta(LS_F32, o.C), mean(LS_F32, o.C), rstd(LS_F32, o.C);
    buffer dgamma(LS_F32, o.C), dbeta(LS_F32, o.C), apart_dgamma(LS_F32, o.C), apart_dbeta(LS_F32, o.C);
    x.put(random_values(k.t, count, 0.3, 1));
    gamma.put(random_values(LS_F32, o.C, 0.5, 1));
    beta.put(random_values(LS_F32, o.C, 0.2, 1));
    mean.put(random_values(LS_F32, o.C, 0.3, 0.1));
    rstd.put(random_values(LS_F32, o.C, 1.2, 0.1));
    struct ls_cuda_bn_grad g = {};
    g.x = x.at;
    g.gamma = gamma.f();
    g.beta = beta.f();
    g.mean = mean.f();
    g.rstd = rstd.f();
    g.dresidual = dz.at;
    g.dgamma = dgamma.f();
    g.dbeta = dbeta.f();
    o.c.turned = true;
    ls_cuda_taps_sums(0, &o.c, &o.b, o.r(), o.x.at, o.turned.at, &g);
    must(cudaDeviceSynchronize(), "convolution with sums");
    o.c.turned = false;
    o.stats(); /* the convolution alone */
    report("convolution " + name, o.error(o.y.get(), tolerance(k.t)), tolerance(k.t));
    g.dy = o.y.at;
    g.dresidual = apart.at;
    g.dgamma = apart_dgamma.f();
    g.dbeta = apart_dbeta.f();
    ls_cuda_bn_bwd_sums(0, &o.b, o.r(), &g);
    must(cudaDeviceSynchronize(), "sums");
    values left = dz.get(), right = apart.get();
    size_t differ = 0;
    for (size_t i = 0; i < count; i++)
        if (!(left[i] == right[i]) && differ++ == 0)
            printf("# dz of sample %zu row %zu column %zu channel %zu: %g, not %g\n", i / (o.C * o.W * o.H),
                   i / (o.C * o.W) % o.H, i / o.C % o.W, i % o.C, left[i], right[i]);
    report("dz " + name, (double)differ, 0);
    report("dgamma " + name, worst_of(dgamma.get(), apart_dgamma.get()), 2e-4);
    report("dbeta " + name, worst_of(dbeta.get(), apart_dbeta.get()), 2e-4);
}

/* Every shape of tile: whole maps, maps that tiles reach beyond, several tiles a block, blocks without one. */
static void check_all(void)
{
    const int64_t shapes[][5] = {{9, 56, 56, 64, 64},    {40, 32, 32, 64, 64},   {5, 57, 50, 64, 64},
                                 {70, 28, 28, 128, 128}, {9, 28, 28, 64, 128},   {40, 14, 14, 256, 256},
                                 {70, 14, 14, 128, 256}, {33, 14, 14, 256, 128}, {11, 14, 14, 512, 512},
                                 {3, 56, 56, 128, 128},  {2, 112, 112, 64, 128}, {2, 112, 112, 64, 64},
                                 {5, 29, 41, 192, 128},  {4, 40, 40, 128, 384},  {140, 14, 14, 256, 256}};
    for (enum ls_dtype t : {LS_BF16, LS_F16})
        for (const int64_t *s : shapes) {
            const int64_t n = s[0], h = s[1], w = s[2], k = s[3], c = s[4];
            check_forward({t, n, h, w, k, c, n});
            check_forward({t, n, h, w, k, c, n - 1, LS_ACT_RELU, true});
            check_backward({t, n, h, w, k, c, n});
            check_backward({t, n, h, w, k, c, n - 1, LS_ACT_RELU6});
            check_backward({t, n, h, w, k, c, n - 1, LS_ACT_NONE});
        }
    check_forward({LS_BF16, 20, 56, 56, 64, 64, 0});
    check_backward({LS_BF16, 70, 14, 14, 128, 128, 0});
}

/* --- times ------------------------------------------------------------------------------------------------------- */

static void bench_shape(int64_t n, int64_t side, int64_t k, int64_t c)
{
    const int64_t rows = n * side * side;
    const size_t count = (size_t)(rows * c), C = (size_t)c;
    struct ls_cuda_bn b = {};
    b.t = LS_BF16;
    b.x = b.y = {n, side, side, c};
    b.act = LS_ACT_RELU;
    b.eps = 1e-5f;
    struct ls_cuda_taps f = {{n, side, side, k}, c, false};
    if (!ls_cuda_taps_can(&f, &b, false))
        return;
    buffer x(LS_BF16, (size_t)(rows * k)), w(LS_BF16, (size_t)(9 * k * c)), y(LS_BF16, count), from(LS_BF16, count),
        scratch(LS_U8, 8 << 20), run(LS_U8, sizeof(struct ls_cuda_run));
    buffer mean(LS_F32, C), rstd(LS_F32, C), stat(LS_F32, 2 * C), dgamma(LS_F32, C), dbeta(LS_F32, C);
    put_run(run, n, 1);
    must(cudaMemset(scratch.at, 0, LS_CUDA_BN_ZEROS), "memset");
    ls_cuda_fill(0, LS_BF16, x.at, rows * k);
    ls_cuda_fill(0, LS_BF16, w.at, 9 * k * c);
    ls_cuda_fill(0, LS_BF16, from.at, rows * c);
    mean.put(values(C, 0.1));
    rstd.put(values(C, 1));
    b.scratch = scratch.f();
    const struct ls_cuda_run *r = (const struct ls_cuda_run *)run.at;
    struct ls_cuda_bn_grad g = {};
    g.dy = y.at;
    g.x = from.at;
    g.gamma = g.rstd = rstd.f();
    g.beta = g.mean = mean.f();
    g.dresidual = y.at;
    g.dgamma = dgamma.f();
    g.dbeta = dbeta.f();
    const double in = 2.0 * (double)(rows * k), out = 2.0 * (double)count, flop = 18.0 * (double)(rows * k * c);
    auto line = [&](const char *what, double bytes, double us) {
        printf("  %-24s %8.1f us %8.0f GB/s %6.0f TFLOP/s\n", what, us, bytes / us / 1000, flop / us / 1e6);
    };
    printf("%ld x %ldx%ld, %ld to %ld\n", (long)n, (long)side, (long)side, (long)k, (long)c);
    line("statistics", in + out, time_of([&](cudaStream_t s) {
             ls_cuda_taps_stats(s, &f, &b, r, x.at, w.at, NULL, y.at, mean.f(), rstd.f(), stat.f());
         }));
    f.turned = true;
    line("sums", in + 2 * out, time_of([&](cudaStream_t s) { ls_cuda_taps_sums(s, &f, &b, r, x.at, w.at, &g); }));
    bench("statistics alone", out,
          [&](cudaStream_t s) { ls_cuda_bn_stats(s, &b, r, y.at, mean.f(), rstd.f(), stat.f()); });
    bench("sums alone", 3 * out, [&](cudaStream_t s) { ls_cuda_bn_bwd_sums(s, &b, r, &g); });
}

static void bench_all(void)
{
    const int64_t shapes[][4] = {{256, 56, 64, 64},  {256, 28, 128, 128}, {256, 14, 256, 256}, {32, 56, 64, 64},
                                 {32, 28, 128, 128}, {32, 14, 256, 256},  {64, 224, 64, 64},   {64, 112, 128, 128},
                                 {64, 112, 64, 128}, {64, 56, 256, 256},  {64, 28, 512, 512},  {64, 14, 512, 512}};
    for (const int64_t *s : shapes)
        bench_shape(s[0], s[1], s[2], s[3]);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv, bench_all, check_all);
}
