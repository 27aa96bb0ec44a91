/* Checks and times batch normalisation's and the poolings' device kernels; needs a GPU. Build at the repository's root:
 *
 *   nvcc -O2 -std=c++17 -arch=sm_90 --expt-relaxed-constexpr -I src -o kernels_bn tests/gpu/kernels_bn.cu
 *        src/backend/cuda/kernels/bn/*.cu src/backend/cuda/kernels/pool/maxpool.cu src/backend/cuda/kernels/pool/avgpool.cu
 *
 *   kernels_bn         one line a case: ok|FAIL name error, the error relative to the value (or to a twentieth of the
 *                      largest value); exit 1 after a failure
 *   kernels_bn bench   GB/s of each kernel at ResNet-50's and VGG11's shapes, bf16
 *
 * The references are plain loops in double. Backward's take index, mean, rstd and y from the device, so that a value
 * that forward rounds to the other side of a corner does not count as an error here. */
#include "bn.h"
/* --- pooling references ------------------------------------------------------------------------------------------ */

struct kernel {
    int size, stride, pad;
};

static int64_t outputs(int64_t in, kernel k)
{
    return (in + 2 * k.pad - k.size) / k.stride + 1;
}

static size_t at(const struct ls_cuda_map &m, int64_t n, int64_t y, int64_t x, int64_t c)
{
    return (size_t)(((n * m.h + y) * m.w + x) * m.c + c);
}

/* For each output of each channel: call(output, n, c, its first row, its first column). */
template <typename F> static void each_output(const struct ls_cuda_map &y, kernel k, F call)
{
    for (int64_t n = 0; n < y.n; n++)
        for (int64_t oy = 0; oy < y.h; oy++)
            for (int64_t ox = 0; ox < y.w; ox++)
                for (int64_t c = 0; c < y.c; c++)
                    call(at(y, n, oy, ox, c), n, c, oy * k.stride - k.pad, ox * k.stride - k.pad);
}

/* For each pixel of a window: call(pixel, position). */
template <typename F>
static void each_pixel(const struct ls_cuda_map &x, kernel k, int64_t n, int64_t c, int64_t top, int64_t left, F call)
{
    for (int ky = 0; ky < k.size; ky++)
        for (int kx = 0; kx < k.size; kx++)
            if (top + ky >= 0 && top + ky < x.h && left + kx >= 0 && left + kx < x.w)
                call(at(x, n, top + ky, left + kx, c), ky * k.size + kx);
}

static values pool_max(const struct ls_cuda_map &x, const struct ls_cuda_map &y, kernel k, const values &z)
{
    values out((size_t)(y.n * y.h * y.w * y.c));
    each_output(y, k, [&](size_t o, int64_t n, int64_t c, int64_t top, int64_t left) {
        double best = -INFINITY;
        each_pixel(x, k, n, c, top, left, [&](size_t i, int) { best = std::max(best, z[i]); });
        out[o] = best;
    });
    return out;
}

/* The worst distance of what an index points at from the window's maximum, infinite where it points outside. */
static double index_error(const struct ls_cuda_map &x, const struct ls_cuda_map &y, kernel k, const values &z,
                          const values &index)
{
    values best = pool_max(x, y, k, z);
    double worst = 0;
    each_output(y, k, [&](size_t o, int64_t n, int64_t c, int64_t top, int64_t left) {
        double e = INFINITY;
        each_pixel(x, k, n, c, top, left, [&](size_t i, int pos) {
            if (pos == (int)index[o])
                e = std::fabs(z[i] - best[o]) / (std::fabs(best[o]) + 1);
        });
        worst = std::max(worst, e);
    });
    return worst;
}

/* How many indexes are not of the first maximum. */
static double not_first(const struct ls_cuda_map &x, const struct ls_cuda_map &y, kernel k, const values &z,
                        const values &index)
{
    double wrong = 0;
    each_output(y, k, [&](size_t o, int64_t n, int64_t c, int64_t top, int64_t left) {
        double best = -INFINITY;
        int first = 0;
        each_pixel(x, k, n, c, top, left, [&](size_t i, int pos) {
            first = z[i] > best ? pos : first;
            best = std::max(best, z[i]);
        });
        wrong += first != (int)index[o];
    });
    return wrong;
}

static values unpool(const struct ls_cuda_map &x, const struct ls_cuda_map &y, kernel k, const values &d,
                     const values &index)
{
    values out((size_t)(x.n * x.h * x.w * x.c));
    each_output(y, k, [&](size_t o, int64_t n, int64_t c, int64_t top, int64_t left) {
        each_pixel(x, k, n, c, top, left, [&](size_t i, int pos) { out[i] += pos == (int)index[o] ? d[o] : 0; });
    });
    return out;
}

/* --- batch normalisation ----------------------------------------------------------------------------------------- */

struct bn_case {
    enum ls_dtype t;
    int64_t n, h, w, c, valid;
    enum ls_act act;
    bool residual, dy2, in_place, mask_y;
    kernel pool; /* size 0: none */
    double centre;
};

