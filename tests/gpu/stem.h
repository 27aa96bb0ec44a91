/* What the tests of first convolutions straight from the images share. */
#ifndef LS_TESTS_GPU_STEM_H
#define LS_TESTS_GPU_STEM_H

#include "backend/cuda/kernels/conv/stem_wgmma.cuh"

#include "bn.h"

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

static inline std::string name_of(const stem_case &m)
{
    static const char *const forms[] = {"planes", "bytes", "reflected", "grey"};
    char text[160];
    snprintf(text, sizeof text, "%s %dx%d stride %d to %d, %dx%dx%d valid %d, %s act %d%s", type_name(m.t), m.side,
             m.side, m.stride, m.out, m.n, m.height, m.width, m.valid, forms[m.form], (int)m.act,
             m.bias ? " bias" : "");
    return text;
}

static inline int beyond = 3; /* the image, pixels that crops may be */

struct operands {
    const stem_case m;
    struct ls_cuda_stem c = {};
    struct ls_cuda_map unfolded = {};
    struct ls_pixels pixels = {};
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
        : m(of), c(stem_of(of)), images(LS_U8, images_of(of)), crops_at(LS_U8, (size_t)of.n * sizeof(struct ls_crop)),
          pixels_at(LS_U8, sizeof(struct ls_pixels)), run(LS_U8, sizeof(struct ls_cuda_run)), w(of.t, weights_of(of)),
          bias(LS_F32, (size_t)c.y.c), y(of.t, count_of(of)), dy(of.t, count_of(of)), dw(LS_F32, weights_of(of)),
          scratch(LS_U8, scratch_of(of)), sums(LS_U8, 8 << 20), mean(LS_F32, (size_t)c.y.c),
          rstd(LS_F32, (size_t)c.y.c), stat(LS_F32, 2 * (size_t)c.y.c)
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
        read(images.at);
        must(cudaMemset(w.at, 0, w.count * 2), "memset");
        bias.put(random_values(LS_F32, bias.count, 0.2, 0.5));
    }
    /* From now on, kernels read these images. */
    void read(const void *from) const
    {
        struct ls_cuda_run host = {};
        host.valid = m.valid;
        host.stat_weight = 1;
        host.images = from;
        host.crops = (const struct ls_crop *)crops_at.at;
        must(cudaMemcpy(run.at, &host, sizeof host, cudaMemcpyHostToDevice), "copy");
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
static inline void compare(const operands &o, const std::string &name, const values &got, const values &want,
                           double allowed, bool map)
{
    const double error = worst_of(got, want);
    report(name, error, allowed);
    if (error <= allowed)
        return;
    double largest = 0;
    for (double v : want)
        largest = std::max(largest, std::fabs(v));
    const size_t c = (size_t)(map ? o.c.y.c : o.c.c), row = (size_t)(map ? o.c.y.w : o.c.kernel);
    for (size_t i = 0, shown = 0; i < want.size() && shown < 12; i++)
        if (!(std::fabs(got[i] - want[i]) <= allowed * (std::fabs(want[i]) + 0.05 * largest))) {
            printf("#   %s %zu, %s %zu, channel %zu: got %g, expected %g\n", map ? "image row" : "output", i / c / row,
                   map ? "column" : "tap", i / c % row, i % c, got[i], want[i]);
            shown++;
        }
}

#endif
