/* Status codes. Every fallible function returns one; the first eight are also the program's exit codes. */
#ifndef LS_BASE_STATUS_H
#define LS_BASE_STATUS_H

enum ls_status {
    LS_OK = 0,
    LS_FAILED = 1,      /* something here failed: out of memory, a full disk, a refused call */
    LS_USAGE = 2,       /* the command line or configuration is wrong */
    LS_BAD_INPUT = 3,   /* a file from outside is missing, truncated, corrupt or of another kind */
    LS_PEER_LOST = 4,   /* another worker died or did not answer in time */
    LS_DIVERGED = 5,    /* the loss is not a number any more */
    LS_INTERRUPTED = 75 /* asked to stop; the state was saved, run again to go on */
};

/* The one check that returns and the one that jumps: status lands in the variable `st` of the function. */
#define LS_TRY(call)                         \
    do {                                     \
        enum ls_status try_status_ = (call); \
        if (try_status_ != LS_OK)            \
            return try_status_;              \
    } while (0)
#define LS_TRY_GOTO(label, call) \
    do {                         \
        st = (call);             \
        if (st != LS_OK)         \
            goto label;          \
    } while (0)

#endif
