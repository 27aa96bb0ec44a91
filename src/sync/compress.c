#include "sync/compress.h"

#include "sync/compress/lowrank.h"

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
