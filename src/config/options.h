/* Every setting of Lockstep, in one struct filled from one table (options.c). From that table come the flags,
 * the YAML keys, the LOCKSTEP_* variables, --help, and the effective configuration a run writes down.
 * Order of precedence: command line, environment, YAML file, default. */
#ifndef LS_CONFIG_OPTIONS_H
#define LS_CONFIG_OPTIONS_H

#include "base/help.h"
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A switch that may be left to what it is for. */
enum ls_auto { LS_AUTO = -1, LS_OFF, LS_ON };

struct ls_options {
    /* what is trained, on what */
    char *model;     /* built-in name or a file.yaml */
    char *data;      /* mnist | path | synthetic:CxHxW:classes */
    char *eval_data; /* NULL: the test part that belongs to data */
    char *input;     /* CxHxW, NULL: as the data */
    int64_t classes; /* 0: as the data */
    char *init;      /* FILE.safetensors to start from, or NULL */
    char *loss;      /* xent | l2 */
    /* The text of the model's file, where it is read already: the kept copy's once it has changed. Owned; no row of the
     * table. NULL: a built-in, or the file is still to be read. */
    char *model_yaml;
    /* how */
    int64_t batch, epochs, steps; /* steps 0: epochs decide */
    int64_t epoch_size;           /* samples an epoch, 0: the whole data set */
    int64_t accumulate;           /* passes of batch/accumulate samples a step */
    int64_t replicas;
    char *optimizer; /* sgd | lars */
    double lr, momentum, weight_decay, trust, label_smoothing;
    bool lr_per_256;          /* --lr is per 256 samples: the linear scaling rule */
    bool nesterov, decay_all; /* decay_all=false: no weight decay on BN and biases */
    char *schedule;           /* constant | every:N[:FACTOR] | multistep:30,60,80[:FACTOR] | exponential:GAMMA |
                       cosine[:MIN] */
    char *warmup;             /* none | stepping:EPOCHS | gradual:EPOCHS | iterations:N */
    double dropout;           /* -1: as the model says */
    char *augment;            /* auto | none | list: crop:4,flip | rrc:224,flip ... */
    char *eval_resize;        /* auto | none | N: shorter side of an image that is evaluated */
    char *eval_crop;          /* auto | none | N | HxW: the centre that is seen of it */
    bool shuffle;
    uint64_t seed;
    /* machine */
    int64_t threads;        /* 0: all cores this process may use */
    int64_t loader_threads; /* 0: chosen */
    char *decode;           /* cpu | gpu | hardware */
    char *backend;          /* auto | onednn | ref | cuda */
    char *dtype;            /* f32 | tf32 | bf16 | fp16 */
    bool fast;              /* sums may come in no fixed order (cuda) */
    double loss_scale;      /* fp16; 0: dynamic */
    enum ls_auto tune;      /* measure kernels where neither a plan nor the plan cache knows one */
    bool reuse;             /* reuse activation memory */
    char *plan;             /* kernels to compute with: a run directory or a file; NULL: chosen */
    char *plan_cache;       /* file; NULL: ~/.cache/lockstep/plans */
    /* run directory */
    char *run;                /* DIR; NULL: runs/MODEL-NUMBER */
    char *resume;             /* NULL: start anew; "auto": from --run's newest; else a checkpoint folder */
    char *written_in;         /* of a config.yaml: the run directory it is from; NULL: it is from none */
    int64_t checkpoint_every; /* steps, 0: each epoch */
    int64_t keep;             /* checkpoints kept besides the best */
    int64_t log_every;        /* steps between lines when piped; 0: chosen */
    char *log_format;         /* plain | cntk | thesis */
    bool evaluate;            /* evaluate after each epoch */
    bool json, quiet;
    bool yaml;     /* models show: print as a layer list */
    bool progress; /* a live line on a terminal; also off when TERM is dumb */
    bool color;    /* also off when NO_COLOR is set */
    /* the processes that train together */
    int64_t workers;       /* processes that this one starts on this machine; 1: none */
    char *master_ip;       /* host of rank 0, or NULL */
    int64_t master_port;   /* where rank 0 listens */
    int64_t num_nodes;     /* processes in all, 0: as the launcher says */
    int64_t rank;          /* of this process, -1: as the launcher says, or in order of arrival */
    char *rendezvous;      /* file:///path to meet at, or NULL */
    char *transport;       /* tcp | ucx */
    char *token;           /* the secret they share, or NULL; never written down */
    char *sync;            /* gather | allreduce | overlap | server | async | cutoff | local */
    char *compress;        /* none | fp16 | bf16 | 1bit | powersgd[:RANK] */
    char *collective;      /* auto | tree | hier | ring | mpi | nccl */
    double bucket_mb;      /* size of a bucket of gradients in MiB, 0: from measurements */
    double deadline;       /* seconds that a peer may be late */
    int64_t check_every;   /* steps between checksums of all ranks, beside those at a save; 0: none */
    int64_t servers;       /* processes that only serve, 0: one, or with server all share it */
    int64_t staleness;     /* of async, steps a worker may be ahead of the slowest */
    int64_t cutoff_k;      /* gradients that count, 0: all but one */
    int64_t local_steps;   /* of local, between two averages */
    double block_momentum; /* of these averages */
    /* bench */
    int64_t warmup_steps, repeat;
    char *scale;        /* "1,2,4": numbers of workers to measure; NULL or "none": as started */
    bool weak;          /* of scale: the batch grows with the workers */
    bool profile;       /* bench: time every node */
    int64_t largest_mb; /* of collective: the largest sum */
    bool gpu;           /* doctor: test every op on the card */
    /* positional arguments after the options (files for predict, names for models) */
    char *config_run; /* the run directory that a loaded configuration was written in; NULL: none; owned */
    char **args;      /* owned */
    int n_args;
    char **command_line; /* borrowed; as the program got it, for starting workers with; NULL: not from there */
    int n_command_line;
    const char *version; /* borrowed; of the program, with its revision; NULL: not from there */
    uint64_t given[2];   /* a bit for each row of the table that a user set; see ls_options_given */
};