static std::string name_of(const bn_case &k)
{
    char text[160];
    snprintf(text, sizeof text, "%s %ldx%ldx%ldx%ld valid %ld act %d%s%s%s%s", type_name(k.t), (long)k.n, (long)k.h,
             (long)k.w, (long)k.c, (long)k.valid, (int)k.act, k.residual ? " residual" : "", k.dy2 ? " dy2" : "",
             k.in_place ? " in-place" : "", k.mask_y ? " y" : "");
    std::string s = text;
    if (k.pool.size) {
        snprintf(text, sizeof text, " pool %d/%d pad %d", k.pool.size, k.pool.stride, k.pool.pad);
        s += text;
    }
    return s;
}

/* Backward in one launch counts dz rounded. */
static bool in_one(const bn_case &k)
{
    bool whole = k.pool.size == 2 && k.pool.stride == 2 && k.pool.pad == 0 && k.h % 2 == 0 && k.w % 2 == 0;
    return k.n * k.h * k.w <= (k.c < 512       ? 1024
                               : k.t == LS_F32 ? 2048
                                               : 4096) &&
           clips(k.act) && (!k.pool.size || (whole && !k.residual && k.act != LS_ACT_RELU6));
}

static void check_bn(const bn_case &k)
{
    const std::string name = name_of(k);
    const bool pool = k.pool.size > 0;
    struct ls_cuda_bn b = {};
    b.t = k.t;
    b.x = {k.n, k.h, k.w, k.c};
    b.y = pool ? ls_cuda_map{k.n, outputs(k.h, k.pool), outputs(k.w, k.pool), k.c} : b.x;
    b.act = k.act;
    b.pool = pool;
    b.kernel_h = b.kernel_w = k.pool.size;
    b.stride_h = b.stride_w = k.pool.stride;
    b.pad_t = b.pad_l = k.pool.pad;
    b.eps = 1e-5f;
    const size_t C = (size_t)k.c, area = (size_t)(k.h * k.w), count = (size_t)k.n * area * C;
    const size_t pooled = (size_t)(b.y.n * b.y.h * b.y.w * b.y.c), live = (size_t)k.valid * area;

    size_t scratch_bytes = ls_cuda_bn_scratch(&b);
    buffer scratch(LS_U8, scratch_bytes);
    must(cudaMemset(scratch.at, 0, LS_CUDA_BN_ZEROS), "memset");
    b.scratch = scratch.f();
    buffer run(LS_U8, sizeof(struct ls_cuda_run));
    put_run(run, k.valid, 0.5f);
    const struct ls_cuda_run *r = (const struct ls_cuda_run *)run.at;

    values vx = random_values(k.t, count, k.centre, 1), vres = random_values(k.t, count, 0, 1);
    values vgamma = random_values(LS_F32, C, 0.5, 1.5), vbeta = random_values(LS_F32, C, 0.3, 1);
    values vdy = random_values(k.t, pooled, 0.1, 1), vdy2 = random_values(k.t, pooled, 0, 1);
    for (size_t c = C - 3; k.c > 8 && c < C; c++) { /* as padding lies */
        vgamma[c] = vbeta[c] = 0;
        for (size_t i = c; i < count; i += C)
            vx[i] = vres[i] = 0;
        for (size_t i = c; i < pooled; i += C)
            vdy[i] = vdy2[i] = 0;
    }
    buffer x(k.t, count), res(k.t, count), gamma(LS_F32, C), beta(LS_F32, C), dy(k.t, std::max(pooled, count));
    buffer dy2(k.t, pooled), mean(LS_F32, C), rstd(LS_F32, C), stat(LS_F32, 2 * C), y(k.t, pooled), out(k.t, pooled);
    buffer index(LS_U8, pooled), dx(k.t, count), dres(k.t, count), dgamma(LS_F32, C), dbeta(LS_F32, C);
    x.put(vx);
    res.put(vres);
    gamma.put(vgamma);
    beta.put(vbeta);
    dy2.put(vdy2);
    vdy.resize(dy.count);
    dy.put(vdy);
    const void *residual = k.residual ? res.at : NULL;

    const size_t kept_bytes = ls_cuda_bn_kept(&b, k.residual);
    buffer kept(LS_U8, kept_bytes + 1);

    /* Forward. */
    const auto forward = [&](void *keep) {
        ls_cuda_bn_forward(0, &b, r, x.at, residual, gamma.f(), beta.f(), mean.f(), rstd.f(), stat.f(), y.at,
                           pool ? (uint8_t *)index.at : NULL, keep);
        must(cudaDeviceSynchronize(), name.c_str());
    };
    ls_cuda_bn_stats(0, &b, r, x.at, mean.f(), rstd.f(), stat.f());
    ls_cuda_bn_apply(0, &b, x.at, residual, gamma.f(), beta.f(), mean.f(), rstd.f(), y.at,
                     pool ? (uint8_t *)index.at : NULL, NULL);
    must(cudaDeviceSynchronize(), name.c_str());
    values apart = y.get();
    forward(NULL);
    report("in two " + name, worst_of(apart, y.get()), tolerance(k.t));
    values vmean = mean.get(), vrstd = rstd.get(), wmean(C), wrstd(C), wstat(2 * C);
    for (size_t c = 0; c < C; c++) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < live; i++)
            sum += vx[i * C + c];
        wmean[c] = live ? sum / (double)live : 0;
        for (size_t i = 0; i < live; i++)
            squares += (vx[i * C + c] - wmean[c]) * (vx[i * C + c] - wmean[c]);
        double variance = live ? squares / (double)live : 0;
        wrstd[c] = 1 / std::sqrt(variance + (double)b.eps);
        wstat[c] = 0.5 * vmean[c];
        wstat[C + c] = 0.5 * variance * (double)live / (double)(live > 1 ? live - 1 : 1);
    }
    double off = std::max(worst_of(vrstd, wrstd), worst_of(stat.get(), wstat));
    for (size_t c = 0; c < C; c++) /* a mean near 0 is right within a fraction of the deviation */
        off = std::max(off, std::fabs(vmean[c] - wmean[c]) / (std::fabs(wmean[c]) + 1 / wrstd[c]));
    report("stats " + name, off, 2e-5);
    values z(count);
    for (size_t i = 0; i < count; i++) {
        size_t c = i % C; /* as the device computes it, for the mask */
        float scale = (float)vgamma[c] * (float)vrstd[c];
        z[i] = std::fmaf((float)vx[i] - (float)vmean[c], scale, (float)vbeta[c]);
    }
    values a(count);
    for (size_t i = 0; i < count; i++)
        a[i] = act_of(k.act, z[i] + (k.residual ? vres[i] : 0));
    values vy = y.get(), vindex = index.get();
    report("apply " + name, worst_of(vy, pool ? pool_max(b.x, b.y, k.pool, a) : a), tolerance(k.t));
    if (pool)
        report("index " + name,
               k.residual ? index_error(b.x, b.y, k.pool, a, vindex) : not_first(b.x, b.y, k.pool, a, vindex), 1e-5);

    /* Inference with the variance that gives the same rstd. */
    values variance(C);
    for (size_t c = 0; c < C; c++)
        variance[c] = 1 / (vrstd[c] * vrstd[c]) - (double)b.eps;
    buffer var(LS_F32, C);
    var.put(variance);
    ls_cuda_bn_inference(0, &b, x.at, residual, gamma.f(), beta.f(), mean.f(), var.f(), out.at);
    must(cudaDeviceSynchronize(), name.c_str());
    report("inference " + name, worst_of(out.get(), vy), tolerance(k.t));

    /* Backward: without and with what forward keeps. */
    for (int keeps = 0; keeps <= (kept_bytes > 0); keeps++) {
        const std::string what = name + (keeps ? " kept" : "");
        void *keep = keeps ? kept.at : NULL;
        const bool mask_y = k.mask_y || (k.residual && k.act != LS_ACT_NONE), bits = keeps && !pool;
        struct ls_cuda_bn_grad g = {};
        g.dy = dy.at;
        g.dy2 = k.dy2 ? dy2.at : NULL;
        g.x = x.at;
        g.y = mask_y && !bits ? y.at : NULL;
        g.index = pool ? (const uint8_t *)index.at : NULL;
        g.kept = keep;
        g.gamma = gamma.f();
        g.beta = beta.f();
        g.mean = mean.f();
        g.rstd = rstd.f();
        g.dx = k.in_place ? dy.at : dx.at;
        g.dresidual = k.residual ? dres.at : NULL;
        g.dgamma = dgamma.f();
        g.dbeta = dbeta.f();
        const auto backward = [&] {
            dy.put(vdy);
            forward(keep);
            ls_cuda_bn_bwd(0, &b, r, &g);
            must(cudaDeviceSynchronize(), what.c_str());
        };
        backward();
        values d(pooled);
        for (size_t i = 0; i < pooled; i++) {
            d[i] = vdy[i] + (k.dy2 ? vdy2[i] : 0);
            if (keeps || in_one(k))
                d[i] = rounded(k.t, d[i]);
            if (bits ? !passes(k.act, (float)z[i] + (float)vres[i]) : mask_y && !passes(k.act, vy[i]))
                d[i] = 0;
        }
        values dz = pool ? unpool(b.x, b.y, k.pool, d, vindex) : d;
        for (size_t i = 0; i < count; i++) {
            if (i / C >= live || (!mask_y && clips(k.act) && !passes(k.act, z[i])))
                dz[i] = 0;
            if (!clips(k.act))
                dz[i] *= slope_of(k.act, z[i]);
            if (k.residual && !pool)
                dz[i] = rounded(k.t, dz[i]);
        }
        values wdgamma(C), wdbeta(C), wdx(count);
        for (size_t i = 0; i < live * C; i++) {
            size_t c = i % C;
            wdbeta[c] += dz[i];
            wdgamma[c] += dz[i] * (vx[i] - vmean[c]) * vrstd[c];
        }
        for (size_t i = 0; i < live * C; i++) {
            size_t c = i % C;
            double xhat = (vx[i] - vmean[c]) * vrstd[c];
            wdx[i] = vgamma[c] * vrstd[c] * (dz[i] - (wdbeta[c] + xhat * wdgamma[c]) / (double)live);
        }
        values first = dgamma.get(), dx_first = k.in_place ? dy.get() : dx.get();
        report("dgamma " + what, worst_of(first, wdgamma), 1e-4);
        report("dbeta " + what, worst_of(dbeta.get(), wdbeta), 1e-4);
        report("dx " + what, worst_of(dx_first, wdx), tolerance(k.t));
        if (k.residual)
            report("dresidual " + what, worst_of(dres.get(), dz), tolerance(k.t));
        backward();
        report("same again " + what, dgamma.get() == first && (k.in_place ? dy.get() : dx.get()) == dx_first ? 0 : 1,
               0);
    }
    values zeros = scratch.get();
    double left = 0;
    for (size_t i = 0; i < LS_CUDA_BN_ZEROS; i++)
        left += zeros[i];
    report("counters " + name, left, 0);
}

