#define _GNU_SOURCE
#include "checkpoint/checkpoint.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/system/thread.h"
#include "base/files/checksum.h"
#include "checkpoint/weights.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_ROOM 4096
#define REASON_ROOM (PATH_ROOM + 512)

const struct ls_help_row ls_checkpoint_files[] = {
    {"model.safetensors", "weights with the names of torchvision, and metadata to use them"},
    {"state.safetensors", "the optimizer's state of each weight, NAME.STATE, such as NAME.momentum"},
    {"state.json", "the position of the run, and checksums of all files"},
    {"data.json", "fingerprint of the data: classes, counts, digests of names and sizes; --resume compares it"},
    {NULL, NULL},
};

static const char *join(char room[PATH_ROOM], const char *folder, const char *name)
{
    if (snprintf(room, PATH_ROOM, "%s/%s", folder, name) >= PATH_ROOM)
        room[0] = 0; /* "" names no file */
    return room;
}

static const char *step_name(char room[64], uint64_t step, const char *tail)
{
    snprintf(room, 64, "step-%08" PRIu64 "%s", step, tail);
    return room;
}

/* Returns the step in a folder name, or -1 if it is no checkpoint. */
static int64_t step_of(const char *name)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    errno = 0;
    long long step = strtoll(name + 5, &end, 10);
    return errno || *end ? -1 : step;
}

/* --- verification. Reports no errors: the caller makes a warning or an error of `reason` -------------- */

struct mapped {
    char path[PATH_ROOM];
    void *bytes;
    size_t size;
};

