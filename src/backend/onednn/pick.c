/* The instruction sets that kernels are compiled for, best first. LS_KERNEL_SETS is X(isa) for each; CMakeLists.txt
 * defines it. */
#include "backend/onednn/kernels/kernels.h"

#include <string.h>

#define X(isa)                                      \
    void ls_fill_##isa##_f32(struct ls_kernels *k); \
    void ls_fill_##isa##_bf16(struct ls_kernels *k);
LS_KERNEL_SETS
#undef X

static bool supported(const char *isa)
{
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (strcmp(isa, "avx512bf16") == 0)
        return avx512 && __builtin_cpu_supports("avx512bf16");
    if (strcmp(isa, "avx512") == 0)
        return avx512;
    if (strcmp(isa, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return true;
}

static const struct {
    const char *isa;
    void (*fill[2])(struct ls_kernels *); /* f32, bf16 */
} sets[] = {
#define X(isa) {#isa, {ls_fill_##isa##_f32, ls_fill_##isa##_bf16}},
    LS_KERNEL_SETS
#undef X
};

bool ls_kernels_pick(enum ls_dtype dtype, const char *isa, struct ls_kernels *k)
{
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if ((isa ? strcmp(isa, sets[i].isa) == 0 : true) && supported(sets[i].isa)) {
            sets[i].fill[dtype == LS_BF16](k);
            return true;
        }
    return false;
}
