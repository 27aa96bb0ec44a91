/* The text of a model file, as it was when the run started. The file is read once; its text is saved as model.yaml in the run
 * directory and in the metadata of every checkpoint. The run, eval and predict use the saved text. They read the file again
 * only to warn that it has changed. */
#ifndef LS_CHECKPOINT_MODEL_SNAPSHOT_H
#define LS_CHECKPOINT_MODEL_SNAPSHOT_H

#include "config/options.h"
#include "checkpoint/model_card.h"

/* If --model is a file: makes its path absolute and sets o->model_yaml, from run/model.yaml if it exists, otherwise from the
 * file. run: the run that is resumed, or NULL. */
enum ls_status ls_model_snapshot_read(struct ls_options *o, const char *run);
/* Takes model and text from the card of a trained model, unless the user gave --model (given). */
enum ls_status ls_model_snapshot_adopt(struct ls_options *o, const struct ls_model_card *card, bool given);
/* If --model is a file: sets o->model_yaml from the metadata of a checkpoint. */
enum ls_status ls_model_snapshot_take(struct ls_options *o, const char *checkpoint);
/* Warns if the file differs from the text in use. */
void ls_model_snapshot_warn(const struct ls_options *o);
/* Reports an error if o->model_yaml differs from the text in the metadata of the checkpoint. */
enum ls_status ls_model_snapshot_check(const char *checkpoint, const char *run, const struct ls_options *o);

#endif