/* A sparse dy2 does what the whole map does, to the bit. */
static void check_sparse(enum ls_dtype t, const struct ls_cuda_map &m, int64_t valid, enum ls_act act, int stride,
                         bool in_place)
{
    char name[96];
    snprintf(name, sizeof name, "sparse %d %s %ldx%ldx%ldx%ld valid %ld act %d%s", stride, type_name(t), (long)m.n,
             (long)m.h, (long)m.w, (long)m.c, (long)valid, (int)act, in_place ? " in-place" : "");
    const size_t C = (size_t)m.c, count = (size_t)(m.n * m.h * m.w * m.c), few = sparse_count(m, stride);
    struct ls_cuda_bn b = {};
    b.t = t;
    b.x = b.y = m;
    b.act = act;
    b.eps = 1e-5f;
    buffer scratch(LS_U8, ls_cuda_bn_scratch(&b)), run(LS_U8, sizeof(struct ls_cuda_run)), kept(LS_U8, count / 8);
    put_run(run, valid, 0);
    must(cudaMemset(scratch.at, 0, LS_CUDA_BN_ZEROS), "memset");
    b.scratch = scratch.f();
    std::vector<uint8_t> bits(count / 8);
    for (size_t i = 0; i < bits.size(); i++)
        bits[i] = (uint8_t)(i * 2654435761u >> 13);
    must(cudaMemcpy(kept.at, bits.data(), bits.size(), cudaMemcpyHostToDevice), "copy");
    const values vdy = random_values(t, count, 0.1, 1), vdy2 = random_values(t, few, 0, 1);
    buffer x(t, count), dy(t, count), sparse(t, few), whole(t, count), gamma(LS_F32, C), beta(LS_F32, C),
        mean(LS_F32, C), rstd(LS_F32, C);
    x.put(random_values(t, count, 0.3, 1));
    sparse.put(vdy2);
    whole.put(spread(m, stride, vdy2));
    gamma.put(random_values(LS_F32, C, 0.5, 1));
    beta.put(random_values(LS_F32, C, 0.2, 1));
    mean.put(random_values(LS_F32, C, 0.3, 0.1));
    rstd.put(random_values(LS_F32, C, 1.2, 0.1));
    std::vector<uint8_t> results[2];
    for (int i = 0; i < 2; i++) {
        buffer dx(t, count), dz(t, count), dgamma(LS_F32, C), dbeta(LS_F32, C);
        dy.put(vdy);
        struct ls_cuda_bn_grad g = {};
        g.dy = dy.at;
        g.dy2 = i ? sparse.at : whole.at;
        g.sparse = i ? stride : 0;
        g.x = x.at;
        g.kept = act == LS_ACT_NONE ? NULL : kept.at;
        g.gamma = gamma.f();
        g.beta = beta.f();
        g.mean = mean.f();
        g.rstd = rstd.f();
        g.dx = in_place ? dy.at : dx.at;
        g.dresidual = dz.at;
        g.dgamma = dgamma.f();
        g.dbeta = dbeta.f();
        ls_cuda_bn_bwd(0, &b, (const struct ls_cuda_run *)run.at, &g);
        must(cudaDeviceSynchronize(), name);
        for (const buffer *of : {in_place ? &dy : &dx, &dz, &dgamma, &dbeta}) {
            const std::vector<uint8_t> bytes = bytes_of(*of);
            results[i].insert(results[i].end(), bytes.begin(), bytes.end());
        }
    }
    report(name, ls_cuda_bn_takes_sparse(&b) && results[0] == results[1] ? 0 : 1, 0);
}