static bool map_file(struct mapped *m, const char *folder, const char *name, char reason[REASON_ROOM])
{
    char why[LS_FILE_WHY];
    int fd = ls_file_open(join(m->path, folder, name), &m->size, why);
    if (fd < 0) {
        snprintf(reason, REASON_ROOM, "%s: %s", m->path, why);
        return false;
    }
    m->bytes = m->size > 0 ? mmap(NULL, m->size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (m->bytes == MAP_FAILED)
        snprintf(reason, REASON_ROOM, "%s: %s", m->path, m->size > 0 ? strerror(errno) : "empty");
    close(fd);
    return m->bytes != MAP_FAILED;
}

static bool check_sum(const char *folder, const char *name, uint64_t expected, char reason[REASON_ROOM])
{
    struct mapped m;
    if (!map_file(&m, folder, name, reason))
        return false;
    uint64_t found = ls_checksum_of(m.bytes, m.size);
    munmap(m.bytes, m.size);
    if (found != expected)
        snprintf(reason, REASON_ROOM, "%s: damaged: its checksum is %016" PRIx64 ", recorded was %016" PRIx64, m.path,
                 found, expected);
    return found == expected;
}

/* Files that may be missing; older versions recorded no checksum of them. */
static bool check_optional(const char *folder, const char *name, uint64_t expected, char reason[REASON_ROOM])
{
    char path[PATH_ROOM];
    return expected == 0 || !ls_file_exists(join(path, folder, name)) || check_sum(folder, name, expected, reason);
}

/* Compares the step with the name of the folder. A folder with another kind of name, such as a copy, may have any step. */
static bool check_step(const char *folder, const struct ls_state *state, char reason[REASON_ROOM])
{
    char *real = realpath(folder, NULL), *slash = real ? strrchr(real, '/') : NULL;
    int64_t named = slash ? step_of(slash + 1) : -1;
    bool good = named < 0 || (uint64_t)named == state->step;
    if (!good)
        snprintf(reason, REASON_ROOM,
                 "%s/state.json: damaged, or in the wrong folder: it is of step %" PRIu64 ", the folder's name is %s",
                 folder, state->step, slash + 1);
    free(real);
    return good;
}

static bool read_state(const char *folder, struct ls_state *state, char reason[REASON_ROOM])
{
    struct mapped m;
    char why[256];
    if (!map_file(&m, folder, "state.json", reason))
        return false;
    bool good = ls_state_parse(m.bytes, m.size, state, why, sizeof why);
    munmap(m.bytes, m.size);
    if (!good)
        snprintf(reason, REASON_ROOM, "%s: %s", m.path, why);
    return good && check_step(folder, state, reason);
}

static bool verify(const char *folder, struct ls_state *state, char reason[REASON_ROOM])
{
    return read_state(folder, state, reason) && check_sum(folder, "model.safetensors", state->model_sum, reason) &&
           check_sum(folder, "state.safetensors", state->tensor_sum, reason) &&
           check_optional(folder, "config.yaml", state->config_sum, reason) &&
           check_optional(folder, "data.json", state->data_sum, reason);
}

enum ls_status ls_checkpoint_read(const char *folder, struct ls_state *state)
{
    char reason[REASON_ROOM];
    return verify(folder, state, reason) ? LS_OK : ls_fail(LS_BAD_INPUT, "%s", reason);
}

enum ls_status ls_checkpoint_load(const char *folder, struct ls_engine *e)
{
    char path[PATH_ROOM];
    LS_TRY(ls_weights_load(e, LS_WEIGHTS_MODEL, join(path, folder, "model.safetensors")));
    return ls_weights_load(e, LS_WEIGHTS_STATE, join(path, folder, "state.safetensors"));
}

/* --- the checkpoints of a run ------------------------------------------------------------------------- */

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

/* Lists the steps of all checkpoints in a folder, newest first; free *steps with ls_free. A missing folder has none. */
static enum ls_status list_steps(const char *folder, int64_t **steps, int *n)
{
    int room = 0;
    *steps = NULL;
    *n = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return LS_OK;
    for (struct dirent *entry; (entry = readdir(dir));) {
        int64_t step = step_of(entry->d_name);
        if (step < 0)
            continue;
        if (*n == room) {
            int64_t *grown = ls_realloc(*steps, (size_t)room, (size_t)room + 64, sizeof **steps);
            if (!grown) {
                ls_free(*steps);
                closedir(dir);
                return LS_FAILED;
            }
            *steps = grown;
            room += 64;
        }
        (*steps)[(*n)++] = step;
    }
    closedir(dir);
    if (*n > 0)
        qsort(*steps, (size_t)*n, sizeof **steps, newest_first);
    return LS_OK;
}

bool ls_checkpoint_peek(const char *run, struct ls_state *state)
{
    char all[PATH_ROOM], one[PATH_ROOM], name[64], reason[REASON_ROOM];
    struct mapped m;
    int64_t *steps;
    int n;
    *state = (struct ls_state){0};
    if (list_steps(join(all, run, "checkpoints"), &steps, &n) != LS_OK)
        return false;
    if (n > 0 && map_file(&m, join(one, all, step_name(name, (uint64_t)steps[0], "")), "state.json", reason)) {
        ls_state_parse(m.bytes, m.size, state, reason, sizeof reason);
        munmap(m.bytes, m.size);
    }
    ls_free(steps);
    return n > 0;
}

static const char *folder_of_step(char room[PATH_ROOM], const char *all, int64_t step)
{
    char name[64];
    return join(room, all, step_name(name, (uint64_t)step, ""));
}

/* Chooses the checkpoint to resume from: the newest valid one that was compared among the processes, else the newest valid
 * one. Returns -1 if none is valid; `reason` is then that of the oldest. */
static int choose(const char *all, const int64_t *steps, int n, struct ls_state *state, char reason[REASON_ROOM])
{
    char one[PATH_ROOM];
    int unverified = -1;
    for (int i = 0; i < n; i++) {
        folder_of_step(one, all, steps[i]);
        if (unverified >= 0 && (!read_state(one, state, reason) || !state->verified))
            continue;
        if (!verify(one, state, reason)) {
            if (i + 1 < n)
                ls_warn("%s; an older checkpoint is used", reason);
        } else if (state->verified) {
            if (unverified >= 0)
                ls_warn("%s: the processes did not compare its weights when it was saved; an older checkpoint that was "
                        "compared is used; `--resume %s` resumes from this one nevertheless",
                        folder_of_step(one, all, steps[unverified]), one);
            return i;
        } else
            unverified = i;
    }
    if (unverified >= 0 && !read_state(folder_of_step(one, all, steps[unverified]), state, reason))
        return -1;
    return unverified;
}

enum ls_status ls_checkpoint_find(const char *run, char **folder, struct ls_state *state)
{
    char all[PATH_ROOM], one[PATH_ROOM], reason[REASON_ROOM] = "";
    int64_t *steps;
    int n;
    LS_TRY(list_steps(join(all, run, "checkpoints"), &steps, &n));
    int chosen = choose(all, steps, n, state, reason);
    *folder = chosen < 0 ? NULL : ls_strdup(folder_of_step(one, all, steps[chosen]));
    ls_free(steps);
    if (chosen >= 0)
        return *folder ? LS_OK : LS_FAILED;
    if (n > 0)
        return ls_fail(LS_BAD_INPUT, "%s; there is no older checkpoint to resume from", reason);
    return ls_fail(LS_BAD_INPUT, "%s: no checkpoint has been saved there yet", run);
}

/* --- saving ------------------------------------------------------------------------------------------- */

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
    char path[PATH_ROOM], *text;
    size_t size;
    if (!ls_file_exists(join(path, run, "config.yaml")))
        return LS_OK;
    LS_TRY(ls_file_read(path, (size_t)1 << 20, &text, &size));
    enum ls_status st = write_summed(join(path, folder, "config.yaml"), text, size, sum);
    ls_free(text);
    return st;
}

