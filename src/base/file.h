/* Files: whole reads with a size limit, and writes that are either complete and durable or not there at all. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

bool ls_file_exists(const char *path);
bool ls_file_is_dir(const char *path);
/* The path from the root. Links stay in it unless it has a .. too. Freed by ls_free. */
char *ls_path_absolute(const char *path);
/* mkdir -p; what is made is durable. */
enum ls_status ls_dir_make(const char *path);
/* "a regular file", "a FIFO (named pipe)", ... for an st_mode. */
const char *ls_file_kind(unsigned mode);
/* Every reader opens its file by this: a regular file, or a link to one, for reading. Nothing waits for another process.
 * -1 and errno: why has the reason, which follows "PATH: " in a message; nothing is said. */
enum { LS_FILE_WHY = 160 };
int ls_file_open(const char *path, size_t *size, char why[LS_FILE_WHY]);
/* The same for appending; the file is made where there is none, and a link is an error. */
enum ls_status ls_file_append(const char *path, FILE **file);
/* The whole file in new memory (freed by ls_free), with a 0 byte after the end. LS_BAD_INPUT when it is missing,
 * unreadable or larger than limit. */
enum ls_status ls_file_read(const char *path, size_t limit, char **data, size_t *size);

/* A durable write: into a temporary name beside path, fsync, rename, fsync of the folder. Nothing of it is seen
 * under path before commit returns LS_OK; cancel (or a failed commit) removes the temporary file. That one is
 * PATH.tmp-PID-RANDOM: it is new, no link is followed, and it is locked (flock) as long as its writer lives. */
struct ls_file_writer {
    char *path, *temporary; /* owned */
    int fd;
    uint64_t written;
};
enum ls_status ls_file_writer_open(struct ls_file_writer *w, const char *path);
enum ls_status ls_file_writer_put(struct ls_file_writer *w, const void *data, size_t size);
enum ls_status ls_file_writer_commit(struct ls_file_writer *w);
void ls_file_writer_cancel(struct ls_file_writer *w);
/* Is a folder's entry the name of a temporary file of the file `name`? */
bool ls_file_is_temporary(const char *entry, const char *name);
/* Removes temporary files of that path whose writers are gone, of this user; other files are left alone. */
void ls_file_remove_stale(const char *path);
/* Could that be done? Folders that are missing can be made. */
bool ls_file_can_write(const char *path);
/* The same for a small whole file. */
enum ls_status ls_file_write(const char *path, const void *data, size_t size);

/* Remove a folder with all that is in it; missing is fine. */
enum ls_status ls_dir_remove(const char *path);
/* fsync a folder, so that a rename in it is durable. */
enum ls_status ls_dir_sync(const char *path);
/* The same for the folder that a file or folder is in, where this user may read it. */
enum ls_status ls_dir_sync_above(const char *path);

#endif
