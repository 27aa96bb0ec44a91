/* Scaling with a separable triangle filter in fixed point, rows first, with 8 bits between the passes. The arithmetic is that
 * of BILINEAR in Pillow, so that models trained elsewhere get the same pixels. (Pillow filters the columns of some tall
 * images first; those differ by at most one level.) */
#include "data/dataset.h"
#include "data/image/resize_avx2.h"

#include <math.h>
#include <string.h>
#ifdef __x86_64__
#include <smmintrin.h>
#endif

#define PRECISION LS_WEIGHT_BITS
/* Bytes behind the rows that vectors may touch. */
#define SLACK 64

static int taps_for(int in, int out)
{
    double scale = (double)in / out;
    return 2 * (int)ceil(scale > 1 ? scale : 1) + 1;
}

static size_t weights_bytes(int taps, int count)
{
    return ((size_t)taps + 2) * (size_t)count * sizeof(int);
}

static void weights_place(struct ls_weights *w, int taps, int count, uint8_t *place)
{
    w->taps = taps;
    w->start = (int *)(void *)place;
    w->length = w->start + count;
    w->weight = w->length + count;
}

/* Computes the weights of outputs first .. first+count-1 of `out`, from `in` inputs. */
static void weights_fill(struct ls_weights *w, int in, int out, int first, int count)
{
    double scale = (double)in / out, reach = scale > 1 ? scale : 1;
    for (int i = 0; i < count; i++) {
        double centre = (first + i + 0.5) * scale, sum = 0;
        int from = (int)(centre - reach + 0.5), to = (int)(centre + reach + 0.5);
        int *weight = w->weight + (size_t)i * (size_t)w->taps;
        from = from < 0 ? 0 : from;
        to = to > in ? in : to;
        for (int k = from; k < to; k++) {
            double distance = fabs((k + 0.5 - centre) / reach);
            sum += distance < 1 ? 1 - distance : 0;
        }
        for (int k = from; k < to; k++) {
            double distance = fabs((k + 0.5 - centre) / reach), share = distance < 1 ? (1 - distance) / sum : 0;
            weight[k - from] = (int)(share * (1 << PRECISION) + 0.5);
        }
        w->start[i] = from;
        w->length[i] = to - from;
    }
}

static inline uint8_t narrow(int sum)
{
    int v = sum >> PRECISION;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void scale_row3(const uint8_t *row, const struct ls_weights *w, int count, uint8_t *out)
{
    for (int x = 0; x < count; x++, out += 3) {
        const uint8_t *from = row + 3 * (size_t)w->start[x];
        const int *weight = w->weight + (size_t)x * (size_t)w->taps;
        int red = 1 << (PRECISION - 1), green = red, blue = red;
        for (int k = 0; k < w->length[x]; k++, from += 3) {
            red += from[0] * weight[k];
            green += from[1] * weight[k];
            blue += from[2] * weight[k];
        }
        out[0] = narrow(red);
        out[1] = narrow(green);
        out[2] = narrow(blue);
    }
}

#ifdef __x86_64__
/* The same sums, one pixel at a time; `width` is that of the row. Reads one byte behind each pixel except the last of the
 * row. */
__attribute__((target("sse4.1"))) static void scale_row3_sse4(const uint8_t *row, int width, const struct ls_weights *w,
                                                              int count, uint8_t *out)
{
    for (int x = 0; x < count; x++, out += 3) {
        const uint8_t *from = row + 3 * (size_t)w->start[x];
        const int *weight = w->weight + (size_t)x * (size_t)w->taps;
        int length = w->length[x], whole = w->start[x] + length < width ? length : length - 1, four = 0;
        __m128i sum = _mm_set1_epi32(1 << (PRECISION - 1));
        for (int k = 0; k < whole; k++, from += 3) {
            memcpy(&four, from, 4);
            __m128i pixel = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(four));
            sum = _mm_add_epi32(sum, _mm_mullo_epi32(pixel, _mm_set1_epi32(weight[k])));
        }
        if (whole < length) {
            __m128i pixel = _mm_setr_epi32(from[0], from[1], from[2], 0);
            sum = _mm_add_epi32(sum, _mm_mullo_epi32(pixel, _mm_set1_epi32(weight[whole])));
        }
        sum = _mm_srai_epi32(sum, PRECISION);
        sum = _mm_packus_epi32(sum, sum);
        four = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
        memcpy(out, &four, 3);
    }
}
#endif

