/* A trained model that classifies images: its weights, its preprocessing and the names of its classes. */
#ifndef LS_INFER_CLASSIFIER_H
#define LS_INFER_CLASSIFIER_H

#include "checkpoint/locate_model.h"
#include "data/data.h"
#include "exec/engine.h"
#include "train/task.h"

struct ls_classifier {
    uint64_t seed;
    struct ls_located_model trained;
    struct ls_task task; /* task.size: the images and classes of the model, and the batch */
    struct ls_engine engine;
    struct ls_augment augment; /* the preprocessing */
    char transform[256];       /* its description */
    int32_t *labels;           /* owned; all -1: no label */
};

/* Loads the model `name`: a run, checkpoint or file; NULL: --run, else --init. Sets options that were not given from it
 * (ls_located_model_find). batch: images of one ls_classifier_run. ls_classifier_release also after a failure. */
enum ls_status ls_classifier_open(struct ls_classifier *c, struct ls_options *o, const char *name, int64_t batch);
/* Safe on a zeroed struct. */
void ls_classifier_release(struct ls_classifier *c);

/* The floats of one preprocessed image. */
int64_t ls_classifier_values(const struct ls_classifier *c);
/* Computes the logits of the first n images of a batch. planes has room for a whole batch. One thread at a time. */
enum ls_status ls_classifier_run(struct ls_classifier *c, const float *planes, int64_t n, float *logits);
/* Writes the name of a class, as UTF-8; "class 7" where it has none. */
const char *ls_classifier_name(const struct ls_classifier *c, int64_t class_index, char *name, size_t room);

struct ls_guess {
    int64_t index;
    double probability;
};
/* Finds the `top` highest of the scores (all, if there are fewer), the highest first, and their softmax. Of equal scores the
 * lower index comes first. Returns their number. */
int ls_classifier_top(const float *scores, int64_t classes, int top, struct ls_guess *guesses);

#endif
