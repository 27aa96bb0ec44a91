#include "backend/core/tune_cache.h"
#include "base/system/clock.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 640 };

static enum ls_status remember(struct ls_tune_cache *a, const struct ls_tune_choice *choice)
{
    if (a->n == a->room) {
        int room = a->room ? a->room * 2 : 128;
        struct ls_tune_choice *more = ls_realloc(a->list, (size_t)a->n, (size_t)room, sizeof *more);
        if (!more)
            return LS_FAILED;
        a->list = more;
        a->room = room;
    }
    a->list[a->n++] = *choice;
    return LS_OK;
}

struct ls_tune_choice *ls_tune_cache_find(struct ls_tune_cache *a, const char *question)
{
    for (int i = a->n - 1; i >= 0; i--)
        if (strcmp(a->list[i].question, question) == 0)
            return &a->list[i];
    return NULL;
}

void ls_tune_cache_use(struct ls_tune_cache *a, struct ls_tune_choice *choice)
{
    if (!choice->used)
        choice->used = ++a->used;
}

enum ls_status ls_tune_cache_miss(struct ls_tune_cache *a, const char *layer, const char *question,
                                  const struct ls_tune_choice *known)
{
    if (!a->plan || !a->plan_name || (known && !known->uncached))
        return LS_OK;
    if (!a->binding) {
        a->missing += known != NULL; /* a layer that the plan does not know is another layer */
        return LS_OK;
    }
    if (known)
        return ls_fail(LS_BAD_INPUT,
                       "layer %s: %s wants the kernel '%s', which is not to be had here: another processor, library "
                       "version or number of threads? Leave the plan out to choose kernels anew",
                       layer, a->plan_name, known->name);
    return ls_fail(LS_BAD_INPUT,
                   "layer %s: %s names no kernel for '%s': it was made for another model, batch, precision or backend. "
                   "Leave the plan out to choose kernels anew",
                   layer, a->plan_name, question);
}

enum ls_status ls_tune_cache_add(struct ls_tune_cache *a, const char *question, const char *name, double ms,
                                 uint64_t digest, bool measured)
{
    struct ls_tune_choice choice = {.ms = ms, .digest = digest};
    snprintf(choice.question, sizeof choice.question, "%s", question);
    snprintf(choice.name, sizeof choice.name, "%s", name);
    LS_TRY(remember(a, &choice));
    ls_tune_cache_use(a, &a->list[a->n - 1]);
    a->list[a->n - 1].uncached = !measured;
    a->learned = a->learned || measured;
    return LS_OK;
}

void ls_tune_cache_progress(struct ls_tune_cache *a, const char *layer, const char *where)
{
    const double pause = 5;
    double now = ls_now();
    if (a->quiet || (a->said > 0 && now - a->said < pause))
        return;
    if (a->said == 0)
        ls_progress("measuring kernels on %s for this model and batch ...", where);
    else
        ls_progress("measuring kernels, at layer %s ...", layer);
    a->said = now;
}

/* Splits machine|question|name|ms[|digest] in place; false: it is no such line. */
static bool parse_line(char *line, char **machine, struct ls_tune_choice *choice)
{
    char *field[5] = {line};
    int n = 1;
    for (char *bar; n < 5 && (bar = strchr(field[n - 1], '|')); n++) {
        *bar = 0;
        field[n] = bar + 1;
    }
    if (n < 4)
        return false;
    char none[] = "", *ms_end, *digest_end = none;
    *machine = field[0];
    *choice = (struct ls_tune_choice){.ms = strtod(field[3], &ms_end),
                                      .digest = n > 4 ? strtoull(field[4], &digest_end, 16) : 0};
    if (!*field[1] || !*field[2] || ms_end == field[3] || *ms_end || *digest_end)
        return false;
    snprintf(choice->question, sizeof choice->question, "%s", field[1]);
    snprintf(choice->name, sizeof choice->name, "%s", field[2]);
    return true;
}

/* Lines that make no sense are passed over and counted. Of the cache, those of other machines are passed over, too. */
static enum ls_status take_lines(struct ls_tune_cache *a, char *text, bool planned, int *bad)
{
    *bad = 0;
    for (char *line = text, *next, *machine; line && *line; line = next) {
        struct ls_tune_choice choice;
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        bool good = parse_line(line, &machine, &choice);
        *bad += !good;
        if (!good || (!planned && strcmp(machine, a->machine) != 0))
            continue;
        choice.uncached = planned;
        LS_TRY(remember(a, &choice));
    }
    return LS_OK;
}

