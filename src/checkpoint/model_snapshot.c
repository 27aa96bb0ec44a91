#include "checkpoint/model_snapshot.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text/utf8.h"
#include "model/model.h"

#include <string.h>
#include <unistd.h>

static enum ls_status replace(char **text, char *with)
{
    if (!with)
        return LS_FAILED;
    ls_free(*text);
    *text = with;
    return LS_OK;
}

enum ls_status ls_model_snapshot_read(struct ls_options *o, const char *run)
{
    enum ls_status st = LS_OK;
    char *text = NULL;
    if (!ls_model_is_file(o->model))
        return LS_OK;
    char *path = ls_path_absolute(o->model);
    if (path && ls_utf8_valid(path)) /* config.yaml must be UTF-8 */
        LS_TRY(replace(&o->model, path));
    else
        ls_free(path);
    char *copy = run ? ls_format("%s/model.yaml", run) : NULL;
    if (!o->model_yaml && copy && ls_file_exists(copy))
        st = ls_model_read_text(copy, &text);
    else if (!o->model_yaml)
        st = ls_model_read_text(o->model, &text);
    ls_free(copy);
    return st == LS_OK && text ? replace(&o->model_yaml, text) : st;
}

enum ls_status ls_model_snapshot_adopt(struct ls_options *o, const struct ls_model_card *card, bool given)
{
    if (!given && card->yaml) {
        LS_TRY(replace(&o->model, ls_strdup(card->model)));
        LS_TRY(replace(&o->model_yaml, ls_strdup(card->yaml)));
        return LS_OK;
    }
    LS_TRY(ls_model_snapshot_read(o, NULL));
    if (given && card->yaml && (!o->model_yaml || strcmp(o->model_yaml, card->yaml) != 0))
        ls_warn(
            "--model %s is not the network that was trained; without --model, the network saved with the weights is used",
            o->model);
    return LS_OK;
}

void ls_model_snapshot_warn(const struct ls_options *o)
{
    char *text;
    if (!o->model_yaml || access(o->model, R_OK) != 0 || ls_file_is_dir(o->model) ||
        ls_model_read_text(o->model, &text) != LS_OK)
        return;
    if (strcmp(text, o->model_yaml) != 0)
        ls_warn("%s has changed since training was started; the copy saved with the run is used (model.yaml in the run "
                "directory); to train the changed network, start a new run",
                o->model);
    ls_free(text);
}

/* Reads the text of the model file from the metadata of a checkpoint; NULL if there is none. Free with ls_free. */
static enum ls_status read_card(const char *checkpoint, char **yaml)
{
    struct ls_safetensors file;
    struct ls_model_card card;
    struct ls_arena strings = {0};
    char *path = ls_format("%s/model.safetensors", checkpoint);
    enum ls_status st = path ? ls_safetensors_open(path, &file) : LS_FAILED;
    *yaml = NULL;
    if (st == LS_OK) {
        st = ls_model_card_read(&file, path, &strings, &card);
        ls_safetensors_release(&file);
    }
    if (st == LS_OK && card.yaml && !(*yaml = ls_strdup(card.yaml)))
        st = LS_FAILED;
    ls_arena_release(&strings);
    ls_free(path);
    return st;
}

enum ls_status ls_model_snapshot_take(struct ls_options *o, const char *checkpoint)
{
    char *yaml;
    LS_TRY(read_card(checkpoint, &yaml));
    if (yaml && ls_model_is_file(o->model))
        return replace(&o->model_yaml, yaml);
    ls_free(yaml);
    return LS_OK;
}

enum ls_status ls_model_snapshot_check(const char *checkpoint, const char *run, const struct ls_options *o)
{
    char *yaml, *copy = ls_format("%s/model.yaml", run);
    bool copied = copy && ls_file_exists(copy);
    enum ls_status st = read_card(checkpoint, &yaml);
    if (st == LS_OK && yaml && o->model_yaml && strcmp(yaml, o->model_yaml) != 0)
        st = ls_fail(
            LS_BAD_INPUT,
            "%s%s: not the network that %s was trained with, whose text is in its metadata. Restore that text, or "
            "train this network in a new run with --init %s/model.safetensors",
            copied ? run : o->model, copied ? "/model.yaml" : "", checkpoint, checkpoint);
    ls_free(copy);
    ls_free(yaml);
    return st;
}
