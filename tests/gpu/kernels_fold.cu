/* Checks fold.cu, a 1x1 convolution with the batch normalisation behind it and their gradients; needs a Hopper GPU. Build at the
 * repository's root:
 *
 *   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -DLS_CUDA_WGMMA --expt-relaxed-constexpr -I src
 *        -o kernels_fold tests/gpu/kernels_fold.cu src/backend/cuda/kernels/{bn/*,conv/product*,conv/fold*,run}.cu
 *
 *   kernels_fold         as kernels_bn: ok|FAIL name error; exit 1 after a failure
 *   kernels_fold bench   times at ResNet-50's shapes, bf16
 *
 * The reference normalises x = a * w' in double and applies the textbook's formula of dx, then multiplies. */
#include "bn.h"

struct fold_case {
    int64_t n, area, k, c, valid; /* n samples of `area` pixels; c channels became k */
    enum ls_act act;              /* of the bn before the convolution */
};

struct operands {
    const fold_case &m;
    size_t rows, K, C;
    buffer dz, a, x, w, half, gamma, mean, rstd, dbeta, dgamma, dw, too, da, dz2, x2, affine, first, second, scratch,
        run, fold_scratch, kept, gram, y, beta, stat;
    struct ls_cuda_fold f = {};
    struct ls_cuda_bn b = {}, from = {};

    static size_t scratch_of(const fold_case &m)
    {
        struct ls_cuda_fold f = {};
        f.rows = m.n * m.area;
        f.k = m.k;
        f.n = m.c;
        return ls_cuda_fold_scratch(&f);
    }
    explicit operands(const fold_case &of)
        : m(of), rows((size_t)(m.n * m.area)), K((size_t)m.k), C((size_t)m.c), dz(LS_BF16, rows * K),
          a(LS_BF16, rows * C), x(LS_BF16, rows * K), w(LS_F32, K * C), half(LS_BF16, K * C), gamma(LS_F32, K),
          mean(LS_F32, K), rstd(LS_F32, K), dbeta(LS_F32, K), dgamma(LS_F32, K), dw(LS_F32, K * C), too(LS_F32, K),
          da(LS_BF16, rows * C), dz2(LS_BF16, rows * C), x2(LS_BF16, rows * C), affine(LS_F32, 4 * C), first(LS_F32, C),
          second(LS_F32, C), scratch(LS_U8, 8 << 20), run(LS_U8, sizeof(struct ls_cuda_run)),
          fold_scratch(LS_U8, scratch_of(of)), kept(LS_U8, rows * K / 8), gram(LS_F32, C * (C + 1)),
          y(LS_BF16, rows * K), beta(LS_F32, K), stat(LS_F32, 2 * K)
    {
        put_run(run, m.valid, 1);
        must(cudaMemset(scratch.at, 0, LS_CUDA_BN_ZEROS), "memset");
        must(cudaMemset(kept.at, 0x5b, kept.count), "memset");
        for (const buffer *to : {&dz, &a, &x, &half, &x2})
            ls_cuda_fill(0, LS_BF16, to->at, (int64_t)to->count);
        for (const buffer *to : {&w, &dbeta})
            ls_cuda_fill(0, LS_F32, to->at, (int64_t)to->count);
        for (buffer *to : {&gamma, &rstd, &affine})
            to->put(random_values(LS_F32, to->count, 1, 0.2));
        mean.put(random_values(LS_F32, K, 0.1, 0.2));
        b.t = from.t = LS_BF16;
        b.x = b.y = {m.n, 1, m.area, m.c};
        from.x = from.y = {m.n, 1, m.area, m.k};
        from.act = LS_ACT_RELU;
        b.act = m.act;
        b.eps = from.eps = 1e-5f;
        b.scratch = from.scratch = scratch.f();
        beta.put(random_values(LS_F32, K, 0.1, 0.3));
        f.rows = (int64_t)rows;
        f.area = m.area;
        f.k = m.k;
        f.n = m.c;
        f.dz = dz.at;
        f.a = a.at;
        f.w = w.f();
        f.half = half.at;
        f.gamma = gamma.f();
        f.mean = mean.f();
        f.rstd = rstd.f();
        f.dbeta = dbeta.f();
        f.dgamma = dgamma.f();
        f.dw = dw.f();
        f.dbeta_too = too.f();
        f.gram = gram.f();
        f.scratch = (float *)fold_scratch.at;
    }
    const struct ls_cuda_run *r() const
    {
        return (const struct ls_cuda_run *)run.at;
    }
    struct ls_cuda_mapped forward(bool twins) const
    {
        struct ls_cuda_mapped map = {};
        map.twin[0] = {NULL, gamma.f(), beta.f(), mean.f(), rstd.f()};
        map.twin[1] = {dz.at, rstd.f(), mean.f(), beta.f(), gamma.f()};
        map.residual = twins ? NULL : dz.at;
        map.y = y.at;
        map.kept = kept.at;
        return map;
    }
    struct ls_cuda_bn_grad behind(void) const
    {
        struct ls_cuda_bn_grad g = {};
        g.x = x2.at;
        g.gamma = affine.f();
        g.beta = affine.f() + C;
        g.mean = affine.f() + 2 * C;
        g.rstd = affine.f() + 3 * C;
        g.dresidual = dz2.at;
        g.dgamma = first.f();
        g.dbeta = second.f();
        return g;
    }
};

