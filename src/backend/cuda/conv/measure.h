/* Times and results of algorithms, for tune.c. */
#ifndef LS_BACKEND_CUDA_CONV_MEASURE_H
#define LS_BACKEND_CUDA_CONV_MEASURE_H

#include "backend/cuda/conv/tune.h"

struct tuner {
    char *region; /* device; for operands while measuring; owned */
    size_t region_bytes;
    cudaEvent_t start, end;
    uint64_t *sum; /* device; of a result's digest; owned */
};

/* What is measured. */
struct work {
    enum ls_status (*run)(void *context, char *workspace);
    void *context;
    char *workspace;
    size_t bytes;
};

/* How long to measure: at most so many rounds, and fewer where that takes clearly longer than `fastest` (ms; HUGE_VAL: there
 * is none). A candidate's first measurement has FIRST rounds, those of pairs AGAIN. */
enum { MEASURE_FIRST = 4, MEASURE_AGAIN = 2 };
struct measure_effort {
    int rounds;
    double fastest;
};
/* Best time of the rounds, in ms. */
enum ls_status measure_work(struct ls_program *p, const struct work *w, struct measure_effort effort, double *best);
/* Sets algorithm->ms; HUGE_VAL: the algorithm cannot run. */
enum ls_status measure_algorithm(struct ls_program *p, const struct linear *l, struct measure_effort effort,
                                 struct conv_algorithm *algorithm);
/* A number made of the bits of the result for a fixed input. Algorithms that add in the same order have equal digests. */
enum ls_status measure_digest(struct ls_program *p, const struct linear *l, const struct conv_algorithm *algorithm,
                              uint64_t *value, bool *good);
/* With more padding on one side than on the other, engines of cuDNN 9.1x gave wrong gradients. */
bool is_doubtful(const struct linear *l);
/* Does the algorithm give what the plain native kernel gives, up to rounding? */
enum ls_status agrees_with_native(struct ls_program *p, const struct linear *l, const struct conv_algorithm *algorithm,
                                  bool *good);
/* CHUNK-1: does the algorithm of a large dense layer give the same bits where its rows are divided among workers, and
 * with an activation? Call it behind measure_digest. */
enum ls_status parts_agree(struct ls_program *p, const struct linear *l, const struct conv_algorithm *algorithm,
                           bool *good);

/* The tuner's region: at least so many bytes, filled with ordinary numbers; fill its first bytes again; bytes of workspace
 * that repeated runs need. */
enum ls_status measure_reserve(struct ls_program *p, size_t bytes);
void measure_fill(struct ls_program *p, size_t bytes);
size_t measure_workspace(size_t workspace);

#endif