/* Which commands an option belongs to, a bit each. */
enum ls_command {
    LS_CMD_TRAIN = 1,
    LS_CMD_EVAL = 2,
    LS_CMD_PREDICT = 4,
    LS_CMD_BENCH = 8,
    LS_CMD_MODELS = 16,
    LS_CMD_PLAN = 32,
    LS_CMD_DATA = 64,
    LS_CMD_DOCTOR = 128
};

/* The commands as the help, the man page and messages name them; ends with a NULL name. */
struct ls_command_info {
    enum ls_command command;
    const char *name, *arguments, *summary;
};
extern const struct ls_command_info ls_commands[];

/* Defaults, then each source, the strongest last. argv starts after the command's name. For train, eval,
 * bench and plan, positional arguments ending in .yaml or .yml are a configuration and a model (known by its `layers`),
 * which is as good as behind --model. Others are kept for the command to judge. A file or variable may set options of other
 * commands, the command line may not. --help prints the command's help and returns LS_OK with *help = true.
 * Unknown options name the nearest known one. On failure *o is released. */
enum ls_status ls_options_parse(struct ls_options *o, enum ls_command command, int argc, char **argv, bool *help);
void ls_options_release(struct ls_options *o);
/* Every default, nothing given. */
enum ls_status ls_options_default(struct ls_options *o);
/* Set from a run's config.yaml what was not given yet; what it sets counts as given. How a command shows itself (--quiet)
 * is not the run's, and stays. */
enum ls_status ls_options_load(struct ls_options *o, const char *path);
/* The effective configuration as YAML that `lockstep train FILE` runs again. Only options of `command`. */
enum ls_status ls_options_write(const struct ls_options *o, enum ls_command command, FILE *out);
/* The options that decide what a run computes, as lines `name: value`. */
void ls_options_write_meaning(const struct ls_options *o, enum ls_command command, FILE *out);
/* Those of them in which two runs differ, as "--lr 0.1 is now 0.2, ..."; "" when there is none. */
void ls_options_differ(const struct ls_options *was, const struct ls_options *is, enum ls_command command, char *text,
                       size_t room);
/* *plain is o with paths from the root, so that it means the same everywhere; what is new is in strings. */
struct ls_arena;
enum ls_status ls_options_absolute(const struct ls_options *o, struct ls_arena *strings, struct ls_options *plain);
/* After a run's config.yaml is loaded: paths that are gone are taken from the same place beside the run directory, where both
 * have moved; a model's file from the copy in the run directory, which is config_run from then on. keep: rows that the file
 * did not set. */
enum ls_status ls_options_settle(struct ls_options *o, const char *file, const uint64_t keep[2]);
/* Was the option given by the user (not a default)? name as in the table, e.g. "batch". */
bool ls_options_given(const struct ls_options *o, const char *name);

/* The command's help; the list of commands and help topics; a manual page for all of them. */
void ls_options_help(enum ls_command command, FILE *out);
void ls_options_usage(const struct ls_help_row *topics, FILE *out);
void ls_options_man(const char *version, const struct ls_help_row *topics, FILE *out);

/* What a completion offers besides commands, options and their choices: words with spaces between them. */
struct ls_completion {
    const char *models, *data, *augment, *topics, *ops;
};
/* A bash completion script. */
void ls_options_completion(const struct ls_completion *words, FILE *out);

/* The command line as a shell takes it, secrets left out. */
void ls_options_command(const struct ls_options *o, FILE *out);

/* "3x64x64" -> three positive numbers. what: the option's name for the error. */
enum ls_status ls_parse_input(const char *what, const char *text, int64_t *c, int64_t *h, int64_t *w);

#endif
