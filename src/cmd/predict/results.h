/* What predict prints of each image: text, JSON or CSV, to standard output or a file. */
#ifndef LS_CMD_PREDICT_RESULTS_H
#define LS_CMD_PREDICT_RESULTS_H

#include "base/files/file.h"
#include "infer/classifier.h"

struct ls_results {
    const struct ls_classifier *classifier; /* borrowed */
    const struct ls_results_format *format;
    int top;
    FILE *stream; /* owned; collects text until it is flushed */
    char *text;   /* owned; its memory */
    size_t size;
    bool to_file;
    struct ls_file_writer file; /* with to_file: complete at close, or absent */
    int64_t count;              /* images so far */
};

/* The format is --format, else that of the ending of --output (.csv, .json), else text; --json is --format json. Finds out
 * before anything is computed whether the file can be written. Release it also after a failure. */
enum ls_status ls_results_open(struct ls_results *r, const struct ls_options *o, const struct ls_classifier *c);
/* Whether people read standard output: it has text, or the results go to a file. */
bool ls_results_for_people(const struct ls_results *r);
void ls_results_add(struct ls_results *r, const char *file, const struct ls_guess *guesses, int n);
/* Writes what was added so far. */
enum ls_status ls_results_flush(struct ls_results *r);
/* Writes the end. The file is there once this has returned LS_OK. */
enum ls_status ls_results_close(struct ls_results *r);
void ls_results_release(struct ls_results *r);

#endif
