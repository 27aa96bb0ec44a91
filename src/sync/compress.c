#include "sync/compress.h"

#include "base/system/clock.h"
#include "base/memory.h"
#include "sync/compress/lowrank.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Every codec is compiled once for each instruction set. */
#define REDUCER(name, form)
#define X(name) extern const struct ls_codec ls_codec_##name##_avx512, ls_codec_##name##_avx2, ls_codec_##name##_sse2;
#include "config/lists/compressors.def"
extern const struct ls_lowrank ls_lowrank_avx512, ls_lowrank_avx2, ls_lowrank_sse2;

static const struct ls_codec *const codecs_avx512[] = {
#define REDUCER(name, form)
#define X(name) &ls_codec_##name##_avx512,
#include "config/lists/compressors.def"
    NULL,
};
static const struct ls_codec *const codecs_avx2[] = {
#define REDUCER(name, form)
#define X(name) &ls_codec_##name##_avx2,
#include "config/lists/compressors.def"
    NULL,
};
static const struct ls_codec *const codecs_sse2[] = {
#define REDUCER(name, form)
#define X(name) &ls_codec_##name##_sse2,
#include "config/lists/compressors.def"
    NULL,
};

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
/* Every processor with AVX2 has F16C, but not every compiler can test for F16C. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
static bool has_sse2(void)
{
    return true;
}

static const struct {
    const char *isa;
    bool (*here)(void);
    const struct ls_codec *const *codecs;
    const struct ls_lowrank *lowrank;
} sets[] = {
    {"avx512", has_avx512, codecs_avx512, &ls_lowrank_avx512},
    {"avx2", has_avx2, codecs_avx2, &ls_lowrank_avx2},
    {"sse2", has_sse2, codecs_sse2, &ls_lowrank_sse2},
};
enum { SETS = sizeof sets / sizeof *sets };

/* Returns the best set for the processor, or the set of that name. Returns SETS when it cannot run here. */
static int pick_set(const char *isa)
{
    int i = 0;
    while (i < SETS && ((isa && strcmp(isa, sets[i].isa) != 0) || !sets[i].here()))
        i++;
    return i;
}

const struct ls_codec *ls_compress_find_isa(const char *name, const char *isa)
{
    int set = pick_set(isa);
    if (set == SETS)
        return NULL;
    for (const struct ls_codec *const *c = sets[set].codecs; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

const struct ls_codec *ls_compress_find(const char *name)
{
    return ls_compress_find_isa(name, NULL);
}

const struct ls_lowrank *ls_lowrank_pick(const char *isa)
{
    int set = pick_set(isa);
    return set == SETS ? NULL : sets[set].lowrank;
}

double ls_compress_ratio(const struct ls_codec *codec, size_t count)
{
    return count ? (double)count * sizeof(float) / (double)codec->bytes(count) : 1.0;
}

void ls_compress_measure(const struct ls_codec *codec, const float *values, const float *feedback, size_t count,
                         const void *wire, struct ls_compress_error *e)
{
    float decoded[LS_COMPRESS_CHUNK];
    for (size_t first = 0; first < count; first += LS_COMPRESS_CHUNK) {
        size_t n = count - first < LS_COMPRESS_CHUNK ? count - first : LS_COMPRESS_CHUNK;
        codec->decode((const char *)wire + codec->bytes(first), n, decoded);
        for (size_t i = 0; i < n; i++) {
            double x = values[first + i], sent = decoded[i], lost = x - sent;
            if (feedback) {
                lost = feedback[first + i];
                x = sent + lost; /* the value to send includes the old feedback */
            } else if (codec->limit > 0.0f && fabs(x) >= codec->limit && isfinite(x)) {
                e->clipped++;
            }
            e->error += lost * lost;
            e->norm += x * x;
        }
    }
}

enum ls_status ls_compress_speed(const struct ls_codec *codec, struct ls_compress_speed *speed)
{
    enum { COUNT = 1 << 16, ROUNDS = 16 };
    enum ls_status st = LS_FAILED;
    float *values = ls_alloc(COUNT, sizeof *values);
    float *feedback = ls_alloc(COUNT, sizeof *feedback);
    void *wire = ls_alloc(1, codec->bytes(COUNT));
    if (!values || !feedback || !wire)
        goto release;
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(i % 17 - 8);
    double encode = INFINITY, decode = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double start = ls_now();
        codec->encode(values, codec->feedback ? feedback : NULL, COUNT, wire);
        double middle = ls_now();
        codec->decode_add(wire, COUNT, values);
        encode = fmin(encode, middle - start);
        decode = fmin(decode, ls_now() - middle);
    }
    *speed = (struct ls_compress_speed){encode / COUNT, decode / COUNT};
    st = LS_OK;
release:
    ls_free(wire);
    ls_free(feedback);
    ls_free(values);
    return st;
}

double ls_compress_gain(const struct ls_codec *codec, const struct ls_compress_speed *speed, double beta, size_t count)
{
    double saved = (double)count * sizeof(float) - (double)codec->bytes(count);
    return saved * beta - 2.0 * (double)count * (speed->encode + speed->decode);
}
