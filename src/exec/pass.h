/* One pass of a step: what step.c is made of. */
#ifndef LS_EXEC_PASS_H
#define LS_EXEC_PASS_H

#include "exec/step.h"

/* Point a net's inputs at the slot. */
enum ls_status ls_pass_input(struct ls_stepper *s, struct ls_net *net, const struct ls_slot *slot);
/* Add the results of the net's last pass, over `valid` samples, to *totals; with a queue, of the pass that was asked for into
 * that slot of it. */
enum ls_status ls_pass_count(struct ls_stepper *s, const struct ls_net *net, int slot, int64_t valid,
                             struct ls_totals *totals);
/* An ls_pass of a stepper: forward and backward over the feed's next slot, the last one of a step handing its gradients over
 * bucket by bucket. Where reports lag the results are only asked for. */
enum ls_status ls_pass_run(void *stepper, int replica, int pass, bool last, struct ls_totals *totals);

#endif
