/* Checks and times bn_twin.cu, two batch normalisations whose sum is activated; needs a GPU. Build at the repository's
 * root:
 *
 *   nvcc -O2 -std=c++17 -arch=sm_90 --expt-relaxed-constexpr -I src -o kernels_twin tests/gpu/kernels_twin.cu
 *        src/backend/cuda/kernels/bn/*.cu
 *
 *   kernels_twin         as kernels_bn: ok|FAIL name error; exit 1 after a failure
 *   kernels_twin bench   times at ResNet-50's shapes, bf16: together, and one after the other
 *
 * The references are plain loops in double, and the kernels that compute the two one after the other. */
#include "bn.h"

struct twin_case {
    enum ls_dtype t;
    int64_t n, h, w, c, valid;
    enum ls_act act;
    bool dy2, in_place; /* dx of the first on dy, of the second on dresidual */
};

static std::string name_of(const twin_case &k)
{
    char text[160];
    snprintf(text, sizeof text, "%s %ldx%ldx%ldx%ld valid %ld act %d%s%s", type_name(k.t), (long)k.n, (long)k.h,
             (long)k.w, (long)k.c, (long)k.valid, (int)k.act, k.dy2 ? " dy2" : "", k.in_place ? " in-place" : "");
    return text;
}

/* A map and its normalisation. */
struct side {
    values vx, vgamma, vbeta, vmean, vrstd;
    buffer x, gamma, beta, mean, rstd, stat, dx, dgamma, dbeta;

    side(enum ls_dtype t, size_t count, size_t C, double centre)
        : vx(random_values(t, count, centre, 1)), vgamma(random_values(LS_F32, C, 0.5, 1.5)),
          vbeta(random_values(LS_F32, C, 0.3, 1)), x(t, count), gamma(LS_F32, C), beta(LS_F32, C), mean(LS_F32, C),
          rstd(LS_F32, C), stat(LS_F32, 2 * C), dx(t, count), dgamma(LS_F32, C), dbeta(LS_F32, C)
    {
        for (size_t c = C - 3; C > 8 && c < C; c++) { /* as padding lies */
            vgamma[c] = vbeta[c] = 0;
            for (size_t i = c; i < count; i += C)
                vx[i] = 0;
        }
        x.put(vx);
        gamma.put(vgamma);
        beta.put(vbeta);
    }
    void normalise(const struct ls_cuda_bn *b, const struct ls_cuda_run *run)
    {
        ls_cuda_bn_stats(0, b, run, x.at, mean.f(), rstd.f(), stat.f());
        must(cudaDeviceSynchronize(), "stats");
        vmean = mean.get();
        vrstd = rstd.get();
    }
    struct ls_cuda_bn_twin twin() const
    {
        return {x.at, gamma.f(), beta.f(), mean.f(), rstd.f()};
    }
    struct ls_cuda_bn_grad grad() const
    {
        struct ls_cuda_bn_grad g = {};
        g.x = x.at;
        g.gamma = gamma.f();
        g.beta = beta.f();
        g.mean = mean.f();
        g.rstd = rstd.f();
        g.dx = dx.at;
        g.dgamma = dgamma.f();
        g.dbeta = dbeta.f();
        return g;
    }
    /* As the device computes it, for the mask. */
    float z(size_t i, size_t c) const
    {
        float scale = (float)vgamma[c] * (float)vrstd[c];
        return std::fmaf((float)vx[i] - (float)vmean[c], scale, (float)vbeta[c]);
    }
};

/* What backward made of one side, against plain loops over dz. */
static void check_side(const std::string &name, const twin_case &k, const side &s, const values &dz, const values &dx)
{
    const size_t C = (size_t)k.c, live = (size_t)(k.valid * k.h * k.w);
    values wdgamma(C), wdbeta(C), wdx(s.vx.size());
    for (size_t i = 0; i < live * C; i++) {
        size_t c = i % C;
        wdbeta[c] += dz[i];
        wdgamma[c] += dz[i] * (s.vx[i] - s.vmean[c]) * s.vrstd[c];
    }
    for (size_t i = 0; i < live * C; i++) {
        size_t c = i % C;
        double xhat = (s.vx[i] - s.vmean[c]) * s.vrstd[c];
        wdx[i] = s.vgamma[c] * s.vrstd[c] * (dz[i] - (wdbeta[c] + xhat * wdgamma[c]) / (double)live);
    }
    report("dgamma " + name, worst_of(s.dgamma.get(), wdgamma), 1e-4);
    report("dbeta " + name, worst_of(s.dbeta.get(), wdbeta), 1e-4);
    report("dx " + name, worst_of(dx, wdx), tolerance(k.t));
}

