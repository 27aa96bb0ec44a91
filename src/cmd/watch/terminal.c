#define _GNU_SOURCE
#include "cmd/watch/terminal.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { LEAST_WIDTH = 20, MOST = 1000 };

bool ls_terminal_is_there(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && kind && *kind && strcmp(kind, "dumb") != 0;
}

/* The value of a variable as a size; 0: it has none. */
static int size_of(const char *variable)
{
    const char *text = getenv(variable);
    long value = text ? strtol(text, NULL, 10) : 0;
    return value > 0 && value <= MOST ? (int)value : 0;
}

void ls_terminal_size(int *width, int *height)
{
    struct winsize size = {0};
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    *width = known ? size.ws_col : size_of("COLUMNS");
    *height = known ? size.ws_row : size_of("LINES");
    *width = *width == 0 ? 80 : *width < LEAST_WIDTH ? LEAST_WIDTH : *width > MOST ? MOST : *width;
}

void ls_terminal_write(const char *bytes, unsigned long size)
{
    while (size > 0) {
        ssize_t n = write(STDOUT_FILENO, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* the terminal is gone: SIGHUP follows */
        bytes += n;
        size -= (unsigned long)n;
    }
}

static void enter(struct ls_terminal *t)
{
    static const char on[] = "\033[?1049h\033[?25l\033[2J";
    struct termios raw = t->before;
    raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (t->has_keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    ls_terminal_write(on, sizeof on - 1);
}

static void leave(struct ls_terminal *t)
{
    static const char off[] = "\033[0m\033[?25h\033[?1049l";
    ls_terminal_write(off, sizeof off - 1);
    if (t->has_keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
}

enum ls_status ls_terminal_open(struct ls_terminal *t)
{
    sigset_t mask;
    *t = (struct ls_terminal){0};
    t->has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &t->before) == 0;
    sigemptyset(&mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGHUP);
    sigaddset(&mask, SIGQUIT);
    sigaddset(&mask, SIGTSTP);
    sigaddset(&mask, SIGWINCH);
    sigprocmask(SIG_BLOCK, &mask, &t->mask_before);
    t->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (t->signals < 0) {
        sigprocmask(SIG_SETMASK, &t->mask_before, NULL);
        return ls_fail(LS_FAILED, "watch: signals cannot be received: %s", strerror(errno));
    }
    enter(t);
    return LS_OK;
}

/* Ctrl-Z: the shell gets its screen back until the program is continued. */
static enum ls_terminal_event suspend(struct ls_terminal *t)
{
    leave(t);
    raise(SIGSTOP);
    enter(t);
    return LS_TERMINAL_REDRAW;
}

static enum ls_terminal_event take_signal(struct ls_terminal *t)
{
    struct signalfd_siginfo info;
    if (read(t->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return LS_TERMINAL_TIME;
    if (info.ssi_signo == SIGWINCH)
        return LS_TERMINAL_REDRAW;
    return info.ssi_signo == SIGTSTP ? suspend(t) : LS_TERMINAL_QUIT;
}

/* Keys besides q redraw the frame. The end of the input is not the end of the program. */
static enum ls_terminal_event take_key(struct ls_terminal *t)
{
    char key;
    ssize_t n = read(STDIN_FILENO, &key, 1);
    if (n <= 0)
        t->has_keys = false;
    return n == 1 && (key == 'q' || key == 'Q' || key == 3) ? LS_TERMINAL_QUIT : LS_TERMINAL_REDRAW;
}

enum ls_terminal_event ls_terminal_wait(struct ls_terminal *t, int milliseconds)
{
    struct pollfd from[2] = {{.fd = t->signals, .events = POLLIN},
                             {.fd = t->has_keys ? STDIN_FILENO : -1, .events = POLLIN}};
    if (poll(from, 2, milliseconds) <= 0)
        return LS_TERMINAL_TIME;
    if (from[0].revents)
        return take_signal(t);
    return take_key(t);
}

void ls_terminal_close(struct ls_terminal *t)
{
    leave(t);
    close(t->signals);
    sigprocmask(SIG_SETMASK, &t->mask_before, NULL);
}
