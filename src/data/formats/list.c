/* Lists of image files, one `PATH LABEL` a line, as CNTK and Caffe have them: LIST.txt itself, or a folder with train.txt and
 * val.txt, or with list.txt. A tab ends the path; without one the last space does, so that paths may contain spaces. Paths
 * are relative to the folder of the list. Labels are numbers or names (labels.h). */
#include "data/formats/list.h"
#include "data/records/labels.h"
#include "data/formats/formats.h"
#include "base/text/text.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/utf8.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGEST_FILE ((size_t)4 << 30)

/* --- which file ------------------------------------------------------------------------------------------------------ */

static bool join(char path[PATH_MAX], const char *folder, const char *name)
{
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX && ls_file_exists(path) && !ls_file_is_dir(path);
}

/* Finds the list of a part. *whole: it is the only one, for both parts. */
static bool find_list(const char *spec, bool test, char path[PATH_MAX], bool *whole)
{
    static const char *const of_test[] = {"val.txt", "valid.txt", "validation.txt", "test.txt", NULL};
    *whole = !ls_file_is_dir(spec);
    if (*whole)
        return (ls_ends_in(spec, ".txt") || ls_ends_in(spec, ".tsv") || ls_ends_in(spec, ".lst")) &&
               ls_file_exists(spec) && snprintf(path, PATH_MAX, "%s", spec) < PATH_MAX;
    if (join(path, spec, "train.txt")) {
        if (!test)
            return true;
        for (const char *const *name = of_test; *name; name++)
            if (join(path, spec, *name))
                return true;
        join(path, spec, "train.txt");
        return *whole = true;
    }
    return *whole = join(path, spec, "list.txt");
}

/* Folders of images may have text files beside them. */
static bool has_folder_of_part(const char *spec)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/train", spec) < (int)sizeof path && ls_file_is_dir(path);
}

/* --- lines -------------------------------------------------------------------------------------------------------------- */

struct list {
    struct ls_files *files;
    const char *path, *folder; /* folder: in the arena */
    const char **labels;       /* owned; the text of the label of each sample */
    bool any_absolute;
};

static enum ls_status refuse_line(const struct list *l, int64_t number, const char *line)
{
    char shown[400];
    return ls_fail(LS_BAD_INPUT,
                   "%s:%" PRId64 ": expected the path of an image, a tab or a space, and its label, found '%.80s'",
                   l->path, number, ls_utf8_printable(line, shown, sizeof shown));
}

/* Ends the path of a line and returns its label; NULL: there is none. */
static char *split(char *line)
{
    char *tab = strchr(line, '\t'), *at = tab ? tab : strrchr(line, ' ');
    if (!at || at == line)
        return NULL;
    char *label = at + 1 + strspn(at + 1, " \t");
    label[strcspn(label, "\t")] = 0;
    for (*at = 0; at > line && at[-1] == ' '; at--)
        at[-1] = 0;
    return *label && *line ? label : NULL;
}

/* Tests whether the first line of a file names an image that is there: a folder of classes may have any text beside them. */
static bool begins_like_list(const char *path, const char *folder)
{
    char line[PATH_MAX] = "", image[2 * PATH_MAX], why[LS_FILE_WHY];
    size_t size;
    int fd = ls_file_open(path, &size, why);
    ssize_t n = fd >= 0 ? read(fd, line, sizeof line - 1) : -1;
    if (fd >= 0)
        close(fd);
    line[n > 0 ? n : 0] = 0;
    line[strcspn(line, "\r\n")] = 0;
    if (!split(line))
        return false;
    snprintf(image, sizeof image, "%s%s%s", *line == '/' ? "" : folder, *line == '/' ? "" : "/", line);
    return ls_file_exists(image);
}

/* A list that is named itself is one, whatever is in it: its errors are worth reading. */
static bool recognise(const char *spec)
{
    char path[PATH_MAX];
    bool whole;
    if (!find_list(spec, false, path, &whole))
        return false;
    return !ls_file_is_dir(spec) || (!has_folder_of_part(spec) && begins_like_list(path, spec));
}