static void check_twin(const twin_case &k)
{
    const std::string name = name_of(k);
    struct ls_cuda_bn b = {};
    b.t = k.t;
    b.x = b.y = {k.n, k.h, k.w, k.c};
    b.act = k.act;
    b.eps = 1e-5f;
    const size_t C = (size_t)k.c, count = (size_t)(k.n * k.h * k.w) * C, live = (size_t)(k.valid * k.h * k.w);
    report("twins " + name, ls_cuda_bn_twins(&b) ? 0 : 1, 0);
    const size_t scratch_bytes = ls_cuda_bn_scratch(&b), guard = 4096;
    buffer scratch(LS_U8, scratch_bytes + guard);
    must(cudaMemset(scratch.at, 0, LS_CUDA_BN_ZEROS), "memset");
    b.scratch = scratch.f();
    buffer run(LS_U8, sizeof(struct ls_cuda_run));
    put_run(run, k.valid, 0.5f);
    const struct ls_cuda_run *r = (const struct ls_cuda_run *)run.at;
    side first(k.t, count, C, 0.5), second(k.t, count, C, -1);

    /* Forward. */
    buffer y(k.t, count), kept(LS_U8, count / 8);
    const bool clips = k.act != LS_ACT_NONE;
    first.normalise(&b, r);
    second.normalise(&b, r);
    const struct ls_cuda_bn_twin twins[2] = {first.twin(), second.twin()};
    ls_cuda_bn_twin_apply(0, &b, twins, y.at, clips ? kept.at : NULL);
    must(cudaDeviceSynchronize(), name.c_str());
    values want(count), bits = kept.get();
    double wrong = 0;
    for (size_t i = 0; i < count; i++) {
        float z = first.z(i, i % C) + second.z(i, i % C);
        want[i] = act_of(k.act, z);
        wrong += clips && (((int)bits[i / 8] >> i % 8 & 1) != 0) != passes(k.act, z);
    }
    report("apply " + name, worst_of(y.get(), want), tolerance(k.t));
    report("bits " + name, wrong, 0);

    /* Backward: one after the other, then together. */
    values vdy = random_values(k.t, count, 0.1, 1), vdy2 = random_values(k.t, count, 0, 1);
    for (size_t i = 0; i < count; i++)
        if (C > 8 && i % C >= C - 3)
            vdy[i] = vdy2[i] = 0;
    buffer dy(k.t, count), dy2(k.t, count), dz(k.t, count);
    dy.put(vdy);
    dy2.put(vdy2);
    struct ls_cuda_bn_grad g = first.grad(), h = second.grad();
    g.dy = dy.at;
    g.dy2 = k.dy2 ? dy2.at : NULL;
    g.kept = clips ? kept.at : NULL;
    g.dresidual = dz.at;
    h.dy = dz.at;
    struct ls_cuda_bn plain = b;
    plain.act = LS_ACT_NONE;
    ls_cuda_bn_bwd(0, &b, r, &g);
    ls_cuda_bn_bwd(0, &plain, r, &h);
    must(cudaDeviceSynchronize(), name.c_str());
    const values apart[] = {first.dgamma.get(), first.dbeta.get(), second.dgamma.get(), second.dbeta.get()};
    const values apart_dx = first.dx.get(), apart_dx2 = second.dx.get();
    for (buffer *left : {&first.dx, &second.dx, &dz, &first.dgamma, &first.dbeta, &second.dgamma, &second.dbeta})
        must(cudaMemset(left->at, 0xff, left->count * size_of(left->t)), "memset");
    if (k.in_place) {
        g.dx = dy.at;
        h.dx = dz.at;
    }
    ls_cuda_bn_twin_bwd(0, &b, r, &g, &h);
    must(cudaDeviceSynchronize(), name.c_str());
    const values dx = k.in_place ? dy.get() : first.dx.get(), dx2 = k.in_place ? dz.get() : second.dx.get();
    values wdz(count);
    for (size_t i = 0; i < live * C; i++)
        if (!clips || passes(k.act, first.z(i, i % C) + second.z(i, i % C)))
            wdz[i] = rounded(k.t, (float)vdy[i] + (k.dy2 ? (float)vdy2[i] : 0));
    check_side("first " + name, k, first, wdz, dx);
    check_side("second " + name, k, second, wdz, dx2);
    if (!k.in_place)
        report("dresidual " + name, worst_of(dz.get(), wdz), 0);
    report("first as apart " + name, apart[0] == first.dgamma.get() && apart[1] == first.dbeta.get() ? 0 : 1, 0);
    if (k.valid == k.n) /* else rows are dealt out to threads in another way */
        report("second as apart " + name, apart[2] == second.dgamma.get() && apart[3] == second.dbeta.get() ? 0 : 1, 0);
    report("dx as apart " + name, std::max(worst_of(dx, apart_dx), worst_of(dx2, apart_dx2)), tolerance(k.t));
    values left = scratch.get();
    double touched = 0;
    for (size_t i = 0; i < left.size(); i++)
        touched += i < LS_CUDA_BN_ZEROS ? left[i] != 0 : i >= scratch_bytes && left[i] != 0xff;
    report("scratch " + name, touched, 0);
}

