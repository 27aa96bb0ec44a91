/* Images from bytes: exactly what the host's ls_crop_planes makes, rounded and laid out. */
#include "misc.h"

#include "base/decoder.h"

#include <cstdio>

struct image_case {
    int from_channels, from_height, from_width, channels, height, width;
    int samples, stored, pad; /* places of cuts lie up to pad outside */
};

static uint32_t next(uint32_t &state)
{
    return state = state * 1664525u + 1013904223u, state >> 8;
}

static struct ls_pixels pixels_of(const image_case &c)
{
    struct ls_pixels p = {c.from_channels, c.from_height, c.from_width, c.channels, c.height, c.width, 0, {{0}}};
    for (int k = 0; k < 4; k++)
        for (int v = 0; v < 256; v++)
            p.table[k][v] = ((float)v / 255.0f - 0.45f - 0.02f * (float)k) / (0.23f + 0.01f * (float)k);
    return p;
}

/* The last sample is none; the others are cut anywhere and every other one is mirrored. */
static std::vector<struct ls_crop> crops_of(const image_case &c, uint32_t &state)
{
    std::vector<struct ls_crop> crops(c.samples);
    for (int i = 0; i < c.samples; i++) {
        int tops = c.from_height + 2 * c.pad - c.height + 1, lefts = c.from_width + 2 * c.pad - c.width + 1;
        crops[i].image = i == c.samples - 1 && i > 0 ? -1 : (int64_t)(next(state) % (uint32_t)c.stored);
        crops[i].top = (int32_t)(next(state) % (uint32_t)tops) - c.pad;
        crops[i].left = (int32_t)(next(state) % (uint32_t)lefts) - c.pad;
        crops[i].flip = i & 1;
    }
    return crops;
}

static values laid_out(const image_case &c, const struct ls_cuda_map &y, const values &planes)
{
    values out((size_t)(y.n * y.h * y.w * y.c), 0.0f);
    for (int64_t n = 0; n < y.n; n++)
        for (int k = 0; k < c.channels; k++)
            for (int64_t row = 0; row < c.height; row++)
                for (int64_t column = 0; column < c.width; column++) {
                    int64_t at = ((n * y.h + row) * y.w + column) * y.c + k;
                    out[(size_t)at] = planes[(size_t)(((n * c.channels + k) * c.height + row) * c.width + column)];
                }
    return out;
}

static void one(const image_case &c, enum ls_dtype t)
{
    uint32_t state = 7;
    struct ls_pixels p = pixels_of(c);
    std::vector<struct ls_crop> crops = crops_of(c, state);
    std::vector<uint8_t> bytes((size_t)(c.stored * ls_pixels_bytes(&p)));
    for (uint8_t &b : bytes)
        b = (uint8_t)next(state);
    values planes((size_t)c.samples * (size_t)(c.channels * c.height * c.width));
    ls_crop_planes(&p, bytes.data(), crops.data(), c.samples, planes.data());

    struct ls_cuda_map y = {c.samples, c.height, c.width, pad8(c.channels)};
    values want = laid_out(c, y, planes);
    device rounded(t, want), to(want.size() * 4), d_bytes(bytes.size()), d_crops(crops.size() * sizeof crops[0]);
    cudaMemcpy(d_bytes.at, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    cudaMemcpy(d_crops.at, crops.data(), crops.size() * sizeof crops[0], cudaMemcpyHostToDevice);
    object<struct ls_pixels> d_pixels(p);
    struct ls_cuda_run run = {};
    run.images = d_bytes.at;
    run.crops = d_crops.as<struct ls_crop>();
    object<struct ls_cuda_run> d_run(run);
    ls_cuda_image_crops(0, t, d_run.ptr(), d_pixels.ptr(), &y, c.channels, to.at);
    char name[128];
    snprintf(name, sizeof name, "image_crops %s %dx%dx%d to %dx%dx%d", misc_type(t), c.from_channels, c.from_height,
             c.from_width, c.channels, c.height, c.width);
    verdict(name, to.read(t, want.size()), want, 0);
}

/* Parts of shrunk images, as base/decoder.h has them, rows with a gap behind them. */
static void shrunk(const struct ls_decoder_job &job)
{
    uint32_t state = 5;
    int64_t pitch = job.width * job.channels + 3;
    std::vector<uint8_t> bytes((size_t)(pitch * job.height)), got((size_t)(job.rows * job.columns * job.channels));
    for (uint8_t &b : bytes)
        b = (uint8_t)next(state);
    values want;
    for (int y = job.top; y < job.top + job.rows; y++)
        for (int x = job.left; x < job.left + job.columns; x++)
            for (int c = 0; c < job.channels; c++) {
                int sum = 0, n = 0;
                for (int v = y * job.shrink; v < (y + 1) * job.shrink && v < job.height; v++)
                    for (int u = x * job.shrink; u < (x + 1) * job.shrink && u < job.width; u++, n++)
                        sum += bytes[(size_t)(v * pitch + u * job.channels + c)];
                want.push_back((float)((sum + n / 2) / n));
            }
    device from(bytes.size()), to(got.size());
    cudaMemcpy(from.at, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    ls_cuda_shrink(0, &job, from.at, pitch, to.at);
    cudaMemcpy(got.data(), to.at, got.size(), cudaMemcpyDeviceToHost);
    char name[128];
    snprintf(name, sizeof name, "shrink %dx%dx%d by %d, %dx%d of it", job.channels, job.height, job.width, job.shrink,
             job.rows, job.columns);
    verdict(name, values(got.begin(), got.end()), want, 0);
}

void misc_image(void)
{
    static const struct ls_decoder_job parts[] = {
        {NULL, 0, 3, 375, 500, 1, 11, 17, 300, 290}, {NULL, 0, 3, 375, 500, 2, 0, 0, 188, 250},
        {NULL, 0, 1, 61, 59, 4, 3, 2, 13, 13},       {NULL, 0, 3, 61, 59, 8, 0, 0, 8, 8},
        {NULL, 0, 1, 1, 1, 8, 0, 0, 1, 1},
    };
    for (const struct ls_decoder_job &job : parts)
        shrunk(job);
    static const image_case cases[] = {
        {3, 32, 32, 3, 32, 32, 37, 50, 4},   {1, 28, 28, 1, 28, 28, 9, 20, 0},   {3, 20, 31, 1, 17, 23, 5, 7, 3},
        {1, 28, 28, 3, 28, 28, 6, 4, 2},     {3, 64, 64, 3, 57, 63, 11, 12, 8},  {3, 224, 224, 3, 224, 224, 4, 4, 0},
        {3, 227, 227, 3, 227, 227, 3, 3, 0}, {1, 29, 30, 1, 29, 30, 3, 3, 5},    {3, 33, 35, 3, 32, 32, 4, 9, 1},
        {1, 1, 1, 1, 1, 1, 1, 1, 0},         {3, 40, 300, 3, 40, 290, 3, 3, 20},
    };
    for (const image_case &c : cases)
        for (enum ls_dtype t : misc_types)
            one(c, t);
}