static void scale_row1(const uint8_t *row, const struct ls_weights *w, int count, uint8_t *out)
{
    for (int x = 0; x < count; x++) {
        const uint8_t *from = row + w->start[x];
        const int *weight = w->weight + (size_t)x * (size_t)w->taps;
        int sum = 1 << (PRECISION - 1);
        for (int k = 0; k < w->length[x]; k++)
            sum += from[k] * weight[k];
        out[x] = narrow(sum);
    }
}

/* Computes one output row from `length` rows, `stride` bytes apart. */
static void blend(const uint8_t *rows, size_t stride, const int *weight, int length, size_t bytes, uint8_t *out)
{
    enum { BLOCK = 256 };
    for (size_t at = 0; at < bytes; at += BLOCK) {
        size_t n = bytes - at < BLOCK ? bytes - at : BLOCK;
        int sum[BLOCK];
        for (size_t i = 0; i < n; i++)
            sum[i] = 1 << (PRECISION - 1);
        for (int k = 0; k < length; k++) {
            const uint8_t *row = rows + (size_t)k * stride + at;
            int factor = weight[k];
#pragma omp simd
            for (size_t i = 0; i < n; i++)
                sum[i] += row[i] * factor;
        }
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            out[at + i] = narrow(sum[i]);
    }
}

static void blend_rows(const uint8_t *rows, size_t stride, const int *weight, int length, size_t bytes, uint8_t *out)
{
    size_t done = ls_avx2() ? ls_avx2_blend(rows, stride, weight, length, bytes, out) : 0;
    blend(rows + done, stride, weight, length, bytes - done, out + done);
}

/* `width`: of the row; `cut`: the weights for AVX2, NULL: there is none. */
static void scale_row(const uint8_t *row, int channels, int width, const struct ls_weights *w, const void *cut,
                      int count, uint8_t *out)
{
    if (channels == 1) {
        scale_row1(row, w, count, out);
        return;
    }
    int done = cut ? ls_avx2_scale_row3(row, width, w, cut, count, out) : 0;
    struct ls_weights rest = {w->taps, w->start + done, w->length + done, w->weight + (size_t)done * (size_t)w->taps};
    out += 3 * (size_t)done;
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.1")) {
        scale_row3_sse4(row, width, &rest, count - done, out);
        return;
    }
#endif
    scale_row3(row, &rest, count - done, out);
}

enum ls_status ls_image_resize(const struct ls_image *from, const struct ls_box *box, int height, int width,
                               const struct ls_box *window, struct ls_image *to)
{
    struct ls_weights across, down;
    int taps_x = taps_for(box->width, width), taps_y = taps_for(box->height, height);
    size_t across_bytes = weights_bytes(taps_x, window->width), down_bytes = weights_bytes(taps_y, window->height);
    size_t row_bytes = (size_t)from->channels * (size_t)window->width;
    size_t from_bytes = (size_t)from->channels * (size_t)from->width;

    LS_TRY(ls_image_reserve(to, from->channels, window->height, window->width));
    bool vectors = from->channels == 3 && ls_avx2();
    size_t cut_bytes = vectors ? ls_avx2_cut_bytes(taps_x, window->width) : 0;
    LS_TRY(ls_image_reserve_side(to, across_bytes + down_bytes + cut_bytes + row_bytes * (size_t)box->height + SLACK));
    weights_place(&across, taps_x, window->width, to->side);
    weights_place(&down, taps_y, window->height, to->side + across_bytes);
    weights_fill(&across, box->width, width, window->left, window->width);
    weights_fill(&down, box->height, height, window->top, window->height);

    void *cut = vectors ? to->side + across_bytes + down_bytes : NULL;
    if (vectors)
        ls_avx2_cut(&across, window->width, cut);

    /* Scale only the rows that the window needs. */
    uint8_t *middle = to->side + across_bytes + down_bytes + cut_bytes;
    int first = down.start[0], last = down.start[window->height - 1] + down.length[window->height - 1];
    for (int y = first; y < last; y++) {
        const uint8_t *row =
            from->pixels + (size_t)(box->top + y) * from_bytes + (size_t)from->channels * (size_t)box->left;
        scale_row(row, from->channels, box->width, &across, cut, window->width,
                  middle + (size_t)(y - first) * row_bytes);
    }
    for (int y = 0; y < window->height; y++)
        blend_rows(middle + (size_t)(down.start[y] - first) * row_bytes, row_bytes,
                   down.weight + (size_t)y * (size_t)down.taps, down.length[y], row_bytes,
                   to->pixels + (size_t)y * row_bytes);
    return LS_OK;
}
