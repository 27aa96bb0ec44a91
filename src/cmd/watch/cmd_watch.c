/* lockstep watch: a live view of runs in the terminal. It reads the files of a run and changes nothing, so that any number of
 * watchers may look at a run, from any machine that sees its directory. */
#define _GNU_SOURCE
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "cmd/watch/terminal.h"
#include "cmd/watch/view.h"

#include <dirent.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RUNS = 256, REFRESH_MS = 1000 };

struct watch {
    struct ls_watched *runs; /* owned */
    int n;
    bool colour, utf8;
};

/* --- the runs --------------------------------------------------------------------------------------------- */

static enum ls_status add_run(struct watch *w, const char *path)
{
    if (w->n == MOST_RUNS)
        return ls_fail(LS_USAGE, "watch: more than %d runs; name fewer of them", MOST_RUNS);
    struct ls_watched *more = ls_realloc(w->runs, (size_t)w->n, (size_t)w->n + 1, sizeof *more);
    if (!more)
        return LS_FAILED;
    w->runs = more;
    LS_TRY(ls_watched_open(&w->runs[w->n], path));
    w->n++;
    return LS_OK;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* The runs in the folder, sorted. Other folders and files in it are passed over. */
static enum ls_status add_folder(struct watch *w, const char *folder)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, is_visible, alphasort), before = w->n;
    enum ls_status st = LS_OK;
    for (int i = 0; i < n; i++) {
        char *path = st == LS_OK ? ls_format("%s/%s", folder, entries[i]->d_name) : NULL;
        if (path && ls_file_is_dir(path) && ls_watched_is_run(path))
            st = add_run(w, path);
        ls_free(path);
        free(entries[i]);
    }
    free(entries);
    if (st == LS_OK && w->n == before)
        st = ls_fail(LS_BAD_INPUT, "%s: neither a run directory nor a folder with runs", folder);
    return st;
}

static enum ls_status add(struct watch *w, const char *word)
{
    if (!ls_file_is_dir(word) || ls_watched_is_run(word))
        return add_run(w, word);
    char *trials = ls_format("%s/trials", word); /* of a sweep */
    enum ls_status st = trials ? add_folder(w, ls_file_is_dir(trials) ? trials : word) : LS_FAILED;
    ls_free(trials);
    return st;
}

/* --- frames ----------------------------------------------------------------------------------------------- */

static enum ls_status refresh(struct watch *w)
{
    for (int i = 0; i < w->n; i++)
        LS_TRY(ls_watched_refresh(&w->runs[i]));
    return LS_OK;
}

static void draw(const struct watch *w, struct ls_screen *s)
{
    if (w->n == 1)
        ls_view_run(&w->runs[0], s);
    else
        ls_view_runs(w->runs, w->n, s);
}

static enum ls_status show_once(struct watch *w)
{
    struct ls_screen s = {.out = stdout, .colour = w->colour, .utf8 = w->utf8};
    LS_TRY(refresh(w));
    ls_terminal_size(&s.width, &s.height);
    if (ls_terminal_is_there())
        s.height--; /* for the prompt */
    draw(w, &s);
    return LS_OK;
}

static void show_frame(const struct watch *w, bool reading)
{
    char *bytes = NULL;
    size_t size = 0;
    struct ls_screen s = {.colour = w->colour, .utf8 = w->utf8, .live = true};
    ls_terminal_size(&s.width, &s.height);
    s.out = open_memstream(&bytes, &size);
    if (!s.out)
        return;
    fputs("\033[H", s.out);
    if (reading)
        ls_screen_put(&s, LS_DIM, "reading metrics.jsonl");
    else
        draw(w, &s);
    fputs("\033[J", s.out);
    if (fclose(s.out) == 0)
        ls_terminal_write(bytes, size);
    free(bytes);
}

static enum ls_status show_live(struct watch *w)
{
    struct ls_terminal t;
    enum ls_terminal_event event = LS_TERMINAL_TIME;
    enum ls_status st = LS_OK;
    LS_TRY(ls_terminal_open(&t));
    show_frame(w, true);
    bool muted = ls_log_mute(true); /* a message would be lost with the screen */
    while (event != LS_TERMINAL_QUIT && st == LS_OK) {
        if (event == LS_TERMINAL_TIME)
            st = refresh(w);
        show_frame(w, false);
        event = ls_terminal_wait(&t, REFRESH_MS);
    }
    ls_log_mute(muted);
    ls_terminal_close(&t);
    return st == LS_OK ? LS_OK : ls_fail(st, "%s", ls_log_last());
}

enum ls_status ls_cmd_watch(struct ls_options *o)
{
    const char *none = getenv("NO_COLOR");
    struct watch w = {.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0};
    bool live = !o->once && ls_terminal_is_there();
    enum ls_status st = LS_OK;
    if (o->n_args == 0)
        return ls_fail(LS_USAGE, "watch: which run? Type: lockstep watch RUN, with the directory of a run");
    w.colour = o->color && !(none && *none) && ls_terminal_is_there();
    for (int i = 0; i < o->n_args && st == LS_OK; i++)
        st = add(&w, o->args[i]);
    if (st == LS_OK)
        st = live ? show_live(&w) : show_once(&w);
    for (int i = 0; i < w.n; i++)
        ls_watched_close(&w.runs[i]);
    ls_free(w.runs);
    return st;
}
