#include "cmd/arguments.h"
#include "cmd/cmd.h"
#include "cmd/revision.h"

#include "base/system/program.h"
#include "base/system/clock.h"
#include "base/log.h"

#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The order is that of ls_commands. */
static enum ls_status (*const commands[])(struct ls_options *o) = {
#define X(NAME, name, ...) ls_cmd_##name,
#include "config/lists/commands.def"
};

/* argv is the whole command line. */
static enum ls_status run_command(const struct ls_command_info *info, int argc, char **argv)
{
    struct ls_options o;
    bool help;
    bool lists = info->words == LS_WORDS_SWEEP; /* the command reads its options itself */
    LS_TRY(ls_options_parse(&o, info->command, lists ? 0 : argc - 2, argv + 2, &help));
    o.command_line = argv;
    o.n_command_line = argc;
    o.version = LS_VERSION LS_REVISION;
    enum ls_status st = LS_OK;
    if (!help)
        st = ls_arguments_check(info, &o);
    if (!help && st == LS_OK)
        st = commands[info - ls_commands](&o);
    ls_options_release(&o);
    return st;
}

/* Measures one iteration of libgomp's waiting loop in nanoseconds: a load and a pause, 15 to 60 ns on x86. The
 * shortest of several tries counts, because another program may interrupt a try. */
static double spin_turn(void)
{
    enum { TURNS = 400, TRIES = 4 };
    double best = INFINITY;
    atomic_int word = 0;
    for (int i = 0; i < TRIES; i++) {
        double start = ls_now();
        for (int n = 0; n < TURNS && atomic_load_explicit(&word, memory_order_relaxed) == 0; n++)
#if defined(__x86_64__)
            __builtin_ia32_pause();
#else
            atomic_signal_fence(memory_order_seq_cst);
#endif
        best = fmin(best, 1e9 * (ls_now() - start) / TURNS);
    }
    return fmax(best, 0.1);
}

/* A thread that waits at the end of a parallel loop spins before it sleeps. libgomp's default is milliseconds. With
 * it each loop is as slow as the scheduler's time slice once another program uses the cores. 300 microseconds are
 * longer than the serial parts of a step, so that an idle machine loses nothing: with 100, ResNet-18 is 4 % slower
 * (bench/busy measures both). libgomp reads the spin count only when it is loaded, so the program starts itself again.
 * A value that the user has set is kept. */
static void limit_spinning(int argc, char **argv)
{
    const double spin = 300e3; /* nanoseconds */
    char room[4096], count[32];
    const char *self = ls_program_path(room, sizeof room);
    if (!self || getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    if (argc > 1 && strcmp(argv[1], "run") == 0) /* the variable would reach another program */
        return;
    snprintf(count, sizeof count, "%.0f", spin / spin_turn());
    setenv("GOMP_SPINCOUNT", count, 1);
    execv(self, argv); /* returns only when it fails; the program then runs with libgomp's default */
}

/* oneDNN's gemm allocates and frees megabytes in every call. Memory that stays in the heap is reused at once. Memory
 * that goes back to the system costs a page fault for every 4 KiB. */
static void keep_freed_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the maximum of glibc */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

static enum ls_status dispatch(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "help";
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return ls_cmd_help(argc - 2, argv + 2);
    if (strcmp(name, "--version") == 0) {
        puts("lockstep " LS_VERSION);
        return LS_OK;
    }
    const struct ls_command_info *info = ls_command_find(name);
    return info ? run_command(info, argc, argv) : ls_command_unknown(name);
}

/* Output that is lost because the disk is full is a failure. A reader that closes the pipe early (`| head`) is not. */
static enum ls_status close_output(enum ls_status st)
{
    struct stat s;
    bool lost = fflush(stdout) != 0;
    lost |= ferror(stdout) != 0;
    if (!lost || (fstat(STDOUT_FILENO, &s) == 0 && (S_ISFIFO(s.st_mode) || S_ISSOCK(s.st_mode))))
        return st;
    if (!isatty(STDOUT_FILENO) && errno == EIO) /* the terminal was closed */
        return st;
    ls_fail(LS_FAILED, "standard output: not everything could be written; is the disk full?");
    return st == LS_OK ? LS_FAILED : st;
}

int main(int argc, char **argv)
{
    limit_spinning(argc, argv);
    keep_freed_memory();
    setlocale(LC_CTYPE, "");
    /* A run continues when the reader of its output exits. */
    signal(SIGPIPE, SIG_IGN);
    enum ls_status st = close_output(dispatch(argc, argv));
    ls_log_close();
    /* A GPU may wait forever for the lost process, and its libraries wait for the GPU when they are unloaded. _exit
     * does not unload them. */
    if (st == LS_PEER_LOST)
        _exit((int)st);
    return (int)st;
}
