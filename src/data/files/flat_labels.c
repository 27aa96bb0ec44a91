/* The labels of a flat part: reads the file, finds the image of each line and the class of each label. */
#define _GNU_SOURCE
#include "data/files/flat_part.h"
#include "data/files/lines.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/text.h"
#include "base/text/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct flat {
    struct ls_files *files;
    const struct ls_layout *layout;
    int64_t classes;
    struct ls_lines lines, list; /* the label file; synsets.txt or classes.txt, count 0: none */
    const char **label;          /* owned; of each entry, borrowed from lines; NULL: not listed */
    int *line;                   /* owned; its line, from 1 */
};

static enum ls_status refuse(const struct flat *p, int line, const char *expected)
{
    char shown[400];
    return ls_fail(LS_BAD_INPUT, "%s: line %d: expected %s, found '%.80s'", p->layout->labels, line, expected,
                   ls_utf8_printable(p->lines.line[line - 1], shown, sizeof shown));
}

/* --- lines ------------------------------------------------------------------------------------------------------------ */

static int by_name(const void *key, const void *entry)
{
    return strcmp(key, ((const struct ls_file_entry *)entry)->name);
}

static int64_t find_exactly(const struct ls_files *f, const char *name)
{
    const struct ls_file_entry *e = bsearch(name, f->entry, (size_t)f->base.info.count, sizeof *f->entry, by_name);
    return e ? e - f->entry : -1;
}

/* Finds the image of that name, with or without folders and extension; -1: none. */
static int64_t find_image(const struct ls_files *f, const char *name)
{
    static const char *const endings[] = {"JPEG", "jpg", "jpeg", "png", "JPG", "PNG",
                                          "ppm",  "bmp", "webp", "gif", NULL};
    const char *slash = strrchr(name, '/');
    char full[NAME_MAX + 16];
    name = slash ? slash + 1 : name;
    int64_t i = find_exactly(f, name);
    for (const char *const *e = endings; i < 0 && *e; e++)
        if (snprintf(full, sizeof full, "%s.%s", name, *e) < (int)sizeof full)
            i = find_exactly(f, full);
    return i;
}

/* Cuts a line into name and label. *name is NULL if the line is a label alone. Where only spaces separate them, the name is
 * the longest one that an image has. */
static void split(const struct flat *p, char *line, const char **name, const char **label)
{
    bool csv = ls_ends_in(p->layout->labels, ".csv");
    char *at = strchr(line, '\t');
    *name = NULL;
    *label = line;
    if (strlen(line) > 2 * PATH_MAX) /* no line of such a file: the label is refused */
        return;
    if (!at && csv)
        at = strchr(line, ',');
    else if (!at)
        for (at = strrchr(line, ' '); at; at = memrchr(line, ' ', (size_t)(at - line))) {
            *at = 0;
            if (find_image(p->files, line) >= 0)
                break;
            *at = ' ';
        }
    if (!at)
        return;
    *at = 0;
    *name = line;
    *label = at + 1 + strspn(at + 1, " \t");
    ((char *)*label)[strcspn(*label, csv ? "\t, " : "\t")] = 0;
    while (at > line && at[-1] == ' ')
        *--at = 0;
}

/* The lines name their images. A .csv file may have a line of headings. */
static enum ls_status take_named(struct flat *p)
{
    for (int i = 0; i < p->lines.count; i++) {
        const char *name, *label;
        split(p, p->lines.line[i], &name, &label);
        int64_t image = name ? find_image(p->files, name) : -1;
        if (image < 0 && i == 0 && ls_ends_in(p->layout->labels, ".csv"))
            continue;
        if (!name || !*label)
            return refuse(p, i + 1, "the name of an image and its label");
        if (image < 0)
            return refuse(p, i + 1, "the name of an image of the folder");
        if (p->label[image])
            return ls_fail(LS_BAD_INPUT, "%s: line %d: %s has a label in line %d already", p->layout->labels, i + 1,
                           name, p->line[image]);
        p->label[image] = label;
        p->line[image] = i + 1;
    }
    return LS_OK;
}

