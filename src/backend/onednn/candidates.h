/* Implementations of a convolution or dense layer, for tune.c to choose among. */
#ifndef LS_BACKEND_ONEDNN_CANDIDATES_H
#define LS_BACKEND_ONEDNN_CANDIDATES_H

#include "backend/onednn/program.h"

enum { MAX_CANDIDATES = 10 };

/* List them, the likely fastest first; returns how many there are. Release each by choice_release. fixed: the layout that
 * the weights are stored in; NULL: any. */
int candidates(struct ls_program *p, const struct dnn_spec *spec, const struct dnn_md *fixed, struct choice *list);
/* The name that plans and the cache have: the implementation, and "+reorder" where the weights must change their layout. */
void choice_name(const struct choice *c, const struct dnn_md *fixed, char name[64]);

#endif