static enum ls_status load_cache(struct ls_tune_cache *a, const char *path)
{
    char *text = NULL, why[1024];
    size_t size;
    int bad;
    if (path)
        ls_file_remove_stale(path);
    if (!path || !ls_file_exists(path))
        return LS_OK;
    bool muted = ls_log_mute(true);
    enum ls_status st = ls_file_read(path, (size_t)64 << 20, &text, &size);
    ls_log_mute(muted);
    if (st != LS_OK) {
        ls_log_last_copy(why, sizeof why);
        if (!a->plan || !*a->plan) /* with a plan the cache is hardly needed, and the warning came before */
            ls_warn("the plan cache cannot be used: %s; kernels are measured again, and not kept", why);
        a->unreadable = true;
        return LS_OK;
    }
    bool torn = strlen(text) < size;
    st = take_lines(a, text, false, &bad);
    ls_free(text);
    if (st != LS_OK || (!torn && bad == 0))
        return st;
    a->learned = true; /* so that it is written anew, without them */
    ls_warn("the plan cache %s is damaged: what cannot be read in it is measured again", path);
    return LS_OK;
}

static enum ls_status load_plan(struct ls_tune_cache *a)
{
    char *text = a->plan ? ls_strdup(a->plan) : NULL;
    if (a->plan && !text)
        return LS_FAILED;
    int bad;
    enum ls_status st = take_lines(a, text, true, &bad);
    ls_free(text);
    return st;
}

static size_t choice_line(const struct ls_tune_cache *a, const struct ls_tune_choice *choice, char line[MAX_LINE])
{
    int n = snprintf(line, MAX_LINE, "%s|%s|%s|%.4f|%016" PRIx64 "\n", a->machine, choice->question, choice->name,
                     choice->ms, choice->digest);
    return (size_t)n < MAX_LINE ? (size_t)n : MAX_LINE - 1;
}

static enum ls_status keep_choices(const struct ls_tune_cache *a, char **choices)
{
    size_t used = 0;
    *choices = ls_alloc((size_t)a->used + 1, MAX_LINE);
    if (!*choices)
        return LS_FAILED;
    for (int turn = 1; turn <= a->used; turn++)
        for (int i = 0; i < a->n; i++)
            if (a->list[i].used == turn)
                used += choice_line(a, &a->list[i], *choices + used);
    return LS_OK;
}

/* A line of the cache that is kept: of another machine, and whole. */
static bool is_kept(const struct ls_tune_cache *a, const char *line, size_t length)
{
    char copy[MAX_LINE], *machine;
    struct ls_tune_choice choice;
    if (length == 0 || length >= sizeof copy || line[length - 1] != '\n')
        return false;
    snprintf(copy, sizeof copy, "%.*s", (int)length - 1, line);
    return parse_line(copy, &machine, &choice) && strcmp(machine, a->machine) != 0;
}

/* The file as it is now, with this machine's lines replaced by what is known: written whole or not at all. */
static enum ls_status save(const struct ls_tune_cache *a, const char *path)
{
    char *old = NULL, line[MAX_LINE];
    size_t size = 0;
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
        if (is_kept(a, at, length))
            st = ls_file_writer_put(&w, at, length);
        at += length;
    }
    for (int i = 0; i < a->n && st == LS_OK; i++) {
        if (a->list[i].uncached)
            continue;
        size_t length = choice_line(a, &a->list[i], line);
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

enum ls_status ls_tune_cache_open(struct ls_tune_cache *a, const char *cache)
{
    LS_TRY(load_cache(a, cache));
    return load_plan(a); /* later lines are found first */
}

enum ls_status ls_tune_cache_close(struct ls_tune_cache *a, const char *cache, char **choices)
{
    /* A cache that cannot be written costs time at the next start, nothing else. */
    if (a->learned && !a->unreadable && cache && ls_file_can_write(cache) && save(a, cache) != LS_OK)
        ls_warn("the measured kernel choices could not be kept in %s", cache);
    if (a->missing > 0 && !a->binding)
        ls_warn("%s: %d of its kernels are not to be had here, and others take their place: results will differ in "
                "rounding",
                a->plan_name, a->missing);
    enum ls_status st = keep_choices(a, choices);
    ls_free(a->list);
    *a = (struct ls_tune_cache){0};
    return st;
}

/* --- identity ---------------------------------------------------------------------------------------------------- */

/* FNV-1a */
static uint64_t mix(uint64_t sum, const void *data, size_t size)
{
    for (const unsigned char *byte = data, *end = byte + size; byte < end; byte++)
        sum = (sum ^ *byte) * 0x100000001b3u;
    return sum;
}

uint64_t ls_tune_cache_identity(const char *choices)
{
    uint64_t sum = 0xcbf29ce484222325u;
    char line[MAX_LINE], *machine;
    for (const char *at = choices; *at;) {
        struct ls_tune_choice choice;
        size_t length = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(length < MAX_LINE ? length : MAX_LINE - 1), at);
        at += length + (at[length] == '\n');
        if (!parse_line(line, &machine, &choice))
            continue;
        sum = mix(sum, choice.question, strlen(choice.question));
        sum =
            choice.digest ? mix(sum, &choice.digest, sizeof choice.digest) : mix(sum, choice.name, strlen(choice.name));
    }
    return sum;
}
