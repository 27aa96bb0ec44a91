/* A trained model as a user names it: a run directory (its newest checkpoint), a checkpoint folder, or a
 * file. */
#ifndef LS_CHECKPOINT_LOCATE_MODEL_H
#define LS_CHECKPOINT_LOCATE_MODEL_H

#include "config/options.h"
#include "checkpoint/model_card.h"
#include "exec/engine.h"

struct ls_located_model {
    char *file; /* owned: the .safetensors with the weights */
    struct ls_model_card card;
    struct ls_arena strings;
};

/* name: a run, checkpoint or file; NULL: --run, else --init. Options that nobody gave are taken from the
 * run's config.yaml, then from what the file says of itself. */
enum ls_status ls_located_model_find(struct ls_located_model *t, const char *name, struct ls_options *o);
void ls_located_model_release(struct ls_located_model *t);

#endif
