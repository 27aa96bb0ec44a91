/* Checkpoints that are read while their run goes on: a reader holds a lock on model.safetensors, and the run removes no
 * checkpoint that is held. On a file system without locks a checkpoint may be removed under its reader. */
#ifndef LS_CHECKPOINT_HOLD_H
#define LS_CHECKPOINT_HOLD_H

#include <stdbool.h>
#include <stdio.h>

/* Holds a checkpoint until ls_checkpoint_let_go or the end of the process. NULL: it has no weights, or was just removed. */
FILE *ls_checkpoint_hold(const char *folder);
void ls_checkpoint_let_go(FILE **held);
/* For the run that removes it: no reader can hold the checkpoint while the returned file is open. *in_use: one does already.
 * Close the file unless it is -1. */
int ls_checkpoint_claim(const char *folder, bool *in_use);

#endif
