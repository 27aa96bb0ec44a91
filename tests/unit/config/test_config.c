/* Options from the command line, the environment and YAML; their errors; the effective configuration. */
#include "base/text/nearest.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/options.h"
#include "config/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/lockstep-config-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    ls_log_mute(1);
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return chdir("/") == 0 && ls_dir_remove(folder) == LS_OK ? 0 : -1;
}

/* Parse a command line whose words are separated by single spaces. */
static enum ls_status parse(struct ls_options *o, enum ls_command command, const char *line)
{
    char text[512], *argv[64];
    int argc = 0;
    bool help;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    return ls_options_parse(o, command, argc, argv, &help);
}

static void accept(struct ls_options *o, enum ls_command command, const char *line)
{
    assert_int_equal(parse(o, command, line), LS_OK);
}

static void refuse(enum ls_command command, const char *line, const char *error)
{
    struct ls_options o;
    assert_int_equal(parse(&o, command, line), LS_USAGE);
    assert_string_equal(ls_log_last(), error);
    assert_null(o.model);
}

static void write_file(const char *name, const char *text)
{
    assert_int_equal(ls_file_write(name, text, strlen(text)), LS_OK);
}

static void defaults(void **state)
{
    (void)state;
    struct ls_options o;
    accept(&o, LS_CMD_TRAIN, "");
    assert_string_equal(o.model, "lenet");
    assert_string_equal(o.data, "mnist");
    assert_null(o.eval_data);
    assert_null(o.input);
    assert_null(o.resume);
    assert_string_equal(o.loss, "xent");
    assert_int_equal(o.batch, 64);
    assert_int_equal(o.epochs, 5);
    assert_int_equal(o.steps, 0);
    assert_int_equal(o.accumulate, 1);
    assert_int_equal(o.replicas, 1);
    assert_string_equal(o.optimizer, "sgd");
    assert_true(o.lr == 0.05 && o.momentum == 0.9 && o.weight_decay == 5e-4 && o.trust == 0.001);
    assert_true(o.dropout == -1 && o.label_smoothing == 0);
    assert_true(o.decay_all && o.shuffle && o.tune == LS_AUTO && o.reuse && o.evaluate);
    assert_false(o.lr_per_256 || o.nesterov || o.json || o.quiet || o.yaml);
    assert_string_equal(o.schedule, "cosine");
    assert_string_equal(o.warmup, "none");
    assert_string_equal(o.augment, "auto");
    assert_int_equal(o.seed, 1);
    assert_string_equal(o.backend, "auto");
    assert_string_equal(o.dtype, "f32");
    assert_int_equal(o.keep, 3);
    assert_string_equal(o.log_format, "plain");
    assert_int_equal(o.warmup_steps, 2);
    assert_int_equal(o.repeat, 5);
    assert_false(ls_options_given(&o, "batch"));
    ls_options_release(&o);
}

static void values_of_every_type(void **state)
{
    (void)state;
    struct ls_options o;
    accept(&o, LS_CMD_TRAIN,
           "--batch 128 --lr=1e-3 --no-shuffle --nesterov --evaluate=off --input 3x64x32 --seed 18446744073709551615 "
           "--dropout -1 --weight_decay .25 --dtype bf16 --schedule multistep:30,60,80:0.2 --data a=b");
    assert_int_equal(o.batch, 128);
    assert_true(o.lr == 1e-3 && o.weight_decay == 0.25 && o.dropout == -1);
    assert_false(o.shuffle || o.evaluate);
    assert_true(o.nesterov);
    assert_string_equal(o.input, "3x64x32");
    assert_true(o.seed == UINT64_MAX);
    assert_string_equal(o.dtype, "bf16");
    assert_string_equal(o.schedule, "multistep:30,60,80:0.2");
    assert_string_equal(o.data, "a=b");
    assert_true(ls_options_given(&o, "batch") && ls_options_given(&o, "weight-decay"));
    assert_true(ls_options_given(&o, "weight_decay") && ls_options_given(&o, "shuffle"));
    assert_false(ls_options_given(&o, "epochs") || ls_options_given(&o, "no such option"));
    ls_options_release(&o);
}

