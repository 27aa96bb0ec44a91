/* lockstep plan --parallel: the stages of a pipeline. */
#ifndef LS_CMD_PLAN_STAGES_H
#define LS_CMD_PLAN_STAGES_H

#include "exec/engine.h"

/* Prints what each process of a pipeline has: layers, share of the work, memory, and what it sends. plan: as in
 * ls_engine_open. */
enum ls_status ls_plan_stages(const struct ls_options *o, const struct ls_model_size *size, const char *plan);

#endif
