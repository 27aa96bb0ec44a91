#include "backend/answers.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 640 };

static enum ls_status remember(struct ls_answers *a, const char *question, const char *name, double ms, bool recorded)
{
    if (a->n == a->room) {
        int room = a->room ? a->room * 2 : 128;
        struct ls_answer *more = ls_realloc(a->list, (size_t)a->n, (size_t)room, sizeof *more);
        if (!more)
            return LS_FAILED;
        a->list = more;
        a->room = room;
    }
    struct ls_answer *answer = &a->list[a->n++];
    snprintf(answer->question, sizeof answer->question, "%s", question);
    snprintf(answer->name, sizeof answer->name, "%s", name);
    answer->ms = ms;
    answer->recorded = recorded;
    return LS_OK;
}

enum ls_status ls_answers_add(struct ls_answers *a, const char *question, const char *name, double ms)
{
    a->learned = true;
    return remember(a, question, name, ms, true);
}

/* Lines of other machines and lines that make no sense are passed over: they are a memory, not an input. */
static enum ls_status take_lines(struct ls_answers *a, char *text, bool record)
{
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        char *question = strchr(line, '|'), *name = question ? strchr(question + 1, '|') : NULL;
        char *ms = name ? strchr(name + 1, '|') : NULL;
        if (!ms)
            continue;
        *question++ = *name++ = *ms++ = 0;
        if (strcmp(line, a->machine) == 0)
            LS_TRY(remember(a, question, name, strtod(ms, NULL), record));
    }
    return LS_OK;
}

static enum ls_status load_cache(struct ls_answers *a, const char *path)
{
    char *text = NULL;
    size_t size;
    if (!path || !ls_file_exists(path))
        return LS_OK;
    LS_TRY(ls_file_read(path, (size_t)64 << 20, &text, &size));
    enum ls_status st = take_lines(a, text, false);
    ls_free(text);
    return st;
}

static enum ls_status load_record(struct ls_answers *a, const char *record)
{
    char *text = record ? ls_strdup(record) : NULL;
    if (record && !text)
        return LS_FAILED;
    enum ls_status st = take_lines(a, text, true);
    ls_free(text);
    return st;
}

static size_t answer_line(const struct ls_answers *a, const struct ls_answer *answer, char line[MAX_LINE])
{
    int n = snprintf(line, MAX_LINE, "%s|%s|%s|%.4f\n", a->machine, answer->question, answer->name, answer->ms);
    return (size_t)n < MAX_LINE ? (size_t)n : MAX_LINE - 1;
}

static enum ls_status keep_choices(const struct ls_answers *a, char **choices)
{
    size_t used = 0;
    *choices = ls_alloc((size_t)a->n + 1, MAX_LINE);
    if (!*choices)
        return LS_FAILED;
    for (int i = 0; i < a->n; i++)
        if (a->list[i].recorded)
            used += answer_line(a, &a->list[i], *choices + used);
    return LS_OK;
}

/* The file as it is now, with this machine's lines replaced by what is known: written whole or not at all. */
static enum ls_status save(const struct ls_answers *a, const char *path)
{
    char *old = NULL, line[MAX_LINE];
    size_t size = 0, mine = strlen(a->machine);
    struct ls_file_writer w;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash && slash != folder) {
        *slash = 0;
        LS_TRY(ls_dir_make(folder));
    }
    if (ls_file_exists(path))
        LS_TRY(ls_file_read(path, (size_t)64 << 20, &old, &size));
    enum ls_status st = ls_file_writer_open(&w, path);
    if (st != LS_OK)
        goto free_old;
    for (char *at = old; at && *at && st == LS_OK;) {
        char *end = strchr(at, '\n');
        size_t length = end ? (size_t)(end - at) + 1 : strlen(at);
        if (end && !(strncmp(at, a->machine, mine) == 0 && at[mine] == '|'))
            st = ls_file_writer_put(&w, at, length);
        at += length;
    }
    for (int i = 0; i < a->n && st == LS_OK; i++) {
        size_t length = answer_line(a, &a->list[i], line);
        st = ls_file_writer_put(&w, line, length);
    }
    if (st == LS_OK)
        st = ls_file_writer_commit(&w);
    else
        ls_file_writer_cancel(&w);
free_old:
    ls_free(old);
    return st;
}

enum ls_status ls_answers_open(struct ls_answers *a, const char *cache, const char *record)
{
    LS_TRY(load_cache(a, cache));
    return load_record(a, record); /* later answers are found first */
}

enum ls_status ls_answers_close(struct ls_answers *a, const char *cache, char **choices)
{
    /* A cache that cannot be written costs time at the next start, nothing else. */
    if (a->learned && cache && ls_file_can_write(cache) && save(a, cache) != LS_OK)
        ls_warn("the measured kernel choices could not be kept in %s", cache);
    enum ls_status st = keep_choices(a, choices);
    ls_free(a->list);
    *a = (struct ls_answers){0};
    return st;
}
