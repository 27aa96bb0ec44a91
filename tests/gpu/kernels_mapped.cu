/* Checks product_mapped.cu, the second pass of a batch normalisation together with a product; needs a Hopper GPU. Build at the
 * repository's root:
 *
 *   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -DLS_CUDA_WGMMA --expt-relaxed-constexpr -I src
 *        -o kernels_mapped tests/gpu/kernels_mapped.cu src/backend/cuda/kernels/{bn/*,conv/product*,run}.cu
 *
 *   kernels_mapped         as kernels_bn: ok|FAIL name error; exit 1 after a failure
 *   kernels_mapped bench   times at ResNet-50's shapes, bf16
 *
 * Forward, the kernels that compute the two apart give the same maps, to the bit. Backward, the compiler may fuse another
 * multiplication with the addition in the offset of dx, so that one value in a million is rounded the other way, and with it the
 * products that it is part of. The sums are added in another order. */
#include "bn.h"

struct mapped_case {
    enum ls_dtype t;
    int64_t n, area, k, c, valid; /* n samples of `area` pixels; k channels become c */
    bool back, twins;
    enum ls_act act;
};

/* Operands on the device; what is made twice has the results of the passes apart second. */
struct operands {
    const mapped_case &m;
    size_t in, count, K, C;
    buffer x, more, w, x2, gamma, beta, mean, rstd, y[2], kept[2], out[2], first[2], second[2], stat, scratch, run;
    struct ls_cuda_bn from = {}, b = {};
    struct ls_cuda_product p;

    explicit operands(const mapped_case &of)
        : m(of), in((size_t)(m.n * m.area * m.k)), count((size_t)(m.n * m.area * m.c)), K((size_t)m.k), C((size_t)m.c),
          x(m.t, in), more(m.t, in), w(m.t, K * C), x2(m.t, count), gamma(LS_F32, K + C), beta(LS_F32, K + C),
          mean(LS_F32, K + C), rstd(LS_F32, K + C), y{{m.t, in}, {m.t, in}}, kept{{LS_U8, in / 8}, {LS_U8, in / 8}},
          out{{m.t, count}, {m.t, count}}, first{{LS_F32, C}, {LS_F32, C}}, second{{LS_F32, C}, {LS_F32, C}},
          stat(LS_F32, 2 * C), scratch(LS_U8, 8 << 20),
          run(LS_U8, sizeof(struct ls_cuda_run)), p{m.n * m.area, m.k, m.c, m.back, LS_CUDA_PRODUCT_WGMMA}
    {
        put_run(run, m.valid, 1);
        must(cudaMemset(scratch.at, 0, LS_CUDA_BN_ZEROS), "memset");
        for (const buffer *to : {&x, &more, &w, &x2})
            ls_cuda_fill(0, m.t, to->at, (int64_t)to->count);
        for (buffer *to : {&gamma, &rstd})
            to->put(random_values(LS_F32, K + C, 1, 0.2));
        for (buffer *to : {&beta, &mean})
            to->put(random_values(LS_F32, K + C, 0.1, 0.2));
        from.t = b.t = m.t;
        from.x = from.y = {m.n, 1, m.area, m.k};
        b.x = b.y = {m.n, 1, m.area, m.c};
        from.act = m.act;
        b.act = m.back ? m.act : LS_ACT_RELU;
        from.eps = b.eps = 1e-5f;
        from.scratch = b.scratch = scratch.f();
    }
    const struct ls_cuda_run *r() const
    {
        return (const struct ls_cuda_run *)run.at;
    }
    struct ls_cuda_mapped forward(int which) const
    {
        struct ls_cuda_mapped f = {};
        f.twin[0] = {x.at, gamma.f(), beta.f(), mean.f(), rstd.f()};
        f.twin[1] = {more.at, rstd.f(), mean.f(), beta.f(), gamma.f()};
        f.residual = m.twins ? NULL : more.at;
        f.y = y[which].at;
        f.kept = m.act == LS_ACT_NONE ? NULL : kept[which].at;
        return f;
    }
    struct ls_cuda_bn_grad before(int which) const
    {
        struct ls_cuda_bn_grad g = {};
        g.dy = more.at;
        g.x = x.at;
        g.gamma = gamma.f();
        g.beta = g.dgamma = beta.f();
        g.mean = mean.f();
        g.rstd = g.dbeta = rstd.f();
        g.dx = y[which].at;
        return g;
    }
    struct ls_cuda_bn_grad behind(int which) const
    {
        struct ls_cuda_bn_grad g = {};
        g.x = x2.at;
        g.gamma = gamma.f() + K;
        g.beta = beta.f() + K;
        g.mean = mean.f() + K;
        g.rstd = rstd.f() + K;
        g.dresidual = out[which].at;
        g.dgamma = first[which].f();
        g.dbeta = second[which].f();
        return g;
    }
    void together(cudaStream_t s) const
    {
        const struct ls_cuda_mapped f = forward(0);
        const struct ls_cuda_bn_grad g = before(0), h = behind(0);
        if (m.back)
            ls_cuda_mapped_sums(s, &p, &g, &b, r(), w.at, &h);
        else
            ls_cuda_mapped_stats(s, &p, &from, &f, &b, r(), w.at, out[0].at, first[0].f(), second[0].f(), stat.f());
    }
    void pass(cudaStream_t s) const
    {
        const struct ls_cuda_mapped f = forward(1);
        const struct ls_cuda_bn_grad g = before(1);
        const struct ls_cuda_bn_twin &a = f.twin[0];
        if (m.back)
            ls_cuda_bn_bwd_rest(s, &from, r(), &g);
        else if (m.twins)
            ls_cuda_bn_twin_apply(s, &from, f.twin, f.y, f.kept);
        else
            ls_cuda_bn_apply(s, &from, a.x, f.residual, a.gamma, a.beta, a.mean, a.rstd, f.y, NULL, f.kept);
    }
    void product(cudaStream_t s) const
    {
        const struct ls_cuda_bn_grad h = behind(1);
        if (m.back)
            ls_cuda_product_sums(s, &p, &b, r(), y[1].at, w.at, &h);
        else
            ls_cuda_product_stats(s, &p, &b, r(), y[1].at, w.at, out[1].at, first[1].f(), second[1].f(), stat.f());
    }
};

