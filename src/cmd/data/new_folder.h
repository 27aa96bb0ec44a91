/* A folder that appears complete or not at all. It is made as FOLDER.lockstep-new beside its place, under a lock that one
 * process holds at a time, and renamed at the end. What a killed process left is removed by the next one. */
#ifndef LS_CMD_DATA_NEW_FOLDER_H
#define LS_CMD_DATA_NEW_FOLDER_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct ls_new_folder {
    char *path, *temporary, *lock_path; /* owned; absolute */
    int lock;
};

/* Finds the absolute paths and takes the lock. wait: until another process gives it back, otherwise that is an error.
 * *waited (or NULL): another process had it. Checks that the folder above can be written, and that `path` can be replaced: it
 * does not exist, or it is a folder on the same file system. */
enum ls_status ls_new_folder_lock(struct ls_new_folder *n, const char *path, bool wait, bool *waited);
/* Makes the empty temporary folder. */
enum ls_status ls_new_folder_begin(struct ls_new_folder *n);
/* Writes `mark` to the file `mark_name` in the temporary folder, and puts it in the place of `path`. */
enum ls_status ls_new_folder_commit(struct ls_new_folder *n, const char *mark_name, const char *mark);
/* Removes the temporary folder, if there is one, and gives the lock back. Safe on a zeroed struct. */
void ls_new_folder_release(struct ls_new_folder *n);

/* Tests whether a folder has no entries; a missing one has none. */
bool ls_folder_is_empty(const char *path);

/* Formats a number of bytes: "1.5 GiB". */
const char *ls_bytes_text(uint64_t bytes, char text[32]);
/* Tests whether a path is a folder or lies in it; both are absolute. */
bool ls_path_is_in(const char *path, const char *folder);

#endif
