/* Checks stem_wgmma.cu, a first convolution straight from the images and its gradient; needs a Hopper GPU. Build at the
 * repository's root:
 *
 *   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -DLS_CUDA_WGMMA --expt-relaxed-constexpr -I src
 *        -o kernels_stem tests/gpu/kernels_stem.cu src/base/crop.c
 *        src/backend/cuda/kernels/{bn/*,conv/product*,conv/stem*,run}.cu
 *
 *   kernels_stem         as kernels_bn: ok|FAIL name error; exit 1 after a failure. Behind a failure: the first wrong values
 *   kernels_stem case 3  one of its parts, as it runs them
 *   kernels_stem bench   times at ResNet-50's and VGG16's shapes, beside those of unfolding
 *
 * The reference makes the images on the host, rounds them and convolves in double. */
#include "backend/cuda/kernels/conv/wgmma.cuh"

#include "bn.h"

using namespace ls_wgmma;

/* --- what the tensor cores make of planes ----------------------------------------------------------------------- */

/* Pixels of a plane; the first that is multiplied; planes, as many as a product reads that takes pixels for planes. */
[[maybe_unused]] constexpr int PROBE_ROWS = 96, PROBE_FIRST = 5, PROBE_PLANES = 9;

__host__ __device__ static float probe_a(int m, int k)
{
    return (float)((m * 7 + k * 3) % 11 - 5);
}
__host__ __device__ static float probe_b(int pixel, int channel)
{
    return (float)((pixel * 5 + channel * 13) % 17 - 8);
}

/* How octets lie: in planes; in planes, with the distances of the descriptor the other way round; or a pixel apart, in one. */
enum layout { PLANES, SWAPPED, OVERLAPPED };

/* TURNED: 16 pixels along the sum by 48 channels across it; else 16 channels by 64 pixels. */
template <bool TURNED> static __global__ void probe(float *to, enum layout layout)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int WIDE = TURNED ? 48 : 64;
    __shared__ __align__(1024) __nv_bfloat16 planes[PROBE_PLANES][PROBE_ROWS][8];
    const int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4, k = t % 4 * 2;
    for (int i = t; i < PROBE_PLANES * PROBE_ROWS * 8; i += GROUP)
        planes[i / 8 / PROBE_ROWS][i / 8 % PROBE_ROWS][i % 8] =
            __float2bfloat16_rn(probe_b(i / 8 % PROBE_ROWS, i / 8 / PROBE_ROWS * 8 + i % 8));
    written();
    __syncthreads();
    uint32_t a[4];
    for (int i = 0; i < 4; i++)
        a[i] = narrow_pair<__nv_bfloat16>(probe_a(row + i % 2 * 8, k + i / 2 * 8),
                                          probe_a(row + i % 2 * 8, k + i / 2 * 8 + 1));
    float sum[WIDE / 2];
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(planes) + PROBE_FIRST * 16,
                   plane = layout == OVERLAPPED ? 16 : PROBE_ROWS * 16;
    const uint32_t deep = TURNED ? 128 : plane, across = TURNED ? plane : 128;
    products_begin();
    multiply_held<__nv_bfloat16, WIDE, TURNED>(
        sum, a, planes_at(at, layout == SWAPPED ? across : deep, layout == SWAPPED ? deep : across), 0);
    products_commit();
    products_wait<0>();
    for (int i = 0; i < WIDE / 2; i++)
        to[(row + i / 2 % 2 * 8) * WIDE + i / 4 * 8 + t % 4 * 2 + i % 2] = sum[i];
#endif
}