static std::string name_of(const fold_case &m)
{
    char text[160];
    snprintf(text, sizeof text, "%ldx%ldx%ld from %ld valid %ld act %d", (long)m.n, (long)m.area, (long)m.k, (long)m.c,
             (long)m.valid, (int)m.act);
    return text;
}

/* The root of the mean square of the error, as a share of that of `want`. */
static double share_of(const values &got, const values &want)
{
    double wrong = 0, all = 1e-300;
    for (size_t i = 0; i < want.size(); i++) {
        wrong += (got[i] - want[i]) * (got[i] - want[i]);
        all += want[i] * want[i];
    }
    return wrong == wrong ? std::sqrt(wrong / all) : INFINITY;
}

/* The first difference of two maps, of which a row has `wide` values of `size` bytes. */
static void same_map(const std::string &name, const std::vector<uint8_t> &got, const std::vector<uint8_t> &want,
                     size_t wide, size_t size)
{
    size_t wrong = 0, at = 0, last = 0;
    for (size_t i = 0; i < want.size(); i++)
        if (got[i] != want[i]) {
            at = wrong++ ? at : i / size;
            last = i / size;
        }
    report("same " + name, (double)wrong, 0);
    if (wrong)
        printf("     from row %zu, column %zu to row %zu, column %zu; first byte %02x, not %02x\n", at / wide,
               at % wide, last / wide, last % wide, got[at * size], want[at * size]);
}

/* Statistics from the products of a, and then the second pass where x is never stored; dz is what is added. */
static void check_forward(operands &o, const std::string &name, const values &x, size_t live)
{
    const size_t K = o.K;
    const values gamma = o.gamma.get(), beta = o.beta.get(), more = o.dz.get(), mean = o.mean.get(),
                 rstd = o.rstd.get();
    values variance(K), got_variance(K);
    ls_cuda_fold_stats(0, &o.f, o.r(), 1e-5f, o.mean.f(), o.rstd.f(), o.stat.f());
    must(cudaDeviceSynchronize(), "statistics");
    report("mean " + name, worst_of(o.mean.get(), mean), 1e-5);
    report("rstd " + name, worst_of(o.rstd.get(), rstd), 1e-5);
    const values stat = o.stat.get();
    for (size_t c = 0; c < K; c++) {
        variance[c] = (1 / (rstd[c] * rstd[c]) - 1e-5) * (double)live / (double)(live - 1);
        got_variance[c] = stat[K + c];
    }
    report("variance " + name, worst_of(got_variance, variance), 2e-5);
    for (bool twins : {false, true}) {
        const struct ls_cuda_mapped map = o.forward(twins);
        ls_cuda_fold_apply(0, &o.f, &o.from, o.r(), &map);
        must(cudaDeviceSynchronize(), "apply");
        const values y = o.y.get();
        const std::vector<uint8_t> kept = bytes_of(o.kept);
        values want(y.size());
        size_t wrong = 0;
        for (size_t i = 0; i < live * K; i++) {
            const size_t c = i % K;
            const double w = twins ? rstd[c] * gamma[c] * (more[i] - beta[c]) + mean[c] : more[i];
            want[i] = act_of(LS_ACT_RELU, gamma[c] * rstd[c] * (rounded(LS_BF16, x[i]) - mean[c]) + beta[c] + w);
            wrong += (kept[i / 8] >> i % 8 & 1) != (y[i] > 0);
        }
        report((twins ? "twins " : "residual ") + name, share_of(y, want), 4e-3);
        report("kept " + name, (double)wrong, 0);
    }
}

