/* Files: whole reads with a size limit, and atomic, durable writes. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

bool ls_file_exists(const char *path);
bool ls_file_is_dir(const char *path);
/* Returns the absolute path; free it with ls_free. Symbolic links are resolved only if the path contains "..". */
char *ls_path_absolute(const char *path);
/* Creates a folder and its missing parents (mkdir -p) and fsyncs each new entry. */
enum ls_status ls_dir_make(const char *path);
/* Creates one folder that must not exist yet (mkdir) and fsyncs its entry. Anything of that name is an error. */
enum ls_status ls_dir_make_new(const char *path);
/* Describes an st_mode: "a regular file", "a FIFO (named pipe)", ... */
const char *ls_file_kind(unsigned mode);
enum { LS_FILE_WHY = 160 };
/* Opens a regular file, or a symbolic link to one, for reading; every reader uses this. Never blocks: a FIFO or a device is
 * refused. On failure returns -1, sets errno and writes the reason to why, to follow "PATH: " in a message. Reports no
 * error. */
int ls_file_open(const char *path, size_t *size, char why[LS_FILE_WHY]);
/* Opens a regular file for appending and creates it if it is missing. A symbolic link is an error. */
enum ls_status ls_file_append(const char *path, FILE **file);
/* Reads a whole file into new memory and appends a 0 byte that *size does not count; free *data with ls_free. Returns
 * LS_BAD_INPUT if the file is missing, unreadable or larger than limit. */
enum ls_status ls_file_read(const char *path, size_t limit, char **data, size_t *size);

/* An atomic, durable write: open creates a temporary file beside path, commit does fsync, rename and fsync of the folder.
 * Readers of path see the old contents until the rename. Cancel, or a failed commit, removes the temporary file. That file
 * is PATH.tmp-PID-RANDOM, created with O_EXCL and O_NOFOLLOW; the writer holds a flock on it until it ends. */
struct ls_file_writer {
    char *path, *temporary; /* owned */
    int fd;
    uint64_t written;
};
enum ls_status ls_file_writer_open(struct ls_file_writer *w, const char *path);
enum ls_status ls_file_writer_put(struct ls_file_writer *w, const void *data, size_t size);
enum ls_status ls_file_writer_commit(struct ls_file_writer *w);
void ls_file_writer_cancel(struct ls_file_writer *w);
/* Removes temporary files of that path that belong to this user and whose writers have ended. */
void ls_file_remove_stale(const char *path);
/* Tests whether ls_file_writer_open can succeed, perhaps after ls_dir_make of the folder. */
bool ls_file_can_write(const char *path);
/* Open, put and commit in one call. */
enum ls_status ls_file_write(const char *path, const void *data, size_t size);

/* Removes a folder with its contents. A missing folder is no error. */
enum ls_status ls_dir_remove(const char *path);
/* fsyncs a folder, so that a rename in it is durable. */
enum ls_status ls_dir_sync(const char *path);
/* fsyncs the parent folder of path, if this user may read it. */
enum ls_status ls_dir_sync_above(const char *path);

#endif