static void the_last_of_two_counts(void **state)
{
    (void)state;
    struct ls_options o;
    accept(&o, LS_CMD_TRAIN, "--batch 8 --no-tune --batch=16 --tune");
    assert_int_equal(o.batch, 16);
    assert_true(o.tune);
    ls_options_release(&o);
}

static const char *list_of(const struct ls_options *o, const char *name)
{
    return ls_option_list(o, ls_option_find(name));
}

static void lists_of_bench(void **state)
{
    (void)state;
    struct ls_options o;
    accept(&o, LS_CMD_BENCH, "--batch 32,64,max --model a,b.yaml --dtype bf16,f32 --threads 2 -o out.csv");
    assert_string_equal(list_of(&o, "batch"), "32,64,max");
    assert_int_equal(o.batch, 32);
    assert_string_equal(list_of(&o, "model"), "a,b.yaml");
    assert_string_equal(o.dtype, "bf16");
    assert_null(list_of(&o, "threads"));
    assert_string_equal(o.output, "out.csv");
    ls_options_release(&o);
    /* one value replaces a list, and the other way round */
    accept(&o, LS_CMD_BENCH, "--batch 32,64 --batch 8 --workers 1 --workers 1,2");
    assert_null(list_of(&o, "batch"));
    assert_int_equal(o.batch, 8);
    assert_string_equal(list_of(&o, "workers"), "1,2");
    ls_options_release(&o);
    accept(&o, LS_CMD_BENCH, "--batch max");
    assert_string_equal(list_of(&o, "batch"), "max");
    assert_int_equal(o.batch, 64);
    ls_options_release(&o);
    /* the name of a file may contain a comma */
    write_file("a,b.yaml", "layers: []");
    accept(&o, LS_CMD_BENCH, "--model a,b.yaml");
    assert_null(list_of(&o, "model"));
    assert_string_equal(o.model, "a,b.yaml");
    ls_options_release(&o);

    refuse(LS_CMD_BENCH, "--batch 32,abc", "--batch: 'abc' is not a whole number");
    refuse(LS_CMD_BENCH, "--batch 32,,64", "--batch: '32,,64' has an empty item; a list is written as A,B,C");
    refuse(LS_CMD_BENCH, "--batch ,", "--batch: ',' has an empty item; a list is written as A,B,C");
    refuse(LS_CMD_BENCH, "--batch 32,", "--batch: '32,' has an empty item; a list is written as A,B,C");
    refuse(LS_CMD_BENCH, "--batch 0,32", "--batch: 0 is out of range; it must be 1 to 1000000000");
    refuse(LS_CMD_BENCH, "--workers 2,max", "--workers: 'max' is not a whole number");
    refuse(LS_CMD_BENCH, "--seed 1,2", "--seed: '1,2' is not a whole number of 0 or more");
    refuse(LS_CMD_TRAIN, "--batch 32,64", "--batch: '32,64' is not a whole number");
    refuse(LS_CMD_TRAIN, "--batch max", "--batch: 'max' is not a whole number");
}

static void resume_alone_or_with_a_value(void **state)
{
    (void)state;
    struct ls_options o;
    write_file("run.yaml", "batch: 8\n");
    const char *const alone[] = {"--resume", "--resume --batch 8", "--batch 8 --resume=", "--resume run.yaml"};
    for (int i = 0; i < 4; i++) {
        accept(&o, LS_CMD_TRAIN, alone[i]);
        assert_string_equal(o.resume, "auto");
        assert_int_equal(o.batch, i == 0 ? 64 : 8);
        ls_options_release(&o);
    }
    accept(&o, LS_CMD_TRAIN, "--resume runs/1/checkpoints/step-00000005 --run runs/1");
    assert_string_equal(o.resume, "runs/1/checkpoints/step-00000005");
    ls_options_release(&o);
}

static void arguments(void **state)
{
    (void)state;
    struct ls_options o;
    accept(&o, LS_CMD_PREDICT, "a.png --batch 2 -- --odd.png -");
    assert_int_equal(o.n_args, 3);
    assert_string_equal(o.args[0], "a.png");
    assert_string_equal(o.args[1], "--odd.png");
    assert_string_equal(o.args[2], "-");
    ls_options_release(&o);
    accept(&o, LS_CMD_MODELS, "show net.yaml --yaml");
    assert_int_equal(o.n_args, 2);
    assert_string_equal(o.args[1], "net.yaml");
    assert_true(o.yaml);
    ls_options_release(&o);
    accept(&o, LS_CMD_TRAIN, "lenet"); /* the command says what to type instead */
    assert_int_equal(o.n_args, 1);
    ls_options_release(&o);
}

