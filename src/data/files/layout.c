#include "data/files/layout.h"
#include "data/files/flat_part.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Number of folders listed in a message. */
#define NAMED 5

/* In order of preference. */
static const char *const train_names[] = {"train", "training", NULL};
static const char *const test_names[] = {"val", "valid", "validation", "eval", "evaluation", "test", "testing", NULL};

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcasecmp(name, *names) == 0)
            return true;
    return false;
}

bool ls_layout_is_part(const char *name)
{
    return is_one_of(name, train_names) || is_one_of(name, test_names);
}

static enum ls_status set_path(char path[PATH_MAX], const char *folder, const char *name)
{
    int length = snprintf(path, PATH_MAX, "%s%s%s", folder, name ? "/" : "", name ? name : "");
    return length < PATH_MAX ? LS_OK : ls_fail(LS_USAGE, "%s: the path is too long", folder);
}

struct listing {
    const char *spec;
    const char **name; /* owned; its subfolders */
    int64_t count;
};

/* Finds the folder of one of these names that contains folders; "" if there is none. *flat is then such a folder without
 * subfolders, or "". */
static enum ls_status find(struct ls_files *f, const struct listing *in, const char *const *names, char path[PATH_MAX],
                           char flat[PATH_MAX])
{
    flat[0] = 0;
    for (; *names; names++)
        for (int64_t i = 0; i < in->count; i++) {
            struct ls_folder_content content;
            if (strcasecmp(in->name[i], *names) != 0)
                continue;
            LS_TRY(set_path(path, in->spec, in->name[i]));
            LS_TRY(ls_files_look(f, path, &content));
            if (content.folders > 0)
                return LS_OK;
            if (!flat[0])
                memcpy(flat, path, PATH_MAX);
        }
    path[0] = 0;
    return LS_OK;
}

static bool all_are_parts(const struct listing *in)
{
    for (int64_t i = 0; i < in->count; i++)
        if (!ls_layout_is_part(in->name[i]))
            return false;
    return in->count > 0;
}

static enum ls_status refuse_flat(const char *folder)
{
    return ls_fail(LS_BAD_INPUT, "%s: no folders in it: expected one for each class, with its images in it", folder);
}

/* The layout without a training folder: only a test folder, or no parts at all. */
static enum ls_status without_train(struct ls_files *f, const struct listing *in, bool test, const char *flat_train,
                                    struct ls_layout *l)
{
    char flat[PATH_MAX];
    if (!all_are_parts(in)) {
        l->plain = true;
        LS_TRY(set_path(l->classes, in->spec, NULL));
        return set_path(l->images, in->spec, NULL);
    }
    LS_TRY(find(f, in, test_names, l->images, flat));
    if (flat_train[0] || !l->images[0])
        return refuse_flat(flat_train[0] ? flat_train : flat);
    if (!test)
        return ls_fail(LS_BAD_INPUT, "%s: there is no folder to train on beside %s: expected %s/train/CLASS/IMAGE",
                       in->spec, l->images, in->spec);
    memcpy(l->classes, l->images, PATH_MAX);
    return LS_OK;
}

/* Finds a flat part with labels, in front of which no part with class folders is preferred. */
static enum ls_status find_flat(struct ls_files *f, const struct listing *in, struct ls_layout *l, bool *is_flat)
{
    for (const char *const *name = test_names; *name; name++)
        for (int64_t i = 0; i < in->count; i++) {
            struct ls_folder_content content;
            char path[PATH_MAX];
            if (strcasecmp(in->name[i], *name) != 0)
                continue;
            LS_TRY(ls_flat_part_find(f, in->spec, in->name[i], l, is_flat));
            LS_TRY(set_path(path, in->spec, in->name[i]));
            LS_TRY(ls_files_look(f, path, &content));
            if (*is_flat || content.folders > 0)
                return LS_OK;
        }
    return LS_OK;
}

