/* Writes checkpoints: into a temporary folder, which is renamed when all of it is on disk. */
#define _GNU_SOURCE
#include "base/files/checksum.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/system/thread.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum ls_status write_weights(const struct ls_checkpoint_writer *w, enum ls_weights which, const char *path,
                                    const struct ls_st_pair *pairs, int n_pairs, uint64_t *sum)
{
    struct ls_weights_copy *copy = which == LS_WEIGHTS_MODEL ? w->model : w->optimizer;
    return copy ? ls_weights_write(copy, path, pairs, n_pairs, sum)
                : ls_weights_save(w->e, which, path, pairs, n_pairs, w->state.step, sum);
}

static enum ls_status write_summed(const char *path, const char *text, size_t size, uint64_t *sum)
{
    *sum = ls_checksum_of(text, size);
    return ls_file_write(path, text, size);
}

static enum ls_status copy_config(const char *run, const char *folder, uint64_t *sum)
{
    char path[LS_CHECKPOINT_PATH], *text;
    size_t size;
    if (!ls_file_exists(ls_checkpoint_path(path, run, "config.yaml")))
        return LS_OK;
    LS_TRY(ls_file_read(path, (size_t)1 << 20, &text, &size));
    enum ls_status st = write_summed(ls_checkpoint_path(path, folder, "config.yaml"), text, size, sum);
    ls_free(text);
    return st;
}

static enum ls_status write_files(const char *folder, struct ls_checkpoint_writer *w)
{
    char path[LS_CHECKPOINT_PATH];
    struct ls_arena strings = {0};
    struct ls_st_pair pairs[LS_MODEL_CARD_PAIRS];
    int n_pairs;
    enum ls_status st = ls_model_card_write(w->card, &strings, pairs, &n_pairs);
    if (st == LS_OK)
        st = write_weights(w, LS_WEIGHTS_MODEL, ls_checkpoint_path(path, folder, "model.safetensors"), pairs, n_pairs,
                           &w->state.model_sum);
    if (st == LS_OK)
        st = write_weights(w, LS_WEIGHTS_STATE, ls_checkpoint_path(path, folder, "state.safetensors"), pairs, 1,
                           &w->state.tensor_sum);
    if (st == LS_OK)
        st = copy_config(w->run, folder, &w->state.config_sum);
    if (st == LS_OK && w->card->data)
        st = write_summed(ls_checkpoint_path(path, folder, "data.json"), w->card->data, strlen(w->card->data),
                          &w->state.data_sum);
    if (st == LS_OK)
        st = ls_state_write(ls_checkpoint_path(path, folder, "state.json"), &w->state);
    ls_arena_release(&strings);
    return st;
}

/* K1. An existing checkpoint of the same step (damaged, or from before a resume) is exchanged with the new one atomically if
 * the file system supports it. */
static enum ls_status publish(const char *temporary, const char *final)
{
    if (rename(temporary, final) == 0)
        return LS_OK;
    if (errno == ENOTEMPTY || errno == EEXIST) {
        if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0)
            return ls_dir_remove(temporary);
        LS_TRY(ls_dir_remove(final));
        if (rename(temporary, final) == 0)
            return LS_OK;
    }
    return ls_fail(LS_FAILED, "%s: the new checkpoint cannot be renamed to this name: %s", final, strerror(errno));
}

static enum ls_status mark_best(const char *all, uint64_t step)
{
    char link[LS_CHECKPOINT_PATH], temporary[LS_CHECKPOINT_PATH], name[64];
    ls_checkpoint_path(link, all, "best");
    ls_checkpoint_path(temporary, all, "best.tmp");
    ls_checkpoint_step_name(name, step, "");
    if ((unlink(temporary) != 0 && errno != ENOENT) || symlink(name, temporary) != 0 || rename(temporary, link) != 0)
        return ls_fail(LS_FAILED, "%s: cannot be pointed at %s: %s", link, name, strerror(errno));
    return LS_OK;
}

bool ls_checkpoint_best_lags(const char *run, const struct ls_state *state)
{
    char all[LS_CHECKPOINT_PATH - 128], path[LS_CHECKPOINT_PATH], name[64], named[64] = "";
    if (state->best_step == 0 || snprintf(all, sizeof all, "%s/checkpoints", run) >= (int)sizeof all)
        return false;
    ls_checkpoint_step_name(name, state->best_step, "");
    ssize_t length = readlink(ls_checkpoint_path(path, all, "best"), named, sizeof named - 1);
    return length >= 0 && strcmp(named, name) != 0 && ls_file_is_dir(ls_checkpoint_path(path, all, name));
}

enum ls_status ls_checkpoint_mark_best(const char *run, const struct ls_state *state)
{
    char all[LS_CHECKPOINT_PATH - 128];
    snprintf(all, sizeof all, "%s/checkpoints", run);
    return mark_best(all, state->best_step);
}

/* K1, K5, K7: a checkpoint that is being read stays until a later save, unless it is of a step to come. */
static enum ls_status remove_one(const char *all, uint64_t step, bool to_come)
{
    char folder[LS_CHECKPOINT_PATH], temporary[LS_CHECKPOINT_PATH], name[64];
    bool in_use;
    ls_checkpoint_path(folder, all, ls_checkpoint_step_name(name, step, ""));
    ls_checkpoint_path(temporary, all, ls_checkpoint_step_name(name, step, ".tmp"));
    int claim = ls_checkpoint_claim(folder, &in_use);
    enum ls_status st = in_use && !to_come ? LS_OK : ls_dir_remove(rename(folder, temporary) == 0 ? temporary : folder);
    if (claim >= 0)
        close(claim);
    return st;
}

