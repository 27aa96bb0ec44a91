/* The files of a rendezvous in a folder, and its sessions; file.c has the rules (RENDEZVOUS-4 to 7). For the files of this
 * folder. */
#ifndef LS_COMM_RENDEZVOUS_FOLDER_H
#define LS_COMM_RENDEZVOUS_FOLDER_H

#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/wire.h"
#include <limits.h>

#define LS_FOLDER_SILENCE 15.0 /* seconds without a sign of life, more than any NFS keeps attributes for */
#define LS_SESSION_BYTES (4 + LS_NONCE)

struct ls_folder {
    const struct ls_launch *l;
    struct ls_rendezvous *m;
    char *path;
    int number; /* of the session */
    int found;  /* the highest number when this process came; -1: not known yet */
    uint8_t key[LS_NONCE];
    uint64_t random; /* for a unique name */
    int rank;        /* -1: none yet */
    double touched;  /* the last touch, by this host's clock; `mark`: by the file system's */
    double mark;
    double begun, until;
    bool *seen; /* owned; ranks whose file was there during this wait */
};

/* --- files: folder_files.c ----------------------------------------------------------------------------------- */

/* The path of the session's file (what is ""), or of the file of that kind and rank. */
void ls_folder_name(const struct ls_folder *f, const char *what, int rank, char name[PATH_MAX]);
/* Writes a file. False with errno EEXIST when the name exists (RENDEZVOUS-4). */
bool ls_folder_put(const struct ls_folder *f, const char *name, const void *data, size_t bytes);
/* Reads a file of this user (RENDEZVOUS-7) and its time; free *data with ls_free. False: there is none. */
bool ls_folder_get(const char *name, size_t limit, void **data, size_t *bytes, double *when);
/* The time of a file; false: there is none. */
bool ls_folder_time(const char *name, double *when);
/* Reads the file system's clock by touching a file. */
enum ls_status ls_folder_read_clock(struct ls_folder *f);

/* --- sessions: folder_sessions.c ----------------------------------------------------------------------------- */

/* The highest session of this user; 0: none. */
enum ls_status ls_folder_newest(const struct ls_folder *f, int *number);
/* Makes the next session; numbers of other users' files are skipped. */
enum ls_status ls_folder_make_session(struct ls_folder *f);
/* Finds the session of this run, or makes the next one, and reads it. */
enum ls_status ls_folder_enter(struct ls_folder *f);

#endif
