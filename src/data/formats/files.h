/* A data set whose samples are image files, each with its class: what the folder formats fill. */
#ifndef LS_DATA_FORMATS_FILES_H
#define LS_DATA_FORMATS_FILES_H

#include "base/memory.h"
#include "data/dataset.h"

struct ls_file_entry {
    const char *folder, *name; /* borrowed from the arena; the path is folder/name */
    int32_t label;
};

struct ls_files {
    struct ls_dataset base;
    struct ls_arena arena;       /* all strings */
    struct ls_file_entry *entry; /* owned; base.info.count of them */
    int64_t room;
    const char **class_names; /* owned array */
    const char **class_ids;   /* owned array, or NULL */
    size_t root;              /* length of the path with which every folder begins; what follows names a sample */
    int64_t other;            /* image files of kinds that are not read, left out */
    const char *other_name;   /* one of them */
};

enum ls_status ls_files_new(struct ls_files **files);
void ls_files_close(struct ls_dataset *set);
/* All strings given must live in the arena. */
enum ls_status ls_files_add(struct ls_files *files, const char *folder, const char *name, int32_t label);
/* Every image file under folder and its folders, in sorted order; *added: how many there were. */
enum ls_status ls_files_add_tree(struct ls_files *files, const char *folder, int32_t label, int64_t *added);
/* What lies in path itself, not in its folders; hidden things do not count. */
struct ls_folder_content {
    int64_t folders, images;
    const char *image; /* the first by name, in the arena; NULL: none */
};
enum ls_status ls_files_look(struct ls_files *files, const char *path, struct ls_folder_content *content);
/* The sorted names of the folders in path, in the arena; hidden ones, and those that systems leave behind (__MACOSX), are
 * left out. */
enum ls_status ls_files_folders(struct ls_files *files, const char *path, const char ***names, int64_t *count);
/* Set the facts that all such sets share, and say what was left out. */
void ls_files_describe(struct ls_files *files, const char *path, int64_t classes);

enum ls_status ls_files_read(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                             int32_t *label);
int32_t ls_files_label(const struct ls_dataset *set, int64_t i);
void ls_files_where(const struct ls_dataset *set, int64_t i, char *text, size_t room);
void ls_files_identify(const struct ls_dataset *set, int64_t i, struct ls_identity *id);

#endif
