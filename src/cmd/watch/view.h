/* The frames of `lockstep watch`. */
#ifndef LS_CMD_WATCH_VIEW_H
#define LS_CMD_WATCH_VIEW_H

#include "cmd/watch/run.h"
#include "cmd/watch/screen.h"

/* One run: state, progress, curves of loss and error, speed, shares of time, ranks. */
void ls_view_run(const struct ls_watched *w, struct ls_screen *s);
/* Several runs: a table and their losses in one chart. */
void ls_view_runs(const struct ls_watched *runs, int n, struct ls_screen *s);

/* The colour of a state. */
enum ls_style ls_view_state_style(const struct ls_watched *w);

#endif
