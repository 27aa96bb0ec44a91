/* The first and the last lines of a run in log.txt: when, where, by which program and command, and how it ended. A run that
 * was resumed has them again. */
#ifndef LS_TRAIN_LOGBOOK_H
#define LS_TRAIN_LOGBOOK_H

#include "train/trainer.h"

/* Once log.txt is open and the engine is known. */
void ls_logbook_begin(const struct ls_trainer *t);
/* status: the program's exit code. Nothing happens where no log is open. */
void ls_logbook_end(enum ls_status status);

#endif
