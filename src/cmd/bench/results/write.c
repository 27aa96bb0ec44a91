/* Where a table of results goes, and in which format. */
#define _GNU_SOURCE
#include "base/text/text.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/bench/results/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct format {
    const char *name, *ending;
    enum ls_status (*write)(const struct ls_bench_table *t, FILE *out);
} formats[] = {
#define X(name, ending) {#name, ending, ls_bench_write_##name},
#include "config/lists/table_formats.def"
};
enum { FORMATS = sizeof formats / sizeof *formats };

static bool to_file(const struct ls_options *o)
{
    return o->output && strcmp(o->output, "-") != 0;
}

/* --json and --format decide. Without them the ending of the file does. */
static const struct format *format_of(const struct ls_options *o)
{
    const char *name = o->json ? "json" : o->format;
    for (int i = 0; i < FORMATS && !o->json && to_file(o) && !ls_options_given(o, "format"); i++)
        if (ls_ends_in(o->output, formats[i].ending))
            return &formats[i];
    for (int i = 0; i < FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return &formats[0];
}

bool ls_bench_writes_table(const struct ls_options *o)
{
    return to_file(o) || format_of(o) != &formats[0];
}

enum ls_status ls_bench_check_output(const struct ls_options *o)
{
    if (!to_file(o))
        return LS_OK;
    if (ls_file_is_dir(o->output))
        return ls_fail(LS_USAGE, "--output %s: it is a folder; give the name of a file", o->output);
    char *folder = ls_path_absolute(o->output);
    if (folder && strrchr(folder, '/'))
        strrchr(folder, '/')[1] = 0;
    bool there = folder && ls_file_is_dir(folder);
    ls_free(folder);
    if (!there || !ls_file_can_write(o->output))
        return ls_fail(LS_USAGE, "--output %s: the file cannot be written; check its folder and your rights",
                       o->output);
    return LS_OK;
}

static enum ls_status write_file(const struct ls_bench_table *t)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return ls_fail(LS_FAILED, "out of memory");
    enum ls_status st = format_of(t->o)->write(t, out);
    if (fclose(out) != 0 && st == LS_OK)
        st = ls_fail(LS_FAILED, "out of memory");
    if (st == LS_OK)
        st = ls_file_write(t->o->output, text, size);
    free(text);
    return st;
}

enum ls_status ls_bench_write(const struct ls_bench_table *t)
{
    if (!to_file(t->o))
        return format_of(t->o)->write(t, stdout);
    LS_TRY(write_file(t));
    if (t->o->quiet)
        return LS_OK;
    LS_TRY(ls_bench_write_text(t, stdout));
    ls_print("The results are in %s.", t->o->output);
    return LS_OK;
}
