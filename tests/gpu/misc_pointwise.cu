/* Cases of the kernels that work element by element, row by row or only move values. */
#include "misc.h"

extern "C" {
#include "base/random.h"
}

#include <cmath>
#include <memory>

static float act_of(enum ls_act act, double z)
{
    return (float)(act == LS_ACT_NONE ? z : act == LS_ACT_RELU6 && z > 6 ? 6 : z < 0 ? 0 : z);
}

static bool passes(enum ls_act act, float y)
{
    return act == LS_ACT_NONE || (y > 0 && (act == LS_ACT_RELU || y < 6));
}

static std::string label(const char *what, enum ls_dtype t, int64_t a, int64_t b = -1, int64_t c = -1)
{
    std::string s = std::string(what) + " " + misc_type(t) + " " + std::to_string(a);
    if (b >= 0)
        s += " " + std::to_string(b);
    if (c >= 0)
        s += " " + std::to_string(c);
    return s;
}

static void activations(enum ls_dtype t, enum ls_act act, size_t n)
{
    values x = random_values(n, 9), b = random_values(n, 9), y(n), dx(n), sum(n);
    device dev_x(t, x), dev_b(t, b), out((size_t)n * 4);
    for (size_t i = 0; i < n; i++) {
        y[i] = act_of(act, x[i]);
        sum[i] = act_of(act, (double)x[i] + b[i]);
        dx[i] = passes(act, b[i]) ? x[i] : 0;
    }
    ls_cuda_act(0, t, act, dev_x.at, out.at, (int64_t)n);
    verdict(label("act", t, act, (int64_t)n), out.read(t, n), y, 0);
    ls_cuda_add(0, t, act, dev_x.at, dev_b.at, out.at, (int64_t)n);
    verdict(label("add", t, act, (int64_t)n), out.read(t, n), sum, misc_tolerance(t));
    ls_cuda_act_bwd(0, t, act, dev_x.at, dev_b.at, dev_x.at, (int64_t)n);
    verdict(label("act_bwd in place", t, act, (int64_t)n), dev_x.read(t, n), dx, 0);
}

static void biases(enum ls_dtype t, enum ls_act act, int64_t rows, int64_t c)
{
    size_t n = (size_t)(rows * c);
    values x = random_values(n, 4), b = random_values((size_t)c, 4), y(n), db((size_t)c);
    device dev_x(t, x), dev_b(LS_F32, b), out(n * 4), sums((size_t)c * 4), scratch(ls_cuda_bias_scratch(rows, c), 0);
    for (int64_t i = 0; i < c; i++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) {
            sum += x[(size_t)(r * c + i)];
            y[(size_t)(r * c + i)] = act_of(act, (double)x[(size_t)(r * c + i)] + b[(size_t)i]);
        }
        db[(size_t)i] = (float)sum;
    }
    ls_cuda_bias(0, t, act, dev_x.at, dev_b.as<float>(), out.at, rows, c);
    verdict(label("bias", t, act, rows, c), out.read(t, n), y, misc_tolerance(t));
    for (int again = 0; again < 2; again++)
        ls_cuda_bias_bwd(0, t, dev_x.at, sums.as<float>(), rows, c, scratch.as<float>());
    verdict(label("bias_bwd", t, rows, c), sums.read(LS_F32, (size_t)c), db, 2e-5);
}

static void dropout(enum ls_dtype t, int64_t n, int64_t channels, int64_t h, int64_t w, float p)
{
    struct ls_cuda_map m = {n, h, w, pad8(channels)};
    size_t rows = (size_t)(n * h * w), count = rows * (size_t)m.c;
    struct ls_cuda_run run = {};
    run.seed = 0x123456789abcdef0u;
    run.step = 77;
    run.replica = 3;
    values x = random_rows(rows, channels, m.c), y(count);
    device from(t, x), to(count * 4);
    object<struct ls_cuda_run> dev_run(run);
    uint64_t stream = ls_random_stream(LS_RANDOM_DROPOUT, run.step, run.replica, 5);
    for (int64_t s = 0; s < n; s++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t q = 0; q < h * w; q++) {
                uint64_t i = (uint64_t)((s * channels + c) * h * w + q);
                size_t at = (size_t)((s * h * w + q) * m.c + c);
                uint32_t words[4];
                ls_philox(run.seed, stream, i / 4, words);
                y[at] = ls_uniform(words[i % 4]) >= p ? x[at] * (1 / (1 - p)) : 0;
            }
    ls_cuda_dropout(0, t, dev_run.ptr(), 5, p, &m, channels, from.at, to.at);
    verdict(label("dropout", t, channels, h * w), to.read(t, count), y, misc_tolerance(t));
}

