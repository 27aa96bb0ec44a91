/* What log.txt of a run contains besides metrics.jsonl: length, model, data, how the run ended, its last warning. */
#ifndef LS_CMD_WATCH_RUN_LOG_H
#define LS_CMD_WATCH_RUN_LOG_H

#include "cmd/watch/run.h"

/* Reads the lines that were added since the last call. */
void ls_run_log_read(struct ls_watched *w);

#endif