template <bool TURNED> static void check_probe(void)
{
    constexpr int WIDE = TURNED ? 48 : 64;
    const std::string name = TURNED ? "pixels along the sum" : "pixels across the sum";
    for (enum layout layout : {PLANES, OVERLAPPED, SWAPPED}) {
        values want(64 * WIDE);
        for (int m = 0; m < 64; m++)
            for (int n = 0; n < WIDE; n++)
                for (int k = 0; k < 16; k++) {
                    const int pixel = PROBE_FIRST + (TURNED ? k : n), channel = TURNED ? n : k;
                    want[(size_t)(m * WIDE + n)] +=
                        probe_a(m, k) *
                        (layout == OVERLAPPED ? probe_b(pixel + channel / 8, channel % 8) : probe_b(pixel, channel));
                }
        buffer to(LS_F32, want.size());
        probe<TURNED><<<1, GROUP>>>(to.f(), layout);
        must(cudaDeviceSynchronize(), "probe");
        const double error = worst_of(to.get(), want);
        if (layout == SWAPPED)
            printf("# with distances swapped, %s %.2g\n", name.c_str(), error);
        else
            report((layout == PLANES ? "planes, " : "overlapped, ") + name, error, 0);
    }
}

/* --- cases ------------------------------------------------------------------------------------------------------- */

struct stem_case {
    enum ls_dtype t;
    int side, stride;
    int n, valid, out;
    int height, width;
    enum { PLANES, BYTES, REFLECTED, GREY } form;
    enum ls_act act;
    bool bias;
    int from_height, from_width; /* of stored images */
};

static std::string name_of(const stem_case &m)
{
    static const char *const forms[] = {"planes", "bytes", "reflected", "grey"};
    char text[160];
    snprintf(text, sizeof text, "%s %dx%d stride %d to %d, %dx%dx%d valid %d, %s act %d%s", type_name(m.t), m.side,
             m.side, m.stride, m.out, m.n, m.height, m.width, m.valid, forms[m.form], (int)m.act,
             m.bias ? " bias" : "");
    return text;
}

static int beyond = 3; /* the image, pixels that crops may be */

struct operands {
    const stem_case m;
    struct ls_cuda_stem c = {};
    struct ls_cuda_map unfolded = {};
    struct ls_pixels pixels = {};
    size_t stored; /* images */
    std::vector<struct ls_crop> crops;
    std::vector<uint8_t> bytes;
    buffer images, crops_at, pixels_at, run, w, bias, y, dy, dw, scratch, sums, mean, rstd, stat;
    struct ls_cuda_bn b = {};

