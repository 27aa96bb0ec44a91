/* Checks and times taps_weights.cu, the gradient of the weights of 3x3 convolutions; needs a Hopper GPU. Build at the repository's
 * root:
 *
 *   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -DLS_CUDA_WGMMA --expt-relaxed-constexpr -I src
 *        -o kernels_taps_weights tests/gpu/kernels_taps_weights.cu
 *        src/backend/cuda/kernels/{bn/*,conv/product_wgmma,conv/product_dz,conv/fold_apply,conv/taps_weights,conv/direct,run}.cu
 *
 *   kernels_taps_weights         as kernels_bn: ok|FAIL name error; exit 1 after a failure
 *   kernels_taps_weights bench   times at ResNet's and VGG's shapes, bf16
 *
 * The operands are small integers, so that every sum is exact: some values are compared with loops, and all with the plain kernel
 * of direct.cu. */
#include "backend/cuda/kernels/conv/wgmma.cuh"

#include "bn.h"

static struct ls_cuda_conv conv_of(enum ls_dtype t, int64_t n, int64_t h, int64_t w, int64_t c, int64_t k)
{
    struct ls_cuda_conv conv = {};
    conv.t = t;
    conv.x = {n, h, w, c};
    conv.y = {n, h, w, k};
    conv.channels = c;
    conv.out = k;
    conv.groups = 1;
    conv.kernel_h = conv.kernel_w = 3;
    conv.stride_h = conv.stride_w = conv.pad_t = conv.pad_l = conv.dilation_h = conv.dilation_w = 1;
    return conv;
}

static std::string name_of(const struct ls_cuda_conv &c)
{
    char text[120];
    snprintf(text, sizeof text, "%s %ldx%ldx%ldx%ld to %ld", type_name(c.t), (long)c.x.n, (long)c.x.h, (long)c.x.w,
             (long)c.x.c, (long)c.y.c);
    return text;
}

/* Whole numbers from -2 to 2. */
static values integers(size_t n)
{
    values v(n);
    for (double &x : v)
        x = std::floor(uniform() * 2.5 + 0.5);
    return v;
}

struct operands {
    struct ls_cuda_conv c;
    size_t N, H, W, C, K;
    values vx, vdy;
    buffer x, dy, dw, scratch;

    explicit operands(const struct ls_cuda_conv &conv)
        : c(conv), N((size_t)c.x.n), H((size_t)c.x.h), W((size_t)c.x.w), C((size_t)c.x.c), K((size_t)c.y.c),
          vx(integers(N * H * W * C)), vdy(integers(N * H * W * K)), x(c.t, vx.size()), dy(c.t, vdy.size()),
          dw(LS_F32, K * 9 * C), scratch(LS_U8, ls_cuda_taps_weights_scratch(&conv))
    {
        x.put(vx);
        dy.put(vdy);
    }
    double value(size_t k, size_t tap, size_t channel) const
    {
        double sum = 0;
        const size_t r = tap / 3, s = tap % 3;
        for (size_t n = 0; n < N; n++)
            for (size_t row = r == 0; row < H && row + r <= H; row++)
                for (size_t column = s == 0; column < W && column + s <= W; column++)
                    sum += vdy[((n * H + row) * W + column) * K + k] *
                           vx[((n * H + row + r - 1) * W + column + s - 1) * C + channel];
        return sum;
    }
    void describe(size_t at, double got, double want) const
    {
        printf("# output %zu tap %zu channel %zu: %g, not %g\n", at / (9 * C), at / C % 9, at % C, got, want);
    }
    /* How many of some values differ from loops: all taps, channels all over the place. */
    size_t errors(const values &got) const
    {
        size_t wrong = 0;
        for (size_t i = 0; i < 54; i++) {
            const size_t at = (i * 29 % K * 9 + i % 9) * C + i * 37 % C;
            const double want = value(at / (9 * C), at / C % 9, at % C);
            if (!(got[at] == want) && wrong++ < 3)
                describe(at, got[at], want);
        }
        return wrong;
    }
    /* How many differ; says how many of each tap. */
    size_t differences(const values &got, const values &want) const
    {
        size_t wrong = 0, by_tap[9] = {};
        for (size_t at = 0; at < got.size(); at++)
            if (!(got[at] == want[at])) {
                if (wrong++ < 3)
                    describe(at, got[at], want[at]);
                by_tap[at / C % 9]++;
            }
        if (wrong > 0) {
            printf("# %zu of %zu are wrong, by tap:", wrong, got.size());
            for (size_t tap = 0; tap < 9; tap++)
                printf(" %zu", by_tap[tap]);
            printf("\n");
        }
        return wrong;
    }
    values run()
    {
        must(cudaMemset(dw.at, 0xff, dw.count * 4), "memset");
        must(cudaMemset(scratch.at, 0xff, scratch.count), "memset");
        ls_cuda_taps_weights(0, &c, dy.at, x.at, dw.f(), scratch.f());
        must(cudaGetLastError(), "launch");
        must(cudaDeviceSynchronize(), "gradient of the weights");
        return dw.get();
    }
    values plain()
    {
        ls_cuda_direct_bwd_weights(0, &c, dy.at, x.at, dw.f());
        must(cudaDeviceSynchronize(), "plain gradient");
        return dw.get();
    }
};