static std::string name_of(const mapped_case &m)
{
    char text[160];
    snprintf(text, sizeof text, "%s %s %ldx%ldx%ld to %ld valid %ld act %d%s", m.back ? "backward" : "forward",
             type_name(m.t), (long)m.n, (long)m.area, (long)m.k, (long)m.c, (long)m.valid, (int)m.act,
             m.twins ? " twins" : "");
    return text;
}

/* Maps of the two ways: to the bit, or to one rounding in few of the values. */
static void compare(const std::string &name, const buffer (&maps)[2], bool rounded)
{
    const values got = maps[0].get(), want = maps[1].get();
    size_t others = 0;
    for (size_t i = 0; i < got.size(); i++)
        others += !(got[i] == want[i]);
    report("values of " + name, (double)others / (double)got.size(), rounded ? 1e-3 : 0);
    report(name, worst_of(got, want), rounded ? tolerance(maps[0].t) : 0);
}

static void check(const mapped_case &m)
{
    const std::string name = name_of(m);
    operands o(m);
    o.pass(0);
    o.product(0);
    o.together(0);
    must(cudaDeviceSynchronize(), "mapped");
    compare("map " + name, o.y, m.back);
    if (!m.back && m.act != LS_ACT_NONE)
        report("kept " + name, bytes_of(o.kept[0]) == bytes_of(o.kept[1]) ? 0 : 1, 0);
    compare("product " + name, o.out, m.back);
    report("first " + name, worst_of(o.first[0].get(), o.first[1].get()), 5e-4);
    report("second " + name, worst_of(o.second[0].get(), o.second[1].get()), 5e-4);
}

static bool can(void)
{
    const mapped_case m = {LS_BF16, 64, 149, 64, 64, 64, false, false, LS_ACT_RELU};
    const operands o(m);
    return ls_cuda_mapped_can(&o.p, &o.from, &o.b);
}

static void check_all(void)
{
    if (!can())
        return;
    for (enum ls_dtype t : {LS_BF16, LS_F16})
        for (int64_t k : {64, 72, 256, 512})
            for (int64_t c : {8, 64, 104, 128}) {
                const enum ls_act act = c == 64 ? LS_ACT_NONE : k == 72 ? LS_ACT_RELU6 : LS_ACT_RELU;
                check({t, 37, 149, k, c, k == 256 ? 35 : 37, false, false, act});
                check({t, 37, 149, k, c, k == 256 ? 35 : 37, false, true, act});
                check({t, 37, 149, k, c, k == 256 ? 35 : 37, true, false, act});
            }
    check({LS_BF16, 3, 50, 192, 64, 2, false, false, LS_ACT_RELU});
    check({LS_BF16, 600, 149, 256, 64, 600, true, false, LS_ACT_RELU});
}

static void bench_all(void)
{
    for (const mapped_case &m : {mapped_case{LS_BF16, 256, 56 * 56, 256, 64, 256, false, false, LS_ACT_RELU},
                                 mapped_case{LS_BF16, 256, 56 * 56, 256, 64, 256, false, true, LS_ACT_RELU},
                                 mapped_case{LS_BF16, 256, 56 * 56, 256, 128, 256, false, false, LS_ACT_RELU},
                                 mapped_case{LS_BF16, 256, 28 * 28, 512, 128, 256, false, false, LS_ACT_RELU},
                                 mapped_case{LS_BF16, 256, 56 * 56, 256, 64, 256, true, false, LS_ACT_RELU},
                                 mapped_case{LS_BF16, 256, 28 * 28, 512, 128, 256, true, false, LS_ACT_RELU}}) {
        const operands o(m);
        const double in = 2.0 * (double)o.in, out = 2.0 * (double)o.count * (m.back ? 2 : 1);
        printf("%s\n", name_of(m).c_str());
        bench("together", 3 * in + out, [&](cudaStream_t s) { o.together(s); });
        bench("pass", 3 * in, [&](cudaStream_t s) { o.pass(s); });
        bench("product", in + out, [&](cudaStream_t s) { o.product(s); });
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv, bench_all, check_all);
}
