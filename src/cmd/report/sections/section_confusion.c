/* confusion.json of a run: which class was taken for which, and the samples that were most wrong. */
#define _GNU_SOURCE
#include "cmd/report/sections/sections.h"
#include "base/files/file.h"
#include "base/log.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT = 256 << 20, MOST_CLASSES = 40, MOST_PAIRS = 20, MOST_SAMPLES = 24, PICTURE = 300000 };

struct matrix {
    int n;
    const json_t *classes, *counts;
};

static double count_of(const struct matrix *m, int label, int predicted)
{
    return json_number_value(json_array_get(json_array_get(m->counts, (size_t)label), (size_t)predicted));
}

static const char *class_name(const struct matrix *m, int i)
{
    const char *name = json_string_value(json_object_get(json_array_get(m->classes, (size_t)i), "name"));
    return name ? name : "?";
}

/* What is left of a name without the words that all names begin with: "3" of "class 3". */
static const char *own_name(const struct matrix *m, int i)
{
    const char *first = class_name(m, 0), *space = strrchr(first, ' ');
    size_t length = space ? (size_t)(space - first) + 1 : 0;
    for (int k = 0; k < m->n; k++)
        if (strncmp(class_name(m, k), first, length) != 0)
            length = 0;
    return class_name(m, i) + length;
}

static double row_sum(const struct matrix *m, int label)
{
    double sum = 0;
    for (int k = 0; k < m->n; k++)
        sum += count_of(m, label, k);
    return sum;
}

/* --- the matrix --------------------------------------------------------------------------------------------------- */

static void cell(FILE *out, const struct matrix *m, int label, int predicted, double x, double y, double side)
{
    double count = count_of(m, label, predicted), all = row_sum(m, label);
    double share = all > 0 ? count / all : 0;
    fprintf(out,
            "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill-opacity=\"%.3f\"><title>",
            label == predicted ? "bar c0" : "bar c1", x, y, side - 1, side - 1,
            count > 0 ? 0.12 + 0.88 * sqrt(share) : 0.03);
    ls_page_print(out, "%s taken for %s: %.0f of %.0f", class_name(m, label), class_name(m, predicted), count, all);
    fputs("</title></rect>", out);
    if (count > 0 && m->n <= 16)
        fprintf(out, "<text class=\"mid%s\" x=\"%.1f\" y=\"%.1f\">%.0f</text>", share > 0.3 ? " on" : "", x + side / 2,
                y + side / 2 + 4, count);
}

static void picture(FILE *out, const struct matrix *m)
{
    enum { LEFT = 84, TOP = 22 };
    double side = fmin(36, (double)(LS_PLOT_WIDTH - LEFT - 4) / m->n), size = side * m->n;
    fprintf(out, "<svg class=\"plot heat\" viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"Confusion matrix\">\n",
            LS_PLOT_WIDTH, TOP + size + 40);
    fputs("<text x=\"2\" y=\"12\">label</text>\n", out);
    for (int i = 0; i < m->n; i++) {
        if (side >= 12) {
            fprintf(out, "<text class=\"ty\" x=\"%d\" y=\"%.1f\">", LEFT - 6, TOP + (i + 0.5) * side + 4);
            ls_page_short(out, class_name(m, i), 11);
            fputs("</text>", out);
        }
        for (int k = 0; k < m->n; k++)
            cell(out, m, i, k, LEFT + k * side, TOP + i * side, side);
        fputs("\n", out);
    }
    for (int k = 0; k < m->n && side >= 24; k++) {
        fprintf(out, "<text class=\"mid\" x=\"%.1f\" y=\"%.1f\">", LEFT + (k + 0.5) * side, TOP + size + 14);
        ls_page_short(out, own_name(m, k), 4);
        fputs("</text>", out);
    }
    fprintf(out, "<text class=\"nx\" x=\"%.1f\" y=\"%.1f\">predicted</text></svg>\n", LEFT + size, TOP + size + 32);
}

struct pair {
    int label, predicted;
    double count;
};

static int most_first(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return (x->count < y->count) - (x->count > y->count);
}

