/* Checks that all ranks compute the same. When they do not, every rank names the ranks that differ and what differs,
 * and returns an error. */
#ifndef LS_TRAIN_RANK_CHECK_H
#define LS_TRAIN_RANK_CHECK_H

#include "exec/engine.h"

enum ls_status ls_rank_check_options(struct ls_comm *comm, const struct ls_options *o);
/* fingerprint is that of the data of this process (fingerprint.h). */
enum ls_status ls_rank_check_data(struct ls_comm *comm, const char *fingerprint);
/* Does nothing where each rank has a graph of its own. */
enum ls_status ls_rank_check_schedule(const struct ls_engine *e);
/* Compares the first `parts` kinds of values that are kept from step to step, among the ranks that hold the same ones. When no value is held by more than
 * half of the processes, as with two of them, the message says that it is not known which one is wrong. */
enum ls_rank_check_part {
    LS_RANK_CHECK_PARAMETERS,
    LS_RANK_CHECK_STATISTICS,
    LS_RANK_CHECK_OPTIMIZER,
    LS_RANK_CHECK_PARTS
};
enum ls_status ls_rank_check_values(const struct ls_engine *e, uint64_t step, int parts);

#endif