static void check(const fold_case &m)
{
    const std::string name = name_of(m);
    operands o(m);
    const size_t rows = o.rows, K = o.K, C = o.C, live = (size_t)(m.valid * m.area);
    /* maps with means, as behind an activation, and gradients that depend on x */
    values a = random_values(LS_BF16, rows * C, 0.4, 0.6), w = random_values(LS_F32, K * C, 0, 0.1), half(K * C),
           dz = random_values(LS_BF16, rows * K, 0.02, 1), x(rows * K), mean(K), rstd(K), dbeta(K), dgamma(K);
    for (size_t i = 0; i < K * C; i++)
        half[i] = rounded(LS_BF16, w[i]);
    for (size_t i = 0; i < rows; i++)
        for (size_t c = 0; c < K; c++) {
            double v = 0;
            for (size_t j = 0; j < C; j++)
                v += a[i * C + j] * half[c * C + j];
            x[i * K + c] = v;
            dz[i * K + c] = i < live ? rounded(LS_BF16, dz[i * K + c] + (c % 3 == 0 ? 0.3 * v : 0)) : 0;
        }
    const double count = (double)live;
    const values gamma = o.gamma.get();
    values dw(K * C), da(rows * C);
    for (size_t c = 0; c < K; c++) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < live; i++)
            sum += x[i * K + c];
        mean[c] = rounded(LS_F32, sum / count);
        for (size_t i = 0; i < live; i++)
            squares += (x[i * K + c] - sum / count) * (x[i * K + c] - sum / count);
        rstd[c] = rounded(LS_F32, 1 / std::sqrt(squares / count + 1e-5));
        for (size_t i = 0; i < live; i++) {
            dbeta[c] += dz[i * K + c];
            dgamma[c] += dz[i * K + c] * (x[i * K + c] - mean[c]) * rstd[c];
        }
    }
    for (size_t i = 0; i < live; i++)
        for (size_t c = 0; c < K; c++) {
            const double hat = (x[i * K + c] - mean[c]) * rstd[c];
            const double dx = gamma[c] * rstd[c] * (dz[i * K + c] - (dbeta[c] + hat * dgamma[c]) / count);
            for (size_t j = 0; j < C; j++) {
                dw[c * C + j] += dx * a[i * C + j];
                da[i * C + j] += dx * half[c * C + j];
            }
        }
    for (size_t i = live * C; i < rows * C; i++)
        a[i] = 7; /* must not count */
    o.a.put(a);
    o.dz.put(dz);
    o.w.put(w);
    o.half.put(half);
    o.mean.put(mean);
    o.rstd.put(rstd);
    o.dbeta.put(dbeta);
    o.x2.put(random_values(LS_BF16, rows * C, 0.2, 1));
    ls_cuda_fold_sums(0, &o.f, o.r());
    ls_cuda_fold(0, &o.f, o.r());
    ls_cuda_fold_product(0, &o.f, &o.b, o.r(), NULL, o.da.at);
    const struct ls_cuda_bn_grad g = o.behind();
    ls_cuda_fold_product(0, &o.f, &o.b, o.r(), &g, NULL);
    must(cudaDeviceSynchronize(), "fold");
    report("dgamma " + name, share_of(o.dgamma.get(), dgamma), 1e-4);
    report("dbeta " + name, worst_of(o.too.get(), o.dbeta.get()), 0);
    report("dw " + name, share_of(o.dw.get(), dw), 2e-4);
    report("da " + name, share_of(o.da.get(), da), 5e-3);

    const values got = o.da.get(), dz2 = o.dz2.get(), x2 = o.x2.get(), p = o.affine.get();
    values first(C), second(C), want(rows * C);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < C; j++) {
            const float scale = (float)p[j] * (float)p[3 * C + j],
                        z = fmaf((float)x2[i * C + j] - (float)p[2 * C + j], scale, (float)p[C + j]);
            want[i * C + j] = passes(m.act, z) ? got[i * C + j] : 0;
            second[j] += want[i * C + j];
            first[j] += want[i * C + j] * (x2[i * C + j] - p[2 * C + j]) * p[3 * C + j];
        }
    report("dz " + name, worst_of(dz2, want), 0);
    report("sum " + name, worst_of(o.second.get(), second), 5e-4);
    report("products " + name, worst_of(o.first.get(), first), 5e-4);
    const std::vector<uint8_t> bits = bytes_of(o.dw);
    ls_cuda_fold(0, &o.f, o.r());
    must(cudaDeviceSynchronize(), "fold");
    report("again " + name, bits == bytes_of(o.dw) ? 0 : 1, 0);
    check_forward(o, name, x, live);
}