/* The pairs of classes that are confused most often. */
static void pairs(FILE *out, const struct matrix *m, bool open)
{
    struct pair top[MOST_PAIRS + 1];
    int n = 0;
    for (int i = 0; i < m->n; i++)
        for (int k = 0; k < m->n; k++) {
            double count = i == k ? 0 : count_of(m, i, k);
            if (count <= 0 || (n == MOST_PAIRS && count <= top[n - 1].count))
                continue;
            top[n < MOST_PAIRS ? n++ : MOST_PAIRS - 1] = (struct pair){i, k, count};
            qsort(top, (size_t)n, sizeof *top, most_first);
        }
    fprintf(out,
            "<details%s><summary>Classes that are confused most often</summary><div class=\"scroll\"><table><thead><tr>"
            "<th scope=\"col\">label</th><th scope=\"col\" class=\"t\">taken for</th><th scope=\"col\">times</th>"
            "<th scope=\"col\">of all %%</th></tr></thead><tbody>\n",
            open ? " open" : "");
    for (int i = 0; i < n; i++) {
        fputs("<tr>", out);
        ls_page_row_head(out, class_name(m, top[i].label));
        ls_page_cell_text(out, class_name(m, top[i].predicted));
        ls_page_cell(out, top[i].count);
        ls_page_cell(out, 100 * top[i].count / row_sum(m, top[i].label));
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div></details>\n", out);
}

static void class_table(FILE *out, const struct matrix *m)
{
    static const char *const head[] = {"class", "samples", "precision %", "recall %"};
    ls_page_table(out, head, 4);
    for (int i = 0; i < m->n; i++) {
        const json_t *class = json_array_get(m->classes, (size_t)i), *recall = json_object_get(class, "recall");
        const json_t *precision = json_object_get(class, "precision");
        fputs("<tr>", out);
        ls_page_row_head(out, class_name(m, i));
        ls_page_cell(out, row_sum(m, i));
        ls_page_cell(out, json_is_number(precision) ? 100 * json_number_value(precision) : NAN);
        ls_page_cell(out, json_is_number(recall) ? 100 * json_number_value(recall) : NAN);
        fputs("</tr>\n", out);
    }
    ls_page_table_end(out);
}

/* --- samples ------------------------------------------------------------------------------------------------------ */

static bool is_base64(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && length < PICTURE &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") == length;
}

static void sample(FILE *out, const struct matrix *m, const json_t *mistake)
{
    const char *png = json_string_value(json_object_get(mistake, "png"));
    const char *name = json_string_value(json_object_get(mistake, "name"));
    int label = (int)json_number_value(json_object_get(mistake, "label"));
    int predicted = (int)json_number_value(json_object_get(mistake, "predicted"));
    double probability = json_number_value(json_object_get(mistake, "probability"));
    if (label < 0 || label >= m->n || predicted < 0 || predicted >= m->n)
        return;
    fputs("<li>", out);
    if (png && is_base64(png)) {
        fputs("<img alt=\"\" loading=\"lazy\" src=\"data:image/png;base64,", out);
        fputs(png, out);
        fputs("\" title=\"", out);
        ls_page_text(out, name ? name : "");
        fputs("\">", out);
    }
    ls_page_print(out, "%s, taken for %s (%.0f %%)", class_name(m, label), class_name(m, predicted), 100 * probability);
    fputs("</li>\n", out);
}

static void samples(FILE *out, const struct matrix *m, const json_t *mistakes, const char *note)
{
    size_t n = json_array_size(mistakes);
    if (n == 0)
        return;
    ls_page_figure(out, "Samples that were most wrong", note, false);
    fputs("<ul class=\"samples\">\n", out);
    for (size_t i = 0; i < n && i < MOST_SAMPLES; i++)
        sample(out, m, json_array_get(mistakes, i));
    fputs("</ul>\n", out);
    ls_page_figure_end(out);
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static void show(FILE *out, const struct ls_run_view *v, bool named, const json_t *file)
{
    struct matrix m = {.classes = json_object_get(file, "classes"), .counts = json_object_get(file, "counts")};
    char note[512];
    m.n = (int)json_array_size(m.counts);
    if (m.n < 2 || json_array_size(m.classes) != (size_t)m.n)
        return;
    snprintf(note, sizeof note, "%s%safter step %.0f; shades are shares of a label", named ? v->name : "",
             named ? ", " : "", json_number_value(json_object_get(file, "step")));
    ls_page_figure(out, "Confusion matrix", note, false);
    if (m.n <= MOST_CLASSES)
        picture(out, &m);
    pairs(out, &m, m.n > MOST_CLASSES);
    class_table(out, &m);
    ls_page_figure_end(out);
    samples(out, &m, json_object_get(file, "mistakes"),
            named ? v->name : "the highest loss; in brackets the probability of the wrong class");
}

static json_t *load(const struct ls_run_view *v)
{
    char *path = ls_format("%s/confusion.json", v->path), *text = NULL;
    size_t size = 0;
    json_t *file = NULL;
    bool was = ls_log_mute(true);
    if (path && ls_file_exists(path) && ls_file_read(path, LIMIT, &text, &size) == LS_OK)
        file = json_loadb(text, size, 0, NULL);
    ls_log_mute(was);
    ls_free(text);
    ls_free(path);
    return file;
}

void ls_section_confusion(FILE *out, const struct ls_subject *s)
{
    bool begun = false;
    for (int i = 0; i < s->n_runs && s->n_runs <= LS_FEW_RUNS && !s->is_sweep; i++) {
        json_t *file = load(&s->runs[i]);
        if (json_is_object(file)) {
            if (!begun) {
                ls_page_section(out, "classes", "Classes");
                fputs("<div class=\"grid\">\n", out);
            }
            begun = true;
            show(out, &s->runs[i], s->n_runs > 1, file);
        }
        json_decref(file);
    }
    if (begun) {
        fputs("</div>\n", out);
        ls_page_section_end(out);
    }
}
