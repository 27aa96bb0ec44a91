/* What a model file says about itself in its metadata, so that it can be used without the run that made it.
 */
#ifndef LS_TRAIN_CARD_H
#define LS_TRAIN_CARD_H

#include "base/help.h"
#include "base/memory.h"
#include "train/safetensors.h"

struct ls_card {
    const char *model; /* as given to --model */
    int64_t channels, height, width, classes;
    int64_t stored_height, stored_width; /* of the images it was trained on; 0: they differed */
    float mean[4], deviation[4];
    const char *const *class_names; /* classes entries, or NULL */
    const char *identity;           /* identity.h; NULL: unknown */
};

/* The keys, and what they mean. */
extern const struct ls_help_row ls_card_keys[];

#define LS_CARD_PAIRS 10
/* The card as metadata; the strings live in `strings`. */
enum ls_status ls_card_write(const struct ls_card *card, struct ls_arena *strings, struct ls_st_pair *pairs, int *n);
/* The card of a file; fields a foreign file lacks are 0 or NULL. */
enum ls_status ls_card_read(const struct ls_safetensors *file, const char *path, struct ls_arena *strings,
                            struct ls_card *card);

#endif