static void check_all(void)
{
    for (enum ls_dtype t : {LS_F32, LS_BF16, LS_F16}) {
        for (int act = 0; act < 3; act++)
            for (int bits = 0; bits < 8; bits++)
                check_twin({t, 67, 7, 9, 24, bits & 4 ? 66 : 67, (enum ls_act)act, (bits & 1) != 0, (bits & 2) != 0});
        for (int64_t c : {8, 16, 40, 64, 136, 144, 256, 320, 960, 2048})
            check_twin({t, 30, 11, 13, c, 30, LS_ACT_RELU, c % 16 == 0, c % 32 == 0});
        check_twin({t, 32, 29, 30, 200, 29, LS_ACT_RELU, true, false});
        check_twin({t, 30, 12, 13, 16, 0, LS_ACT_RELU, true, true});
    }
}

/* --- times ------------------------------------------------------------------------------------------------------- */

static void bench_shape(int64_t n, int64_t side_length, int64_t c)
{
    struct ls_cuda_bn b = {}, plain;
    b.t = LS_BF16;
    b.x = b.y = {n, side_length, side_length, c};
    b.act = LS_ACT_RELU;
    b.eps = 1e-5f;
    const size_t count = (size_t)(n * side_length * side_length * c), C = (size_t)c;
    const double bytes = 2.0 * (double)count;
    buffer maps[9] = {{b.t, count}, {b.t, count}, {b.t, count}, {b.t, count}, {b.t, count},
                      {b.t, count}, {b.t, count}, {b.t, count}, {b.t, count}};
    buffer sums[6] = {{LS_F32, C}, {LS_F32, C}, {LS_F32, C}, {LS_F32, C}, {LS_F32, C}, {LS_F32, C}};
    buffer kept(LS_U8, count / 8), stat(LS_F32, 2 * C), scratch(LS_U8, ls_cuda_bn_scratch(&b));
    buffer run(LS_U8, sizeof(struct ls_cuda_run));
    put_run(run, n, 1);
    must(cudaMemset(scratch.at, 0, LS_CUDA_BN_ZEROS), "memset");
    b.scratch = scratch.f();
    plain = b;
    plain.act = LS_ACT_NONE;
    for (buffer &m : maps) /* numbers of both signs */
        must(cudaMemset(m.at, &m == &maps[2] ? 0xbe : 0x3e, count * 2), "memset");
    const void *x = maps[0].at, *x2 = maps[1].at;
    float *ones = sums[0].f(), *tenths = sums[1].f();
    sums[0].put(values(C, 1));
    sums[1].put(values(C, 0.1));
    const struct ls_cuda_run *r = (const struct ls_cuda_run *)run.at;
    const struct ls_cuda_bn_twin twins[2] = {{x, ones, tenths, tenths, ones}, {x2, ones, tenths, tenths, ones}};
    struct ls_cuda_bn_grad g = {}, h = {};
    g.dy = maps[2].at;
    g.dy2 = maps[3].at;
    g.kept = kept.at;
    g.x = x;
    h.x = x2;
    g.gamma = g.rstd = h.gamma = h.rstd = ones;
    g.beta = g.mean = h.beta = h.mean = tenths;
    g.dresidual = maps[4].at;
    h.dy = maps[4].at;
    g.dx = maps[5].at;
    h.dx = maps[6].at;
    g.dgamma = sums[2].f();
    g.dbeta = sums[3].f();
    h.dgamma = sums[4].f();
    h.dbeta = sums[5].f();
    printf("%ldx%ldx%ldx%ld, %.1f MB\n", (long)n, (long)side_length, (long)side_length, (long)c, bytes / 1e6);
    bench("apply, apart", 5.0625 * bytes, [&](cudaStream_t s) {
        ls_cuda_bn_apply(s, &plain, x2, NULL, ones, tenths, tenths, ones, maps[7].at, NULL, NULL);
        ls_cuda_bn_apply(s, &b, x, maps[7].at, ones, tenths, tenths, ones, maps[8].at, NULL, kept.at);
    });
    bench("apply, together", 3.0625 * bytes,
          [&](cudaStream_t s) { ls_cuda_bn_twin_apply(s, &b, twins, maps[8].at, kept.at); });
    bench("bwd, dy2, apart", 12.0625 * bytes, [&](cudaStream_t s) {
        ls_cuda_bn_bwd(s, &b, r, &g);
        ls_cuda_bn_bwd(s, &plain, r, &h);
    });
    bench("bwd, dy2, together", 10.0625 * bytes, [&](cudaStream_t s) { ls_cuda_bn_twin_bwd(s, &b, r, &g, &h); });
}

static void bench_all(void)
{
    const int64_t shapes[][2] = {{56, 256}, {28, 512}, {14, 1024}, {7, 2048}};
    for (const int64_t *s : shapes)
        bench_shape(256, s[0], s[1]);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv, bench_all, check_all);
}
