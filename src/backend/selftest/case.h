/* Test cases of ops. A case is a small graph around one op: image -> pre -> op -> flatten -> l2_loss, and backward. The unit
 * tests run all cases on every backend, and `lockstep doctor --gpu` runs them on the GPU. */
#ifndef LS_BACKEND_SELFTEST_CASE_H
#define LS_BACKEND_SELFTEST_CASE_H

#include "graph/ops.h"

struct ls_case {
    const char *name;
    const struct ls_op *op; /* of an optimizer: on every parameter of a bn, or of a dense layer when attr.out is set, or
                               on the filters of a convolution when attr.kernel is set */
    int64_t n, c, h, w;     /* of the image, and of the op's input */
    struct ls_attr attr;    /* strides, dilation and groups of 0 mean 1 */
    int64_t valid;          /* 0: all of n */
    int64_t other;          /* concat: channels of the second input */
    bool residual;          /* bn: with a residual input */
    int between;            /* bn: it stands between two convolutions of this kernel size; 0: it does not */
    bool head;              /* a dense layer follows: bn alone hardly changes |y| */
    bool flat;              /* the op reads (N, C*H*W) */
    bool first;             /* the op reads the image itself, which wants no gradient */
    bool inference;         /* forward only, attr.training off */
    bool winograd;          /* a kernel may be a Winograd one: 1e-4 instead of 1e-5 */
    bool coarse;            /* a GPU computes with bf16 numbers whatever the type is: 5e-2 */
    const char *states[LS_MAX_STATES]; /* optimizers: names of the state tensors; NULL behind the last */
    bool large;                        /* for many blocks of a GPU: seconds on ref, and 1e-4 too */
};

/* The cases in order; NULL after the last. */
const struct ls_case *ls_case_at(int i);
/* NULL: none of that name. */
const struct ls_case *ls_case_find(const char *name);
/* Do its nodes change parameters? Then a run starts from the results of the last run. */
bool ls_case_updates(const struct ls_case *c);

/* Builds the graph of the case in *g. Release it, after a failure as well. */
enum ls_status ls_case_build(const struct ls_case *c, enum ls_dtype dtype, struct ls_graph *g);

/* --- families of ops (selftest/ops/NAME.c) -------------------------------------------------------------------------- */

struct ls_case_maker; /* a graph that is being built */

struct ls_case_family {
    const struct ls_case *cases; /* ends with a NULL name */
    /* The op's inputs behind in[0], which is its first activation; returns the number of all inputs. NULL: no more. */
    int (*inputs)(struct ls_case_maker *m, const struct ls_case *c, const struct ls_attr *a, int *in);
    bool loss;       /* the op is a loss */
    bool scale_free; /* the op does not depend on the scale of its input */
};
/* The family of the case's op. */
const struct ls_case_family *ls_case_family(const struct ls_case *c);

/* For `inputs`: the shape of a tensor; a new parameter or state of the op; a second activation beside `first`; the labels. */
struct ls_shape ls_case_shape(const struct ls_case_maker *m, int tensor);
int ls_case_param(struct ls_case_maker *m, const char *part, struct ls_shape shape);
int ls_case_state(struct ls_case_maker *m, const char *part, struct ls_shape shape);
int ls_case_second(struct ls_case_maker *m, const struct ls_case *c, int first);
int ls_case_pooled(struct ls_case_maker *m, int x); /* its means over all pixels */
int ls_case_label(const struct ls_case_maker *m);

#define X(name) extern const struct ls_case_family ls_cases_##name;
#include "backend/selftest/ops/list.def"

#endif
