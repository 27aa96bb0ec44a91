/* The files of a data set that is copied to the disk of a node. */
#ifndef LS_CMD_DATA_STAGE_H
#define LS_CMD_DATA_STAGE_H

#include "base/memory.h"
#include "report/console.h"

#define LS_STAGE_MARK_MAX ((size_t)16 << 30)

struct ls_staging {
    const char *source;
    int threads;
};

struct ls_staged_file {
    const char *path; /* below the root; in the arena */
    uint64_t size, sum;
    int64_t changed; /* in the source; nanoseconds since 1970 */
    bool is_folder;
};

struct ls_staged {
    struct ls_arena arena;
    char *root;                  /* owned; the folder of the source */
    char *source;                /* owned; absolute path */
    struct ls_staged_file *file; /* owned; sorted by path */
    int64_t count, room;
    uint64_t bytes;
};

void ls_staged_release(struct ls_staged *s);
/* Lists a folder with all files and folders below it, a single file, or a list of images with its images. Links are
 * followed. */
enum ls_status ls_staged_list(struct ls_staged *s, const char *source);
enum ls_status ls_staged_add(struct ls_staged *s, const struct ls_staged_file *file);
/* Whether both have the same paths, sizes and times of change. */
bool ls_staged_same(const struct ls_staged *a, const struct ls_staged *b);
/* Copies all files below `folder`, fills in their checksums, and compares what lies there with them. */
enum ls_status ls_staged_copy(struct ls_staged *s, const char *folder, int threads, struct ls_console *console);
/* Compares the files below `folder` with the checksums. A difference is no failure: it is named and *intact is false. */
enum ls_status ls_staged_verify(const struct ls_staged *s, const char *folder, int threads, struct ls_console *console,
                                bool *intact);
/* The list as text, and back. *text is freed with free. parse overwrites its text, and returns false if that is damaged. */
enum ls_status ls_staged_print(const struct ls_staged *s, char **text);
bool ls_staged_parse(char *text, size_t size, struct ls_staged *s);

#endif