/* A product whose x is not read stores the same dz, and has the same sum of it. */
static void check_without_x(int64_t n, int64_t area, int64_t k, int64_t c, int64_t valid, int stride)
{
    const fold_case m = {n, area, c, k, valid, LS_ACT_RELU}; /* dz: k channels become c */
    operands o(m);
    const size_t count = o.rows * o.K;
    must(cudaMemset(o.kept.at, 0x5b, o.kept.count), "memset");
    const struct ls_cuda_product p = {(int64_t)o.rows, k, c, true, LS_CUDA_PRODUCT_WGMMA};
    struct ls_cuda_bn b = o.from;
    b.x = b.y = {n, 8, area / 8, c};
    buffer out[2] = {{LS_BF16, count}, {LS_BF16, count}}, sum[2] = {{LS_F32, o.K}, {LS_F32, o.K}};
    struct ls_cuda_bn_grad g = {};
    g.dy2 = stride < 0 ? NULL : o.dz.at;
    g.sparse = stride;
    g.kept = o.kept.at;
    g.gamma = o.gamma.f();
    g.beta = g.mean = o.mean.f();
    g.rstd = o.rstd.f();
    g.dgamma = o.dgamma.f();
    for (int way = 0; way < 2; way++) {
        g.x = way ? NULL : o.x.at;
        g.dresidual = out[way].at;
        g.dbeta = sum[way].f();
        ls_cuda_product_sums(0, &p, &b, o.r(), o.a.at, o.half.at, &g);
    }
    must(cudaDeviceSynchronize(), "product");
    const std::string name = "without x " + name_of(m) + " stride " + std::to_string(stride);
    same_map("dz " + name, bytes_of(out[1]), bytes_of(out[0]), o.K, 2);
    if (stride > 1 && k > 128) /* fewer warpgroups divide the rows */
        report("sum " + name, share_of(sum[1].get(), sum[0].get()), 1e-5);
    else
        same_map("sum " + name, bytes_of(sum[1]), bytes_of(sum[0]), o.K, 4);
    g.dy = o.x.at; /* the first pass by itself */
    for (int way = 0; way < 2; way++) {
        g.x = way ? NULL : o.x.at;
        g.dresidual = out[way].at;
        g.dbeta = sum[way].f();
        ls_cuda_bn_bwd_sums(0, &b, o.r(), &g);
    }
    must(cudaDeviceSynchronize(), "sums");
    report("dz apart " + name, bytes_of(out[0]) == bytes_of(out[1]) ? 0 : 1, 0);
    report("sum apart " + name, bytes_of(sum[0]) == bytes_of(sum[1]) ? 0 : 1, 0);
}

static bool can(void)
{
    const fold_case m = {64, 149, 256, 64, 64, LS_ACT_RELU};
    const operands o(m);
    return ls_cuda_fold_can(&o.f, &o.b);
}

