#define _GNU_SOURCE
#include "checkpoint/rundir.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text/utf8.h"
#include "base/files/checksum.h"
#include "checkpoint/run_lock.h"
#include "optim/schedule.h"
#include "sync/sync.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct ls_help_row ls_rundir_files[] = {
    {"config.yaml", "every option of the run; `lockstep train RUN/config.yaml` runs it again"},
    {"model.yaml", "the text of the model file, if --model is a file; the run, eval and predict use this copy"},
    {"log.txt", "date, host, version and command, then the messages of the run"},
    {"metrics.jsonl", "loss, accuracy and speed of each step, epoch and evaluation: `lockstep help metrics`"},
    {"ranks", "with --per-rank: loss, accuracy and seconds of each step of each rank, rank-0.jsonl and so on"},
    {"plan.txt", "identity and kernels; reused by --resume, by `train RUN/config.yaml` and by --plan RUN"},
    {"confusion.json", "confusion matrix, figures of each class and the worst mistakes of the last evaluation"},
    {"tensorboard", "with --tensorboard: event files, one for each start of the run"},
    {"mllog.txt", "with --mllog: the lines of MLPerf's log"},
    {"trace.json", "with --trace: a timeline of those steps, for ui.perfetto.dev or chrome://tracing"},
    {"checkpoints", "one folder per checkpoint, the newest --keep of them, and a link to the best"},
    {NULL, NULL},
};

/* --- resuming ----------------------------------------------------------------------------------------- */

static bool has(const char *folder, const char *name)
{
    char *path = ls_format("%s/%s", folder, name);
    bool there = path && ls_file_exists(path);
    ls_free(path);
    return there;
}

bool ls_rundir_is_checkpoint(const char *folder)
{
    return has(folder, "state.json");
}

bool ls_rundir_is_run(const char *folder)
{
    return has(folder, "checkpoints") || (has(folder, "config.yaml") && has(folder, "log.txt"));
}

/* Finds the run directory two levels above a checkpoint folder. */
static enum ls_status run_of(const char *checkpoint, char **run)
{
    char *real = realpath(checkpoint, NULL), *slash = real ? strrchr(real, '/') : NULL;
    *run = NULL;
    if (slash)
        *slash = 0;
    slash = real ? strrchr(real, '/') : NULL;
    bool alone = !slash || strcmp(slash, "/checkpoints") != 0;
    if (!alone) {
        *slash = 0;
        *run = ls_strdup(*real ? real : "/");
    }
    free(real);
    if (alone)
        return ls_fail(LS_USAGE, "--resume %s: this checkpoint is not in a run directory; give --run DIR for the run",
                       checkpoint);
    return *run ? LS_OK : LS_FAILED;
}

/* Tests for a name that a run creates in its directory, including temporary files. */
static bool is_own(const char *name)
{
    for (const struct ls_help_row *file = ls_rundir_files; file->name; file++)
        if (strncmp(name, file->name, strlen(file->name)) == 0)
            return true;
    return strncmp(name, "trace-rank-", strlen("trace-rank-")) == 0 || ls_run_lock_is_file(name);
}

void ls_rundir_remove_stale(const char *run)
{
    for (const struct ls_help_row *file = ls_rundir_files; file->name; file++) {
        char *path = ls_format("%s/%s", run, file->name);
        if (path)
            ls_file_remove_stale(path);
        ls_free(path);
    }
}

/* Finds a name in a folder. Skips lock files and, with `own`, all files of a run. */
static bool holds(const char *folder, bool own, char name[256])
{
    DIR *dir = opendir(folder);
    name[0] = 0;
    for (struct dirent *entry; dir && !*name && (entry = readdir(dir));) {
        const char *found = entry->d_name;
        bool passed = own ? is_own(found) : ls_run_lock_is_file(found);
        if (strcmp(found, ".") != 0 && strcmp(found, "..") != 0 && !passed)
            snprintf(name, 256, "%s", found);
    }
    if (dir)
        closedir(dir);
    return *name;
}

static bool is_empty(const char *folder)
{
    char name[256];
    return !holds(folder, false, name);
}

