/* What the files of the stepper share: step.c, pass.c, stepper.c, step_trace.c, and pipeline/ for models in stages. */
#ifndef LS_EXEC_STEPPER_H
#define LS_EXEC_STEPPER_H

#include "exec/step.h"

/* step.c. Why this process wants to stop, or 0 (ls_sync.signal). */
int ls_step_wants_to_stop(void *stepper);

/* pass.c. Runs a pass of a replica, as ls_pass says. */
enum ls_status ls_step_run_pass(void *stepper, int replica, int pass, bool last);
/* The last pass of a step, where the host combines gradients: bucket by bucket. */
enum ls_status ls_step_by_buckets(struct ls_stepper *s);
/* The last pass of a step, where devices combine gradients. */
enum ls_status ls_step_on_device(struct ls_stepper *s);
/* Adds this process's replicas in a bucket's gradients. The pass has completed the bucket. */
enum ls_status ls_step_settle(void *stepper, int bucket);
/* After a whole pass: settles and fetches all buckets. */
enum ls_status ls_step_settle_all(struct ls_stepper *s);
/* Then: gives all buckets to the strategy. */
enum ls_status ls_step_hand_over(struct ls_stepper *s);
/* Waits for the results of a pass and adds them to *totals. */
enum ls_status ls_step_take_results(struct ls_stepper *s, const struct ls_net *net, int slot, int64_t valid,
                                    struct ls_totals *totals);
/* ls_step_evaluate, where this process has the whole model. */
enum ls_status ls_step_evaluate_whole(struct ls_stepper *s, const struct ls_slot *slot, struct ls_totals *totals);

/* step_trace.c. Records what has happened since `begin`; begin 0: nothing. */
void ls_step_record(struct ls_stepper *s, double begin, enum ls_slice_kind kind, const char *name, int64_t number);
/* Runs nodes of the pass under way, and records them. */
enum ls_status ls_step_run_nodes(struct ls_stepper *s, int first, int end);

#endif
