/* Checks stem_mapped.cu, the second pass of a bn_bwd with the gradient of the weights of a first convolution; needs a Hopper GPU.
 * Build as kernels_stem.
 *
 *   kernels_stem_mapped         as kernels_bn: ok|FAIL name error; exit 1 after a failure. Behind a failure: the first wrong values
 *   kernels_stem_mapped bench   times at ResNet-50's shapes, beside those of the separate kernels
 *
 * The gradient is compared with the separate kernels', whose sums are divided among other blocks; dx to the bit. */
#include "stem.h"

/* A bn with a 3x3 max pooling behind the convolution, whose result is y. */
struct normalised_operands {
    operands o;
    struct ls_cuda_bn b;
    buffer gamma, beta, pooled, index, won, kept, dy, dx, dgamma, dbeta, scratch;
    struct ls_cuda_bn_grad g = {};

    static size_t pooled_of(const stem_case &m)
    {
        const struct ls_cuda_stem c = operands::stem_of(m);
        return (size_t)(c.y.n * ((c.y.h + 1) / 2) * ((c.y.w + 1) / 2) * c.y.c);
    }
    static size_t scratch_of(const stem_case &m)
    {
        const struct ls_cuda_stem c = operands::stem_of(m);
        return ls_cuda_stem_mapped_scratch(&c);
    }
    normalised_operands(const stem_case &m, enum ls_act act)
        : o(m), b(o.b), gamma(LS_F32, 64), beta(LS_F32, 64), pooled(m.t, pooled_of(m)), index(LS_U8, pooled_of(m)),
          won(m.t, pooled_of(m)), kept(m.t, pooled_of(m)), dy(m.t, pooled_of(m)), dx(m.t, o.y.count),
          dgamma(LS_F32, 64), dbeta(LS_F32, 64), scratch(LS_U8, scratch_of(m))
    {
        b.y.h = (b.x.h + 1) / 2;
        b.y.w = (b.x.w + 1) / 2;
        b.act = act;
        b.pool = true;
        b.kernel_h = b.kernel_w = 3;
        b.stride_h = b.stride_w = 2;
        b.pad_t = b.pad_l = 1;
        gamma.put(random_values(LS_F32, 64, 0.3, 1)); /* some are negative */
        beta.put(random_values(LS_F32, 64, 0.1, 0.5));
        g.dy = dy.at;
        g.x = o.y.at;
        g.index = (const uint8_t *)index.at;
        g.kept = kept.at;
        g.gamma = gamma.f();
        g.beta = beta.f();
        g.mean = o.mean.f();
        g.rstd = o.rstd.f();
        g.dx = dx.at;
        g.dgamma = dgamma.f();
        g.dbeta = dbeta.f();
    }
    void forward(cudaStream_t s) const
    {
        ls_cuda_bn_forward(s, &b, o.r(), o.y.at, NULL, gamma.f(), beta.f(), o.mean.f(), o.rstd.f(), o.stat.f(),
                           pooled.at, (uint8_t *)index.at, won.at);
    }
    void restore(void) const /* kept, as forward leaves it */
    {
        must(cudaMemcpy(kept.at, won.at, won.count * 2, cudaMemcpyDeviceToDevice), "copy");
    }
    /* The gradient of dx, and the one for which dx is made. `pixels`: NULL where images are planes. */
    void apart(cudaStream_t s) const
    {
        ls_cuda_stem_bwd_weights(s, &o.c, o.r(), o.p(), dx.at, o.dw.f(), (float *)o.scratch.at);
    }
    void mapped(cudaStream_t s, const struct ls_pixels *pixels) const
    {
        ls_cuda_stem_mapped_weights(s, &o.c, o.r(), pixels, &b, &g, o.dw.f(), (float *)scratch.at);
    }
    values mapped_now(const struct ls_pixels *pixels) const
    {
        must(cudaMemset(o.dw.at, 0xff, o.dw.count * 4), "memset");
        mapped(0, pixels);
        must(cudaDeviceSynchronize(), "mapped gradient");
        return o.dw.get();
    }
};

