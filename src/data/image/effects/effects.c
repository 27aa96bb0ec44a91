/* The list of effects, and their random numbers. */
#include "base/random.h"
#include "data/image/effects/effect.h"

#define X(name) extern const struct ls_effect ls_effect_##name;
#include "data/image/effects/list.def"

const struct ls_effect *const ls_effects[LS_EFFECTS] = {
#define X(name) &ls_effect_##name,
#include "data/image/effects/list.def"
};

static uint32_t roll(struct ls_dice *dice)
{
    uint32_t words[4];
    ls_philox(dice->seed, dice->stream, dice->next / 4, words);
    return words[dice->next++ % 4];
}

double ls_dice_between(struct ls_dice *dice, double low, double high)
{
    return low + (high - low) * (roll(dice) * 0x1p-32);
}

int ls_dice_below(struct ls_dice *dice, int limit)
{
    return (int)(((uint64_t)roll(dice) * (uint64_t)limit) >> 32);
}