static void errors_of_the_command_line(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"--bach 3", "unknown option --bach; did you mean --batch?"},
        {"--bacth=3", "unknown option --bacth; did you mean --batch?"},
        {"--no-shufle", "unknown option --no-shufle; did you mean --no-shuffle?"},
        {"--no-batch", "unknown option --no-batch; did you mean --batch?"},
        {"--checkpoint 3", "unknown option --checkpoint; did you mean --checkpoint-every?"},
        {"--xyzzy", "unknown option --xyzzy; `lockstep train --help` lists them"},
        {"-b 3", "unknown option -b; options are words, such as --batch"},
        {"--repeat 3", "train takes no --repeat; it is an option of bench"},
        {"--no-shuffle=1", "--no-shuffle takes no value"},
        {"--batch", "--batch: needs a value (N: samples a step, over all replicas)"},
        {"--batch --lr 1", "--batch: needs a value (N: samples a step, over all replicas)"},
        {"--batch 12x", "--batch: '12x' is not a whole number"},
        {"--batch 1.5", "--batch: '1.5' is not a whole number"},
        {"--batch 0x10", "--batch: '0x10' is not a whole number"},
        {"--batch 0", "--batch: 0 is out of range; it must be 1 to 1000000000"},
        {"--batch 99999999999999999999", "--batch: 99999999999999999999 does not fit in 64 bits"},
        {"--seed -1", "--seed: '-1' is not a whole number of 0 or more"},
        {"--seed 18446744073709551616", "--seed: 18446744073709551616 does not fit in 64 bits"},
        {"--lr fast", "--lr: 'fast' is not a number"},
        {"--lr nan", "--lr: 'nan' is not a number"},
        {"--lr 0x1p3", "--lr: '0x1p3' is not a number"},
        {"--lr .", "--lr: '.' is not a number"},
        {"--lr 1e999", "--lr: 1e999 is too large"},
        {"--lr -0.1", "--lr: -0.1 is out of range; it must be 0 to 1e+38"},
        {"--momentum 1", "--momentum: 1 is out of range; it must be 0 or more and below 1"},
        {"--dropout -0.5", "--dropout: -0.5 is out of range; it must be 0 or more and below 1"},
        {"--shuffle=maybe", "--shuffle: 'maybe' is neither true nor false"},
        {"--dtype fp8", "--dtype: 'fp8' is not one of auto, f32, tf32, bf16, fp16"},
        {"--dtype f32,bf16", "--dtype: 'f32,bf16' is not one of auto, f32, tf32, bf16, fp16"},
        {"--schedule cosin:3",
         "--schedule: 'cosin' is not one of constant, every, multistep, exponential, cosine, polynomial, plateau"},
        {"--input 3x64", "--input: '3x64' is not of the form CxHxW, such as 3x64x64"},
        {"--input 3x64x64x2", "--input: '3x64x64x2' is not of the form CxHxW, such as 3x64x64"},
        {"--input 3x0x64", "--input: '3x0x64' has a size that is not in 1 to 65536"},
        {"--model=", "--model: needs a value (NAME: built-in model (see `lockstep models`) or a FILE.yaml)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(LS_CMD_TRAIN, cases[i][0], cases[i][1]);
    refuse(LS_CMD_MODELS, "--lr 1", "models takes no --lr; it is an option of train, bench, sweep");
}