/* How many values of dx are wrong, of some all over the map, or all of a small one. Images have one bright pixel in each channel:
 * its gradient is 4x4 pixels of dx, with nothing to add to them and nothing to round. */
static size_t wrong_dx(const normalised_operands &a)
{
    constexpr int IMAGES = 200; /* about, at most */
    constexpr float DARK = 0, BRIGHT = 1;
    const operands &o = a.o;
    const int height = o.m.height, width = o.m.width, high = (int)o.c.y.h, wide = (int)o.c.y.w;
    const int down = (high + 3) / 4, across = (wide + 11) / 12, all = o.m.n * down * across;
    const values dx = a.dx.get();
    const buffer planes(LS_F32, (size_t)o.m.n * 3 * (size_t)(height * width));
    size_t wrong = 0;
    must(cudaMemset(planes.at, 0, planes.count * 4), "memset");
    o.read(planes.at);
    for (int i = 0; i < all; i += 1 + (int)((uniform() + 1) * all / IMAGES)) {
        const int n = i / across / down, y = std::min(i / across % down * 4, (height - 4) / 2);
        values want(o.dw.count);
        float *pixel[3];
        for (int c = 0; c < 3; c++) {
            const int x = std::min(i % across * 12 + c * 4, (width - 4) / 2);
            pixel[c] =
                planes.f() + ((size_t)(n * 3 + c) * (size_t)height + 2 * (size_t)y + 3) * (size_t)width + 2 * x + 3;
            must(cudaMemcpy(pixel[c], &BRIGHT, 4, cudaMemcpyHostToDevice), "copy");
            for (int row = y; row < std::min(y + 4, high); row++)
                for (int column = x; column < std::min(x + 4, wide); column++)
                    for (size_t k = 0; k < 64; k++)
                        want[o.place(k, c, 6 - 2 * (row - y), 6 - 2 * (column - x))] =
                            dx[(((size_t)n * (size_t)high + (size_t)row) * (size_t)wide + (size_t)column) * 64 + k];
        }
        const values got = a.mapped_now(NULL);
        for (size_t at = 0; at < got.size(); at++)
            if (!(got[at] == want[at]) && wrong++ < 12)
                printf("#   dx of sample %d by row %d, value %zu of the gradient: got %g, expected %g\n", n, y, at,
                       got[at], want[at]);
        for (float *at : pixel)
            must(cudaMemcpy(at, &DARK, 4, cudaMemcpyHostToDevice), "copy");
    }
    return wrong;
}

static void check(const stem_case &m, enum ls_act act)
{
    seed = 1; /* a case has the same values by itself */
    normalised_operands a(m, act);
    operands &o = a.o;
    const std::string name = name_of(m) + ", bn act " + std::to_string((int)act);
    if (!ls_cuda_stem_mapped_can(&o.c, &a.b)) {
        report("can " + name, 1, 0);
        return;
    }
    o.y.put(random_values(m.t, o.y.count, 0.1, 1));
    a.dy.put(random_values(m.t, a.dy.count, 0.05, 0.5));
    a.forward(0);
    a.restore();
    ls_cuda_bn_bwd(0, &a.b, o.r(), &a.g);
    must(cudaDeviceSynchronize(), "bn_bwd");
    const std::vector<uint8_t> sums[] = {bytes_of(a.kept), bytes_of(a.dgamma), bytes_of(a.dbeta)};
    a.restore();
    ls_cuda_bn_bwd_sums(0, &a.b, o.r(), &a.g);
    must(cudaDeviceSynchronize(), "sums");
    report("sums alone " + name,
           sums[0] == bytes_of(a.kept) && sums[1] == bytes_of(a.dgamma) && sums[2] == bytes_of(a.dbeta) ? 0 : 1, 0);
    a.apart(0);
    must(cudaDeviceSynchronize(), "gradient");
    const values apart = o.dw.get(), once = a.mapped_now(o.p());
    compare(o, "dw " + name, once, apart, 1e-4, false);
    report("again " + name, once == a.mapped_now(o.p()) ? 0 : 1, 0);
    report("dx " + name, (double)wrong_dx(a), 0);
}

