/* A trained model as a user names it: a run directory (its newest checkpoint), a checkpoint folder, or a
 * file. */
#ifndef LS_TRAIN_TRAINED_H
#define LS_TRAIN_TRAINED_H

#include "config/options.h"
#include "train/card.h"
#include "train/engine.h"

struct ls_trained {
    char *file; /* owned: the .safetensors with the weights */
    struct ls_card card;
    struct ls_arena strings;
};

/* name: a run, checkpoint or file; NULL: --run, else --init. Options that nobody gave are taken from the
 * run's config.yaml, then from what the file says of itself. */
enum ls_status ls_trained_find(struct ls_trained *t, const char *name, struct ls_options *o);
void ls_trained_release(struct ls_trained *t);

#endif
