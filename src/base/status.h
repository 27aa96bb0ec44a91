/* Status codes. Every function that can fail returns one. They are also the exit codes of the program. */
#ifndef LS_BASE_STATUS_H
#define LS_BASE_STATUS_H

enum ls_status {
    LS_OK = 0,
    LS_FAILED = 1,      /* a failure on this machine: out of memory, disk full, a system call refused */
    LS_USAGE = 2,       /* the command line or configuration is wrong */
    LS_BAD_INPUT = 3,   /* an input file is missing, truncated, corrupt or of the wrong kind */
    LS_PEER_LOST = 4,   /* another worker ended or missed its deadline */
    LS_DIVERGED = 5,    /* the loss is NaN or infinite */
    LS_INTERRUPTED = 75 /* stopped by a signal; the state is saved, the same command resumes */
};

/* LS_TRY returns from the function on failure. LS_TRY_GOTO sets the variable `st` and jumps to label on failure. */
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