struct mapped_case {
    stem_case m;
    enum ls_act act;
};
static const mapped_case mapped_cases[] = {
    {{LS_BF16, 7, 2, 1, 1, 64, 32, 32, stem_case::PLANES, LS_ACT_NONE, false, 0, 0}, LS_ACT_RELU},
    {{LS_BF16, 7, 2, 3, 3, 64, 33, 47, stem_case::PLANES, LS_ACT_NONE, false, 0, 0}, LS_ACT_RELU},
    {{LS_F16, 7, 2, 5, 3, 64, 35, 49, stem_case::PLANES, LS_ACT_NONE, false, 0, 0}, LS_ACT_RELU},
    {{LS_F16, 7, 2, 4, 4, 64, 64, 96, stem_case::BYTES, LS_ACT_NONE, false, 72, 104}, LS_ACT_NONE},
    {{LS_BF16, 7, 2, 5, 4, 64, 97, 131, stem_case::REFLECTED, LS_ACT_NONE, false, 97, 131}, LS_ACT_RELU},
    {{LS_BF16, 7, 2, 4, 4, 64, 65, 250, stem_case::GREY, LS_ACT_NONE, false, 70, 256}, LS_ACT_RELU},
    {{LS_BF16, 7, 2, 70, 69, 64, 64, 64, stem_case::BYTES, LS_ACT_NONE, false, 72, 72}, LS_ACT_RELU},
    {{LS_BF16, 7, 2, 16, 13, 64, 224, 224, stem_case::BYTES, LS_ACT_NONE, false, 256, 256}, LS_ACT_RELU},
    {{LS_F16, 7, 2, 16, 16, 64, 223, 222, stem_case::PLANES, LS_ACT_NONE, false, 0, 0}, LS_ACT_RELU},
};

static void check_all(void)
{
    for (const mapped_case &c : mapped_cases)
        if (ls_wgmma::has_wgmma())
            check(c.m, c.act);
}

static void bench_all(void)
{
    static const stem_case cases[] = {
        {LS_BF16, 7, 2, 256, 256, 64, 224, 224, stem_case::BYTES, LS_ACT_NONE, false, 256, 256},
        {LS_BF16, 7, 2, 256, 256, 64, 224, 224, stem_case::PLANES, LS_ACT_NONE, false, 224, 224},
        {LS_BF16, 7, 2, 32, 32, 64, 224, 224, stem_case::BYTES, LS_ACT_NONE, false, 224, 224},
        {LS_BF16, 7, 2, 256, 256, 64, 64, 64, stem_case::BYTES, LS_ACT_NONE, false, 64, 64},
    };
    beyond = 0;
    for (const stem_case &m : cases) {
        normalised_operands a(m, LS_ACT_RELU);
        const operands &o = a.o;
        const double map = 2.0 * (double)o.y.count, pooled = (double)a.pooled.count, images = (double)o.images.count;
        ls_cuda_fill(0, m.t, o.y.at, (int64_t)o.y.count);
        ls_cuda_fill(0, m.t, a.dy.at, (int64_t)a.dy.count);
        a.forward(0);
        a.restore();
        must(cudaDeviceSynchronize(), "forward");
        printf("%s\n", name_of(m).c_str());
        bench("bn_bwd and gradient apart", pooled * 9 + map * 3 + images, [&](cudaStream_t s) {
            ls_cuda_bn_bwd(s, &a.b, o.r(), &a.g);
            a.apart(s);
        });
        bench("first pass and mapped", pooled * 9 + map + images, [&](cudaStream_t s) {
            ls_cuda_bn_bwd_sums(s, &a.b, o.r(), &a.g);
            a.mapped(s, o.p());
        });
        bench("mapped alone", pooled * 3 + map + images, [&](cudaStream_t s) { a.mapped(s, o.p()); });
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv, bench_all, check_all);
}