static void precedence(void **state)
{
    (void)state;
    struct ls_options o;
    write_file("run.yaml", "batch: 8\nepochs: 8\nlr: 8\nmodel: vgg11\nshuffle: no\n");
    setenv("LOCKSTEP_EPOCHS", "9", 1);
    setenv("LOCKSTEP_LR", "9", 1);
    setenv("LOCKSTEP_WEIGHT_DECAY", "9", 1);
    setenv("LOCKSTEP_MODEL", "", 1);
    accept(&o, LS_CMD_TRAIN, "--lr 10 run.yaml");
    assert_int_equal(o.batch, 8);
    assert_int_equal(o.epochs, 9);
    assert_true(o.lr == 10 && o.weight_decay == 9);
    assert_string_equal(o.model, "vgg11");
    assert_false(o.shuffle);
    assert_true(ls_options_given(&o, "batch") && ls_options_given(&o, "epochs"));
    ls_options_release(&o);
    setenv("LOCKSTEP_EPOCHS", "many", 1);
    refuse(LS_CMD_TRAIN, "", "LOCKSTEP_EPOCHS: 'many' is not a number");
    unsetenv("LOCKSTEP_EPOCHS");
    unsetenv("LOCKSTEP_LR");
    unsetenv("LOCKSTEP_WEIGHT_DECAY");
    unsetenv("LOCKSTEP_MODEL");
}

static void variables_around_the_options(void **state)
{
    (void)state;
    struct ls_options o;
    setenv("LOCKSTEP_BACH", "3", 1);
    setenv("NO_COLOR", "1", 1);
    accept(&o, LS_CMD_TRAIN, "");
    assert_string_equal(ls_log_last(), "LOCKSTEP_BACH: no such option; did you mean LOCKSTEP_BATCH?");
    assert_false(o.color);
    ls_options_release(&o);
    unsetenv("LOCKSTEP_BACH");
    unsetenv("NO_COLOR");
}

static void a_file_may_set_options_of_other_commands(void **state)
{
    (void)state;
    struct ls_options o;
    write_file("run.yaml", "model: vgg11\nepochs: 90\nresume: ~\ninit:\n");
    accept(&o, LS_CMD_EVAL, "run.yaml runs/1");
    assert_string_equal(o.model, "vgg11");
    assert_int_equal(o.n_args, 1);
    assert_null(o.resume);
    assert_null(o.init);
    ls_options_release(&o);
}

static void load_leaves_what_was_given(void **state)
{
    (void)state;
    struct ls_options o;
    write_file("config.yaml", "model: vgg11\nbatch: 8\n");
    accept(&o, LS_CMD_EVAL, "--batch 32");
    assert_int_equal(ls_options_load(&o, "config.yaml"), LS_OK);
    assert_int_equal(o.batch, 32);
    assert_string_equal(o.model, "vgg11");
    assert_true(ls_options_given(&o, "model"));
    ls_options_release(&o);
}

static void load_leaves_how_a_command_shows_itself(void **state)
{
    (void)state;
    struct ls_options o;
    write_file("config.yaml", "quiet: true\njson: true\nprogress: false\ncolor: false\nlog-format: cntk\n");
    accept(&o, LS_CMD_EVAL, "");
    assert_int_equal(ls_options_load(&o, "config.yaml"), LS_OK);
    assert_false(o.quiet || o.json);
    assert_true(o.progress && o.color);
    assert_string_equal(o.log_format, "cntk");
    ls_options_release(&o);
    accept(&o, LS_CMD_TRAIN, "config.yaml"); /* a file that the user gives is the user's word */
    assert_true(o.quiet);
    ls_options_release(&o);
}

static void differences_are_named(void **state)
{
    (void)state;
    struct ls_options a, b;
    char text[256];
    accept(&a, LS_CMD_TRAIN, "--lr 0.1 --threads 1 --quiet --keep 9");
    accept(&b, LS_CMD_TRAIN, "--lr 0.1 --threads 2 --run x --deadline 7");
    ls_options_differ(&a, &b, LS_CMD_TRAIN, text, sizeof text);
    assert_string_equal(text, "");
    ls_options_release(&b);
    accept(&b, LS_CMD_TRAIN, "--lr 0.2 --nesterov --loss l2 --data elsewhere");
    ls_options_differ(&a, &b, LS_CMD_TRAIN, text, sizeof text);
    assert_string_equal(text, "--loss xent is now l2, --lr 0.1 is now 0.2, --nesterov false is now true");
    ls_options_differ(&a, &b, LS_CMD_TRAIN, text, 20);
    assert_string_equal(text, "--loss xent is now ");
    ls_options_release(&a);
    ls_options_release(&b);
}