    static struct ls_cuda_stem stem_of(const stem_case &m)
    {
        struct ls_cuda_stem c = {};
        const bool seven = m.side == 7;
        const int pad = m.side / 2;
        c.t = m.t;
        c.act = m.act;
        c.rows = m.side;
        c.kernel = seven ? 4 : 1;
        c.shift = seven ? 1 : 0;
        c.c = seven ? 48 : 32;
        c.u = {3,
               m.height,
               m.width,
               m.side,
               seven ? 2 : 3,
               seven ? 24 : 9,
               m.stride,
               m.stride,
               seven ? 4 : pad,
               pad,
               m.form == stem_case::GREY ? 1 : 3};
        c.y = {m.n, (m.height + 2 * pad - m.side) / m.stride + 1, (m.width + 2 * pad - m.side) / m.stride + 1,
               (m.out + 7) / 8 * 8};
        return c;
    }
    static size_t count_of(const stem_case &m)
    {
        const struct ls_cuda_stem c = stem_of(m);
        return (size_t)(c.y.n * c.y.h * c.y.w * c.y.c);
    }
    static size_t weights_of(const stem_case &m)
    {
        const struct ls_cuda_stem c = stem_of(m);
        return (size_t)(c.y.c * c.kernel * c.c);
    }
    static size_t scratch_of(const stem_case &m)
    {
        const struct ls_cuda_stem c = stem_of(m);
        return ls_cuda_stem_scratch(&c);
    }
    static size_t images_of(const stem_case &m)
    {
        return m.form == stem_case::PLANES ? (size_t)m.n * 3 * (size_t)(m.height * m.width) * 4
                                           : (size_t)m.n * 3 * (size_t)(m.from_height * m.from_width);
    }
    explicit operands(const stem_case &of)
        : m(of), c(stem_of(of)), stored((size_t)of.n), images(LS_U8, images_of(of)),
          crops_at(LS_U8, (size_t)of.n * sizeof(struct ls_crop)), pixels_at(LS_U8, sizeof(struct ls_pixels)),
          run(LS_U8, sizeof(struct ls_cuda_run)), w(of.t, weights_of(of)), bias(LS_F32, (size_t)c.y.c),
          y(of.t, count_of(of)), dy(of.t, count_of(of)), dw(LS_F32, weights_of(of)), scratch(LS_U8, scratch_of(of)),
          sums(LS_U8, 8 << 20), mean(LS_F32, (size_t)c.y.c), rstd(LS_F32, (size_t)c.y.c),
          stat(LS_F32, 2 * (size_t)c.y.c)
    {
        unfolded = {m.n, c.y.h + c.kernel - 1, c.y.w, c.c};
        b.t = m.t;
        b.x = b.y = c.y;
        b.eps = 1e-5f;
        b.scratch = sums.f();
        must(cudaMemset(sums.at, 0, LS_CUDA_BN_ZEROS), "memset");
        pixels.from_channels = m.form == stem_case::GREY ? 1 : 3;
        pixels.from_height = m.from_height;
        pixels.from_width = m.from_width;
        pixels.channels = 3;
        pixels.height = m.height;
        pixels.width = m.width;
        pixels.reflect = m.form == stem_case::REFLECTED;
        for (int k = 0; k < 4; k++)
            for (int v = 0; v < 256; v++)
                pixels.table[k][v] = ((float)v / 255.0f - 0.45f - 0.02f * (float)k) / (0.23f + 0.01f * (float)k);
        must(cudaMemcpy(pixels_at.at, &pixels, sizeof pixels, cudaMemcpyHostToDevice), "copy");
        bytes.resize(images.count);
        for (uint8_t &v : bytes)
            v = (uint8_t)((int)(128 + 127 * uniform()));
        crops.resize((size_t)m.n);
        const int down = m.from_height - m.height, along = m.from_width - m.width;
        for (int i = 0; i < m.n; i++) { /* the last sample is none */
            struct ls_crop *const crop = &crops[(size_t)i];
            crop->image = i > 0 && i == m.n - 1 ? -1 : m.n - 1 - i;
            crop->top = (int)std::lround((uniform() + 1) / 2 * (down + 2 * beyond)) - beyond;
            crop->left = (int)std::lround((uniform() + 1) / 2 * (along + 2 * beyond)) - beyond;
            crop->flip = i & 1;
        }
        must(cudaMemcpy(crops_at.at, crops.data(), crops_at.count, cudaMemcpyHostToDevice), "copy");
        if (m.form == stem_case::PLANES)
            for (size_t i = 0; i < images.count / 4; i++)
                ((float *)bytes.data())[i] = (float)(uniform() + uniform());
        must(cudaMemcpy(images.at, bytes.data(), images.count, cudaMemcpyHostToDevice), "copy");
        struct ls_cuda_run host = {};
        host.valid = m.valid;
        host.stat_weight = 1;
        host.images = images.at;
        host.crops = (const struct ls_crop *)crops_at.at;
        must(cudaMemcpy(run.at, &host, sizeof host, cudaMemcpyHostToDevice), "copy");
        must(cudaMemset(w.at, 0, w.count * 2), "memset");
        bias.put(random_values(LS_F32, bias.count, 0.2, 0.5));
    }
    const struct ls_cuda_run *r() const
    {
        return (const struct ls_cuda_run *)run.at;
    }
    const struct ls_pixels *p() const
    {
        return m.form == stem_case::PLANES ? NULL : (const struct ls_pixels *)pixels_at.at;
    }
    void forward(cudaStream_t s, bool with) const
    {
        ls_cuda_stem(s, &c, r(), p(), w.at, m.bias ? bias.f() : NULL, y.at, with ? &b : NULL, mean.f(), rstd.f(),
                     stat.f());
    }
    void backward(cudaStream_t s) const
    {
        ls_cuda_stem_bwd_weights(s, &c, r(), p(), dy.at, dw.f(), (float *)scratch.at);
    }
    void unfold(cudaStream_t s, void *to) const
    {
        ls_cuda_unfold(s, m.t, r(), p(), &c.u, &unfolded, to);
    }
    size_t place(size_t o, int i, int row, int column) const
    {
        const int at = row + c.shift;
        return (o * (size_t)c.kernel + (size_t)(at / c.u.block)) * (size_t)c.c +
               (size_t)(at % c.u.block * c.u.row + column * 3 + i);
    }
};

