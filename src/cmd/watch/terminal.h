/* The terminal while frames replace each other: the alternate screen without a cursor, keys without echo, signals as events.
 * Nothing of it is left after ls_terminal_close. */
#ifndef LS_CMD_WATCH_TERMINAL_H
#define LS_CMD_WATCH_TERMINAL_H

#include "base/status.h"
#include <signal.h>
#include <stdbool.h>
#include <termios.h>

struct ls_terminal {
    bool has_keys; /* standard input is a terminal */
    struct termios before;
    sigset_t mask_before;
    int signals; /* a signalfd */
};

enum ls_terminal_event {
    LS_TERMINAL_TIME,   /* the time is over */
    LS_TERMINAL_REDRAW, /* the size changed, or the program was continued */
    LS_TERMINAL_QUIT    /* q, Ctrl-C or another signal that ends the program */
};

/* Whether standard output is a terminal that can show frames. */
bool ls_terminal_is_there(void);
/* The size of the terminal, else COLUMNS and LINES, else 80 columns and any number of lines, which is 0. */
void ls_terminal_size(int *width, int *height);

enum ls_status ls_terminal_open(struct ls_terminal *t);
enum ls_terminal_event ls_terminal_wait(struct ls_terminal *t, int milliseconds);
/* Writes a whole frame. */
void ls_terminal_write(const char *bytes, unsigned long size);
void ls_terminal_close(struct ls_terminal *t);

#endif
