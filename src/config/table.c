#include "base/text/nearest.h"
#include "config/table.h"

#include <ctype.h>
#include <string.h>

/* Short names for the option list. */
enum {
    T = LS_CMD_TRAIN | LS_CMD_SWEEP, /* a sweep passes its options to train */
    S = LS_CMD_SWEEP,
    E = LS_CMD_EVAL,
    P = LS_CMD_PREDICT,
    X = LS_CMD_EXPORT,
    B = LS_CMD_BENCH,
    M = LS_CMD_MODELS,
    L = LS_CMD_PLAN,
    D = LS_CMD_DATA,
    W = LS_CMD_WATCH,
    C = LS_CMD_DOCTOR
};
#define RUNS (T | E | P | B | L)    /* commands that compute with a model */
#define SEVERAL (T | E | B | C | L) /* commands that run in several processes; plan only to choose a layout */
#define MANY 1e15                   /* larger than any count, and exact as a double */

/* clang-format off */
const struct ls_command_info ls_commands[] = {
#define X(NAME, name, words, arguments, summary) {LS_CMD_##NAME, #name, arguments, summary, LS_WORDS_##words},
#include "config/lists/commands.def"
    {0},
};

/* The choices of options, and the forms that their help shows, come from the lists. Where a list comes first, each
 * string begins with a separator, which CHOICES and FORMS skip. */
#define CHOICES(list) (list) + 1
#define FORMS(list) (list) + 2

static const char losses[] =
#define X(name, op) " " #name
#include "config/lists/losses.def"
    ;
static const char optimizers[] =
#define X(name, ...) " " #name
#include "config/lists/optimizers.def"
    ;
static const char schedules[] =
#define X(name, form) " " #name
#include "config/lists/schedules.def"
    ;
static const char schedule_forms[] =
#define X(name, form) ", " form
#include "config/lists/schedules.def"
    ;
static const char warmups[] = "none"
#define X(name, form) " " #name
#include "config/lists/warmups.def"
    ;
static const char warmup_forms[] = "none"
#define X(name, form) ", " form
#include "config/lists/warmups.def"
    ;
static const char backends[] = "auto"
#define X(name) " " #name
#define MODULE(name) " " #name
#include "config/lists/backends.def"
    ;
static const char strategies[] =
#define X(name) " " #name
#include "config/lists/strategies.def"
    ;
static const char parallel_forms[] = "how processes divide the work: auto, or a list of"
#define X(name, NAME, form) " " form
#include "config/lists/parallel.def"
                                     "; of sweep: trials that run side by side";
static const char collectives[] =
#define X(name, NAME) " " #name
#define DEVICE(name) " " #name
#include "config/lists/collectives.def"
    ;
static const char transports[] =
#define X(name) " " #name
#include "config/lists/transports.def"
    ;
static const char dtypes[] = "auto"
#define X(name, type, tf32) " " #name
#include "config/lists/dtypes.def"
    ;
static const char decoders[] =
#define X(name, symbol) " " #name
#include "config/lists/decoders.def"
    ;
static const char line_formats[] =
#define X(name, NAME) " " #name
#include "config/lists/line_formats.def"
    ;
static const char writer_help[] = "format to write,"
#define X(name) " " #name
#include "config/lists/writers.def"
                                  " (the one that the name of DST ends in)";
static const char table_formats[] =
#define X(name, ending) " " #name
#include "config/lists/table_formats.def"
    ;
static const char compressors[] = "none"
#define X(name) " " #name
#define REDUCER(name, form) " " #name
#include "config/lists/compressors.def"
    ;
static const char compressor_forms[] = "how gradients are compressed for messages: none"
#define X(name) ", " #name
#define REDUCER(name, form) ", " form
#include "config/lists/compressors.def"
    ;

#define WHAT    .group = "Model and data"
#define HOW     .group = "Training and evaluation"
#define MACHINE .group = "The machine"
#define WORKERS .group = "Workers"
#define RUN     .group = "The run directory"
#define SWEEP   .group = "The sweep"
#define OUTPUT  .group = "Output"

#define ENTRY(type_, field_, name_, missing_) \
    .name = name_, .type = LS_OPTION_##type_, .offset = offsetof(struct ls_options, field_), .missing = missing_

const struct ls_option ls_option_table[] = {
#define TEXT(field, name, missing, ...)   {ENTRY(TEXT, field, name, missing), __VA_ARGS__},
#define WHOLE(field, name, missing, ...)  {ENTRY(WHOLE, field, name, missing), .value = "N", __VA_ARGS__},
#define SEED(field, name, missing, ...)   {ENTRY(SEED, field, name, missing), .value = "N", __VA_ARGS__},
#define REAL(field, name, missing, ...)   {ENTRY(REAL, field, name, missing), .value = "X", __VA_ARGS__},
#define SWITCH(field, name, missing, ...) {ENTRY(SWITCH, field, name, missing), __VA_ARGS__},
#define AUTO(field, name, missing, ...)   {ENTRY(AUTO, field, name, missing), __VA_ARGS__},
#define SHAPE(field, name, missing, ...)  {ENTRY(SHAPE, field, name, missing), __VA_ARGS__},
#include "config/lists/options.def"
};
/* clang-format on */

const int ls_option_count = (int)(sizeof ls_option_table / sizeof *ls_option_table);
_Static_assert(sizeof ls_option_table / sizeof *ls_option_table <= LS_OPTION_ROWS,
               "struct ls_options.given has a bit a row");

static char plain(char c)
{
    return c == '_' ? '-' : (char)tolower((unsigned char)c);
}

static bool same_name(const char *a, const char *b)
{
    while (*a && plain(*a) == plain(*b))
        a++, b++;
    return !*a && !*b;
}

const struct ls_option *ls_option_find(const char *name)
{
    for (int i = 0; i < ls_option_count; i++)
        if (same_name(ls_option_table[i].name, name))
            return &ls_option_table[i];
    return NULL;
}

const char *ls_option_nearest(const char *word, unsigned commands)
{
    const char *known[LS_OPTION_ROWS];
    int n = 0;
    for (int i = 0; i < ls_option_count; i++)
        if (ls_option_table[i].commands & commands)
            known[n++] = ls_option_table[i].name;
    return ls_nearest_word(word, known, n);
}
