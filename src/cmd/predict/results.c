#define _GNU_SOURCE
#include "cmd/predict/results.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "cmd/json.h"
#include "report/formats/csv.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 256, SHOWN = 4 * PATH_MAX, COLUMN = 24 };

struct ls_results_format {
    const char *name, *ending;
    void (*begin)(struct ls_results *r);
    void (*add)(struct ls_results *r, const char *file, const struct ls_guess *guesses, int n);
    void (*end)(struct ls_results *r);
};

static void nothing(struct ls_results *r)
{
    (void)r;
}

/* --- text --------------------------------------------------------------------------------------------- */

static void add_text(struct ls_results *r, const char *file, const struct ls_guess *guesses, int n)
{
    char shown[SHOWN], name[NAME];
    fprintf(r->stream, "%s\n", ls_utf8_printable(file, shown, sizeof shown));
    for (int i = 0; i < n; i++) {
        ls_classifier_name(r->classifier, guesses[i].index, name, sizeof name);
        int pad = COLUMN - ls_utf8_length(ls_utf8_printable(name, shown, sizeof shown));
        fprintf(r->stream, "  %s%*s %6.2f%%\n", shown, pad > 0 ? pad : 0, "", 100 * guesses[i].probability);
    }
}

/* --- JSON: a list with one object a line ---------------------------------------------------------------- */

static void begin_json(struct ls_results *r)
{
    fputc('[', r->stream);
}

static void add_json(struct ls_results *r, const char *file, const struct ls_guess *guesses, int n)
{
    char spelled[SHOWN], name[NAME]; /* JSON accepts UTF-8 only */
    json_t *top = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(top,
                              json_pack("{s:s, s:I, s:f}", "class",
                                        ls_classifier_name(r->classifier, guesses[i].index, name, sizeof name), "index",
                                        (json_int_t)guesses[i].index, "probability", guesses[i].probability));
    json_t *one = json_pack("{s:s, s:o, s:s}", "file", ls_utf8_escape(file, spelled, sizeof spelled), "top", top,
                            "transform", r->classifier->transform);
    fputs(r->count > 0 ? ",\n " : "\n ", r->stream);
    if (!one || ls_json_write(one, JSON_REAL_PRECISION(9), r->stream) != 0)
        fputs("null", r->stream);
    json_decref(one);
}

static void end_json(struct ls_results *r)
{
    fputs(r->count > 0 ? "\n]\n" : "]\n", r->stream);
}

/* --- CSV: a line for each image --------------------------------------------------------------------------- */

static void begin_csv(struct ls_results *r)
{
    int64_t classes = r->classifier->task.size.classes;
    fputs("file,class,index,probability", r->stream);
    for (int i = 2; i <= r->top && i <= classes; i++)
        fprintf(r->stream, ",class_%d,index_%d,probability_%d", i, i, i);
    fputc('\n', r->stream);
}

static void add_csv(struct ls_results *r, const char *file, const struct ls_guess *guesses, int n)
{
    char spelled[SHOWN], name[NAME];
    ls_csv_put(ls_utf8_escape(file, spelled, sizeof spelled), r->stream);
    for (int i = 0; i < n; i++) {
        fputc(',', r->stream);
        ls_csv_put(ls_classifier_name(r->classifier, guesses[i].index, name, sizeof name), r->stream);
        fprintf(r->stream, ",%lld,%.9g", (long long)guesses[i].index, guesses[i].probability);
    }
    fputc('\n', r->stream);
}

static const struct ls_results_format formats[] = {
    {"text", ".txt", nothing, add_text, nothing},
    {"json", ".json", begin_json, add_json, end_json},
    {"csv", ".csv", begin_csv, add_csv, nothing},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* --- writing ------------------------------------------------------------------------------------------ */

static enum ls_status choose_format(struct ls_results *r, const struct ls_options *o)
{
    r->format = &formats[0];
    for (int i = 0; i < FORMATS; i++)
        if (o->output && !ls_options_given(o, "format") && ls_ends_in(o->output, formats[i].ending))
            r->format = &formats[i];
    if (!ls_options_given(o, "format") && !o->json)
        return LS_OK;
    const char *name = o->json ? "json" : o->format;
    for (int i = 0; i < FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0) {
            r->format = &formats[i];
            return LS_OK;
        }
    return ls_fail(LS_USAGE, "--format %s: predict writes text, json or csv", name);
}

static enum ls_status new_stream(struct ls_results *r)
{
    r->stream = open_memstream(&r->text, &r->size);
    return r->stream ? LS_OK : ls_fail(LS_FAILED, "out of memory for results");
}

enum ls_status ls_results_open(struct ls_results *r, const struct ls_options *o, const struct ls_classifier *c)
{
    *r = (struct ls_results){.classifier = c, .top = (int)o->top};
    LS_TRY(choose_format(r, o));
    if (o->output && strcmp(o->output, "-") != 0) {
        LS_TRY(ls_file_writer_open(&r->file, o->output));
        r->to_file = true;
    }
    LS_TRY(new_stream(r));
    r->format->begin(r);
    return LS_OK;
}

bool ls_results_for_people(const struct ls_results *r)
{
    return r->to_file || r->format == &formats[0];
}

void ls_results_add(struct ls_results *r, const char *file, const struct ls_guess *guesses, int n)
{
    r->format->add(r, file, guesses, n);
    r->count++;
}

static enum ls_status put(struct ls_results *r)
{
    if (r->to_file)
        return ls_file_writer_put(&r->file, r->text, r->size);
    if (fwrite(r->text, 1, r->size, stdout) != r->size || fflush(stdout) != 0)
        return ls_fail(LS_FAILED, "the result cannot be written to standard output");
    return LS_OK;
}

enum ls_status ls_results_flush(struct ls_results *r)
{
    bool bad = fclose(r->stream) != 0;
    r->stream = NULL;
    enum ls_status st = bad ? ls_fail(LS_FAILED, "out of memory for results") : put(r);
    free(r->text);
    r->text = NULL;
    return st == LS_OK ? new_stream(r) : st;
}

enum ls_status ls_results_close(struct ls_results *r)
{
    r->format->end(r);
    LS_TRY(ls_results_flush(r));
    if (!r->to_file)
        return LS_OK;
    r->to_file = false;
    return ls_file_writer_commit(&r->file);
}

void ls_results_release(struct ls_results *r)
{
    if (r->stream)
        fclose(r->stream);
    free(r->text);
    if (r->to_file)
        ls_file_writer_cancel(&r->file);
    *r = (struct ls_results){0};
}