static enum ls_status find_test(struct ls_files *f, const struct listing *in, struct ls_layout *l)
{
    char flat[PATH_MAX];
    bool is_flat = false;
    LS_TRY(find_flat(f, in, l, &is_flat));
    if (is_flat)
        return LS_OK;
    LS_TRY(find(f, in, test_names, l->images, flat));
    if (l->images[0])
        return LS_OK;
    if (flat[0])
        return ls_fail(
            LS_BAD_INPUT,
            "%s: no folders in it: expected one for each class, or a file with the label of each image beside it "
            "(%s.txt); give other images with --eval-data, or do without (train --no-evaluate, data convert --part train)",
            flat, flat);
    return ls_fail(LS_BAD_INPUT,
                   "%s: there is a train folder but no val or test folder: give other images with --eval-data, or do "
                   "without (train --no-evaluate, data convert --part train)",
                   in->spec);
}

/* Folders of images beside the parts may be classes, one of which is named like a part. */
static enum ls_status warn_left_out(struct ls_files *f, const struct listing *in, const char *train)
{
    char names[256] = "";
    int64_t left_out = 0;
    for (int64_t i = 0; i < in->count; i++) {
        char path[PATH_MAX];
        struct ls_folder_content content;
        if (ls_layout_is_part(in->name[i]))
            continue;
        LS_TRY(set_path(path, in->spec, in->name[i]));
        if (access(path, R_OK | X_OK) != 0)
            continue; /* unused */
        LS_TRY(ls_files_look(f, path, &content));
        size_t used = strlen(names);
        if (content.images > 0 && left_out++ < NAMED)
            snprintf(names + used, sizeof names - used, "%s%.40s", used ? ", " : "", in->name[i]);
    }
    if (left_out > 0)
        ls_warn("%s: %s is taken for the training images; %lld other folder%s with images beside it %s left out: %s%s",
                in->spec, train, (long long)left_out, left_out == 1 ? "" : "s", left_out == 1 ? "is" : "are", names,
                left_out > NAMED ? " ..." : "");
    return LS_OK;
}

enum ls_status ls_layout_find(struct ls_files *f, const char *spec, const char *part, struct ls_layout *l)
{
    bool test = strcmp(part, "test") == 0;
    struct listing in = {.spec = spec};
    char flat[PATH_MAX];
    enum ls_status st;
    *l = (struct ls_layout){.above = strlen(spec)};
    LS_TRY(ls_files_folders(f, spec, &in.name, &in.count));
    LS_TRY_GOTO(free_listing, find(f, &in, train_names, l->classes, flat));
    if (!l->classes[0])
        st = without_train(f, &in, test, flat, l);
    else if (test)
        st = find_test(f, &in, l);
    else {
        memcpy(l->images, l->classes, PATH_MAX);
        st = warn_left_out(f, &in, l->classes);
    }
free_listing:
    ls_free(in.name);
    return st;
}

/* Finds the only folder in spec; false if there are none, several, or images beside it. */
static bool only_folder(struct ls_files *f, const char *spec, char inner[PATH_MAX])
{
    const char **name = NULL;
    int64_t count = 0;
    struct ls_folder_content content;
    bool only = ls_files_look(f, spec, &content) == LS_OK && content.folders == 1 && content.images == 0 &&
                ls_files_folders(f, spec, &name, &count) == LS_OK && count == 1 && !ls_layout_is_part(name[0]) &&
                snprintf(inner, PATH_MAX, "%s/%s", spec, name[0]) < PATH_MAX;
    ls_free(name);
    return only;
}

bool ls_layout_inner(const char *spec, char inner[PATH_MAX])
{
    struct ls_files *f;
    struct ls_folder_content content;
    if (access(spec, R_OK | X_OK) != 0 || ls_files_new(&f) != LS_OK) /* opening it reports the error */
        return false;
    bool higher = only_folder(f, spec, inner) && access(inner, R_OK | X_OK) == 0 &&
                  ls_files_look(f, inner, &content) == LS_OK && content.images == 0;
    ls_files_close(&f->base);
    return higher;
}