static enum ls_status write_files(const char *folder, struct ls_checkpoint_writer *w)
{
    char path[PATH_ROOM];
    struct ls_arena strings = {0};
    struct ls_st_pair pairs[LS_MODEL_CARD_PAIRS];
    int n_pairs;
    enum ls_status st = ls_model_card_write(w->card, &strings, pairs, &n_pairs);
    if (st == LS_OK)
        st = write_weights(w, LS_WEIGHTS_MODEL, join(path, folder, "model.safetensors"), pairs, n_pairs,
                           &w->state.model_sum);
    if (st == LS_OK)
        st =
            write_weights(w, LS_WEIGHTS_STATE, join(path, folder, "state.safetensors"), pairs, 1, &w->state.tensor_sum);
    if (st == LS_OK)
        st = copy_config(w->run, folder, &w->state.config_sum);
    if (st == LS_OK && w->card->data)
        st = write_summed(join(path, folder, "data.json"), w->card->data, strlen(w->card->data), &w->state.data_sum);
    if (st == LS_OK)
        st = ls_state_write(join(path, folder, "state.json"), &w->state);
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
    char link[PATH_ROOM], temporary[PATH_ROOM], name[64];
    join(link, all, "best");
    join(temporary, all, "best.tmp");
    step_name(name, step, "");
    if ((unlink(temporary) != 0 && errno != ENOENT) || symlink(name, temporary) != 0 || rename(temporary, link) != 0)
        return ls_fail(LS_FAILED, "%s: cannot be pointed at %s: %s", link, name, strerror(errno));
    return LS_OK;
}

/* K2, K5 */
static enum ls_status remove_others(const char *all, const struct ls_state *state, int64_t keep)
{
    char path[PATH_ROOM], name[64];
    enum ls_status st;
    int64_t *steps, kept = 0, now = (int64_t)state->step, best = (int64_t)state->best_step;
    int n;
    LS_TRY_GOTO(out, list_steps(all, &steps, &n));
    for (int i = 0; i < n; i++) {
        if (steps[i] <= now && kept++ < keep)
            continue;
        if (steps[i] != best || best == 0)
            LS_TRY_GOTO(out, ls_dir_remove(join(path, all, step_name(name, (uint64_t)steps[i], ""))));
    }
out:
    ls_free(steps);
    return st;
}

/* Removes step-N.tmp folders that a crash left. */
static void remove_stale(const char *all)
{
    char path[PATH_ROOM];
    DIR *dir = opendir(all);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *digits = entry->d_name + 5;
        bool step = strncmp(entry->d_name, "step-", 5) == 0 && isdigit((unsigned char)*digits);
        if (step && strcmp(digits + strspn(digits, "0123456789"), ".tmp") == 0)
            ls_dir_remove(join(path, all, entry->d_name));
    }
    if (dir)
        closedir(dir);
}

void ls_checkpoint_remove_stale(const char *run)
{
    char all[PATH_ROOM];
    remove_stale(join(all, run, "checkpoints"));
}

static enum ls_status write_all(struct ls_checkpoint_writer *w)
{
    enum ls_status st;
    const struct ls_state *state = &w->state;
    char all[PATH_ROOM - 128], temporary[PATH_ROOM], final[PATH_ROOM], name[64];
    if (snprintf(all, sizeof all, "%s/checkpoints", w->run) >= (int)sizeof all)
        return ls_fail(LS_USAGE, "%s: the path is too long", w->run);
    join(temporary, all, step_name(name, state->step, ".tmp"));
    join(final, all, step_name(name, state->step, ""));
    LS_TRY(ls_run_lock_held(w->lock, true));
    remove_stale(all);
    LS_TRY(ls_dir_make(all));
    /* A folder of this name that is still there belongs to another writer, or is a link: never write into it. */
    LS_TRY(ls_dir_make_new(temporary));
    LS_TRY_GOTO(failed, write_files(temporary, w));
    LS_TRY_GOTO(failed, ls_dir_sync(temporary));
    LS_TRY_GOTO(failed, ls_run_lock_held(w->lock, true)); /* the process may have been suspended */
    LS_TRY_GOTO(failed, publish(temporary, final));
    LS_TRY(ls_dir_sync(all));
    if (state->best_step > 0)
        LS_TRY(mark_best(all, state->best_step));
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

enum ls_status ls_checkpoint_save(const char *run, const struct ls_engine *e, const struct ls_model_card *card,
                                  struct ls_state *state, int64_t keep)
{
    struct ls_checkpoint_writer w = {0};
    LS_TRY(ls_checkpoint_begin(&w, run, e, card, NULL, state, keep));
    enum ls_status st = ls_checkpoint_finish(&w);
    *state = w.state;
    return st;
}
