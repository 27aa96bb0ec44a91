/* lockstep plan --parallel: the stages of a pipeline, and the choice of a layout. */
#ifndef LS_CMD_PLAN_STAGES_H
#define LS_CMD_PLAN_STAGES_H

#include "exec/engine.h"

/* Prints what each process of a pipeline has: layers, time, memory, and what it sends. plan: as in ls_engine_open. */
enum ls_status ls_plan_stages(const struct ls_options *o, const struct ls_model_size *size, const char *plan);
/* Prints the layout that --parallel auto takes on these processes, and those that it chose from. All of them call it. */
enum ls_status ls_plan_choice(const struct ls_options *o, struct ls_comm *comm, const struct ls_model_size *size);

#endif