static void check(const struct ls_cuda_conv &c)
{
    if (!ls_cuda_taps_weights_can(&c)) {
        report("can " + name_of(c), 1, 0);
        return;
    }
    operands o(c);
    const values want = o.plain();
    report("plain " + name_of(c), (double)o.errors(want), 0);
    report(name_of(c), (double)o.differences(o.run(), want), 0);
}

/* Tiles of whole maps, of whole rows and of pieces of them; that reach beyond the map; one for a block and many; three slots and
 * four. */
static void check_all(void)
{
    const int64_t shapes[][5] = {{2, 56, 56, 64, 64},     {60, 56, 56, 64, 64},   {5, 28, 28, 128, 128},
                                 {70, 28, 28, 128, 128},  {9, 14, 14, 256, 256},  {100, 14, 14, 256, 256},
                                 {256, 14, 14, 256, 256}, {20, 16, 16, 256, 256}, {33, 52, 52, 64, 64},
                                 {1, 57, 57, 64, 64},     {10, 57, 57, 64, 64},   {1, 112, 112, 64, 64},
                                 {6, 128, 128, 64, 64},   {1, 224, 224, 64, 64},  {2, 40, 288, 64, 64},
                                 {3, 17, 23, 64, 192},    {12, 30, 20, 64, 192},  {30, 30, 30, 128, 64},
                                 {1, 9, 250, 64, 64},     {2, 13, 125, 192, 64},  {300, 15, 15, 64, 64}};
    for (enum ls_dtype t : {LS_BF16, LS_F16})
        for (const int64_t *s : shapes)
            if (ls_wgmma::has_wgmma())
                check(conv_of(t, s[0], s[1], s[2], s[3], s[4]));
}

/* --- times ------------------------------------------------------------------------------------------------------- */

static void bench_all(void)
{
    const int64_t shapes[][4] = {{256, 56, 64, 64},   {256, 28, 128, 128}, {256, 14, 256, 256}, {32, 56, 64, 64},
                                 {32, 28, 128, 128},  {32, 14, 256, 256},  {64, 224, 64, 64},   {64, 112, 64, 128},
                                 {64, 112, 128, 128}, {64, 56, 128, 256},  {64, 56, 256, 256},  {64, 28, 256, 512},
                                 {64, 28, 512, 512},  {64, 14, 512, 512},  {256, 16, 128, 128}};
    for (const int64_t *s : shapes) {
        const struct ls_cuda_conv c = conv_of(LS_BF16, s[0], s[1], s[1], s[2], s[3]);
        const int64_t rows = s[0] * s[1] * s[1];
        buffer x(LS_BF16, (size_t)(rows * s[2])), dy(LS_BF16, (size_t)(rows * s[3])),
            dw(LS_F32, (size_t)(9 * s[2] * s[3])), scratch(LS_U8, ls_cuda_taps_weights_scratch(&c));
        ls_cuda_fill(0, LS_BF16, x.at, rows * s[2]);
        ls_cuda_fill(0, LS_BF16, dy.at, rows * s[3]);
        const double us =
            time_of([&](cudaStream_t stream) { ls_cuda_taps_weights(stream, &c, dy.at, x.at, dw.f(), scratch.f()); });
        printf("%-32s %8.1f us %6.0f TFLOP/s\n", name_of(c).c_str(), us,
               18.0 * (double)rows * (double)(s[2] * s[3]) / us / 1e6);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv, bench_all, check_all);
}