/* Maps whose tiles pass through the rings many times: the bits of a stored x and the second pass of its bn. */
static void check_large(const fold_case &m)
{
    const operands o(m);
    const size_t live = (size_t)(m.valid * m.area) * o.K;
    const struct ls_cuda_product p = {(int64_t)o.rows, m.c, m.k, false, LS_CUDA_PRODUCT_WGMMA};
    ls_cuda_product_stats(0, &p, &o.from, o.r(), o.a.at, o.half.at, o.x.at, o.mean.f(), o.rstd.f(), o.stat.f());
    for (bool twins : {false, true}) {
        struct ls_cuda_mapped map = o.forward(twins);
        std::vector<uint8_t> y[2], kept[2];
        map.twin[0].x = o.x.at;
        for (int way = 0; way < 2; way++) {
            must(cudaMemset(o.kept.at, 0x5b, o.kept.count), "memset");
            if (way == 0)
                ls_cuda_fold_apply(0, &o.f, &o.from, o.r(), &map);
            else if (twins)
                ls_cuda_bn_twin_apply(0, &o.from, map.twin, o.y.at, o.kept.at);
            else
                ls_cuda_bn_apply(0, &o.from, o.x.at, o.dz.at, o.gamma.f(), o.beta.f(), o.mean.f(), o.rstd.f(), o.y.at,
                                 NULL, o.kept.at);
            must(cudaDeviceSynchronize(), "apply");
            y[way] = bytes_of(o.y);
            kept[way] = bytes_of(o.kept);
            y[way].resize(live * 2);
            kept[way].resize(live / 8);
        }
        const std::string name = (twins ? "twins " : "residual ") + name_of(m);
        same_map("y " + name, y[0], y[1], o.K, 2);
        same_map("kept " + name, kept[0], kept[1], o.K / 8, 1);
    }
}

static void check_all(void)
{
    if (!can())
        return;
    for (enum ls_act act : {LS_ACT_RELU, LS_ACT_NONE, LS_ACT_RELU6}) {
        check({37, 149, 256, 64, 37, act});
        check({37, 149, 512, 128, 35, act});
    }
    for (int64_t k : {64, 128, 320, 576})
        check({23, 97, k, 64, 22, LS_ACT_RELU});
    for (int64_t k : {64, 192, 256})
        check({23, 97, k, 128, 23, LS_ACT_RELU});
    check({23, 97, 1024, 256, 23, LS_ACT_RELU});
    check({23, 97, 512, 256, 22, LS_ACT_NONE});
    check({300, 149, 256, 64, 300, LS_ACT_RELU});
    check_large({67, 56 * 56, 256, 64, 66, LS_ACT_RELU});
    check_large({131, 28 * 28, 512, 128, 131, LS_ACT_RELU});
    check_large({131, 14 * 14, 1024, 256, 130, LS_ACT_RELU});
    for (int stride : {-1, 0, 2}) {
        check_without_x(67, 56 * 56, 64, 256, 66, stride);
        check_without_x(67, 56 * 56, 128, 256, 67, stride);
        check_without_x(131, 28 * 28, 128, 512, 130, stride);
        check_without_x(131, 28 * 28, 256, 512, 131, stride);
        check_without_x(131, 14 * 14 * 2, 512, 1024, 131, stride);
        check_without_x(37, 152, 64, 256, 36, stride);
        check_without_x(37, 152, 128, 512, 37, stride);
        check_without_x(37, 152, 256, 512, 37, stride);
    }
}

