#include "cmd/data/stage.h"

#include "base/files/checksum.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/text.h"
#include "data/data.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH 32
#define TITLE "lockstep-staged 1\n"

void ls_staged_release(struct ls_staged *s)
{
    ls_arena_release(&s->arena);
    ls_free(s->root);
    ls_free(s->source);
    ls_free(s->file);
    *s = (struct ls_staged){0};
}

enum ls_status ls_staged_add(struct ls_staged *s, const struct ls_staged_file *file)
{
    if (s->count == s->room) {
        int64_t room = 2 * s->room + 1024;
        struct ls_staged_file *larger = ls_realloc(s->file, (size_t)s->count, (size_t)room, sizeof *larger);
        if (!larger)
            return LS_FAILED;
        s->file = larger;
        s->room = room;
    }
    s->file[s->count] = *file;
    s->file[s->count].path = ls_arena_strdup(&s->arena, file->path);
    s->bytes += file->size;
    return s->file[s->count++].path ? LS_OK : LS_FAILED;
}

/* --- the files of a source -------------------------------------------------------------------------------------------- */

static enum ls_status add_folder(struct ls_staged *s, const char *below, int depth);

/* path: below the root. */
static enum ls_status add_path(struct ls_staged *s, const char *path, int depth)
{
    char full[PATH_MAX];
    struct stat about;
    if (snprintf(full, sizeof full, "%s/%s", s->root, path) >= (int)sizeof full)
        return ls_fail(LS_BAD_INPUT, "%s/%s: the path is too long", s->root, path);
    if (stat(full, &about) != 0)
        return ls_fail(LS_BAD_INPUT, "%s: %s", full, strerror(errno));
    struct ls_staged_file file = {.path = path,
                                  .is_folder = S_ISDIR(about.st_mode),
                                  .changed = (int64_t)about.st_mtim.tv_sec * 1000000000 + about.st_mtim.tv_nsec};
    if (!file.is_folder && !S_ISREG(about.st_mode))
        return ls_fail(LS_BAD_INPUT, "%s: it is %s, which cannot be staged", full, ls_file_kind(about.st_mode));
    if (file.is_folder)
        file.changed = 0; /* a folder changes when an index is written into it */
    else
        file.size = (uint64_t)about.st_size;
    LS_TRY(ls_staged_add(s, &file));
    return file.is_folder ? add_folder(s, path, depth + 1) : LS_OK;
}

/* The marks of this program say what a folder is, not what it holds. */
static bool is_left_out(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, ".lockstep-staged") == 0 ||
           strcmp(name, ".lockstep-converted") == 0;
}

static enum ls_status add_folder(struct ls_staged *s, const char *below, int depth)
{
    char full[PATH_MAX], path[PATH_MAX];
    enum ls_status st = LS_OK;
    struct dirent *e;
    if (depth > MAX_DEPTH)
        return ls_fail(LS_BAD_INPUT, "%s/%s: folders are nested more than %d deep; does a link lead back?", s->root,
                       below, MAX_DEPTH);
    snprintf(full, sizeof full, "%s%s%s", s->root, *below ? "/" : "", below);
    DIR *dir = opendir(full);
    if (!dir)
        return ls_fail(LS_BAD_INPUT, "%s: the folder cannot be read: %s", full, strerror(errno));
    while (st == LS_OK && (e = readdir(dir))) {
        if (is_left_out(e->d_name))
            continue;
        if (snprintf(path, sizeof path, "%s%s%s", below, *below ? "/" : "", e->d_name) >= (int)sizeof path)
            st = ls_fail(LS_BAD_INPUT, "%s/%s: the path is too long", full, e->d_name);
        else
            st = add_path(s, path, depth);
    }
    closedir(dir);
    return st;
}

/* Adds the folders that a path lies in. Those that are there already are removed after sorting. */
static enum ls_status add_above(struct ls_staged *s, const char *path)
{
    char folder[PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        LS_TRY(ls_staged_add(s, &(struct ls_staged_file){.path = folder, .is_folder = true}));
    }
    return LS_OK;
}

/* The images of a list of images must lie below its folder. */
static enum ls_status add_images(struct ls_staged *s, const char *list)
{
    struct ls_dataset *set;
    size_t root = strlen(s->root);
    LS_TRY(ls_dataset_open(list, "train", &set));
    enum ls_status st = LS_OK;
    for (int64_t i = 0; st == LS_OK && i < ls_dataset_info(set)->count; i++) {
        char where[PATH_MAX];
        ls_dataset_where(set, i, where, sizeof where);
        const char *path = where + root;
        path += strspn(path, "/");
        if (strncmp(where, s->root, root) != 0 || strncmp(path, "../", 3) == 0 || strstr(path, "/../"))
            st = ls_fail(LS_BAD_INPUT, "%s: %s lies outside of the folder of the list and cannot be staged with it",
                         list, where);
        else
            st = add_above(s, path);
        if (st == LS_OK)
            st = add_path(s, path, 0);
    }
    ls_dataset_close(set);
    return st;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct ls_staged_file *)a)->path, ((const struct ls_staged_file *)b)->path);
}