static void errors_of_yaml(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"model: lenet\nbacth: 64\n", "bad.yaml:2: unknown option 'bacth'; did you mean batch?"},
        {"xyzzy: 1\n", "bad.yaml:1: unknown option 'xyzzy'; `lockstep train --help` lists them"},
        {"# one\n\nbatch: 12x\n", "bad.yaml:3: batch: '12x' is not a whole number"},
        {"weight_decay: -1\n", "bad.yaml:1: weight-decay: -1 is out of range; it must be 0 to 1000000"},
        {"batch:\n", "bad.yaml:1: batch: needs a value (N: samples a step, over all replicas)"},
        {"batch:\n  size: 3\n", "bad.yaml:2: batch: expected a single value, found a nested map"},
        {"augment: [flip]\n", "bad.yaml:1: augment: expected a single value, found a list"},
        {"batch: &a 3\nepochs: *a\n", "bad.yaml:2: epochs: expected a single value, found an alias"},
        {"lr: 1\nweight-decay: 1\nweight_decay: 2\n",
         "bad.yaml:3: weight_decay stands here a second time (first in line 2)"},
        {"- batch: 3\n", "bad.yaml:1: expected lines such as `batch: 64`, found a list"},
        {"batch\n", "bad.yaml:1: expected lines such as `batch: 64`, found a single value"},
        {"[a]: 3\n", "bad.yaml:1: expected the name of an option, found a list"},
        {"batch: 3\n---\nlr: 1\n", "bad.yaml:2: a second document starts here; a configuration is one"},
        {"data: \"a\\0b\"\n", "bad.yaml:1: data: the value has a zero byte in it"},
        {"batch: \"3\n", "bad.yaml:2: not YAML: found unexpected end of stream while scanning a quoted scalar"},
        {"data: \xff\n", "bad.yaml: byte 6: not YAML text: invalid leading UTF-8 octet"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file("bad.yaml", cases[i][0]);
        refuse(LS_CMD_TRAIN, "bad.yaml", cases[i][1]);
    }
    struct ls_options o;
    assert_int_equal(parse(&o, LS_CMD_TRAIN, "nowhere.yaml"), LS_BAD_INPUT);
    assert_non_null(strstr(ls_log_last(), "nowhere.yaml"));
    write_file("empty.yaml", "# nothing\n");
    accept(&o, LS_CMD_TRAIN, "empty.yaml");
    ls_options_release(&o);
}

/* The options as YAML, into new memory. */
static char *written(const struct ls_options *o, enum ls_command command)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    assert_int_equal(ls_options_write(o, command, out), LS_OK);
    fclose(out);
    return text;
}

static void assert_same(const struct ls_options *a, const struct ls_options *b)
{
    char room[2][32];
    for (int i = 0; i < ls_option_count; i++) {
        if (ls_option_table[i].view) /* not the run's */
            continue;
        const char *x = ls_option_get(a, &ls_option_table[i], room[0]);
        const char *y = ls_option_get(b, &ls_option_table[i], room[1]);
        assert_true((x == NULL) == (y == NULL));
        if (x)
            assert_string_equal(x, y);
    }
}

static void round_trip(enum ls_command command, const char *line, const char *data)
{
    struct ls_options o, again;
    accept(&o, command, line);
    if (data) {
        ls_free(o.data);
        o.data = ls_strdup(data);
    }
    char *text = written(&o, command);
    write_file("again.yaml", text);
    accept(&again, LS_CMD_TRAIN, "again.yaml");
    assert_same(&o, &again);
    char *second = written(&again, command);
    assert_string_equal(text, second);
    free(text);
    free(second);
    ls_options_release(&o);
    ls_options_release(&again);
}