static void bench_all(void)
{
    for (const fold_case &m :
         {fold_case{256, 56 * 56, 256, 64, 256, LS_ACT_RELU}, fold_case{256, 28 * 28, 512, 128, 256, LS_ACT_RELU},
          fold_case{256, 14 * 14, 1024, 256, 256, LS_ACT_RELU}}) {
        const operands o(m);
        const double wide = 2.0 * (double)(o.rows * o.K), narrow = 2.0 * (double)(o.rows * o.C);
        const struct ls_cuda_bn_grad g = o.behind();
        const struct ls_cuda_product p = {(int64_t)o.rows, m.k, m.c, true, LS_CUDA_PRODUCT_WGMMA},
                                     up = {(int64_t)o.rows, m.c, m.k, true, LS_CUDA_PRODUCT_WGMMA};
        struct ls_cuda_bn_grad before = {}, wider = {};
        before.dy = o.dz.at;
        before.x = o.x.at;
        before.gamma = before.beta = before.mean = before.rstd = before.dgamma = before.dbeta = o.gamma.f();
        before.dx = o.x.at;
        wider = before;
        wider.dy2 = o.dz.at;
        wider.kept = o.kept.at;
        wider.dresidual = o.dz.at;
        wider.dgamma = o.dgamma.f();
        wider.dbeta = o.too.f();
        printf("%s\n", name_of(m).c_str());
        bench("sums of a", narrow, [&](cudaStream_t s) { ls_cuda_fold_sums(s, &o.f, o.r()); });
        bench("statistics", 1,
              [&](cudaStream_t s) { ls_cuda_fold_stats(s, &o.f, o.r(), 1e-5f, o.mean.f(), o.rstd.f(), o.stat.f()); });
        for (bool twins : {false, true}) {
            const struct ls_cuda_mapped map = o.forward(twins);
            bench(twins ? "apply, twins" : "apply", 2 * wide + narrow,
                  [&](cudaStream_t s) { ls_cuda_fold_apply(s, &o.f, &o.from, o.r(), &map); });
            if (!twins)
                bench("  all of forward", 2 * wide + narrow, [&](cudaStream_t s) {
                    ls_cuda_fold_sums(s, &o.f, o.r());
                    ls_cuda_fold_stats(s, &o.f, o.r(), 1e-5f, o.mean.f(), o.rstd.f(), o.stat.f());
                    ls_cuda_fold_apply(s, &o.f, &o.from, o.r(), &map);
                });
        }
        const struct ls_cuda_product out_of = {(int64_t)o.rows, m.c, m.k, false, LS_CUDA_PRODUCT_WGMMA};
        bench("product with statistics", wide + narrow, [&](cudaStream_t s) {
            ls_cuda_product_stats(s, &out_of, &o.from, o.r(), o.a.at, o.half.at, o.y.at, o.mean.f(), o.rstd.f(),
                                  o.stat.f());
        });
        bench("fold", wide + narrow, [&](cudaStream_t s) { ls_cuda_fold(s, &o.f, o.r()); });
        bench("product, with sums", wide + 3 * narrow,
              [&](cudaStream_t s) { ls_cuda_fold_product(s, &o.f, &o.b, o.r(), &g, NULL); });
        bench("product, plain", wide + 2 * narrow,
              [&](cudaStream_t s) { ls_cuda_fold_product(s, &o.f, &o.b, o.r(), NULL, o.da.at); });
        if (ls_cuda_mapped_can(&p, &o.from, &o.b))
            bench("mapped, with sums", 3 * wide + 2 * narrow,
                  [&](cudaStream_t s) { ls_cuda_mapped_sums(s, &p, &before, &o.b, o.r(), o.half.at, &g); });
        bench("product to dz, x read", 3 * wide + narrow,
              [&](cudaStream_t s) { ls_cuda_product_sums(s, &up, &o.from, o.r(), o.a.at, o.half.at, &wider); });
        wider.x = NULL;
        /* as the first block of a stage has it: twice the channels, and a sparse dy2 */
        const struct ls_cuda_product up2 = {(int64_t)o.rows, 2 * m.c, m.k, true, LS_CUDA_PRODUCT_WGMMA};
        struct ls_cuda_bn square = o.from;
        square.x = square.y = {m.n, (int64_t)std::sqrt((double)m.area), (int64_t)std::sqrt((double)m.area), m.k};
        bench("product to dz, without x", 2 * wide + narrow,
              [&](cudaStream_t s) { ls_cuda_product_sums(s, &up, &o.from, o.r(), o.a.at, o.half.at, &wider); });
        struct ls_cuda_bn_grad sparse = wider;
        sparse.sparse = 2;
        bench("  2x channels, dy2 sparse", 1.25 * wide + 2 * narrow,
              [&](cudaStream_t s) { ls_cuda_product_sums(s, &up2, &square, o.r(), o.x.at, o.x.at, &sparse); });
        sparse.dy2 = NULL;
        sparse.sparse = 0;
        bench("  no dy2", wide + narrow,
              [&](cudaStream_t s) { ls_cuda_product_sums(s, &up, &o.from, o.r(), o.a.at, o.half.at, &sparse); });
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv, bench_all, check_all);
}
