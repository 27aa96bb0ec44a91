/* What several workers say on standard error, said once: they run the same program on the same input, so a mistake in
 * the input is met by each of them. */
#ifndef LS_CMD_CHORUS_H
#define LS_CMD_CHORUS_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { LS_CHORUS_LINE = 4096, LS_CHORUS_LINES = 64 };

struct ls_chorus_voice {
    int fd; /* owned; where its words come from, -1: it is silent */
    int used;
    bool complained; /* has said an error, itself or in unison with another */
    char line[LS_CHORUS_LINE];
};

struct ls_chorus {
    struct ls_chorus_voice *voices; /* owned */
    int n;
    struct {
        uint64_t hash;
        int rank;            /* who said it first; others are not heard with it any more */
    } said[LS_CHORUS_LINES]; /* the last ones */
    unsigned at;
};

enum ls_status ls_chorus_init(struct ls_chorus *c, int n);
void ls_chorus_release(struct ls_chorus *c);
/* Take what a voice has ready, and pass on whole lines that no other has said lately; at its end what is left too. */
void ls_chorus_hear(struct ls_chorus *c, int rank);

#endif
