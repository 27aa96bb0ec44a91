/* What several workers say on standard error, said once: they run the same program on the same input, so a mistake in
 * the input is met by each of them. */
#ifndef LS_LAUNCH_STDERR_DEDUP_H
#define LS_LAUNCH_STDERR_DEDUP_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { LS_CHORUS_LINE = 4096, LS_CHORUS_LINES = 64 };

struct ls_stderr_dedup_stream {
    int fd; /* owned; where its words come from, -1: it is silent */
    int used;
    bool complained; /* has said an error, itself or in unison with another */
    char line[LS_CHORUS_LINE];
};

struct ls_stderr_dedup {
    struct ls_stderr_dedup_stream *streams; /* owned */
    int n;
    struct {
        uint64_t hash;
        int rank;            /* who said it first; others are not heard with it any more */
    } said[LS_CHORUS_LINES]; /* the last ones */
    unsigned at;
};

enum ls_status ls_stderr_dedup_init(struct ls_stderr_dedup *c, int n);
void ls_stderr_dedup_release(struct ls_stderr_dedup *c);
/* Take what a stream has ready, and pass on whole lines that no other has said lately; at its end what is left too. */
void ls_stderr_dedup_read(struct ls_stderr_dedup *c, int rank);

#endif
