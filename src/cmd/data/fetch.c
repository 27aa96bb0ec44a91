/* lockstep data fetch NAME...: downloads public data sets. */
#include "cmd/data/data_commands.h"

#include "base/files/file.h"
#include "base/log.h"
#include "base/system/interrupt.h"
#include "base/text/nearest.h"
#include "data/fetch/fetch.h"
#include "report/console.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct view {
    struct ls_console console;
    bool lines;   /* without a terminal: a line each tenth of a file */
    int64_t told; /* tenths of the file that were printed */
};

static bool is_stopped(void)
{
    return ls_interrupted() != 0;
}

static void show(void *context, const char *what, int64_t done, int64_t total)
{
    struct view *v = context;
    char text[96];
    snprintf(text, sizeof text, "%s, MB", what);
    ls_console_progress(&v->console, text, done / 1000000, total / 1000000);
    int64_t tenth = total > 0 ? 10 * done / total : 0;
    if (tenth < v->told)
        v->told = 0;
    if (v->lines && tenth > v->told && total > 10000000 && strcmp(what, "verifying") != 0)
        ls_progress("%s: %" PRId64 " %%", what, 10 * tenth);
    v->told = tenth;
}

/* "mnist, cifar10, cifar100 and tiny-imagenet" */
static const char *all_names(char text[256])
{
    size_t used = 0;
    text[0] = 0;
    for (const struct ls_download *d = ls_downloads; d->name && used < 256; d++)
        used += (size_t)snprintf(text + used, 256 - used, "%s%s", used == 0 ? "" : d[1].name ? ", " : " and ", d->name);
    return text;
}

static enum ls_status unknown(const char *word)
{
    const char *names[16];
    char text[256];
    int n = 0;
    for (const struct ls_download *d = ls_downloads; d->name && n < 16; d++)
        names[n++] = d->name;
    const char *near = ls_nearest_word(word, names, n);
    return ls_fail(LS_USAGE, "data fetch: '%s' is unknown%s%s%s there are %s", word, near ? "; did you mean " : "",
                   near ? near : "", near ? "?" : ";", all_names(text));
}

static enum ls_status check_address(const char *from)
{
    if (!from || strncmp(from, "http://", 7) == 0 || strncmp(from, "https://", 8) == 0 ||
        strncmp(from, "file:///", 8) == 0)
        return LS_OK;
    return ls_fail(LS_USAGE, "--from: expected an address that begins with http://, https:// or file:///, found '%s'",
                   from);
}

static enum ls_status fetch_one(const struct ls_options *o, const struct ls_download *set, const char *root)
{
    struct view v = {0};
    struct ls_fetch f = {.set = set,
                         .to = o->into ? o->into : root,
                         .from = o->from,
                         .checksums = o->checksums,
                         .quiet = o->quiet,
                         .is_stopped = is_stopped,
                         .progress = show,
                         .context = &v};
    bool was_there;
    ls_console_begin(&v.console, o, 0);
    v.lines = !v.console.bar && !o->quiet && o->progress;
    ls_interrupt_watch();
    enum ls_status st = ls_fetch(&f, &was_there);
    ls_interrupt_release();
    ls_console_end(&v.console);
    if (st == LS_OK && !o->quiet && o->into)
        ls_print("%s: %s%s/%s; use it with --data %s/%s", set->name, was_there ? "is there already: " : "", o->into,
                 set->folder, o->into, set->folder);
    else if (st == LS_OK && !o->quiet)
        ls_print("%s: %s%s/%s; use it with --data %s", set->name, was_there ? "is there already: " : "", root,
                 set->folder, set->name);
    return st;
}

enum ls_status ls_data_fetch(struct ls_options *o, int n_words, char **words)
{
    char root[PATH_MAX] = "", names[256];
    if (n_words == 0)
        return ls_fail(LS_USAGE, "data fetch: which data set? There are %s", all_names(names));
    for (int i = 0; i < n_words; i++)
        if (!ls_download_find(words[i]))
            return unknown(words[i]);
    LS_TRY(check_address(o->from));
    if (!o->into && !ls_download_root(root))
        return ls_fail(LS_FAILED,
                       "data fetch: there is no home folder to put data into; name a folder with --into DIR");
    for (int i = 0; i < n_words; i++)
        LS_TRY(fetch_one(o, ls_download_find(words[i]), root));
    return LS_OK;
}