static bool same_folder(const char *a, const char *b)
{
    struct stat one, two;
    return stat(a, &one) == 0 && stat(b, &two) == 0 && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

enum ls_status ls_rundir_resumed(const struct ls_options *o, char **run, char **checkpoint)
{
    char foreign[256];
    *run = *checkpoint = NULL;
    if (!o->resume)
        return LS_OK;
    bool newest = !*o->resume || strcmp(o->resume, "auto") == 0;
    if (newest && !o->run)
        return ls_fail(LS_USAGE,
                       "--resume: no run is given; add --run DIR, or use --resume with a run or checkpoint folder");
    const char *what = newest ? o->run : o->resume;
    if (!newest && !ls_file_is_dir(what))
        return ls_fail(LS_BAD_INPUT, "%s: no such folder to resume from", what);
    if (!newest && ls_rundir_is_checkpoint(what)) {
        *checkpoint = ls_strdup(what);
        enum ls_status st = o->run ? LS_OK : run_of(what, run);
        if (o->run)
            *run = ls_strdup(o->run);
        if (st == LS_OK && *run && *checkpoint)
            return LS_OK;
        ls_free(*checkpoint);
        ls_free(*run);
        *run = *checkpoint = NULL;
        return st == LS_OK ? LS_FAILED : st;
    }
    if (!newest && o->run && !same_folder(o->run, what))
        return ls_fail(
            LS_USAGE,
            "--run %s --resume %s: these are two runs; leave --run out to resume the second, or give --resume one of "
            "its checkpoints to start another run from it",
            o->run, what);
    bool described = ls_options_given(o, "model") || ls_options_given(o, "data");
    if (!ls_file_is_dir(what) && !described)
        return ls_fail(LS_BAD_INPUT, "%s: no such run to resume; to start one there, give --model and --data", what);
    if (!has(what, "checkpoints") && !has(what, "config.yaml") && holds(what, true, foreign))
        return ls_fail(
            LS_BAD_INPUT,
            "%s: neither a run directory (with config.yaml or checkpoints/) nor a checkpoint (with state.json) "
            "nor empty: it contains %s",
            what, foreign);
    *run = ls_strdup(what);
    return *run ? LS_OK : LS_FAILED;
}

/* --- a new run ---------------------------------------------------------------------------------------- */

/* The last component of a path, without ".yaml" or a colon and what follows: "data/cifar-10/" -> "cifar-10". */
static void short_name(const char *text, char name[64])
{
    size_t end = strlen(text);
    while (end > 1 && text[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && text[start - 1] != '/')
        start--;
    size_t length = strcspn(text + start, ":");
    length = length < end - start ? length : end - start;
    for (const char *tail = ".yaml"; length > 5 && strncmp(text + start + length - 5, tail, 5) == 0;)
        length -= 5;
    snprintf(name, 64, "%.*s", (int)(length < 63 ? length : 63), text + start);
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        snprintf(name, 64, "data");
}

enum ls_status ls_rundir_make(const struct ls_options *o, char **run)
{
    char model[64], data[64];
    short_name(o->model, model);
    short_name(o->data, data);
    LS_TRY(ls_dir_make("runs"));
    for (int number = 1; number < 1000000; number++) {
        char *path = ls_format("runs/%s-%s-%03d", model, data, number);
        if (!path)
            return LS_FAILED;
        /* mkdir is atomic: of two runs that start at once, one gets the number. */
        if (mkdir(path, 0777) == 0) {
            *run = path;
            return ls_dir_sync_above(path);
        }
        int why = errno;
        ls_free(path);
        if (why != EEXIST)
            return ls_fail(LS_FAILED, "runs/%s-%s-%03d: cannot be created: %s; give --run DIR", model, data, number,
                           strerror(why));
    }
    return ls_fail(LS_FAILED, "runs: no free number for %s-%s; give --run DIR", model, data);
}

enum ls_status ls_rundir_check(const struct ls_options *o)
{
    if (!o->run || !ls_file_is_dir(o->run) || is_empty(o->run))
        return LS_OK;
    return ls_fail(LS_USAGE, "--run %s: not empty; add --resume to resume that run, or give another directory", o->run);
}

/* --- the configuration -------------------------------------------------------------------------------- */

static enum ls_status config_text(const struct ls_options *o, char **text, size_t *size)
{
    FILE *file = open_memstream(text, size);
    if (!file)
        return ls_fail(LS_FAILED, "the configuration cannot be formatted: %s", strerror(errno));
    enum ls_status st = ls_options_write(o, LS_CMD_TRAIN, file);
    if (fclose(file) != 0 && st == LS_OK)
        st = ls_fail(LS_FAILED, "the configuration cannot be formatted: out of memory");
    if (st != LS_OK)
        free(*text);
    return st;
}

bool ls_rundir_has_config(const char *folder)
{
    return has(folder, "config.yaml");
}

enum ls_status ls_rundir_load_config(const char *run, struct ls_options *o)
{
    char *path = ls_format("%s/config.yaml", run);
    enum ls_status st = path ? LS_OK : LS_FAILED;
    if (path && ls_file_exists(path))
        st = ls_options_load(o, path);
    ls_free(path);
    return st;
}

enum ls_status ls_rundir_config(const char *run, const struct ls_options *o)
{
    struct ls_options plain;
    struct ls_arena strings = {0};
    char *text, *path = ls_format("%s/config.yaml", run), *model = ls_format("%s/model.yaml", run);
    char *folder = ls_path_absolute(run);
    size_t size;
    enum ls_status st = path && model && folder ? ls_options_absolute(o, &strings, &plain) : LS_FAILED;
    plain.run = plain.resume = NULL;
    plain.written_in = folder && ls_utf8_valid(folder) ? folder : NULL;
    if (st == LS_OK && o->model_yaml)
        st = ls_file_write(model, o->model_yaml, strlen(o->model_yaml));
    if (st == LS_OK)
        st = config_text(&plain, &text, &size);
    if (st == LS_OK) {
        st = ls_file_write(path, text, size);
        free(text);
    }
    ls_free(path);
    ls_free(model);
    ls_free(folder);
    ls_arena_release(&strings);
    return st;
}

/* Strategies of which one gives the bits of the other (SYNC-1). */
static bool exact(const char *sync)
{
    const struct ls_sync_ops *ops = ls_sync_find(sync);
    return ops && ops->exact;
}

/* The contents of a model file matter, its folder does not. */
static char *model_meaning(const struct ls_options *o)
{
    const char *slash = strrchr(o->model, '/');
    return ls_format("%s checksum %016" PRIx64, slash ? slash + 1 : o->model,
                     ls_checksum_of(o->model_yaml, strlen(o->model_yaml)));
}

/* Returns a copy with the options that do not change the result set to fixed values; strings are borrowed. With any_length,
 * the length of the run is one of them. */
static struct ls_options normalised(const struct ls_options *o, bool any_length)
{
    static char overlap[] = "overlap";
    struct ls_options plain = *o;
    /* The folder of the model file does not matter; its contents are compared separately. */
    char *slash = strrchr(o->model, '/');
    plain.model = slash ? slash + 1 : o->model;
    if (exact(o->sync))
        plain.sync = overlap;
    if (any_length)
        plain.epochs = 0, plain.steps = 0;
    if (!ls_schedule_follows_evaluations(o->schedule))
        plain.eval_every = 0;
    return plain;
}

/* Free *text with free(). */
static enum ls_status write_options(struct ls_options plain, bool common, char **text, size_t *size)
{
    char *model = plain.model_yaml ? model_meaning(&plain) : NULL;
    if (plain.model_yaml && !model)
        return LS_FAILED;
    plain.model = model ? model : plain.model;
    FILE *file = open_memstream(text, size);
    if (file)
        ls_options_write_result(&plain, LS_CMD_TRAIN, common, file);
    ls_free(model);
    if (!file)
        return ls_fail(LS_FAILED, "the configuration cannot be formatted: %s", strerror(errno));
    if (fclose(file) == 0)
        return LS_OK;
    free(*text);
    return ls_fail(LS_FAILED, "the configuration cannot be formatted: out of memory");
}

enum ls_status ls_rundir_common_options(const struct ls_options *o, char **text)
{
    size_t size;
    return write_options(*o, true, text, &size);
}

void ls_rundir_changes(const struct ls_options *was, const struct ls_options *is, char *text, size_t room)
{
    bool any_length = !ls_schedule_whole_run(was->schedule) && !ls_schedule_whole_run(is->schedule);
    struct ls_options a = normalised(was, any_length), b = normalised(is, any_length);
    ls_options_differ(&a, &b, LS_CMD_TRAIN, text, room);
}

enum ls_status ls_rundir_digest(const struct ls_options *o, uint64_t *digest)
{
    char *text;
    size_t size;
    LS_TRY(write_options(normalised(o, !ls_schedule_whole_run(o->schedule)), false, &text, &size));
    *digest = ls_checksum_of(text, size);
    free(text);
    return LS_OK;
}