/* K2, K5 */
static enum ls_status remove_others(const char *all, const struct ls_state *state, int64_t keep)
{
    enum ls_status st;
    int64_t *steps, kept = 0, now = (int64_t)state->step, best = (int64_t)state->best_step;
    int n;
    LS_TRY_GOTO(out, ls_checkpoint_steps(all, &steps, &n));
    for (int i = 0; i < n; i++) {
        if (steps[i] <= now && kept++ < keep)
            continue;
        if (steps[i] != best || best == 0)
            LS_TRY_GOTO(out, remove_one(all, (uint64_t)steps[i], steps[i] > now));
    }
out:
    ls_free(steps);
    return st;
}

/* Whether it is a step-N.tmp folder, which a crash has left unless a save is under way. */
static bool is_stale(const char *name)
{
    const char *digits = name + 5;
    return strncmp(name, "step-", 5) == 0 && isdigit((unsigned char)*digits) &&
           strcmp(digits + strspn(digits, "0123456789"), ".tmp") == 0;
}

static void remove_stale(const char *all)
{
    char path[LS_CHECKPOINT_PATH];
    DIR *dir = opendir(all);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (is_stale(entry->d_name))
            ls_dir_remove(ls_checkpoint_path(path, all, entry->d_name));
    if (dir)
        closedir(dir);
}

bool ls_checkpoint_has_stale(const char *run)
{
    char all[LS_CHECKPOINT_PATH];
    bool found = false;
    DIR *dir = opendir(ls_checkpoint_path(all, run, "checkpoints"));
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));)
        found = is_stale(entry->d_name);
    if (dir)
        closedir(dir);
    return found;
}

void ls_checkpoint_remove_stale(const char *run)
{
    char all[LS_CHECKPOINT_PATH];
    remove_stale(ls_checkpoint_path(all, run, "checkpoints"));
}

static enum ls_status write_all(struct ls_checkpoint_writer *w)
{
    enum ls_status st;
    const struct ls_state *state = &w->state;
    char all[LS_CHECKPOINT_PATH - 128], temporary[LS_CHECKPOINT_PATH], final[LS_CHECKPOINT_PATH], name[64];
    if (snprintf(all, sizeof all, "%s/checkpoints", w->run) >= (int)sizeof all)
        return ls_fail(LS_USAGE, "%s: the path is too long", w->run);
    ls_checkpoint_path(temporary, all, ls_checkpoint_step_name(name, state->step, ".tmp"));
    ls_checkpoint_path(final, all, ls_checkpoint_step_name(name, state->step, ""));
    LS_TRY(ls_run_lock_held(w->lock, true));
    remove_stale(all);
    LS_TRY(ls_dir_make(all));
    /* A folder of this name that is still there belongs to another writer, or is a link: never write into it. */
    LS_TRY(ls_dir_make_new(temporary));
    LS_TRY_GOTO(failed, write_files(temporary, w));
    LS_TRY_GOTO(failed, ls_dir_sync(temporary));
    LS_TRY_GOTO(failed, ls_run_lock_held(w->lock, true)); /* the process may have been suspended */
    LS_TRY_GOTO(failed, publish(temporary, final));
    if (state->best_step > 0)
        LS_TRY(mark_best(all, state->best_step));
    LS_TRY(ls_dir_sync(all));
    return remove_others(all, state, w->keep);
failed:
    ls_dir_remove(temporary);
    return st;
}

static void *write_thread(void *context)
{
    struct ls_checkpoint_writer *w = context;
    w->status = write_all(w);
    return NULL;
}

/* Copies the loss scale, and weights where the host cannot read them, so that training can go on while they are written. */
static enum ls_status copy_from_device(struct ls_checkpoint_writer *w)
{
    const struct ls_backend_queue *queue = w->e->backend->queue;
    w->state.scale = (struct ls_loss_scale){0};
    LS_TRY(queue->get_scale(w->e->train.program, &w->state.scale));
    if (!queue->own_memory)
        return LS_OK;
    LS_TRY(ls_weights_copy(w->e, LS_WEIGHTS_MODEL, w->state.step, &w->model));
    return ls_weights_copy(w->e, LS_WEIGHTS_STATE, w->state.step, &w->optimizer);
}

static void release(struct ls_checkpoint_writer *w)
{
    ls_weights_copy_free(w->model);
    ls_weights_copy_free(w->optimizer);
    w->model = w->optimizer = NULL;
    w->on = false;
}

enum ls_status ls_checkpoint_begin(struct ls_checkpoint_writer *w, const char *run, const struct ls_engine *e,
                                   const struct ls_model_card *card, struct ls_run_lock *lock,
                                   const struct ls_state *state, int64_t keep)
{
    *w = (struct ls_checkpoint_writer){.run = run, .e = e, .card = card, .lock = lock, .state = *state, .keep = keep};
    enum ls_status st = copy_from_device(w);
    if (st != LS_OK) {
        release(w);
        return st;
    }
    w->on = e->backend->queue->own_memory && ls_thread_create(&w->thread, write_thread, w) == 0;
    if (!w->on)
        w->status = write_all(w);
    return LS_OK;
}

enum ls_status ls_checkpoint_finish(struct ls_checkpoint_writer *w)
{
    enum ls_status st;
    if (w->on)
        pthread_join(w->thread, NULL);
    release(w);
    st = w->status;
    w->status = LS_OK;
    return st;
}