static void check_all_sparse(void)
{
    for (enum ls_dtype t : {LS_F32, LS_BF16, LS_F16})
        for (int act = 0; act < 3; act++) {
            check_sparse(t, {37, 12, 14, 24}, 37, (enum ls_act)act, 2, false);
            check_sparse(t, {37, 13, 15, 64}, 35, (enum ls_act)act, 2, act == 1);
            check_sparse(t, {41, 11, 13, 264}, 41, (enum ls_act)act, 3, true);
            check_sparse(t, {600, 3, 5, 8}, 599, (enum ls_act)act, 4, false);
            check_sparse(t, {7, 1, 611, 16}, 7, (enum ls_act)act, 2, false);
            check_sparse(t, {7, 611, 1, 136}, 0, (enum ls_act)act, 2, false);
        }
}

static void check_all_bn(void)
{
    const enum ls_dtype types[] = {LS_F32, LS_BF16, LS_F16};
    const kernel none = {0, 0, 0};
    for (enum ls_dtype t : types) {
        for (int64_t n : {5, 67}) /* in one launch, and in two */
            for (int act = 0; act < 3; act++)
                for (int bits = 0; bits < 16; bits++)
                    check_bn({t, n, 7, 9, 24, n - 1, (enum ls_act)act, (bits & 1) != 0, (bits & 2) != 0,
                              (bits & 4) != 0, (bits & 8) != 0, none, 0.5});
        for (enum ls_act act : {LS_ACT_SILU, LS_ACT_HARDSWISH, LS_ACT_GELU})
            for (int bits = 0; bits < 4; bits++) {
                check_bn({t, 5, 7, 9, 24, 4, act, false, (bits & 1) != 0, (bits & 2) != 0, false, none, 0.5});
                check_bn({t, 67, 7, 9, 264, 65, act, false, (bits & 1) != 0, (bits & 2) != 0, false, none, 0.5});
            }
        const int64_t channels[] = {8, 16, 40, 64, 136, 144, 256, 320, 960, 2048};
        for (int64_t c : channels) {
            check_bn({t, 6, 11, 13, c, 6, LS_ACT_RELU, c % 16 == 0, false, false, false, none, 1});
            check_bn({t, 30, 11, 13, c, 30, LS_ACT_RELU, c % 16 == 0, false, false, false, none, 1});
        }
        check_bn({t, 64, 33, 31, 64, 61, LS_ACT_RELU, false, true, false, false, none, 0});
        check_bn({t, 32, 29, 30, 200, 32, LS_ACT_RELU6, true, true, false, false, none, 2});
        check_bn({t, 4, 5, 5, 16, 0, LS_ACT_RELU, true, false, false, false, none, 0});
        check_bn({t, 4, 1, 1, 8, 4, LS_ACT_NONE, false, false, false, false, none, 0});
        const kernel pools[] = {{2, 2, 0}, {3, 2, 1}, {3, 2, 0}, {3, 1, 1}, {2, 2, 1}};
        for (int bits = 0; bits < 8; bits++) {
            check_bn({t,
                      32,
                      8,
                      4,
                      24,
                      31,
                      (enum ls_act)(bits % 3),
                      false,
                      (bits & 2) != 0,
                      false,
                      (bits & 4) != 0,
                      {2, 2, 0},
                      0.1});
            check_bn({t,
                      37,
                      12,
                      10,
                      24,
                      36,
                      (enum ls_act)(bits % 3),
                      false,
                      (bits & 2) != 0,
                      false,
                      (bits & 4) != 0,
                      {2 + bits / 4, 2, bits / 4},
                      0.1});
        }
        check_bn({t, 256, 4, 4, 512, 256, LS_ACT_RELU, false, true, false, false, {2, 2, 0}, 0});
        check_bn({t, 256, 4, 4, 512, 250, LS_ACT_RELU, true, true, true, false, none, 0});
        check_bn({t, 256, 2, 2, 16, 256, LS_ACT_RELU, false, false, false, false, {2, 2, 0}, 0});
        check_bn({t, 128, 4, 4, 520, 127, LS_ACT_RELU, true, true, false, false, none, 0});
        for (kernel p : pools)
            for (int bits = 0; bits < 8; bits++)
                check_bn({t, 4, 13 + bits % 2, 11 + bits / 2 % 2, 40, 3, (enum ls_act)(bits % 3), bits == 5,
                          (bits & 2) != 0, false, (bits & 4) != 0, p, 0.2});
        check_bn({t, 16, 40, 42, 64, 16, LS_ACT_RELU, false, true, false, false, {3, 2, 1}, 0});
        check_bn({t, 16, 32, 32, 256, 16, LS_ACT_RELU, false, false, false, false, {2, 2, 0}, 0});
    }
    check_bn({LS_F32, 64, 16, 16, 32, 64, LS_ACT_NONE, false, false, false, false, none, 300});
}

