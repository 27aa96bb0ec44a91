/* The instruction sets that kernels are compiled for, best first. */
#include "backend/onednn/kernels/kernels.h"

#include <string.h>

#define TABLES(isa)                                 \
    void ls_fill_##isa##_f32(struct ls_kernels *k); \
    void ls_fill_##isa##_bf16(struct ls_kernels *k);
TABLES(avx512bf16)
TABLES(avx512)
TABLES(avx2)
TABLES(sse2)

static bool has_avx512bf16(void)
{
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl");
}
static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
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
    void (*fill[2])(struct ls_kernels *); /* f32, bf16 */
} sets[] = {
    {"avx512bf16", has_avx512bf16, {ls_fill_avx512bf16_f32, ls_fill_avx512bf16_bf16}},
    {"avx512", has_avx512, {ls_fill_avx512_f32, ls_fill_avx512_bf16}},
    {"avx2", has_avx2, {ls_fill_avx2_f32, ls_fill_avx2_bf16}},
    {"sse2", has_sse2, {ls_fill_sse2_f32, ls_fill_sse2_bf16}},
};

bool ls_kernels_pick(enum ls_dtype dtype, const char *isa, struct ls_kernels *k)
{
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if ((isa ? strcmp(isa, sets[i].isa) == 0 : true) && sets[i].here()) {
            sets[i].fill[dtype == LS_BF16](k);
            return true;
        }
    return false;
}
