#define _GNU_SOURCE
#include "data/files/flat_part.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/text/text.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

const char *const ls_class_lists[] = {"synsets.txt", "classes.txt", NULL};

/* --- the label file ---------------------------------------------------------------------------------------------------- */

static bool is_text(const char *name)
{
    return ls_ends_in(name, ".txt") || ls_ends_in(name, ".tsv") || ls_ends_in(name, ".csv") || ls_ends_in(name, ".lst");
}

static bool is_class_list(const char *name)
{
    for (const char *const *list = ls_class_lists; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

/* Tests the name of a file in the part (part NULL) or beside it. */
static bool is_label_file(const char *name, const char *part)
{
    static const char *const words[] = {"annotation", "label", "truth", "synset", "solution", NULL};
    if (name[0] == '.' || !is_text(name) || is_class_list(name))
        return false;
    for (const char *const *word = words; *word && !part; word++)
        if (strcasestr(name, *word))
            return true;
    return part && strcasestr(name, part);
}

/* Finds the label file in a folder; path is "" if there is none. */
static enum ls_status find_labels(const char *folder, const char *part, char path[PATH_MAX])
{
    DIR *dir = opendir(folder);
    enum ls_status st = LS_OK;
    char found[NAME_MAX + 1] = "";
    path[0] = 0;
    for (struct dirent *e; dir && st == LS_OK && (e = readdir(dir));) {
        if (!is_label_file(e->d_name, part) || e->d_type == DT_DIR)
            continue;
        if (found[0])
            st = ls_fail(LS_BAD_INPUT, "%s: %s and %s may both have the labels of the images; keep one of them", folder,
                         strcmp(found, e->d_name) < 0 ? found : e->d_name,
                         strcmp(found, e->d_name) < 0 ? e->d_name : found);
        snprintf(found, sizeof found, "%s", e->d_name);
    }
    if (dir)
        closedir(dir);
    if (st == LS_OK && found[0] && snprintf(path, PATH_MAX, "%s/%s", folder, found) >= PATH_MAX)
        path[0] = 0;
    return st;
}

/* Finds the folder that has the images, the part itself or its only folder `images`; false: the part has classes. */
static enum ls_status find_images(struct ls_files *f, const char *part, char images[PATH_MAX], bool *is_flat)
{
    struct ls_folder_content content;
    *is_flat = false;
    LS_TRY(ls_files_look(f, part, &content));
    const char *inner = content.folders == 1 && content.images == 0 ? "/images" : "";
    if (snprintf(images, PATH_MAX, "%s%s", part, inner) >= PATH_MAX || !ls_file_is_dir(images))
        return LS_OK;
    if (*inner)
        LS_TRY(ls_files_look(f, images, &content));
    *is_flat = content.folders == 0 && content.images > 0;
    return LS_OK;
}

enum ls_status ls_flat_part_find(struct ls_files *f, const char *spec, const char *name, struct ls_layout *l,
                                 bool *is_flat)
{
    char part[PATH_MAX], images[PATH_MAX], labels[PATH_MAX];
    *is_flat = false;
    if (snprintf(part, sizeof part, "%s/%s", spec, name) >= (int)sizeof part)
        return LS_OK;
    LS_TRY(find_images(f, part, images, is_flat));
    if (!*is_flat)
        return LS_OK;
    LS_TRY(find_labels(part, NULL, labels));
    if (!labels[0])
        LS_TRY(find_labels(spec, name, labels));
    *is_flat = labels[0] != 0;
    if (*is_flat) {
        memcpy(l->images, images, PATH_MAX);
        memcpy(l->labels, labels, PATH_MAX);
    }
    return LS_OK;
}