/* --- poolings ---------------------------------------------------------------------------------------------------- */

static struct ls_cuda_pool pool_of(enum ls_dtype t, struct ls_cuda_map x, kernel k)
{
    struct ls_cuda_pool p = {};
    p.t = t;
    p.x = x;
    if (k.size)
        p.y = {x.n, outputs(x.h, k), outputs(x.w, k), x.c};
    p.kernel_h = p.kernel_w = k.size;
    p.stride_h = p.stride_w = k.stride;
    p.pad_t = p.pad_l = p.pad_b = p.pad_r = k.pad;
    return p;
}

static void check_maxpool(enum ls_dtype t, struct ls_cuda_map x, kernel k, enum ls_act act)
{
    struct ls_cuda_pool p = pool_of(t, x, k);
    p.act = act;
    const size_t in = (size_t)(x.n * x.h * x.w * x.c), out = (size_t)(p.y.n * p.y.h * p.y.w * p.y.c);
    values vx = random_values(t, in, 0.3, 3), vdy = random_values(t, out, 0, 1);
    buffer bx(t, in), y(t, out), index(LS_U8, out), dy(t, out), dx(t, in);
    bx.put(vx);
    dy.put(vdy);
    ls_cuda_maxpool(0, &p, bx.at, y.at, (uint8_t *)index.at);
    ls_cuda_maxpool_bwd(0, &p, dy.at, (const uint8_t *)index.at, act == LS_ACT_NONE ? NULL : y.at, dx.at);
    must(cudaDeviceSynchronize(), "maxpool");
    char name[96];
    snprintf(name, sizeof name, "%s %ldx%ldx%ldx%ld %d/%d pad %d act %d", type_name(t), (long)x.n, (long)x.h, (long)x.w,
             (long)x.c, k.size, k.stride, k.pad, (int)act);
    values want = pool_max(x, p.y, k, vx), vindex = index.get();
    for (size_t i = 0; i < out; i++) {
        if (!passes(act, want[i]))
            vdy[i] = 0;
        want[i] = act_of(act, want[i]);
    }
    report(std::string("maxpool ") + name, worst_of(y.get(), want), 0);
    report(std::string("maxpool index ") + name, index_error(x, p.y, k, vx, vindex), 0);
    report(std::string("maxpool_bwd ") + name, worst_of(dx.get(), unpool(x, p.y, k, vdy, vindex)), tolerance(t));
}

