/* The option table, made from lists/options.def, with one row per option. */
#ifndef LS_CONFIG_TABLE_H
#define LS_CONFIG_TABLE_H

#include "base/status.h"
#include "config/options.h"
#include <stddef.h>

enum ls_option_type {
    LS_OPTION_TEXT,   /* char * */
    LS_OPTION_WHOLE,  /* int64_t */
    LS_OPTION_SEED,   /* uint64_t */
    LS_OPTION_REAL,   /* double */
    LS_OPTION_SWITCH, /* bool: --name and --no-name */
    LS_OPTION_AUTO,   /* enum ls_auto: --name, --no-name, and auto without either */
    LS_OPTION_SHAPE   /* char *, CxHxW */
};

/* What the completion offers for a value, besides choices. */
enum ls_option_names { LS_NAMES_FILES, LS_NAMES_MODELS, LS_NAMES_DATA, LS_NAMES_AUGMENT, LS_NAMES_RUNS };

struct ls_option {
    const char *name; /* as on the command line; YAML and the environment also accept _ */
    enum ls_option_type type;
    size_t offset;       /* in struct ls_options */
    const char *missing; /* the default as text; NULL: not set (text only) */
    unsigned commands;   /* enum ls_command bits */
    const char *value;   /* name of the value in the help */
    const char *help;    /* says in brackets what an unset option means */
    const char *group;   /* heading; the rows of a group are adjacent */
    const char *choices; /* "f32 bf16", NULL: anything */
    const char *parts;   /* the commands of data that take it, "check show"; NULL: all */
    enum ls_option_names names;
    bool head;        /* the choices apply to the part before the first ':' */
    bool alone;       /* may be given without a value, which means "auto" */
    bool below;       /* the range excludes `high` */
    bool path;        /* may be the path of a file or folder */
    bool here;        /* depends on this process, or a secret: not written into a run's config.yaml */
    bool view;        /* affects only what this command prints: neither written into a config.yaml nor read from one */
    bool free;        /* may change between parts of a run: results agree up to rounding */
    bool common;      /* here or free, but all processes of a run must have the same value */
    bool secret;      /* log.txt omits the value */
    bool axis;        /* a command that takes lists measures each of several values: --batch 32,64 */
    bool floor;       /* WHOLE: may also be auto, or auto:N with a least value N (LS_FLOOR_AUTO) */
    const char *word; /* an item of such a list besides values: "max"; NULL: none */
    char letter;      /* a short form: 'o' for -o; 0: none */
    double low, high; /* allowed range; the default is allowed even outside it */
};

/* At most LS_OPTION_ROWS rows. */
extern const struct ls_option ls_option_table[];
static inline bool ls_option_is_switch(const struct ls_option *option)
{
    return option->type == LS_OPTION_SWITCH || option->type == LS_OPTION_AUTO;
}
extern const int ls_option_count;

/* The row with that name, or NULL. - and _ are equivalent, and case does not matter. */
const struct ls_option *ls_option_find(const char *name);
/* Whether the command takes the option. `sub` is the command of data that does; NULL: any of them. */
bool ls_option_takes(const struct ls_option *option, enum ls_command command, const struct ls_subcommand *sub);
/* The name nearest to `word` among the options of `commands`, or NULL. */
const char *ls_option_nearest(const char *word, unsigned commands);

/* Checks the text and sets the option from it. `where` is "--batch", "LOCKSTEP_BATCH" or "run.yaml:12: batch". Where
 * o->takes_lists, the text of an option with `axis` may be a list; each item is checked. */
enum ls_status ls_option_set(struct ls_options *o, const struct ls_option *option, const char *where, const char *text);
/* The value as text that ls_option_set accepts, or NULL if it is not set. The text is in `room` unless the option is
 * a text. */
const char *ls_option_get(const struct ls_options *o, const struct ls_option *option, char room[32]);
/* The list that the option was set to, as text, or NULL if it has one value. */
static inline const char *ls_option_list(const struct ls_options *o, const struct ls_option *option)
{
    return o->lists[option - ls_option_table];
}
/* Whether the user set the option of this row. */
static inline bool ls_option_given(const uint64_t given[LS_OPTION_WORDS], const struct ls_option *option)
{
    size_t row = (size_t)(option - ls_option_table);
    return given[row / 64] >> row % 64 & 1;
}
static inline void ls_option_mark(struct ls_options *o, const struct ls_option *option)
{
    size_t row = (size_t)(option - ls_option_table);
    o->given[row / 64] |= (uint64_t)1 << row % 64;
}
static inline void ls_option_forget(uint64_t given[LS_OPTION_WORDS], const struct ls_option *option)
{
    size_t row = (size_t)(option - ls_option_table);
    given[row / 64] &= ~((uint64_t)1 << row % 64);
}

/* Whether the text is a model: a map with the key `layers`. Text that is not YAML is neither a model nor a
 * configuration. */
bool ls_yaml_is_model(const char *text, size_t size);
/* Sets options from YAML text. `name` is the file name for messages. Rows whose bit is in `keep` stay unchanged;
 * NULL: none. */
enum ls_status ls_options_yaml(struct ls_options *o, const char *name, const char *text, size_t size,
                               const uint64_t keep[LS_OPTION_WORDS]);

#endif
