/* Checks stem_wgmma.cu, a first convolution straight from the images, and its gradient by stem_gather.cu; needs a Hopper GPU.
 * Build at the repository's root:
 *
 *   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -DLS_CUDA_WGMMA --expt-relaxed-constexpr -I src
 *        -o kernels_stem tests/gpu/kernels_stem.cu src/base/crop.c
 *        src/backend/cuda/kernels/{bn/*,conv/product*,conv/stem*,run}.cu
 *
 *   kernels_stem         as kernels_bn: ok|FAIL name error; exit 1 after a failure. Behind a failure: the first wrong values
 *   kernels_stem bench   times at ResNet-50's and VGG16's shapes, beside those of unfolding
 *
 * The reference makes the images on the host, rounds them and convolves in double. */
#include "stem.h"

static void check(const stem_case &m)
{
    seed = 1; /* a case has the same values by itself */
    operands o(m);
    const std::string name = name_of(m);
    if (!ls_cuda_stem_can(&o.c, NULL, false)) {
        report("can " + name, 1, 0);
        return;
    }
    const int h = m.height, width = m.width, pad = m.side / 2;
    const size_t C = (size_t)o.c.y.c, wide = (size_t)o.c.y.w, high = (size_t)o.c.y.h, K = (size_t)(m.side * m.side * 3);
    std::vector<float> planes((size_t)m.n * 3 * (size_t)(h * width));
    if (m.form == stem_case::PLANES)
        memcpy(planes.data(), o.bytes.data(), planes.size() * 4);
    else
        ls_crop_planes(&o.pixels, o.bytes.data(), o.crops.data(), m.n, planes.data());
    values w((size_t)m.out * K), stored(o.w.count), bias = o.bias.get(), want(o.y.count), dw(o.dw.count),
                                                    dy = random_values(m.t, o.dy.count, 0.05, 0.5);
    for (size_t i = 0; i < w.size(); i++) {
        const int at = (int)(i % K);
        w[i] = rounded(m.t, 0.1 * (uniform() + uniform()));
        stored[o.place(i / K, at % 3, at / 3 / m.side, at / 3 % m.side)] = w[i];
    }
    for (size_t i = 0; i < dy.size(); i++)
        if (i % C >= (size_t)m.out || i / (high * wide * C) >= (size_t)m.valid)
            dy[i] = 0;
    o.w.put(stored);
    o.dy.put(dy);
    values patch(K), gradient((size_t)m.out * K);
    for (size_t p = 0; p < (size_t)m.n * high * wide; p++) {
        const int n = (int)(p / wide / high), y = (int)(p / wide % high), x = (int)(p % wide);
        for (size_t i = 0; i < K; i++) {
            const int row = y * m.stride - pad + (int)i / 3 / m.side, column = x * m.stride - pad + (int)i / 3 % m.side;
            const bool in = row >= 0 && row < h && column >= 0 && column < width;
            patch[i] =
                in ? rounded(m.t, planes[((size_t)(n * 3 + (int)i % 3) * (size_t)h + (size_t)row) * (size_t)width +
                                         (size_t)column])
                   : 0;
        }
        for (size_t out = 0; out < (size_t)m.out; out++) {
            const double d = dy[p * C + out];
            double v = m.bias ? bias[out] : 0;
            for (size_t i = 0; i < K; i++) {
                v += patch[i] * w[out * K + i];
                gradient[out * K + i] += patch[i] * d;
            }
            want[p * C + out] = act_of(m.act, v);
        }
        for (size_t out = (size_t)m.out; out < C; out++)
            want[p * C + out] = m.bias ? act_of(m.act, bias[out]) : 0;
    }
    for (size_t i = 0; i < gradient.size(); i++) {
        const int at = (int)(i % K);
        dw[o.place(i / K, at % 3, at / 3 / m.side, at / 3 % m.side)] = gradient[i];
    }

    o.forward(0, true);
    must(cudaDeviceSynchronize(), "forward");
    const values y = o.y.get();
    compare(o, "y " + name, y, want, tolerance(m.t), true);
    const double count = (double)m.valid * (double)(high * wide);
    values mean(C), rstd(C), stat(2 * C);
    for (size_t c = 0; c < C; c++) {
        double sum = 0, squares = 0;
        for (size_t i = c; i < (size_t)count * C; i += C)
            sum += y[i];
        mean[c] = sum / count;
        for (size_t i = c; i < (size_t)count * C; i += C)
            squares += (y[i] - mean[c]) * (y[i] - mean[c]);
        rstd[c] = 1 / std::sqrt(squares / count + 1e-5);
        stat[c] = mean[c];
        stat[C + c] = squares / (count - 1);
    }
    report("mean " + name, worst_of(o.mean.get(), mean), 2e-4);
    report("rstd " + name, worst_of(o.rstd.get(), rstd), 1e-4);
    report("stat " + name, worst_of(o.stat.get(), stat), 2e-4);
    const std::vector<uint8_t> bits = bytes_of(o.y), of_stat = bytes_of(o.stat);
    o.y.put(values(o.y.count));
    o.forward(0, true);
    must(cudaDeviceSynchronize(), "forward again");
    report("again " + name, bits == bytes_of(o.y) && of_stat == bytes_of(o.stat) ? 0 : 1, 0);
    o.y.put(values(o.y.count));
    o.forward(0, false);
    must(cudaDeviceSynchronize(), "forward without statistics");
    report("without statistics " + name, bits == bytes_of(o.y) ? 0 : 1, 0);

    must(cudaMemset(o.dw.at, 0xff, o.dw.count * 4), "memset");
    o.backward(0);
    must(cudaDeviceSynchronize(), "gradient");
    compare(o, "dw " + name, o.dw.get(), dw, 1e-3, false);
    const std::vector<uint8_t> once = bytes_of(o.dw);
    o.backward(0);
    must(cudaDeviceSynchronize(), "gradient again");
    report("again dw " + name, once == bytes_of(o.dw) ? 0 : 1, 0);
}