static void the_effective_configuration_reads_back(void **state)
{
    (void)state;
    round_trip(LS_CMD_TRAIN, "", NULL);
    round_trip(LS_CMD_TRAIN,
               "--model vgg11 --lr 0.1 --momentum 0.30000000000000004 --weight-decay 1e-4 --dropout 0 --no-shuffle "
               "--seed 18446744073709551615 --schedule multistep:30,60,80:0.1 --resume --run runs/1 --input 3x64x64 "
               "--eval-data -odd --augment crop:4,flip --steps 1000000000000 --init null --no-color",
               NULL);
    round_trip(LS_CMD_BENCH, "--repeat 9 --warmup-steps 0 --json", NULL);
    const char *const paths[] = {
        "/data/with space",
        "a: b",
        "a #b",
        "#a",
        "~",
        "null",
        "- x",
        "-",
        "\"quoted\\\"",
        "'",
        "new\nline",
        "\ttab",
        "a:",
        "[x, y]",
        "{x}",
        "*alias",
        "&a",
        "!tag",
        "%x",
        "@x",
        "`x`",
        "|",
        ">",
        "\x7f\x1b",
        "true",
        "Bücher/中",
        " x ",
        "? what",
        "---",
        "...",
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        round_trip(LS_CMD_TRAIN, "", paths[i]);
}

static void where_a_process_runs_is_not_written(void **state)
{
    (void)state;
    struct ls_options o;
    setenv("LOCKSTEP_TOKEN", "hush-hush", 1);
    setenv("LOCKSTEP_WORKER_RANK", "0", 1);
    accept(&o, LS_CMD_TRAIN,
           "--workers 3 --master-ip n1 --master-port 2 --num-nodes 4 --rank 1 --rendezvous file:///x --sync local "
           "--compress powersgd:4 --collective ring --deadline 5 --cutoff-k 3");
    assert_true(o.workers == 3 && o.num_nodes == 4 && o.rank == 1 && o.master_port == 2 && o.deadline == 5);
    assert_string_equal(o.token, "hush-hush");
    char *text = written(&o, LS_CMD_TRAIN);
    const char *const out[] = {"hush", "token", "workers", "master", "num-nodes", "\nrank", "rendezvous", "file://"};
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        assert_null(strstr(text, out[i]));
    assert_non_null(strstr(text, "\nsync: local"));
    assert_non_null(strstr(text, "\ncompress: powersgd:4"));
    assert_non_null(strstr(text, "\ncollective: ring"));
    assert_true(ls_options_given(&o, "cutoff-k") && ls_options_given(&o, "token") && !ls_options_given(&o, "servers"));
    free(text);
    ls_options_release(&o);
    unsetenv("LOCKSTEP_TOKEN");
    unsetenv("LOCKSTEP_WORKER_RANK");
}

static void what_is_not_utf8_is_not_written(void **state)
{
    (void)state;
    struct ls_options o;
    char *text = NULL;
    size_t size;
    accept(&o, LS_CMD_TRAIN, "--data \xff\xfe");
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(ls_options_write(&o, LS_CMD_TRAIN, out), LS_FAILED);
    fclose(out);
    free(text);
    assert_non_null(strstr(ls_log_last(), "--data"));
    ls_options_release(&o);
}

static void a_command_line_is_written_for_a_shell(void **state)
{
    (void)state;
    char *words[] = {"lockstep", "train", "--run", "it's here", "--token", "se cret", "--token=two", "", "--lr=0.1"};
    struct ls_options o = {.command_line = words, .n_command_line = 9};
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    ls_options_command(&o, out);
    fclose(out);
    assert_string_equal(text, "lockstep train --run 'it'\\''s here' --token ... --token=... '' --lr=0.1");
    free(text);
}

static void models_are_told_from_configurations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool model;
    } cases[] = {
        {"layers:\n  - {name: a, op: dense, out: classes}\n", true},
        {"input: 3x4x5\ninit: {conv: torch, dense: torch}\nclasses: 3\nlayers: []\n", true},
        {"init: {layers: 3}\nx: [layers, layers]\nlayers: 1", true},
        {"layers: [1, 2", true}, /* what is wrong with it is the model reader's to say */
        {"init: {layers: 3}\nbatch: 64\n", false},
        {"batch: layers\nx: [layers]\n", false},
        {"- layers\n- 3\n", false},
        {"a: 1\n---\nlayers: 1\n", false},
        {"layers", false},
        {"", false},
        {"\xff\xfe", false},
        {"a: &b 1\n*b : 2\nlayers: 3\n", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (ls_yaml_is_model(cases[i].text, strlen(cases[i].text)) != cases[i].model)
            fail_msg("case %zu: %s", i, cases[i].text);
}

static void every_option_is_listed_everywhere(void **state)
{
    (void)state;
    char *help, *man, *completion;
    size_t size;
    const struct ls_help_row topics[] = {{"knots", "how to tie them"}, {NULL, NULL}};
    const struct ls_completion words = {"net1 net2", "mnist", "crop: flip", "knots", "conv"};
    FILE *out = open_memstream(&help, &size);
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        ls_options_help(info->command, NULL, out);
    fclose(out);
    out = open_memstream(&man, &size);
    ls_options_man("1.2.3", topics, out);
    fclose(out);
    out = open_memstream(&completion, &size);
    ls_options_completion(&words, out);
    fclose(out);
    assert_non_null(strstr(man, "lockstep 1.2.3"));
    assert_non_null(strstr(man, "knots\nhow to tie them."));
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        char flag[64], roff[128] = "";
        bool on = option->type == LS_OPTION_SWITCH && strcmp(option->missing, "true") == 0;
        snprintf(flag, sizeof flag, "--%s%s", on ? "no-" : "", option->name);
        assert_non_null(strstr(help, flag));
        assert_non_null(strstr(completion, flag));
        for (size_t k = 0, n = 0; flag[k]; k++)
            n += (size_t)snprintf(roff + n, sizeof roff - n, flag[k] == '-' ? "\\%c" : "%c", flag[k]);
        assert_non_null(strstr(man, roff));
        assert_non_null(option->help);
        assert_non_null(option->group);
        assert_true(ls_option_is_switch(option) || option->value);
    }
    free(help);
    free(man);
    free(completion);
}