/* What is not a number comes through, whatever its place in a window: in channel c it is at pixel (2 + c / 4, 2 + c % 4). */
static void check_not_a_number(enum ls_dtype t, kernel k)
{
    struct ls_cuda_pool p = pool_of(t, {2, 9, 10, 16}, k);
    const size_t in = (size_t)(p.x.n * p.x.h * p.x.w * p.x.c), out = (size_t)(p.y.n * p.y.h * p.y.w * p.y.c);
    values vx = random_values(t, in, 0.3, 3);
    for (int64_t c = 0; c < p.x.c; c++)
        vx[at(p.x, 1, 2 + c / 4, 2 + c % 4, c)] = NAN;
    buffer x(t, in), y(t, out), index(LS_U8, out);
    x.put(vx);
    ls_cuda_maxpool(0, &p, x.at, y.at, (uint8_t *)index.at);
    must(cudaDeviceSynchronize(), "maxpool");
    values vy = y.get();
    double wrong = 0;
    each_output(p.y, k, [&](size_t o, int64_t n, int64_t c, int64_t top, int64_t left) {
        bool there = false;
        each_pixel(p.x, k, n, c, top, left, [&](size_t i, int) { there |= std::isnan(vx[i]); });
        wrong += there != std::isnan(vy[o]);
    });
    report(std::string("maxpool of NaN ") + type_name(t) + " " + std::to_string(k.size) + "/" +
               std::to_string(k.stride) + " pad " + std::to_string(k.pad),
           wrong, 0);
}

/* k.size 0: adaptive, to oh x ow. */
static void check_average(enum ls_dtype t, struct ls_cuda_map x, kernel k, bool include_pad, int64_t oh, int64_t ow)
{
    struct ls_cuda_pool p = pool_of(t, x, k);
    if (!k.size)
        p.y = {x.n, oh, ow, x.c};
    p.include_pad = include_pad;
    const size_t in = (size_t)(x.n * x.h * x.w * x.c), out = (size_t)(p.y.n * p.y.h * p.y.w * p.y.c);
    values vx = random_values(t, in, 0.3, 3), vdy = random_values(t, out, 0, 1), wy(out), wdx(in);
    for (int64_t n = 0; n < x.n; n++)
        for (int64_t oy = 0; oy < p.y.h; oy++)
            for (int64_t ox = 0; ox < p.y.w; ox++) {
                int64_t top = oy * k.stride - k.pad, left = ox * k.stride - k.pad, bottom = top + k.size,
                        right = left + k.size;
                if (!k.size) {
                    top = oy * x.h / p.y.h;
                    left = ox * x.w / p.y.w;
                    bottom = ((oy + 1) * x.h + p.y.h - 1) / p.y.h;
                    right = ((ox + 1) * x.w + p.y.w - 1) / p.y.w;
                }
                double whole = (double)(k.size * k.size);
                top = std::max<int64_t>(top, 0);
                left = std::max<int64_t>(left, 0);
                bottom = std::min(bottom, x.h);
                right = std::min(right, x.w);
                double share = 1 / (include_pad ? whole : (double)((bottom - top) * (right - left)));
                for (int64_t c = 0; c < x.c; c++)
                    for (int64_t iy = top; iy < bottom; iy++)
                        for (int64_t ix = left; ix < right; ix++) {
                            wy[at(p.y, n, oy, ox, c)] += share * vx[at(x, n, iy, ix, c)];
                            wdx[at(x, n, iy, ix, c)] += share * vdy[at(p.y, n, oy, ox, c)];
                        }
            }
    buffer bx(t, in), y(t, out), dy(t, out), dx(t, in);
    bx.put(vx);
    dy.put(vdy);
    if (k.size) {
        ls_cuda_avgpool(0, &p, bx.at, y.at);
        ls_cuda_avgpool_bwd(0, &p, dy.at, dx.at);
    } else {
        ls_cuda_adaptive(0, &p, bx.at, y.at);
        ls_cuda_adaptive_bwd(0, &p, dy.at, dx.at);
    }
    must(cudaDeviceSynchronize(), "average");
    char name[96];
    snprintf(name, sizeof name, "%s %ldx%ldx%ldx%ld %d/%d pad %d%s to %ldx%ld", type_name(t), (long)x.n, (long)x.h,
             (long)x.w, (long)x.c, k.size, k.stride, k.pad, include_pad ? " counted" : "", (long)p.y.h, (long)p.y.w);
    report(std::string("average ") + name, worst_of(y.get(), wy), tolerance(t));
    report(std::string("average_bwd ") + name, worst_of(dx.get(), wdx), tolerance(t));
}

