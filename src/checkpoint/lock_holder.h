/* The contents of a lock file: a description of the process that holds the lock, as lines "key: value". */
#ifndef LS_CHECKPOINT_LOCK_HOLDER_H
#define LS_CHECKPOINT_LOCK_HOLDER_H

#include "base/files/file.h"
#include <stdbool.h>
#include <time.h>

enum { LS_LOCK_TEXT = 2048, LS_LOCK_FIELD = 256, LS_LOCK_LINE = 4 * LS_LOCK_FIELD };

/* A lock file that was read. */
struct ls_lock_holder {
    char text[LS_LOCK_TEXT];
    char why[LS_FILE_WHY]; /* the cause if it cannot be read */
    struct timespec touched;
};

/* Describes this process: host, pid, start time, boot, user, job, command. id gets a random number, which makes the text of
 * every lock unique. argv: the command line; NULL: unknown. */
void ls_lock_holder_compose(char text[LS_LOCK_TEXT], char *const *argv, char id[32]);
/* Formats a text for messages: "host node1 (pid 12, user joe, job 77, since ...: lockstep train ...)". */
void ls_lock_holder_describe(const char *text, char line[LS_LOCK_LINE]);
/* Reads a lock file. On failure returns false, sets errno and h->why. */
bool ls_lock_holder_read(const char *path, struct ls_lock_holder *h);

enum ls_lock_verdict {
    LS_LOCK_LIVE,
    LS_LOCK_STALE,  /* the process has ended */
    LS_LOCK_UNSEEN, /* the process is on another machine, boot or pid namespace */
    LS_LOCK_CHANGED /* the lock file changed meanwhile */
};
/* Looks for the process of the text on this machine: live, stale or unseen (Q2 of run_lock.h). */
enum ls_lock_verdict ls_lock_holder_look(const char *text);

#endif
