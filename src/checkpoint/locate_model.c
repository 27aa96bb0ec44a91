#include "checkpoint/locate_model.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_snapshot.h"
#include "checkpoint/rundir.h"
#include "checkpoint/safetensors.h"

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

/* Finds the weights in a folder and loads the configuration of its run. */
static enum ls_status find_in_folder(const char *folder, struct ls_options *o, char **file)
{
    struct ls_state state;
    char *checkpoint = NULL, *run = NULL;
    enum ls_status st;
    if (ls_rundir_is_checkpoint(folder)) {
        st = ls_checkpoint_read(folder, &state);
        checkpoint = ls_strdup(folder);
        run = ls_format("%s/../..", folder);
    } else {
        st = ls_checkpoint_find(folder, &checkpoint, &state);
        run = ls_strdup(folder);
    }
    if (st == LS_OK)
        st = checkpoint && run ? load_config(run, o) : LS_FAILED;
    if (st == LS_OK) {
        *file = ls_format("%s/model.safetensors", checkpoint);
        st = *file ? LS_OK : LS_FAILED;
    }
    ls_free(checkpoint);
    ls_free(run);
    return st;
}

static enum ls_status find_file(const char *name, struct ls_options *o, char **file)
{
    if (ls_file_is_dir(name))
        return find_in_folder(name, o, file);
    if (!ls_file_exists(name))
        return ls_fail(LS_BAD_INPUT, "%s: no such run directory, checkpoint or file", name);
    *file = ls_strdup(name);
    return *file ? LS_OK : LS_FAILED;
}

enum ls_status ls_locate_weights(const char *name, char **file)
{
    struct ls_state state;
    char *checkpoint = NULL;
    if (ls_file_exists(name) && (ls_ends_in(name, ".pth") || ls_ends_in(name, ".pt")))
        return ls_fail(LS_BAD_INPUT,
                       "%s: a file of PyTorch; convert it: python -c \"import torch, safetensors.torch as s; "
                       "s.save_file(torch.load('%s', weights_only=True), 'weights.safetensors')\"",
                       name, name);
    if (!ls_file_is_dir(name))
        return find_file(name, NULL, file);
    if (ls_rundir_is_checkpoint(name))
        LS_TRY(ls_checkpoint_read(name, &state));
    else
        LS_TRY(ls_checkpoint_find(name, &checkpoint, &state));
    *file = ls_format("%s/model.safetensors", checkpoint ? checkpoint : name);
    ls_free(checkpoint);
    return *file ? LS_OK : LS_FAILED;
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
    LS_TRY_GOTO(failed, find_file(name, o, &t->file));
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
    ls_free(t->file);
    ls_arena_release(&t->strings);
    *t = (struct ls_located_model){0};
}
