/* What a model file says about itself in its metadata, so that it can be used without the run that made it.
 */
#ifndef LS_CHECKPOINT_MODEL_CARD_H
#define LS_CHECKPOINT_MODEL_CARD_H

#include "base/help.h"
#include "base/memory.h"
#include "data/classes.h"
#include "checkpoint/safetensors.h"

struct ls_model_card {
    const char *model; /* as given to --model; a file from the root */
    const char *yaml;  /* the text of that file, or NULL */
    int64_t channels, height, width, classes;
    int64_t stored_height, stored_width; /* of the images it was trained on; 0: they differed */
    float mean[4], deviation[4];
    char eval_resize[16], eval_crop[32]; /* what evaluation sees (ls_augment_frame); "": the file does not say */
    const char *const *class_names;      /* of the first `named` classes, or NULL */
    const char *const *class_ids;        /* the same, or NULL: see ls_dataset_info */
    int64_t named;
    const char *data; /* the training data's fingerprint, which goes into data.json beside the file; NULL: none */
};

/* The keys, and what they mean. */
extern const struct ls_help_row ls_model_card_keys[];

#define LS_MODEL_CARD_PAIRS 13
/* The card as metadata; the strings live in `strings`. */
enum ls_status ls_model_card_write(const struct ls_model_card *card, struct ls_arena *strings, struct ls_st_pair *pairs,
                                   int *n);
/* The card of a file; fields a foreign file lacks are 0 or NULL. */
enum ls_status ls_model_card_read(const struct ls_safetensors *file, const char *path, struct ls_arena *strings,
                                  struct ls_model_card *card);
/* The classes of the model it describes; borrowed. */
struct ls_classes ls_model_card_classes(const struct ls_model_card *card);

#endif
