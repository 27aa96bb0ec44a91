/* A model given as a file is read once. Its text goes into the run directory as model.yaml and into the metadata of every
 * checkpoint; from then on the run, eval and predict use these, and the file only to say that it has changed. */
#ifndef LS_CHECKPOINT_KEPT_MODEL_H
#define LS_CHECKPOINT_KEPT_MODEL_H

#include "config/options.h"
#include "checkpoint/model_card.h"

/* Before anything is built: read the file, where the model is one, and name it from the root. run: the run that is gone on
 * with, whose copy wins, or NULL. */
enum ls_status ls_kept_model_read(struct ls_options *o, const char *run);
/* The same for a trained model: the card's text, unless the user names a model (given). */
enum ls_status ls_kept_model_adopt(struct ls_options *o, const struct ls_model_card *card, bool given);
/* Use what the metadata of a checkpoint keep, where the model is a file. */
enum ls_status ls_kept_model_take(struct ls_options *o, const char *checkpoint);
/* Say so when the file is no longer, or not, what is used in its place. */
void ls_kept_model_warn(const struct ls_options *o);
/* Is the run's copy still the network of the checkpoint? */
enum ls_status ls_kept_model_check(const char *checkpoint, const char *run, const struct ls_options *o);

#endif