static void channels(enum ls_dtype t, int64_t from_first, int64_t to_first, int64_t n, bool clear)
{
    int64_t rows = 37, from_c = 40, to_c = 48;
    values x = random_values((size_t)(rows * from_c)), y = random_values((size_t)(rows * to_c));
    device from(t, x), to(t, y);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = to_first; c < (clear ? to_c : to_first + n); c++)
            y[(size_t)(r * to_c + c)] = c < to_first + n ? x[(size_t)(r * from_c + from_first + c - to_first)] : 0;
    ls_cuda_copy_channels(0, t, from.at, from_c, from_first, to.at, to_c, to_first, n, rows, clear);
    verdict(label(clear ? "copy_channels clear" : "copy_channels", t, from_first, to_first, n), to.read(t, y.size()), y,
            0);
}

static void flatten(enum ls_dtype t, int64_t channels, int64_t h, int64_t w)
{
    struct ls_cuda_map m = {3, h, w, pad8(channels)};
    int64_t p = h * w, row = pad8(channels * p);
    values x = random_rows((size_t)(m.n * p), channels, m.c), y((size_t)(m.n * row));
    device from(t, x), to(y.size() * 4), back(x.size() * 4);
    for (int64_t n = 0; n < m.n; n++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = 0; i < p; i++)
                y[(size_t)(n * row + c * p + i)] = x[(size_t)((n * p + i) * m.c + c)];
    ls_cuda_flatten(0, t, &m, channels, from.at, to.at, row);
    verdict(label("flatten", t, channels, h, w), to.read(t, y.size()), y, 0);
    ls_cuda_unflatten(0, t, &m, channels, to.at, row, back.at);
    verdict(label("unflatten", t, channels, h, w), back.read(t, x.size()), x, 0);
}

static double lrn_scale(const float *row, int64_t channels, int64_t size, double alpha, double k, int64_t c)
{
    double squares = 0;
    for (int64_t j = c - size / 2; j <= c + (size - 1) / 2; j++)
        if (j >= 0 && j < channels)
            squares += (double)row[j] * row[j];
    return k + alpha / (double)size * squares;
}

static void lrn(enum ls_dtype t, int64_t channels, int64_t size, float beta)
{
    int64_t rows = 50, stored = pad8(channels);
    float alpha = 0.7f, k = 1.5f;
    values x = random_rows((size_t)rows, channels, stored, 3), dy = random_rows((size_t)rows, channels, stored, 3);
    values y(x.size()), dx(x.size());
    device dev_x(t, x), dev_dy(t, dy), out(x.size() * 4);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < channels; c++) {
            const float *row = &x[(size_t)(r * stored)], *slope = &dy[(size_t)(r * stored)];
            double own = pow(lrn_scale(row, channels, size, alpha, k, c), -(double)beta), others = 0;
            for (int64_t j = c - (size - 1) / 2; j <= c + size / 2; j++)
                if (j >= 0 && j < channels)
                    others +=
                        (double)slope[j] * row[j] * pow(lrn_scale(row, channels, size, alpha, k, j), -(double)beta - 1);
            y[(size_t)(r * stored + c)] = (float)(row[c] * own);
            dx[(size_t)(r * stored + c)] =
                (float)(slope[c] * own - 2 * (double)alpha * beta / (double)size * row[c] * others);
        }
    ls_cuda_lrn(0, t, rows, stored, channels, size, alpha, beta, k, dev_x.at, out.at);
    verdict(label("lrn", t, channels, size), out.read(t, x.size()), y, misc_tolerance(t));
    ls_cuda_lrn_bwd(0, t, rows, stored, channels, size, alpha, beta, k, dev_dy.at, dev_x.at, out.at);
    verdict(label("lrn_bwd", t, channels, size), out.read(t, x.size()), dx, misc_tolerance(t));
}

static void convert(enum ls_dtype from_t, enum ls_dtype to_t, size_t n)
{
    values x = random_values(n, 5);
    device from(from_t, x), to(n * 4);
    ls_cuda_convert(0, from_t, from.at, to_t, to.at, (int64_t)n);
    verdict(label((std::string("convert ") + misc_type(from_t)).c_str(), to_t, (int64_t)n), to.read(to_t, n), x,
            misc_tolerance(to_t));
}

