/* The programs of an engine: a model becomes a graph, a graph is fused and gets its backward nodes and updates, and a backend
 * prepares it. Every rank computes with the kernels that rank 0 chose. */
#ifndef LS_EXEC_PROGRAMS_H
#define LS_EXEC_PROGRAMS_H

#include "exec/engine.h"

/* Kernels to be taken instead of choosing some. */
struct ls_given_plan {
    const char *lines, *name; /* name: for people; NULL: what it lacks is chosen without a word */
    bool binding;
};

/* Makes the programs that `uses` names (enum ls_engine_use), of the whole model or of this process's part of it. All ranks
 * call it. */
enum ls_status ls_programs_make(struct ls_engine *e, const struct ls_options *o, const struct ls_given_plan *plan,
                                unsigned uses);
/* The program of another lane of a pipeline, whose graph is built: it computes with the same kernels. */
enum ls_status ls_program_prepare_lane(struct ls_engine *e, const struct ls_options *o, struct ls_net *net);
void ls_program_close(struct ls_engine *e, struct ls_net *net);

#endif