static void check_all_pools(void)
{
    const enum ls_dtype types[] = {LS_F32, LS_BF16, LS_F16};
    for (enum ls_dtype t : types) {
        const kernel kernels[] = {{2, 2, 0}, {3, 2, 0}, {3, 2, 1}, {2, 2, 1}, {3, 3, 0}, {3, 1, 1}, {1, 2, 0}};
        for (kernel k : kernels)
            check_not_a_number(t, k);
        for (kernel k : kernels)
            for (int act = 0; act < 3; act++) {
                check_maxpool(t, {3, 13, 14, 24}, k, (enum ls_act)act);
                check_maxpool(t, {2, 40, 17, 256}, k, (enum ls_act)act);
            }
        const kernel averages[] = {{1, 2, 0}, {1, 3, 0}, {2, 2, 0}, {3, 2, 1}, {3, 1, 1}};
        for (kernel k : averages)
            for (int pad = 0; pad < 2; pad++) {
                check_average(t, {3, 13, 14, 24}, k, pad, 0, 0);
                check_average(t, {2, 28, 28, 272}, k, pad, 0, 0);
            }
        const int64_t sides[][4] = {{7, 7, 1, 1}, {13, 11, 6, 6}, {7, 7, 7, 7}, {3, 2, 6, 5}, {14, 14, 2, 3}};
        for (const int64_t *s : sides) {
            check_average(t, {3, s[0], s[1], 24}, {0, 0, 0}, false, s[2], s[3]);
            check_average(t, {2, s[0], s[1], 520}, {0, 0, 0}, false, s[2], s[3]);
        }
    }
}

/* --- times ------------------------------------------------------------------------------------------------------- */