/* The lines are labels, in the order of the images. */
static enum ls_status take_in_order(struct flat *p)
{
    int64_t images = p->files->base.info.count;
    if (p->lines.count != images)
        return ls_fail(LS_BAD_INPUT, "%s: %d labels, one a line, but %s has %" PRId64 " images", p->layout->labels,
                       p->lines.count, p->layout->images, images);
    for (int i = 0; i < p->lines.count; i++) {
        p->label[i] = p->lines.line[i];
        p->line[i] = i + 1;
    }
    return LS_OK;
}

/* The first line decides; in a .csv file the second, because the first may have headings. */
static bool has_names(const struct flat *p)
{
    char line[PATH_MAX];
    const char *name, *label;
    int at = p->lines.count > 1 && ls_ends_in(p->layout->labels, ".csv");
    snprintf(line, sizeof line, "%s", p->lines.line[at]);
    split(p, line, &name, &label);
    return name != NULL;
}

/* Leaves out the images without a label. */
static void drop_unlisted(struct flat *p)
{
    struct ls_files *f = p->files;
    int64_t kept = 0, left_out = 0;
    const char *first = NULL;
    for (int64_t i = 0; i < f->base.info.count; i++) {
        if (!p->label[i]) {
            first = first ? first : f->entry[i].name;
            left_out++;
            continue;
        }
        f->entry[kept] = f->entry[i];
        p->label[kept] = p->label[i];
        p->line[kept++] = p->line[i];
    }
    f->base.info.count = kept;
    if (left_out > 0)
        ls_warn("%s: %" PRId64 " image%s no label in %s, left out (the first: %s)", p->layout->images, left_out,
                left_out == 1 ? " has" : "s have", p->layout->labels, first);
}

/* --- classes ---------------------------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int32_t class_named(const struct flat *p, const char *name)
{
    const char **known = bsearch(&name, p->files->class_names, (size_t)p->classes, sizeof *known, by_text);
    return known ? (int32_t)(known - p->files->class_names) : -1;
}

/* Returns a whole number, or -1. */
static int64_t number_of(const char *text)
{
    char *end;
    if (strspn(text, "0123456789") != strlen(text) || strlen(text) > 9)
        return -1;
    int64_t number = strtoll(text, &end, 10);
    return end > text ? number : -1;
}

/* Loads synsets.txt or classes.txt, in the part or beside it. The first word of a line is the class. */
static enum ls_status load_class_list(struct flat *p)
{
    char folder[PATH_MAX], path[PATH_MAX + 32];
    memcpy(folder, p->layout->images, sizeof folder);
    for (int up = 0; up < 3 && strlen(folder) + 1 > p->layout->above; up++) {
        for (const char *const *name = ls_class_lists; *name; name++) {
            snprintf(path, sizeof path, "%s/%s", folder, *name);
            if (!ls_file_exists(path) || ls_file_is_dir(path))
                continue;
            LS_TRY(ls_lines_load(path, &p->list));
            for (int i = 0; i < p->list.count; i++)
                p->list.line[i][strcspn(p->list.line[i], class_named(p, p->list.line[i]) < 0 ? " \t," : "\t")] = 0;
            return LS_OK;
        }
        char *slash = strrchr(folder, '/');
        if (!slash)
            break;
        *slash = 0;
    }
    return LS_OK;
}

static enum ls_status class_numbered(const struct flat *p, int64_t i, int64_t first, int32_t *class)
{
    int64_t number = number_of(p->label[i]) - first, count = p->list.count > 0 ? p->list.count : p->classes;
    if (number < 0 || number >= count)
        return ls_fail(LS_BAD_INPUT, "%s: line %d: label %s, expected %" PRId64 " to %" PRId64, p->layout->labels,
                       p->line[i], p->label[i], first, count - 1 + first);
    *class = p->list.count > 0 ? class_named(p, p->list.line[number]) : (int32_t)number;
    if (*class < 0)
        return ls_fail(LS_BAD_INPUT, "%s: line %d: label %s is '%.80s', a class that %s does not have",
                       p->layout->labels, p->line[i], p->label[i], p->list.line[number], p->layout->classes);
    return LS_OK;
}