static void sort(struct ls_staged *s)
{
    int64_t kept = 0;
    if (s->count > 1)
        qsort(s->file, (size_t)s->count, sizeof *s->file, by_path);
    for (int64_t i = 0; i < s->count; i++) {
        if (kept > 0 && strcmp(s->file[kept - 1].path, s->file[i].path) == 0)
            s->bytes -= s->file[i].size;
        else
            s->file[kept++] = s->file[i];
    }
    s->count = kept;
}

static bool is_list(const char *path)
{
    return ls_ends_in(path, ".txt") || ls_ends_in(path, ".tsv") || ls_ends_in(path, ".lst");
}

enum ls_status ls_staged_list(struct ls_staged *s, const char *source)
{
    char folder[PATH_MAX];
    enum ls_status st;
    char *real = realpath(source, NULL);
    s->source = ls_strdup(real ? real : source);
    free(real);
    if (!s->source)
        return LS_FAILED;
    snprintf(folder, sizeof folder, "%s", source);
    char *slash = strrchr(folder, '/');
    if (ls_file_is_dir(source)) {
        s->root = ls_strdup(source);
        st = s->root ? add_folder(s, "", 0) : LS_FAILED;
    } else {
        if (slash)
            *slash = 0;
        s->root = ls_strdup(slash ? folder : ".");
        st = s->root ? add_path(s, ls_base_name(source), 0) : LS_FAILED;
        if (st == LS_OK && is_list(source))
            st = add_images(s, source);
    }
    sort(s);
    if (st == LS_OK && s->count == 0)
        st = ls_fail(LS_BAD_INPUT, "%s: the folder is empty", source);
    return st;
}

bool ls_staged_same(const struct ls_staged *a, const struct ls_staged *b)
{
    bool same = a->count == b->count;
    for (int64_t i = 0; same && i < a->count; i++) {
        const struct ls_staged_file *x = &a->file[i], *y = &b->file[i];
        same = strcmp(x->path, y->path) == 0 && x->size == y->size && x->changed == y->changed &&
               x->is_folder == y->is_folder;
    }
    return same;
}

/* --- the list as text ------------------------------------------------------------------------------------------------- */

/* The second line is the path of the source. A further line is "f SUM SIZE CHANGED PATH", or "d 0 0 0 PATH" for a
 * folder; in a path \ is \\ and a line break \n. The last line is "end CHECKSUM", of everything before it. */
static void put_path(FILE *out, const char *path)
{
    for (; *path; path++) {
        if (*path == '\\' || *path == '\n')
            fputc('\\', out);
        fputc(*path == '\n' ? 'n' : *path, out);
    }
}

static void take_path(char *path)
{
    char *to = path;
    for (; *path; path++) {
        bool escape = *path == '\\' && path[1];
        path += escape;
        *to++ = (char)(escape && *path == 'n' ? '\n' : *path);
    }
    *to = 0;
}

enum ls_status ls_staged_print(const struct ls_staged *s, char **text)
{
    size_t size = 0;
    FILE *out = open_memstream(text, &size);
    if (!out)
        return ls_fail(LS_FAILED, "out of memory");
    fputs(TITLE, out);
    put_path(out, s->source);
    fputc('\n', out);
    for (int64_t i = 0; i < s->count; i++) {
        const struct ls_staged_file *f = &s->file[i];
        fprintf(out, "%c %016" PRIx64 " %" PRIu64 " %" PRId64 " ", f->is_folder ? 'd' : 'f', f->sum, f->size,
                f->changed);
        put_path(out, f->path);
        fputc('\n', out);
    }
    fflush(out);
    fprintf(out, "end %016" PRIx64 "\n", ls_checksum_of(*text, size));
    return fclose(out) == 0 ? LS_OK : ls_fail(LS_FAILED, "out of memory");
}

static bool parse_line(char *line, struct ls_staged *s)
{
    if (!s->source) {
        take_path(line);
        return (s->source = ls_strdup(line));
    }
    struct ls_staged_file f;
    char kind;
    int used = 0;
    if (sscanf(line, "%c %" SCNx64 " %" SCNu64 " %" SCNd64 "%n", &kind, &f.sum, &f.size, &f.changed, &used) != 4 ||
        line[used] != ' ')
        return false;
    f.is_folder = kind == 'd';
    f.path = line + used + 1;
    take_path(line + used + 1);
    return ls_staged_add(s, &f) == LS_OK;
}

bool ls_staged_parse(char *text, size_t size, struct ls_staged *s)
{
    uint64_t sum;
    char *end = NULL, *line = text + strlen(TITLE);
    for (char *at = strstr(text, "\nend "); at; at = strstr(at + 1, "\nend "))
        end = at + 1;
    if (strlen(text) != size || strncmp(text, TITLE, strlen(TITLE)) != 0 || !end ||
        sscanf(end, "end %" SCNx64, &sum) != 1 || ls_checksum_of(text, (size_t)(end - text)) != sum)
        return false;
    while (line < end) {
        char *after = strchr(line, '\n');
        *after = 0;
        if (!parse_line(line, s))
            return false;
        line = after + 1;
    }
    return true;
}
