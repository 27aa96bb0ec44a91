/* Finds a trained model by name: a run directory (its newest checkpoint), a checkpoint folder, or a .safetensors file. */
#ifndef LS_CHECKPOINT_LOCATE_MODEL_H
#define LS_CHECKPOINT_LOCATE_MODEL_H

#include "config/options.h"
#include "checkpoint/hold.h"
#include "checkpoint/model_card.h"
#include "exec/engine.h"

struct ls_located_model {
    char *name; /* owned; the checkpoint folder, or the file: finds the same weights again */
    char *file; /* owned; the .safetensors file with the weights */
    FILE *held; /* keeps the checkpoint of a run that goes on, until the weights are loaded (ls_checkpoint_let_go) */
    struct ls_model_card card;
    struct ls_arena strings;
};

/* name: a run, checkpoint or file; NULL: --run, else --init. Options that the user did not give are set from the run's
 * config.yaml, then from the metadata of the file. */
enum ls_status ls_located_model_find(struct ls_located_model *t, const char *name, struct ls_options *o);
/* Finds the weights alone, without options: a run (its newest checkpoint), a checkpoint or a file. Free *file with ls_free
 * and *held with ls_checkpoint_let_go. */
enum ls_status ls_locate_weights(const char *name, char **file, FILE **held);
void ls_located_model_release(struct ls_located_model *t);

#endif
