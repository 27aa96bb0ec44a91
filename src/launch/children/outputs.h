/* The pipes between children and their parent, in the way that the job wants its output: lines of several copies of Lockstep
 * once (stderr_dedup.h), lines of another program behind their rank (labels.h), or no pipes at all. */
#ifndef LS_LAUNCH_OUTPUTS_H
#define LS_LAUNCH_OUTPUTS_H

#include "launch/children/labels.h"
#include "launch/children/stderr_dedup.h"
#include <stdbool.h>
#include <stddef.h>

struct ls_outputs {
    int n, pipes; /* children, and pipes that the parent reads */
    bool label;
    struct ls_stderr_dedup dedup; /* without labels: standard error of each child */
    struct ls_labels labels;      /* with labels: standard output of each, then standard error of each */
};

/* For n children. Without `merge` and `label` there are no pipes. */
enum ls_status ls_outputs_init(struct ls_outputs *u, int n, bool merge, bool label);
void ls_outputs_release(struct ls_outputs *u);
/* Makes the pipes of a child. *output and *errors are the ends that the child writes to, owned by the caller; -1: the child
 * keeps the parent's stream. False: errno says why. */
bool ls_outputs_open(struct ls_outputs *u, int child, int rank, int *output, int *errors);
/* The end of pipe i that the parent reads; -1: closed. */
int ls_outputs_fd(const struct ls_outputs *u, int i);
/* Reads from pipe i and prints complete lines. Returns the bytes read. */
size_t ls_outputs_read(struct ls_outputs *u, int i);
/* Reads what an ended child left in its pipes, and not for ever what its own children still write there. */
void ls_outputs_read_rest(struct ls_outputs *u, int child);

#endif
