/* The predictions of an evaluation: how often each class is taken for which, and the samples that the model gets most
 * wrong. */
#ifndef LS_TRAIN_CONFUSION_H
#define LS_TRAIN_CONFUSION_H

#include "exec/engine.h"
#include "train/task.h"

#include <stdio.h>

enum { LS_MISTAKES = 12, LS_CONFUSION_CLASSES = 2000 };

struct ls_mistake {
    int64_t sample; /* index in the data set */
    int32_t label, predicted;
    double loss;        /* cross-entropy */
    double probability; /* of the predicted class */
};

/* Starts as {0}. */
struct ls_confusion {
    int64_t classes;
    int64_t *counts; /* owned; classes x classes; a row for each label, a column for each predicted class */
    float *logits;   /* owned; of one pass */
    struct ls_mistake mistakes[LS_MISTAKES]; /* the highest loss first */
    int n_mistakes;
};

/* Classes as the model names them; names may be NULL, and named smaller than the number of classes. */
struct ls_class_names {
    const char *const *names;
    int64_t named;
};
/* Copies the name of a class, or "class 7", with control characters escaped. */
const char *ls_class_name(const struct ls_class_names *names, int64_t c, char *text, size_t room);

struct ls_class_result {
    int64_t samples, predicted, correct;
    double precision, recall; /* 0 to 1; NaN: no sample was predicted or labelled so */
    int64_t taken_for;        /* the class most often predicted instead; -1: none */
};

/* A model of more than LS_CONFUSION_CLASSES classes gets no matrix, and `counts` stays NULL. */
enum ls_status ls_confusion_open(struct ls_confusion *c, const struct ls_engine *e);
/* Adds the predictions of the evaluation pass that was run last, which was over this slot. samples: the sample at each
 * position; NULL: they are in order. */
enum ls_status ls_confusion_add(struct ls_confusion *c, const struct ls_engine *e, const struct ls_slot *slot,
                                const int64_t *samples);
/* Adds one prediction by its scores. */
void ls_confusion_add_sample(struct ls_confusion *c, const float *scores, int64_t sample, int32_t label);
/* Sums over all processes. Every process calls it; comm NULL: one process. */
enum ls_status ls_confusion_reduce(struct ls_confusion *c, struct ls_comm *comm);
struct ls_class_result ls_confusion_class(const struct ls_confusion *c, int64_t class);
void ls_confusion_release(struct ls_confusion *c);

/* confusion_file.c. The matrix as CSV: a heading of predicted classes, then a row for each label. As text: the same, aligned,
 * with numbers for the names in the heading. As JSON: classes, counts, per-class figures, and the mistakes with their pictures
 * as PNG in Base64. A file takes its place at once. */
void ls_confusion_print(const struct ls_confusion *c, const struct ls_class_names *names, FILE *out);
enum ls_status ls_confusion_write_text(const struct ls_confusion *c, const struct ls_class_names *names,
                                       const char *path);
enum ls_status ls_confusion_write_csv(const struct ls_confusion *c, const struct ls_class_names *names,
                                      const char *path);
enum ls_status ls_confusion_write_json(const struct ls_confusion *c, const struct ls_class_names *names,
                                       const struct ls_task *task, int64_t step, const char *path);

#endif
