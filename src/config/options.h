/* Every setting of Lockstep, in one struct made from one list (lists/options.def). The list defines the fields, the
 * flags, the YAML keys, the LOCKSTEP_* variables, --help, and the configuration that a run writes.
 * Order of precedence: command line, environment, YAML file, default. */
#ifndef LS_CONFIG_OPTIONS_H
#define LS_CONFIG_OPTIONS_H

#include "base/text/help.h"
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A switch with a third value, LS_AUTO: Lockstep decides. */
enum ls_auto { LS_AUTO = -1, LS_OFF, LS_ON };

/* A whole number that may be left to Lockstep: auto is LS_FLOOR_AUTO, auto:N is LS_FLOOR_AUTO - N. */
enum { LS_FLOOR_AUTO = -1 };

/* The largest number of options. `given` has a bit for each. */
enum { LS_OPTION_ROWS = 256, LS_OPTION_WORDS = LS_OPTION_ROWS / 64 };

/* clang-format off */
struct ls_options {
#define TEXT(field, ...)   char *field; /* NULL: not set */
#define WHOLE(field, ...)  int64_t field;
#define SEED(field, ...)   uint64_t field;
#define REAL(field, ...)   double field;
#define SWITCH(field, ...) bool field;
#define AUTO(field, ...)   enum ls_auto field;
#define SHAPE(field, ...)  char *field; /* NULL: not set */
#include "config/lists/options.def"
    /* The text of the model file after it was read. If the file has changed since the run started, this is the text
     * of the run's copy. Owned. NULL: a built-in model, or a file that was not read yet. */
    char *model_yaml;
    char *config_run; /* run directory of the loaded configuration; NULL: none; owned */
    char **args;      /* arguments that are not options: files for predict, names for models; owned */
    int n_args;
    char **command_line; /* the program's arguments, to start workers with; NULL: used as a library; borrowed */
    int n_command_line;
    const char *version; /* the program's version with its revision; NULL: used as a library; borrowed */
    uint64_t given[LS_OPTION_WORDS];   /* one bit for each option that the user set; see ls_options_given */
    bool takes_lists;    /* this command takes lists of values for the options with `axis` */
    /* One for each row of the option table. NULL: one value, which is in the option's field. Otherwise the text of the
     * list, such as "32,64,max"; the field has the first number or word of it. Owned. */
    char *lists[LS_OPTION_ROWS];
};

/* Each command has a number, and a bit that marks the options of the command. */
enum ls_command_number {
#define X(NAME, ...) LS_CMD_NUMBER_##NAME,
#include "config/lists/commands.def"
};
enum ls_command {
#define X(NAME, ...) LS_CMD_##NAME = 1 << LS_CMD_NUMBER_##NAME,
#include "config/lists/commands.def"
};
/* clang-format on */

/* The arguments besides options that a command takes. config/lists/commands.def explains them. */
enum ls_command_words {
    LS_WORDS_NONE,
    LS_WORDS_CONFIG,
    LS_WORDS_RUN,
    LS_WORDS_IMAGES,
    LS_WORDS_MODEL,
    LS_WORDS_RUNS,
    LS_WORDS_DATA,
    LS_WORDS_SWEEP,
    LS_WORDS_REPORT,
    LS_WORDS_PROGRAM
};

/* The commands as the help, the man page and messages name them. The list ends with a NULL name. */
struct ls_command_info {
    enum ls_command command;
    const char *name, *arguments, *summary;
    enum ls_command_words words;
};
extern const struct ls_command_info ls_commands[];

/* The commands of a command. A list ends with a NULL name; it is empty for all commands except data. */
struct ls_subcommand {
    const char *name, *arguments, *summary;
};
extern const struct ls_subcommand ls_data_commands[];
const struct ls_subcommand *ls_subcommands(enum ls_command command);
/* Returns NULL when the command has none of that name. */
const struct ls_subcommand *ls_subcommand_find(enum ls_command command, const char *name);

/* Sets the defaults, then applies each source, the one with the highest precedence last. argv starts after the
 * command's name.
 *
 * For train, eval, bench and plan, arguments that end in .yaml or .yml are a configuration and a model. A file with
 * the key `layers` is a model, and has the same effect as --model. Other arguments are kept for the command.
 *
 * A file or variable may set options of other commands, the command line may not. --help prints the command's help
 * and returns LS_OK with *help = true. The error for an unknown option names the nearest known one. On failure *o is
 * released. */
enum ls_status ls_options_parse(struct ls_options *o, enum ls_command command, int argc, char **argv, bool *help);
void ls_options_release(struct ls_options *o);
/* Sets every option to its default. No option counts as given. */
enum ls_status ls_options_default(struct ls_options *o);
/* Sets the options that were not given yet from a run's config.yaml. They count as given after that. Options with
 * `view`, such as --quiet, belong to the command and keep their values. */
enum ls_status ls_options_load(struct ls_options *o, const char *path);
/* Writes the effective configuration as YAML that `lockstep train FILE` accepts. Only options of `command` are
 * written. */
enum ls_status ls_options_write(const struct ls_options *o, enum ls_command command, FILE *out);
/* Writes the options that determine what a run computes, as lines `name: value`; with `common`, also the others that all
 * processes of a run have alike. */
void ls_options_write_result(const struct ls_options *o, enum ls_command command, bool common, FILE *out);
/* Lists those of these options in which two runs differ, as "--lr 0.1 is now 0.2, ..."; "" when there is none. */
void ls_options_differ(const struct ls_options *was, const struct ls_options *is, enum ls_command command, char *text,
                       size_t room);
/* Sets *plain to o with absolute paths, so that it means the same in every folder. New strings are allocated in
 * `strings`. */
struct ls_arena;
enum ls_status ls_options_absolute(const struct ls_options *o, struct ls_arena *strings, struct ls_options *plain);
/* Call after a run's config.yaml was loaded. A path that no longer exists is looked up at the same place relative to
 * the run directory, in case both were moved. A model file is replaced by the run's copy. Sets config_run. `keep`
 * has the options that the file did not set. */
enum ls_status ls_options_settle(struct ls_options *o, const char *file, const uint64_t keep[LS_OPTION_WORDS]);
/* Whether the user gave the option. `name` is as in the table, for example "batch". */
bool ls_options_given(const struct ls_options *o, const char *name);
/* Whether the option's value differs from its default. After a config.yaml, which gives every option,
 * ls_options_given cannot answer this. */
bool ls_options_changed(const struct ls_options *o, const char *name);

/* Print the help of a command or of one of its commands (NULL: the command with all of them), the list of commands and
 * help topics, and a manual page for all of them. */
void ls_options_help(enum ls_command command, const struct ls_subcommand *sub, FILE *out);
void ls_options_usage(const struct ls_help_row *topics, FILE *out);
void ls_options_man(const char *version, const struct ls_help_row *topics, FILE *out);

/* What the completion offers besides commands, options and their choices: lists of words separated by spaces. */
struct ls_completion {
    const char *models, *data, *augment, *topics, *ops;
};
/* A bash completion script. */
void ls_options_completion(const struct ls_completion *words, FILE *out);

/* Writes the command line in shell syntax, without secrets. */
void ls_options_command(const struct ls_options *o, FILE *out);

/* "3x64x64" -> three positive numbers. `what` is the option's name for the error. */
enum ls_status ls_parse_input(const char *what, const char *text, int64_t *c, int64_t *h, int64_t *w);

#endif
