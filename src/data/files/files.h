/* A data set of image files with classes; the folder formats fill it. */
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
    struct ls_file_entry *entry; /* owned; base.info.count entries */
    int64_t room;
    const char **class_names; /* owned array */
    const char **class_ids;   /* owned array, or NULL */
    size_t root;              /* length of the common prefix of all folders; the rest of the path identifies a sample */
    int64_t other;            /* number of image files of unsupported formats, which are skipped */
    const char *other_name;   /* one of them */
    int64_t ignored;          /* number of files that are no images, such as Thumbs.db */
    const char *ignored_name; /* one of them */
};

enum ls_status ls_files_new(struct ls_files **files);
void ls_files_close(struct ls_dataset *set);
/* All strings must be in the arena. */
enum ls_status ls_files_add(struct ls_files *files, const char *folder, const char *name, int32_t label);
/* Adds every image file below folder, in sorted order. *added gets their number. */
enum ls_status ls_files_add_tree(struct ls_files *files, const char *folder, int32_t label, int64_t *added);
/* Counts the entries of path itself, without subfolders and hidden files. */
struct ls_folder_content {
    int64_t folders, images;
    const char *image; /* the first by name, in the arena; NULL: none */
};
enum ls_status ls_files_look(struct ls_files *files, const char *path, struct ls_folder_content *content);
/* Lists the folders in path, sorted, in the arena. Skips hidden ones and those of archivers and file systems (__MACOSX). */
enum ls_status ls_files_folders(struct ls_files *files, const char *path, const char ***names, int64_t *count);
/* Sets the info of the data set and reports skipped files. */
void ls_files_describe(struct ls_files *files, const char *path, int64_t classes);

enum ls_status ls_files_read(struct ls_dataset *set, int64_t i, const struct ls_view *view, struct ls_image *image,
                             int32_t *label);
enum ls_status ls_files_encoded(struct ls_dataset *set, int64_t i, struct ls_image *image, const uint8_t **bytes,
                                size_t *size);
int32_t ls_files_label(const struct ls_dataset *set, int64_t i);
void ls_files_where(const struct ls_dataset *set, int64_t i, char *text, size_t room);
void ls_files_identify(const struct ls_dataset *set, int64_t i, struct ls_identity *id);

#endif