static void input_sizes(void **state)
{
    (void)state;
    int64_t c, h, w;
    assert_int_equal(ls_parse_input("--input", "3x224x112", &c, &h, &w), LS_OK);
    assert_true(c == 3 && h == 224 && w == 112);
    const char *const bad[] = {"", "x", "3", "3x4x", "3x4x5x", "-1x2x3", "3x 4x5", "3X4X5", "1x2x99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ls_parse_input("--input", bad[i], &c, &h, &w), LS_USAGE);
}

static void nearest_words(void **state)
{
    (void)state;
    const char *const known[] = {"train", "eval", "predict", "bench", "resnet18", "resnet101", "vgg16", "lr"};
    assert_string_equal(ls_nearest_word("trian", known, 8), "train");
    assert_string_equal(ls_nearest_word("TRAIN", known, 8), "train");
    assert_string_equal(ls_nearest_word("resnet81", known, 8), "resnet18");
    assert_string_equal(ls_nearest_word("pred", known, 8), "predict");
    assert_string_equal(ls_nearest_word("l", known, 8), "lr");
    assert_null(ls_nearest_word("xyzzy", known, 8));
    assert_null(ls_nearest_word("", known, 8));
    assert_null(ls_nearest_word("a word that is far longer than anything that could be meant by it", known, 8));
    assert_null(ls_nearest_word("train", known, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(values_of_every_type),
        cmocka_unit_test(the_last_of_two_counts),
        cmocka_unit_test(lists_of_bench),
        cmocka_unit_test(resume_alone_or_with_a_value),
        cmocka_unit_test(arguments),
        cmocka_unit_test(errors_of_the_command_line),
        cmocka_unit_test(precedence),
        cmocka_unit_test(variables_around_the_options),
        cmocka_unit_test(a_file_may_set_options_of_other_commands),
        cmocka_unit_test(load_leaves_what_was_given),
        cmocka_unit_test(load_leaves_how_a_command_shows_itself),
        cmocka_unit_test(differences_are_named),
        cmocka_unit_test(errors_of_yaml),
        cmocka_unit_test(the_effective_configuration_reads_back),
        cmocka_unit_test(where_a_process_runs_is_not_written),
        cmocka_unit_test(what_is_not_utf8_is_not_written),
        cmocka_unit_test(a_command_line_is_written_for_a_shell),
        cmocka_unit_test(models_are_told_from_configurations),
        cmocka_unit_test(every_option_is_listed_everywhere),
        cmocka_unit_test(input_sizes),
        cmocka_unit_test(nearest_words),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