/* Behind a failure, the first places that are far off. */
static void show(const operands &o, const values &got, const values &want, double allowed, bool map)
{
    double largest = 0;
    for (double v : want)
        largest = std::max(largest, std::fabs(v));
    int shown = 0, wrong = 0;
    for (size_t i = 0; i < want.size(); i++) {
        if (std::fabs(got[i] - want[i]) <= allowed * (std::fabs(want[i]) + 0.05 * largest))
            continue;
        wrong++;
        if (shown++ >= 12)
            continue;
        const size_t c = (size_t)(map ? o.c.y.c : o.c.c), row = (size_t)(map ? o.c.y.w : o.c.kernel);
        printf("#   %s %zu, %s %zu, channel %zu: got %g, expected %g\n", map ? "image row" : "output", i / c / row,
               map ? "column" : "tap", i / c % row, i % c, got[i], want[i]);
    }
    if (wrong)
        printf("#   %d of %zu wrong\n", wrong, want.size());
}

static void compare(const operands &o, const std::string &name, const values &got, const values &want, double allowed,
                    bool map)
{
    const double error = worst_of(got, want);
    double off = 0, all = 0;
    for (size_t i = 0; i < want.size(); i++) {
        off += (got[i] - want[i]) * (got[i] - want[i]);
        all += want[i] * want[i];
    }
    report(name, error, allowed);
    printf("#   of the whole %.2g\n", std::sqrt(off / all));
    if (!(error <= allowed))
        show(o, got, want, allowed, map);
}

static void check(const stem_case &m)
{
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
constexpr int CASES = sizeof all_cases / sizeof *all_cases, PROBES = 2;

static void check_one(int i)
{
    if (!has_wgmma())
        return;
    if (i < CASES)
        check(all_cases[i]);
    else if (i == CASES)
        check_probe<false>();
    else
        check_probe<true>();
}

static const char *program;

/* Each in a process of its own, as a fault of the GPU ends all work of a process. */
static void check_all(void)
{
    for (int i = 0; i < CASES + PROBES; i++) {
        fflush(stdout);
        if (std::system((std::string(program) + " case " + std::to_string(i)).c_str()) != 0)
            report("case " + std::to_string(i), 1, 0);
    }
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
        bench("forward", images + map, [&](cudaStream_t s) { o.forward(s, false); });
        bench("forward, with statistics", images + map, [&](cudaStream_t s) { o.forward(s, true); });
        bench("statistics alone", map,
              [&](cudaStream_t s) { ls_cuda_bn_stats(s, &o.b, o.r(), o.y.at, o.mean.f(), o.rstd.f(), o.stat.f()); });
        bench("gradient", images + map, [&](cudaStream_t s) { o.backward(s); });
        if (m.form == stem_case::PLANES)
            continue;
        for (struct ls_crop &crop : o.crops)
            crop.left -= 4;
        must(cudaMemcpy(o.crops_at.at, o.crops.data(), o.crops_at.count, cudaMemcpyHostToDevice), "copy");
        bench("forward, with statistics, beyond", images + map, [&](cudaStream_t s) { o.forward(s, true); });
        bench("gradient, beyond", images + map, [&](cudaStream_t s) { o.backward(s); });
        std::vector<struct ls_crop> none(o.crops.size(), {-1, 0, 0, 0}); /* nothing is read */
        must(cudaMemcpy(o.crops_at.at, none.data(), o.crops_at.count, cudaMemcpyHostToDevice), "copy");
        bench("forward, with statistics, black", map, [&](cudaStream_t s) { o.forward(s, true); });
        bench("gradient, black", map, [&](cudaStream_t s) { o.backward(s); });
    }
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc > 2 && !strcmp(argv[1], "case")) {
        check_one(atoi(argv[2]));
        return failures ? 1 : 0;
    }
    return test_main(argc, argv, bench_all, check_all);
}