/* The folder of an absolute path is the root. */
static enum ls_status add_line(struct list *l, char *line, int64_t number)
{
    struct ls_files *f = l->files;
    int64_t n = f->base.info.count, room = f->room;
    char *label = split(line);
    if (!label)
        return refuse_line(l, number, line);
    const char *name = ls_arena_strdup(&f->arena, line + (*line == '/'));
    if (!name)
        return LS_FAILED;
    LS_TRY(ls_files_add(f, *line == '/' ? "" : l->folder, name, 0));
    if (f->room != room) {
        const char **larger = ls_realloc(l->labels, (size_t)n, (size_t)f->room, sizeof *larger);
        if (!larger)
            return LS_FAILED;
        l->labels = larger;
    }
    l->labels[n] = label;
    l->any_absolute |= *line == '/';
    return LS_OK;
}

static enum ls_status add_lines(struct list *l, char *text, size_t size)
{
    int64_t number = 1;
    if (memchr(text, 0, size))
        return ls_fail(LS_BAD_INPUT, "%s: not a text file: a zero byte at %zu", l->path, strlen(text));
    for (char *line = text, *end = text + size; line < end; number++) {
        char *newline = memchr(line, '\n', (size_t)(end - line)), *stop = newline ? newline : end;
        char *next = stop + 1;
        while (stop > line && (stop[-1] == '\r' || stop[-1] == ' ' || stop[-1] == '\t'))
            stop--;
        *stop = 0;
        if (stop > line)
            LS_TRY(add_line(l, line, number));
        line = next;
    }
    if (l->files->base.info.count == 0)
        return ls_fail(LS_BAD_INPUT, "%s: no line in it; expected the path of an image and its label in each", l->path);
    return LS_OK;
}

/* --- the format --------------------------------------------------------------------------------------------------- */

/* A list that belongs to another folder fails at once, not at some sample. */
static enum ls_status check_first(const struct ls_files *f, const char *list)
{
    char path[PATH_MAX];
    ls_files_where(&f->base, 0, path, sizeof path);
    if (ls_file_exists(path))
        return LS_OK;
    return ls_fail(LS_BAD_INPUT, "%s:1: there is no %s; paths are relative to the folder of the list", list, path);
}

static enum ls_status make_classes(struct list *l)
{
    struct ls_files *f = l->files;
    int64_t n = f->base.info.count;
    struct ls_labels found;
    int32_t *of = ls_alloc((size_t)n, sizeof *of);
    enum ls_status st = of ? ls_labels_find(l->labels, n, &f->arena, of, &found) : LS_FAILED;
    for (int64_t i = 0; st == LS_OK && i < n; i++)
        f->entry[i].label = of[i];
    ls_free(of);
    LS_TRY(st);
    f->class_names = found.names;
    ls_files_describe(f, l->any_absolute ? "" : l->folder, found.classes);
    return LS_OK;
}

enum ls_status ls_list_parse(struct ls_files *f, const char *path, const char *folder, char *text, size_t size)
{
    struct list l = {.files = f, .path = path, .folder = folder};
    enum ls_status st = add_lines(&l, text, size);
    if (st == LS_OK)
        st = make_classes(&l);
    ls_free(l.labels);
    return st;
}

static const char *folder_of(struct ls_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? ls_arena_format(arena, "%.*s", (int)(slash - path), path) : ls_arena_strdup(arena, ".");
}

static enum ls_status open_list(const char *spec, const char *part, struct ls_dataset **set)
{
    char path[PATH_MAX], *text = NULL;
    size_t size;
    bool whole, test = strcmp(part, "test") == 0;
    struct ls_files *f;
    if (!find_list(spec, test, path, &whole))
        return ls_fail(LS_BAD_INPUT, "%s: no list of images in it: expected train.txt or list.txt", spec);
    LS_TRY(ls_file_read(path, LARGEST_FILE, &text, &size));
    enum ls_status st = ls_files_new(&f);
    if (st == LS_OK) {
        const char *folder = folder_of(&f->arena, path);
        st = folder ? ls_list_parse(f, path, folder, text, size) : LS_FAILED;
        if (st == LS_OK)
            st = check_first(f, path);
        f->base.info.folder = folder;
        f->base.info.whole = whole;
        if (st == LS_OK)
            *set = &f->base;
        else
            ls_files_close(&f->base);
    }
    ls_free(text);
    return st;
}

const struct ls_dataset_ops ls_format_list = {
    .format = "list",
    .recognise = recognise,
    .open = open_list,
    .close = ls_files_close,
    .read = ls_files_read,
    .encoded = ls_files_encoded,
    .label = ls_files_label,
    .where = ls_files_where,
    .identify = ls_files_identify,
};