/* ILSVRC's own numbers are those of its meta.mat, which are not in the order of the synsets. */
static bool is_ilsvrc(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strncasecmp(slash ? slash + 1 : path, "ILSVRC", 6) == 0 && strstr(path, "ground_truth");
}

static enum ls_status classes_by_number(const struct flat *p)
{
    int64_t first = 1, largest = 0, n = p->files->base.info.count;
    for (int64_t i = 0; i < n; i++) {
        int64_t number = number_of(p->label[i]);
        first = number == 0 ? 0 : first;
        largest = number > largest ? number : largest;
    }
    if (is_ilsvrc(p->layout->labels) && p->list.count == 0)
        return ls_fail(
            LS_BAD_INPUT,
            "%s: these numbers are ILSVRC's, in the order of its meta.mat and not of the sorted synsets: write "
            "the synsets in that order, one a line, to synsets.txt beside it, or give synsets as labels",
            p->layout->labels);
    for (int64_t i = 0; i < n; i++)
        LS_TRY(class_numbered(p, i, first, &p->files->entry[i].label));
    bool sure = first == 0 || largest == (p->list.count > 0 ? p->list.count : p->classes);
    ls_warn("%s: the labels are numbers from %" PRId64 "%s: %" PRId64 " is the class %s", p->layout->labels, first,
            sure ? "" : ", because none is 0 (none is the largest number either)", first,
            p->list.count > 0 ? p->list.line[0] : p->files->class_names[0]);
    return LS_OK;
}

static enum ls_status find_classes(struct flat *p)
{
    bool names = true, numbers = true;
    int64_t n = p->files->base.info.count, odd = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t class = class_named(p, p->label[i]);
        p->files->entry[i].label = class;
        if (class < 0 && names)
            odd = i;
        names &= class >= 0;
        numbers &= number_of(p->label[i]) >= 0;
    }
    if (names)
        return LS_OK;
    if (numbers)
        return classes_by_number(p);
    return ls_fail(LS_BAD_INPUT, "%s: line %d: '%.80s' is neither a class of %s nor are all labels numbers",
                   p->layout->labels, p->line[odd], p->label[odd], p->layout->classes);
}

/* --- all -------------------------------------------------------------------------------------------------------------- */

static enum ls_status add(struct flat *p)
{
    int64_t added;
    const char *folder = ls_arena_strdup(&p->files->arena, p->layout->images);
    LS_TRY(folder ? ls_files_add_tree(p->files, folder, 0, &added) : LS_FAILED);
    LS_TRY(ls_lines_load(p->layout->labels, &p->lines));
    LS_TRY(load_class_list(p));
    if (p->lines.count == 0)
        return ls_fail(LS_BAD_INPUT, "%s: the file is empty; expected the labels of the images", p->layout->labels);
    p->label = ls_alloc((size_t)added, sizeof *p->label);
    p->line = ls_alloc((size_t)added, sizeof *p->line);
    if (!p->label || !p->line)
        return LS_FAILED;
    LS_TRY(has_names(p) ? take_named(p) : take_in_order(p));
    drop_unlisted(p);
    if (p->files->base.info.count == 0)
        return ls_fail(LS_BAD_INPUT, "%s: no image of %s has a label in it", p->layout->labels, p->layout->images);
    return find_classes(p);
}

enum ls_status ls_flat_part_add(struct ls_files *files, const struct ls_layout *layout, int64_t classes)
{
    struct flat p = {.files = files, .layout = layout, .classes = classes};
    enum ls_status st = add(&p);
    ls_lines_release(&p.lines);
    ls_lines_release(&p.list);
    ls_free(p.label);
    ls_free(p.line);
    return st;
}
