/* The mixing of a pass, for backends of the host. */
#ifndef LS_BACKEND_CORE_MIX_H
#define LS_BACKEND_CORE_MIX_H

#include "backend/backend.h"
#include "base/random.h"

static inline bool ls_mix_is_on(const struct ls_mix_rule *rule)
{
    return rule->mixup > 0 || rule->cutmix > 0;
}

static inline struct ls_mix ls_mix_of_run(const struct ls_mix_rule *rule, const struct ls_run *run)
{
    uint32_t words[LS_MIX_WORDS];
    uint64_t stream = ls_random_stream(LS_RANDOM_MIX, run->step, run->replica, 0);
    if (!ls_mix_is_on(rule))
        return (struct ls_mix){.weight = 1};
    for (int i = 0; i < LS_MIX_BLOCKS; i++)
        ls_philox(run->seed, stream, (uint64_t)i, words + 4 * i);
    return ls_mix_choose(rule, words);
}

#endif
