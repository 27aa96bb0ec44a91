/* Parameters that are sharded over processes (--shard parameters). Between uses each process has its part of every parameter, which
 * it also updates (shards.h). Before nodes of a pass read parameters, these are gathered into a small memory, the ring.
 *
 * Parameters are gathered in groups, which are neighbours in the memory of gradients, and so in the pass. In the ring a group lies
 * like its gradients: a piece is gathered as it is summed. Groups with an even number lie at the beginning of the ring, the others
 * at its end. The nodes of a pass visit groups one after the other, forward and back. When a visit begins, the next group is
 * gathered, if the two do not overlap; otherwise when the next visit begins. A group stays until another one overlaps it.
 *
 *   PARAM-1  All processes gather the same groups in the same order, in as many passes: those that have fewer passes, or no
 *            samples in one, gather without running it.
 *   PARAM-2  Parameters have an address of their own in the ring, so that programs are bound once.
 *   PARAM-3  Where memory is not the host's, a group is gathered in the stage, memory of the host that is laid out like the ring,
 *            and its parameters are sent from there, in the queue behind the nodes that read what was in their place. A place of
 *            the stage is gathered into again when the queue is past what was sent from it.
 *   PARAM-4  Nodes that a backend computes together (ls_backend.joined) read one group, which is there before the first of
 *            them. */
#ifndef LS_EXEC_SHARDS_PARAMS_H
#define LS_EXEC_SHARDS_PARAMS_H

#include "exec/engine.h"

struct ls_params;

/* With parameters that are marked as apart (shards.h), when programs are prepared and before they are bound: makes e->params. */
enum ls_status ls_params_open(struct ls_engine *e, const struct ls_options *o);
/* When pieces are cut. */
enum ls_status ls_params_take_pieces(struct ls_engine *e);
void ls_params_close(struct ls_engine *e);
/* Points a parameter of a net at its place in the ring. */
void ls_params_point(const struct ls_engine *e, const struct ls_net *net, int tensor);
/* Whether a group ends with this float of the gradient memory. */
bool ls_params_group_ends(const struct ls_engine *e, size_t end);

/* Values have changed: nothing in the ring is valid any more. */
void ls_params_forget(struct ls_engine *e);
/* A step begins in which this process has so many passes: gathers for those that others have besides. */
enum ls_status ls_params_begin(struct ls_engine *e, int passes);
/* Nodes first .. end-1 of a pass of one of the engine's nets, which begins with node 0: gathers what they read, and calls run
 * for stretches of them; run NULL: only gathers. */
typedef enum ls_status ls_run_stretch(void *context, int first, int end);
enum ls_status ls_params_run(struct ls_engine *e, const struct ls_net *net, int first, int end, ls_run_stretch *run,
                             void *context);

/* Whether gradients are given back as soon as their parameters are updated, so that those of two groups are there at a time.
 * That takes memory of the host, one pass a step, whose sums begin while it runs, and no need to see all gradients at once. */
bool ls_params_drop_gradients(const struct ls_backend *b, const struct ls_options *o, int passes);

/* Bytes of the ring, and of gradients that are there at a time where they are given back. Of an engine with prepared programs,
 * in which parameters may be whole. */
enum ls_status ls_params_bytes(const struct ls_engine *e, const struct ls_options *o, size_t *ring, size_t *gradients);

#endif
