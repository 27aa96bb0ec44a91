/* The model card: metadata of a model file, so that the file can be used without the run that made it. */
#ifndef LS_CHECKPOINT_MODEL_CARD_H
#define LS_CHECKPOINT_MODEL_CARD_H

#include "base/text/help.h"
#include "base/memory.h"
#include "data/classes.h"
#include "checkpoint/safetensors.h"

struct ls_model_card {
    const char *model; /* as given to --model; a file has an absolute path */
    const char *yaml;  /* the text of that file, or NULL */
    int64_t channels, height, width, classes;
    int64_t stored_height, stored_width; /* of the training images; 0: of various sizes */
    float mean[4], deviation[4];
    char eval_resize[16], eval_crop[32]; /* preprocessing for evaluation (ls_augment_frame); "": not recorded */
    const char *const *class_names;      /* of the first `named` classes, or NULL */
    const char *const *class_ids;        /* likewise; see ls_dataset_info */
    int64_t named;
    const char *data; /* fingerprint of the training data, for data.json beside the file; NULL: none */
};

/* The metadata keys, for help. */
extern const struct ls_help_row ls_model_card_keys[];

#define LS_MODEL_CARD_PAIRS 13
/* Converts the card to metadata pairs; the arena `strings` owns the text. */
enum ls_status ls_model_card_write(const struct ls_model_card *card, struct ls_arena *strings, struct ls_st_pair *pairs,
                                   int *n);
/* Reads the card of a file. Fields that the file lacks are 0 or NULL. */
enum ls_status ls_model_card_read(const struct ls_safetensors *file, const char *path, struct ls_arena *strings,
                                  struct ls_model_card *card);
/* Returns the classes of the model; the names are borrowed from the card. */
struct ls_classes ls_model_card_classes(const struct ls_model_card *card);

#endif