static void planes(enum ls_dtype t, int64_t n, int64_t channels, int64_t h, int64_t w)
{
    struct ls_cuda_map m = {n, h, w, pad8(channels)};
    values x = random_values((size_t)(n * channels * h * w), 3), y((size_t)(n * h * w * m.c));
    device from(LS_F32, x), to(y.size() * 4);
    struct ls_cuda_run run = {};
    run.images = from.at;
    object<struct ls_cuda_run> dev_run(run);
    for (int64_t s = 0; s < n; s++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = 0; i < h * w; i++)
                y[(size_t)((s * h * w + i) * m.c + c)] = x[(size_t)((s * channels + c) * h * w + i)];
    ls_cuda_image_planes(0, t, dev_run.ptr(), &m, channels, to.at);
    verdict(label("image_planes", t, channels, h, w), to.read(t, y.size()), y, misc_tolerance(t));
}

/* By the list of additions, bit by bit; what lies around the range stays as it is. */
static void sum_parts(int n, size_t first, size_t count)
{
    const size_t room = first + count + 64;
    std::vector<values> v;
    std::vector<std::unique_ptr<device>> parts;
    struct ls_cuda_parts p = {};
    p.n = n;
    for (int i = 0; i < n; i++) {
        v.push_back(random_values(room, 9));
        parts.emplace_back(new device(LS_F32, v.back()));
        p.part[i] = parts.back()->as<float>();
    }
    int at = 0;
    for (int apart = n / 2 + 1; apart > 0;
         apart--) /* some order in which each but the first is added to another once */
        for (int i = 0; i + apart < n; i++) {
            bool gone = false;
            for (int k = 0; k < at; k++)
                gone = gone || p.from[k] == i + apart || p.from[k] == i;
            if (gone)
                continue;
            p.to[at] = (int8_t)i;
            p.from[at++] = (int8_t)(i + apart);
        }
    std::vector<values> want = v;
    for (int s = 0; s < at; s++)
        for (size_t i = first; i < first + count; i++)
            want[(size_t)p.to[s]][i] = want[(size_t)p.to[s]][i] + want[(size_t)p.from[s]][i];
    ls_cuda_sum_parts(0, &p, (int64_t)first, (int64_t)count);
    bool same = at == n - 1;
    for (int i = 0; i < n; i++) {
        values got = parts[(size_t)i]->read(LS_F32, room);
        for (size_t k = 0; k < room; k++)
            same = same && got[k] == (k >= first && k < first + count ? want[0][k] : v[(size_t)i][k]);
    }
    verdict_ints("sum of " + std::to_string(n) + " parts, " + std::to_string(count), {same}, {1});
}

void misc_pointwise(void)
{
    values a = random_values(4000), b = random_values(4000), sum(4000);
    for (enum ls_dtype t : misc_types) {
        for (int act = 0; act < 3; act++) {
            activations(t, (enum ls_act)act, 8);
            activations(t, (enum ls_act)act, 5000);
            biases(t, (enum ls_act)act, 7, 8);
            biases(t, (enum ls_act)act, 300, 24);
        }
        activations(t, LS_ACT_RELU, ((size_t)1 << 21) + 1000);
        biases(t, LS_ACT_NONE, 40000, 64);
        biases(t, LS_ACT_RELU, 257, 1000);
        biases(t, LS_ACT_NONE, 33, 4096);
        biases(t, LS_ACT_NONE, 3000, 264);
        dropout(t, 5, 10, 1, 1, 0.5f);
        dropout(t, 9, 13, 1, 1, 0.3f);
        dropout(t, 6, 64, 1, 1, 0.5f);
        dropout(t, 3, 6, 5, 5, 0.25f);
        channels(t, 8, 16, 16, false);
        channels(t, 0, 16, 13, true);
        channels(t, 3, 5, 11, false);
        channels(t, 7, 0, 20, true);
        flatten(t, 6, 5, 7);
        flatten(t, 40, 6, 6);
        flatten(t, 13, 1, 1);
        lrn(t, 20, 5, 0.75f);
        lrn(t, 64, 5, 0.6f);
        lrn(t, 5, 5, 0.75f);
        lrn(t, 13, 4, 0.75f);
        lrn(t, 16, 9, 0.5f);
        for (enum ls_dtype to : misc_types) {
            convert(t, to, 4000);
            convert(t, to, ((size_t)1 << 20) + 48);
        }
        planes(t, 3, 3, 17, 19);
        planes(t, 2, 1, 28, 28);
        planes(t, 2, 10, 40, 40);
    }
    for (size_t i = 0; i < sum.size(); i++)
        sum[i] = a[i] + b[i];
    device from(LS_F32, a), to(LS_F32, b);
    ls_cuda_sum(0, from.as<float>(), to.as<float>(), 4000);
    verdict("sum", to.read(LS_F32, sum.size()), sum, 1e-7);
    for (int n = 1; n <= LS_CUDA_PARTS; n++)
        for (size_t count : {(size_t)0, (size_t)4, (size_t)1024, (size_t)200000})
            sum_parts(n, 64, count);
}
