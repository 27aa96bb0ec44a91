#define _GNU_SOURCE
#include "checkpoint/checkpoint.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/files/checksum.h"
#include "checkpoint/weights.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define REASON_ROOM (LS_CHECKPOINT_PATH + 512)

const struct ls_help_row ls_checkpoint_files[] = {
    {"model.safetensors", "weights with the names of torchvision, and metadata to use them"},
    {"state.safetensors", "the optimizer's state of each weight, NAME.STATE, such as NAME.momentum"},
    {"state.json", "the position of the run, and checksums of all files"},
    {"data.json", "fingerprint of the data: classes, counts, digests of names and sizes; --resume compares it"},
    {NULL, NULL},
};

const char *ls_checkpoint_path(char room[LS_CHECKPOINT_PATH], const char *folder, const char *name)
{
    if (snprintf(room, LS_CHECKPOINT_PATH, "%s/%s", folder, name) >= LS_CHECKPOINT_PATH)
        room[0] = 0; /* "" names no file */
    return room;
}

const char *ls_checkpoint_step_name(char room[64], uint64_t step, const char *tail)
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
    char path[LS_CHECKPOINT_PATH];
    void *bytes;
    size_t size;
};

static bool map_file(struct mapped *m, const char *folder, const char *name, char reason[REASON_ROOM])
{
    char why[LS_FILE_WHY];
    int fd = ls_file_open(ls_checkpoint_path(m->path, folder, name), &m->size, why);
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
    char path[LS_CHECKPOINT_PATH];
    return expected == 0 || !ls_file_exists(ls_checkpoint_path(path, folder, name)) ||
           check_sum(folder, name, expected, reason);
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
    char path[LS_CHECKPOINT_PATH];
    LS_TRY(ls_weights_load(e, LS_WEIGHTS_MODEL, ls_checkpoint_path(path, folder, "model.safetensors")));
    return ls_weights_load(e, LS_WEIGHTS_STATE, ls_checkpoint_path(path, folder, "state.safetensors"));
}

/* --- the checkpoints of a run ------------------------------------------------------------------------- */

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

enum ls_status ls_checkpoint_steps(const char *folder, int64_t **steps, int *n)
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
    char all[LS_CHECKPOINT_PATH], one[LS_CHECKPOINT_PATH], name[64], reason[REASON_ROOM];
    struct mapped m;
    int64_t *steps;
    int n;
    *state = (struct ls_state){0};
    if (ls_checkpoint_steps(ls_checkpoint_path(all, run, "checkpoints"), &steps, &n) != LS_OK)
        return false;
    if (n > 0 && map_file(&m, ls_checkpoint_path(one, all, ls_checkpoint_step_name(name, (uint64_t)steps[0], "")),
                          "state.json", reason)) {
        ls_state_parse(m.bytes, m.size, state, reason, sizeof reason);
        munmap(m.bytes, m.size);
    }
    ls_free(steps);
    return n > 0;
}

static const char *folder_of_step(char room[LS_CHECKPOINT_PATH], const char *all, int64_t step)
{
    char name[64];
    return ls_checkpoint_path(room, all, ls_checkpoint_step_name(name, (uint64_t)step, ""));
}

static bool is_removed(const char *folder)
{
    struct stat s;
    return lstat(folder, &s) != 0 && errno == ENOENT;
}

enum { NONE_VALID = -1, REMOVED = -2 };

/* Chooses the checkpoint to resume from: the newest valid one that was compared among the processes, else the newest valid
 * one. NONE_VALID: `reason` is that of the oldest. REMOVED: the run goes on and removed one meanwhile. */
static int choose(const char *all, const int64_t *steps, int n, struct ls_state *state, char reason[REASON_ROOM])
{
    char one[LS_CHECKPOINT_PATH];
    int unverified = -1;
    for (int i = 0; i < n; i++) {
        folder_of_step(one, all, steps[i]);
        if (unverified >= 0 && (!read_state(one, state, reason) || !state->verified))
            continue;
        if (!verify(one, state, reason)) {
            if (is_removed(one))
                return REMOVED;
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
        return is_removed(one) ? REMOVED : NONE_VALID;
    return unverified;
}

/* Sets *folder and *held to the chosen checkpoint, if it is still there. */
static bool hold(const char *one, char **folder, FILE **held)
{
    *held = ls_checkpoint_hold(one);
    *folder = *held ? ls_strdup(one) : NULL;
    return *held;
}

enum ls_status ls_checkpoint_find(const char *run, char **folder, struct ls_state *state, FILE **held)
{
    enum { TRIES = 1000 };
    char all[LS_CHECKPOINT_PATH], one[LS_CHECKPOINT_PATH], reason[REASON_ROOM] = "";
    FILE *here = NULL;
    int64_t *steps;
    int n, chosen = REMOVED;
    *folder = NULL;
    for (int tries = 0; chosen == REMOVED && tries < TRIES; tries++) {
        LS_TRY(ls_checkpoint_steps(ls_checkpoint_path(all, run, "checkpoints"), &steps, &n));
        chosen = choose(all, steps, n, state, reason);
        if (chosen >= 0 && !hold(folder_of_step(one, all, steps[chosen]), folder, &here))
            chosen = REMOVED;
        ls_free(steps);
    }
    if (held)
        *held = here;
    else
        ls_checkpoint_let_go(&here);
    if (chosen >= 0)
        return *folder ? LS_OK : LS_FAILED;
    if (chosen == REMOVED)
        return ls_fail(LS_BAD_INPUT,
                       "%s: its run removes checkpoints faster than they are read; use a larger --keep there", run);
    if (n > 0)
        return ls_fail(LS_BAD_INPUT, "%s; there is no older checkpoint to resume from", reason);
    return ls_fail(LS_BAD_INPUT, "%s: no checkpoint has been saved there yet", run);
}