static void bench_shape(int64_t n, int64_t h, int64_t w, int64_t c, kernel pool)
{
    struct ls_cuda_bn b = {};
    b.t = LS_BF16;
    b.x = b.y = {n, h, w, c};
    b.act = LS_ACT_RELU;
    b.eps = 1e-5f;
    const size_t count = (size_t)(n * h * w * c), C = (size_t)c;
    const double bytes = 2.0 * (double)count;
    buffer x(b.t, count), y(b.t, count), dy(b.t, count), dy2(b.t, count), dx(b.t, count), dres(b.t, count);
    buffer gamma(LS_F32, C), beta(LS_F32, C), mean(LS_F32, C), rstd(LS_F32, C), stat(LS_F32, 2 * C);
    buffer dgamma(LS_F32, C), dbeta(LS_F32, C), index(LS_U8, count), scratch(LS_U8, ls_cuda_bn_scratch(&b));
    buffer kept(b.t, count);
    buffer run(LS_U8, sizeof(struct ls_cuda_run));
    b.scratch = scratch.f();
    put_run(run, n, 1);
    must(cudaMemset(scratch.at, 0, LS_CUDA_BN_ZEROS), "memset");
    for (buffer *map : {&x, &y, &dy, &dy2, &dres}) /* some values that are numbers, of both signs */
        must(cudaMemset(map->at, map == &dy ? 0xbe : 0x3e, count * 2), "memset");
    must(cudaMemset(index.at, 0, count), "memset");
    gamma.put(values(C, 1));
    beta.put(values(C, 0.1));
    const struct ls_cuda_run *r = (const struct ls_cuda_run *)run.at;
    printf("%ldx%ldx%ldx%ld, %.1f MB\n", (long)n, (long)h, (long)w, (long)c, bytes / 1e6);
    bench("stats", bytes, [&](cudaStream_t s) { ls_cuda_bn_stats(s, &b, r, x.at, mean.f(), rstd.f(), stat.f()); });
    bench("apply", 2 * bytes, [&](cudaStream_t s) {
        ls_cuda_bn_apply(s, &b, x.at, NULL, gamma.f(), beta.f(), mean.f(), rstd.f(), y.at, NULL, NULL);
    });
    bench("forward", 3 * bytes, [&](cudaStream_t s) {
        ls_cuda_bn_forward(s, &b, r, x.at, NULL, gamma.f(), beta.f(), mean.f(), rstd.f(), stat.f(), y.at, NULL, NULL);
    });
    bench("apply with a residual", 3.0625 * bytes, [&](cudaStream_t s) {
        ls_cuda_bn_apply(s, &b, x.at, dy2.at, gamma.f(), beta.f(), mean.f(), rstd.f(), y.at, NULL, kept.at);
    });
    struct ls_cuda_bn_grad g = {};
    g.dy = dy.at;
    g.x = x.at;
    g.gamma = gamma.f();
    g.beta = beta.f();
    g.mean = mean.f();
    g.rstd = rstd.f();
    g.dx = dx.at;
    g.dgamma = dgamma.f();
    g.dbeta = dbeta.f();
    bench("bwd, mask from x", 5 * bytes, [&](cudaStream_t s) { ls_cuda_bn_bwd(s, &b, r, &g); });
    b.act = LS_ACT_GELU;
    bench("apply, gelu", 2 * bytes, [&](cudaStream_t s) {
        ls_cuda_bn_apply(s, &b, x.at, NULL, gamma.f(), beta.f(), mean.f(), rstd.f(), y.at, NULL, NULL);
    });
    bench("bwd, gelu", 5 * bytes, [&](cudaStream_t s) { ls_cuda_bn_bwd(s, &b, r, &g); });
    b.act = LS_ACT_NONE;
    bench("bwd, no activation", 5 * bytes, [&](cudaStream_t s) { ls_cuda_bn_bwd(s, &b, r, &g); });
    b.act = LS_ACT_RELU;
    g.kept = kept.at;
    g.dresidual = dres.at;
    bench("bwd, bits, dresidual", 6.0625 * bytes, [&](cudaStream_t s) { ls_cuda_bn_bwd(s, &b, r, &g); });
    g.dy2 = dy2.at;
    bench("bwd, bits, dy2, dresidual", 7.0625 * bytes, [&](cudaStream_t s) { ls_cuda_bn_bwd(s, &b, r, &g); });
    g.sparse = ls_cuda_bn_takes_sparse(&b) ? 2 : 0;
    if (g.sparse)
        bench("bwd, bits, sparse dy2, dresidual", 6.3125 * bytes,
              [&](cudaStream_t s) { ls_cuda_bn_bwd(s, &b, r, &g); });
    g.sparse = 0;
    struct ls_cuda_pool p = {};
    p.t = b.t;
    p.x = b.x;
    p.kernel_h = p.kernel_w = 1;
    p.stride_h = p.stride_w = 2;
    p.y = {n, (h + 1) / 2, (w + 1) / 2, c};
    const double small = 2.0 * (double)(p.y.n * p.y.h * p.y.w * p.y.c);
    bench("avgpool 1x1/2", 2 * small, [&](cudaStream_t s) { ls_cuda_avgpool(s, &p, x.at, y.at); });
    bench("avgpool_bwd 1x1/2", bytes + small, [&](cudaStream_t s) { ls_cuda_avgpool_bwd(s, &p, dy.at, dx.at); });
    p.y = {n, 1, 1, c};
    bench("adaptive to 1x1", bytes, [&](cudaStream_t s) { ls_cuda_adaptive(s, &p, x.at, y.at); });
    bench("adaptive_bwd from 1x1", bytes, [&](cudaStream_t s) { ls_cuda_adaptive_bwd(s, &p, dy.at, dx.at); });
    if (!pool.size)
        return;
    b.pool = true;
    b.y = {n, outputs(h, pool), outputs(w, pool), c};
    b.kernel_h = b.kernel_w = pool.size;
    b.stride_h = b.stride_w = pool.stride;
    b.pad_t = b.pad_l = pool.pad;
    const double out = 2.0 * (double)(b.y.n * b.y.h * b.y.w * b.y.c);
    bench("apply with pool", bytes + 2.5 * out, [&](cudaStream_t s) {
        ls_cuda_bn_apply(s, &b, x.at, NULL, gamma.f(), beta.f(), mean.f(), rstd.f(), y.at, (uint8_t *)index.at,
                         kept.at);
    });
    bench("forward with pool", 2 * bytes + 2.5 * out, [&](cudaStream_t s) {
        ls_cuda_bn_forward(s, &b, r, x.at, NULL, gamma.f(), beta.f(), mean.f(), rstd.f(), stat.f(), y.at,
                           (uint8_t *)index.at, kept.at);
    });
    g.dresidual = NULL;
    g.index = (const uint8_t *)index.at;
    bench("bwd with pool, dy2", 2 * bytes + 5.5 * out, [&](cudaStream_t s) { ls_cuda_bn_bwd(s, &b, r, &g); });
    g.dy2 = NULL;
    bench("bwd with pool", 2 * bytes + 4.5 * out, [&](cudaStream_t s) { ls_cuda_bn_bwd(s, &b, r, &g); });
    p.y = b.y;
    p.kernel_h = p.kernel_w = pool.size;
    p.stride_h = p.stride_w = pool.stride;
    p.pad_t = p.pad_l = pool.pad;
    bench("maxpool", bytes + 1.5 * out,
          [&](cudaStream_t s) { ls_cuda_maxpool(s, &p, x.at, y.at, (uint8_t *)index.at); });
    bench("maxpool_bwd", bytes + 1.5 * out,
          [&](cudaStream_t s) { ls_cuda_maxpool_bwd(s, &p, dy.at, (uint8_t *)index.at, NULL, dx.at); });
}

static void bench_all(void)
{
    const int64_t resnet[][2] = {{56, 64},  {56, 128}, {56, 256},  {28, 128}, {28, 256}, {28, 512},
                                 {14, 256}, {14, 512}, {14, 1024}, {7, 512},  {7, 2048}};
    bench_shape(2000, 15, 15, 64, {0, 0, 0}); /* recipes/cifar10-fast */
    bench_shape(2000, 7, 7, 256, {0, 0, 0});
    bench_shape(256, 112, 112, 64, {3, 2, 1});
    for (const int64_t *s : resnet)
        bench_shape(256, s[0], s[0], s[1], {0, 0, 0});
    const int64_t vgg[][2] = {{32, 64}, {16, 128}, {8, 256}, {4, 512}, {2, 512}};
    for (const int64_t *s : vgg)
        bench_shape(256, s[0], s[0], s[1], {2, 2, 0});
}

static void check_all(void)
{
    check_all_bn();
    check_all_sparse();
    check_all_pools();
}

int main(int argc, char **argv)
{
    return test_main(argc, argv, bench_all, check_all);
}
