/* lockstep report: one HTML file about runs, sweeps and results of bench. */
#define _GNU_SOURCE
#include "cmd/cmd.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/utf8.h"
#include "cmd/report/figures.h"
#include "cmd/report/sections/sections.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USUAL "report.html"

/* The usual file is replaced only if a report is in it: the user may have another page of that name. */
static enum ls_status check_output(const struct ls_options *o)
{
    char why[LS_FILE_WHY], text[1024];
    size_t size;
    if (o->output || !ls_file_exists(USUAL))
        return LS_OK;
    int fd = ls_file_open(USUAL, &size, why);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    if (n == 0 || strstr(text, "content=\"lockstep report\""))
        return LS_OK;
    return ls_fail(LS_USAGE,
                   "report: " USUAL " is there and is not a report of lockstep; name the file to write with -o FILE");
}

static void head(FILE *out, const struct ls_subject *s)
{
    char title[512];
    snprintf(title, sizeof title, "%s", s->title ? s->title : "Lockstep report");
    ls_page_begin(out, title);
    fputs("<header>\n<h1>", out);
    ls_page_text(out, title);
    fputs("</h1>\n<p>", out);
    if (s->n_runs > 0)
        fprintf(out, "%d %s%s", s->n_runs, s->is_sweep ? "trial" : "run", s->n_runs == 1 ? "" : "s");
    if (s->n_benches > 0)
        fprintf(out, "%s%d file%s of bench", s->n_runs > 0 ? ", " : "", s->n_benches, s->n_benches == 1 ? "" : "s");
    if (s->n_runs == 1) {
        const char *model = ls_run_fact(&s->runs[0], "model"), *hardware = ls_run_fact(&s->runs[0], "hardware");
        ls_page_print(out, "%s%s%s%s", model ? ": " : "", model ? model : "", hardware ? "; " : "",
                      hardware ? hardware : "");
    }
    for (int i = 0; i < s->n_runs && s->n_runs > 1 && s->n_runs <= LS_FEW_RUNS; i++)
        ls_page_print(out, "%s%s", i == 0 ? ": " : ", ", s->runs[i].name);
    fputs("</p>\n</header>\n<main>\n", out);
}

static enum ls_status write_page(FILE *out, const struct ls_subject *s, const struct ls_remarks *r, const char *version)
{
    head(out, s);
    ls_section_findings(out, r);
    ls_section_facts(out, s);
    LS_TRY(ls_section_sweep(out, s));
    ls_section_curves(out, s);
    ls_section_ranks(out, s);
    ls_section_confusion(out, s);
    ls_section_bench(out, s);
    ls_page_end(out, version);
    return LS_OK;
}

static enum ls_status save(const char *path, const char *page, size_t size)
{
    if (strcmp(path, "-") != 0)
        return ls_file_write(path, page, size);
    return fwrite(page, 1, size, stdout) == size ? LS_OK : ls_fail(LS_FAILED, "standard output: %s", strerror(errno));
}

/* The page is made in memory, so that a file is complete or absent. */
static enum ls_status make(const struct ls_options *o, const struct ls_subject *s, const struct ls_remarks *r)
{
    const char *path = o->output ? o->output : USUAL;
    char *page = NULL, text[LS_FIGURE_ROOM], name[LS_PRINTABLE_SIZE];
    size_t size = 0;
    int figures = 0;
    FILE *out = open_memstream(&page, &size);
    if (!out)
        return ls_fail(LS_FAILED, "out of memory");
    enum ls_status st = write_page(out, s, r, o->version ? o->version : "");
    if (fclose(out) != 0 && st == LS_OK)
        st = ls_fail(LS_FAILED, "out of memory");
    if (st == LS_OK && o->figures)
        st = ls_figures_write(page, o->figures, &figures);
    if (st == LS_OK)
        st = save(path, page, size);
    free(page);
    if (st != LS_OK || strcmp(path, "-") == 0)
        return st;
    for (int i = 0; i < r->n && i < 3; i++)
        ls_print("%s%s%s", r->list[i].run ? r->list[i].run : "", r->list[i].run ? ": " : "", r->list[i].text);
    if (o->figures)
        ls_print("Figures: %d in %s", figures, ls_utf8_printable(o->figures, name, sizeof name));
    ls_print("Report: %s (%s)", ls_utf8_printable(path, name, sizeof name), ls_figure_bytes((double)size, text));
    return LS_OK;
}

enum ls_status ls_cmd_report(struct ls_options *o)
{
    struct ls_subject s = {0};
    struct ls_remarks r = {0};
    enum ls_status st;
    if (o->n_args == 0)
        return ls_fail(LS_USAGE,
                       "report: of what? Type: lockstep report RUN, with the directory of a run, of a sweep, or a file "
                       "of `lockstep bench --json`");
    LS_TRY(check_output(o));
    LS_TRY_GOTO(release, ls_subject_load(&s, o->args, o->n_args));
    LS_TRY_GOTO(release, ls_findings_make(&s, &r));
    st = make(o, &s, &r);
release:
    ls_remarks_release(&r);
    ls_subject_release(&s);
    return st;
}
