#include "checkpoint/locate_model.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_snapshot.h"
#include "checkpoint/rundir.h"
#include "checkpoint/safetensors.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --data from the user replaces the run's --eval-data. */
static enum ls_status load_config(const char *run, struct ls_options *o)
{
    bool data = ls_options_given(o, "data") && !ls_options_given(o, "eval-data");
    LS_TRY(ls_rundir_load_config(run, o));
    if (data) {
        ls_free(o->eval_data);
        o->eval_data = NULL;
    }
    return LS_OK;
}

/* The checkpoint that a link names, such as checkpoints/best: the run may make it name another one meanwhile. */
static char *follow_link(const char *folder)
{
    char target[LS_CHECKPOINT_PATH], path[LS_CHECKPOINT_PATH];
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    snprintf(path, sizeof path, "%.*s", (int)length, folder);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0)
        return ls_strdup(folder);
    target[n] = 0;
    char *slash = strrchr(path, '/');
    return target[0] == '/' || !slash ? ls_strdup(target) : ls_format("%.*s/%s", (int)(slash - path), path, target);
}

/* Holds and verifies a checkpoint that was given by its folder or a link to it. */
static enum ls_status read_held(const char *folder, char **checkpoint, FILE **held)
{
    enum { TRIES = 1000 };
    struct ls_state state;
    for (int tries = 0; tries < TRIES && !*held; tries++) {
        ls_free(*checkpoint);
        *checkpoint = follow_link(folder);
        if (!*checkpoint)
            return LS_FAILED;
        *held = ls_checkpoint_hold(*checkpoint);
        if (!*held && strcmp(*checkpoint, folder) == 0)
            break; /* ls_checkpoint_read says why */
    }
    return ls_checkpoint_read(*checkpoint, &state);
}

/* Finds the checkpoint in a folder, which is one itself or a run directory. Free *checkpoint and *held also after a failure. */
static enum ls_status find_checkpoint(const char *folder, char **checkpoint, FILE **held)
{
    struct ls_state state;
    *checkpoint = NULL;
    *held = NULL;
    return ls_rundir_is_checkpoint(folder) ? read_held(folder, checkpoint, held)
                                           : ls_checkpoint_find(folder, checkpoint, &state, held);
}

/* Finds the weights in a folder and loads the configuration of its run. */
static enum ls_status find_in_folder(struct ls_located_model *t, const char *folder, struct ls_options *o)
{
    LS_TRY(find_checkpoint(folder, &t->name, &t->held));
    char *run = ls_rundir_is_checkpoint(folder) ? ls_format("%s/../..", t->name) : ls_strdup(folder);
    enum ls_status st = run ? load_config(run, o) : LS_FAILED;
    ls_free(run);
    if (st == LS_OK) {
        t->file = ls_format("%s/model.safetensors", t->name);
        st = t->file ? LS_OK : LS_FAILED;
    }
    return st;
}

static enum ls_status check_file(const char *name)
{
    return ls_file_exists(name) ? LS_OK : ls_fail(LS_BAD_INPUT, "%s: no such run directory, checkpoint or file", name);
}

static enum ls_status find_file(struct ls_located_model *t, const char *name, struct ls_options *o)
{
    if (ls_file_is_dir(name))
        return find_in_folder(t, name, o);
    LS_TRY(check_file(name));
    t->name = ls_strdup(name);
    t->file = ls_strdup(name);
    return t->name && t->file ? LS_OK : LS_FAILED;
}

enum ls_status ls_locate_weights(const char *name, char **file, FILE **held)
{
    char *checkpoint;
    *file = NULL;
    *held = NULL;
    if (ls_file_exists(name) && (ls_ends_in(name, ".pth") || ls_ends_in(name, ".pt")))
        return ls_fail(LS_BAD_INPUT,
                       "%s: a file of PyTorch; convert it: python -c \"import torch, safetensors.torch as s; "
                       "s.save_file(torch.load('%s', weights_only=True), 'weights.safetensors')\"",
                       name, name);
    if (!ls_file_is_dir(name)) {
        LS_TRY(check_file(name));
        *file = ls_strdup(name);
        return *file ? LS_OK : LS_FAILED;
    }
    enum ls_status st = find_checkpoint(name, &checkpoint, held);
    if (st == LS_OK)
        *file = ls_format("%s/model.safetensors", checkpoint);
    ls_free(checkpoint);
    if (st != LS_OK)
        ls_checkpoint_let_go(held);
    return st == LS_OK && !*file ? LS_FAILED : st;
}

static enum ls_status replace(char **text, char *with)
{
    if (!with)
        return LS_FAILED;
    ls_free(*text);
    *text = with;
    return LS_OK;
}

static enum ls_status adopt_card(const struct ls_model_card *card, struct ls_options *o, bool model_given)
{
    if (!card->model)
        return LS_OK;
    LS_TRY(ls_model_snapshot_adopt(o, card, model_given));
    if (!ls_options_given(o, "model"))
        LS_TRY(replace(&o->model, ls_strdup(card->model)));
    if (!o->input)
        LS_TRY(replace(&o->input, ls_format("%lldx%lldx%lld", (long long)card->channels, (long long)card->height,
                                            (long long)card->width)));
    if (o->classes == 0)
        o->classes = card->classes;
    return LS_OK;
}

/* Image preprocessing comes from the metadata of the model unless the user sets it here: the run's configuration describes
 * training. */
static enum ls_status choose_transform(struct ls_located_model *t, struct ls_options *o, const bool given[3])
{
    if (given[0])
        t->card.eval_resize[0] = t->card.eval_crop[0] = 0;
    else
        LS_TRY(replace(&o->augment, ls_strdup("auto")));
    if (!given[1])
        LS_TRY(replace(&o->eval_resize, ls_strdup("auto")));
    return given[2] ? LS_OK : replace(&o->eval_crop, ls_strdup("auto"));
}

enum ls_status ls_located_model_find(struct ls_located_model *t, const char *name, struct ls_options *o)
{
    struct ls_safetensors file;
    enum ls_status st = LS_OK;
    const bool model_given = ls_options_given(o, "model");
    const bool given[3] = {ls_options_given(o, "augment"), ls_options_given(o, "eval-resize"),
                           ls_options_given(o, "eval-crop")};
    *t = (struct ls_located_model){0};
    if (!name)
        name = o->run ? o->run : o->init;
    if (!name)
        return ls_fail(LS_USAGE, "which model? Give a run directory, a checkpoint folder, or --init FILE.safetensors");
    LS_TRY_GOTO(failed, find_file(t, name, o));
    LS_TRY_GOTO(failed, ls_safetensors_open(t->file, &file));
    st = ls_model_card_read(&file, t->file, &t->strings, &t->card);
    ls_safetensors_release(&file);
    if (st == LS_OK)
        st = adopt_card(&t->card, o, model_given);
    if (st == LS_OK)
        st = choose_transform(t, o, given);
    if (st == LS_OK)
        return LS_OK;
failed:
    ls_located_model_release(t);
    return st;
}

void ls_located_model_release(struct ls_located_model *t)
{
    ls_checkpoint_let_go(&t->held);
    ls_free(t->name);
    ls_free(t->file);
    ls_arena_release(&t->strings);
    *t = (struct ls_located_model){0};
}