static const stem_case all_cases[] = {
    {LS_BF16, 7, 2, 3, 3, 64, 32, 32, stem_case::PLANES, LS_ACT_NONE, false, 0, 0},
    {LS_BF16, 7, 2, 3, 3, 64, 33, 47, stem_case::PLANES, LS_ACT_NONE, false, 0, 0},
    {LS_BF16, 7, 2, 5, 4, 64, 33, 47, stem_case::BYTES, LS_ACT_NONE, false, 40, 60},
    {LS_F16, 7, 2, 5, 5, 64, 33, 47, stem_case::REFLECTED, LS_ACT_NONE, false, 33, 47},
    {LS_BF16, 7, 2, 4, 4, 64, 65, 250, stem_case::GREY, LS_ACT_NONE, false, 70, 256},
    {LS_BF16, 7, 2, 3, 3, 128, 41, 224, stem_case::BYTES, LS_ACT_RELU, true, 48, 230},
    {LS_BF16, 7, 2, 3, 3, 24, 37, 300, stem_case::BYTES, LS_ACT_NONE, true, 37, 300},
    {LS_BF16, 7, 2, 70, 69, 64, 64, 64, stem_case::BYTES, LS_ACT_NONE, false, 72, 72},
    {LS_BF16, 3, 1, 3, 3, 64, 29, 31, stem_case::PLANES, LS_ACT_RELU, true, 0, 0},
    {LS_F16, 3, 1, 4, 3, 64, 33, 224, stem_case::BYTES, LS_ACT_NONE, false, 40, 230},
    {LS_BF16, 3, 2, 5, 5, 32, 47, 129, stem_case::REFLECTED, LS_ACT_NONE, false, 50, 133},
    {LS_BF16, 7, 2, 3, 3, 64, 224, 224, stem_case::BYTES, LS_ACT_NONE, false, 256, 256},
    {LS_BF16, 7, 2, 3, 3, 64, 224, 224, stem_case::PLANES, LS_ACT_NONE, false, 0, 0},
    {LS_BF16, 3, 2, 3, 3, 64, 96, 112, stem_case::PLANES, LS_ACT_NONE, false, 0, 0},
};

static void check_all(void)
{
    for (const stem_case &m : all_cases)
        if (ls_wgmma::has_wgmma())
            check(m);
}

static void bench_all(void)
{
    static const stem_case cases[] = {
        {LS_BF16, 7, 2, 256, 256, 64, 224, 224, stem_case::BYTES, LS_ACT_NONE, false, 256, 256},
        {LS_BF16, 7, 2, 256, 256, 64, 224, 224, stem_case::PLANES, LS_ACT_NONE, false, 224, 224},
        {LS_BF16, 7, 2, 32, 32, 64, 224, 224, stem_case::BYTES, LS_ACT_NONE, false, 224, 224},
        {LS_BF16, 7, 2, 256, 256, 64, 64, 64, stem_case::BYTES, LS_ACT_NONE, false, 64, 64},
        {LS_BF16, 3, 1, 64, 64, 64, 224, 224, stem_case::BYTES, LS_ACT_RELU, true, 224, 224},
        {LS_BF16, 3, 2, 256, 256, 32, 224, 224, stem_case::BYTES, LS_ACT_NONE, false, 224, 224},
    };
    beyond = 0;
    for (const stem_case &m : cases) {
        operands o(m);
        const double map = 2.0 * (double)o.y.count, images = (double)o.images.count;
        buffer unfolded(m.t, (size_t)(o.unfolded.n * o.unfolded.h * o.unfolded.w * o.unfolded.c));
        ls_cuda_fill(0, m.t, o.w.at, (int64_t)o.w.count);
        ls_cuda_fill(0, m.t, o.dy.at, (int64_t)o.dy.count);
        printf("%s\n", name_of(m).c_str());
        bench("unfold, as today", images + 2.0 * (double)unfolded.count,
              [&](cudaStream_t s) { o.unfold(s, unfolded.at); });
        bench("forward, with statistics", images + map, [&](cudaStream_t s) { o.forward(s, true); });
        bench("gradient", images + map, [&](cudaStream_t s) { o.backward(s); });
        if (m.form == stem_case::PLANES)
            continue;
        for (struct ls_crop &crop : o.crops)
            crop.left -= 4;
        must(cudaMemcpy(o.crops_at.at, o.crops.data(), o.crops_at.count, cudaMemcpyHostToDevice), "copy");
        bench("forward, with statistics, beyond", images + map, [&](cudaStream_t s) { o.forward(s, true); });
        bench("gradient, beyond", images + map, [&](cudaStream_t s) { o.backward(s); });
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv, bench_all, check_all);
}
