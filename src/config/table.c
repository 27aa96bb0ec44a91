#include "base/nearest.h"
#include "config/table.h"

#include <ctype.h>
#include <string.h>

enum {
    T = LS_CMD_TRAIN,
    E = LS_CMD_EVAL,
    P = LS_CMD_PREDICT,
    B = LS_CMD_BENCH,
    M = LS_CMD_MODELS,
    L = LS_CMD_PLAN,
    D = LS_CMD_DATA,
    C = LS_CMD_DOCTOR /* a check-up */
};
#define RUNS (T | E | P | B | L) /* whatever computes with a model */
#define SEVERAL (T | E | B | C)  /* whatever several processes do together */
#define MANY 1e15                /* more than anything counts, and exact as a double */

const struct ls_command_info ls_commands[] = {
    {LS_CMD_TRAIN, "train", "[CONFIG.yaml] [MODEL.yaml] [options]", "train a model; writes a run directory"},
    {LS_CMD_EVAL, "eval", "[CONFIG.yaml] [RUN | CHECKPOINT | WEIGHTS] [options]",
     "measure loss and accuracy of a trained model"},
    {LS_CMD_PREDICT, "predict", "[RUN | CHECKPOINT | WEIGHTS] IMAGE... [options]",
     "name the five likeliest classes of image files"},
    {LS_CMD_BENCH, "bench", "[CONFIG.yaml] [MODEL.yaml] [options]", "measure the speed of training steps"},
    {LS_CMD_MODELS, "models", "[show NAME] [options]", "list the built-in models, or show one"},
    {LS_CMD_PLAN, "plan", "[CONFIG.yaml] [MODEL.yaml] [options]", "show nodes, kernels and memory of a training step"},
    {LS_CMD_DATA, "data", "[DATA] [options]", "describe and check a data set"},
    {LS_CMD_DOCTOR, "doctor", "[options]", "check machine, launcher and network, and say what to change"},
    {0, NULL, NULL, NULL},
};

/* clang-format off */
#define AT(field) offsetof(struct ls_options, field)
#define TEXT(field)   .type = LS_OPTION_TEXT,   .offset = AT(field)
#define WHOLE(field)  .type = LS_OPTION_WHOLE,  .offset = AT(field), .value = "N"
#define REAL(field)   .type = LS_OPTION_REAL,   .offset = AT(field), .value = "X"
#define SWITCH(field) .type = LS_OPTION_SWITCH, .offset = AT(field)
#define WHAT    .group = "What is trained, and on what"
#define HOW     .group = "How"
#define MACHINE .group = "The machine"
#define WORKERS .group = "Workers"
#define RUN     .group = "The run directory"
#define OUTPUT  .group = "Output"

const struct ls_option ls_option_table[] = {
    {"model", TEXT(model), .missing = "lenet", .commands = RUNS, WHAT, .value = "NAME", .path = true,
     .names = LS_NAMES_MODELS, .help = "built-in model (see `lockstep models`) or a FILE.yaml"},
    {"data", TEXT(data), .missing = "mnist", .free = true, .commands = RUNS | D, WHAT, .value = "DATA", .path = true,
     .names = LS_NAMES_DATA, .help = "mnist, a path, or synthetic:CxHxW:CLASSES"},
    {"eval-data", TEXT(eval_data), .free = true, .commands = T | E, WHAT, .value = "DATA", .path = true,
     .names = LS_NAMES_DATA, .help = "data to evaluate on (the test part of --data)"},
    {"input", .type = LS_OPTION_SHAPE, .offset = AT(input), .commands = RUNS | M, WHAT, .value = "CxHxW",
     .help = "size of the images the model sees (as the data)"},
    {"classes", WHOLE(classes), .missing = "0", .commands = RUNS | M, WHAT, .low = 1, .high = 1e7,
     .help = "number of classes; 0: as the data"},
    {"init", TEXT(init), .free = true, .commands = T | E | P, WHAT, .value = "FILE", .path = true,
     .help = "weights to start from, a .safetensors file (random)"},
    {"loss", TEXT(loss), .missing = "xent", .commands = T | E | B | L, WHAT, .value = "NAME",
     .choices = "xent l2",
     .help = "cross-entropy or squared error"},

    {"batch", WHOLE(batch), .missing = "64", .commands = RUNS, HOW, .low = 1, .high = 1e9,
     .help = "samples a step, over all replicas"},
    {"epochs", WHOLE(epochs), .missing = "5", .commands = T, HOW, .low = 1, .high = 1e9,
     .help = "times through the data"},
    {"steps", WHOLE(steps), .missing = "0", .commands = T | B, HOW, .low = 0, .high = MANY,
     .help = "steps to train, or of one repetition of bench; 0: --epochs decides, bench chooses"},
    {"epoch-size", WHOLE(epoch_size), .missing = "0", .commands = T, HOW, .low = 0, .high = MANY,
     .help = "samples an epoch; 0: the whole data set"},
    {"accumulate", WHOLE(accumulate), .missing = "1", .commands = T | B | L, HOW, .low = 1, .high = 1e6,
     .help = "passes a step is cut into, to save memory"},
    {"replicas", WHOLE(replicas), .missing = "1", .commands = T | B | L, HOW, .low = 1, .high = 65536,
     .help = "replicas the batch is dealt to; part of what the run computes"},
    {"optimizer", TEXT(optimizer), .missing = "sgd", .commands = T | B | L, HOW, .value = "NAME",
     .choices = "sgd lars",
     .help = "how weights follow gradients"},
    {"lr", REAL(lr), .missing = "0.05", .commands = T | B, HOW, .low = 0, .high = 1e38,
     .help = "learning rate"},
    {"lr-per-256", SWITCH(lr_per_256), .missing = "false", .commands = T, HOW,
     .help = "--lr is for 256 samples and scales with the batch"},
    {"momentum", REAL(momentum), .missing = "0.9", .commands = T | B | L, HOW,
     .low = 0, .high = 1, .below = true,
     .help = "share of the last update kept; 0: none"},
    {"nesterov", SWITCH(nesterov), .missing = "false", .commands = T | B | L, HOW,
     .help = "Nesterov's momentum"},
    {"weight-decay", REAL(weight_decay), .missing = "0.0005", .commands = T | B | L, HOW,
     .low = 0, .high = 1e6,
     .help = "L2 penalty"},
    {"decay-all", SWITCH(decay_all), .missing = "true", .commands = T | B | L, HOW,
     .help = "weight decay on BN and biases too"},
    {"trust", REAL(trust), .missing = "0.001", .commands = T | B | L, HOW, .low = 0, .high = 1e6,
     .help = "trust coefficient of lars"},
    {"label-smoothing", REAL(label_smoothing), .missing = "0", .commands = T | B | L, HOW,
     .low = 0, .high = 1, .below = true,
     .help = "share of the target spread over all classes"},
    {"schedule", TEXT(schedule), .missing = "cosine", .commands = T, HOW, .value = "RULE", .head = true,
     .choices = "constant every multistep exponential cosine",
     .help = "constant, every:EPOCHS[:FACTOR], multistep:30,60,80[:FACTOR], exponential:GAMMA, cosine[:MIN]"},
    {"warmup", TEXT(warmup), .missing = "none", .commands = T, HOW, .value = "RULE", .head = true,
     .choices = "none stepping gradual iterations",
     .help = "none, stepping:EPOCHS, gradual:EPOCHS, iterations:N"},
    {"dropout", REAL(dropout), .missing = "-1", .commands = T | B | L, HOW,
     .low = 0, .high = 1, .below = true,
     .help = "probability for every dropout layer; -1: as the model says"},
    {"augment", TEXT(augment), .missing = "auto", .commands = T | E | P | B, HOW, .value = "LIST",
     .names = LS_NAMES_AUGMENT, .help = "auto, none, or a list such as crop:4,flip or rrc:224,flip"},
    {"eval-resize", TEXT(eval_resize), .missing = "auto", .commands = T | E | P, HOW, .value = "N",
     .help = "evaluation: scale the shorter side to N pixels, or none; auto: as the model was trained, or --augment says"},
    {"eval-crop", TEXT(eval_crop), .missing = "auto", .commands = T | E | P, HOW, .value = "HxW",
     .help = "evaluation: the centre that is seen, N or HxW pixels, or none: all of the image"},
    {"shuffle", SWITCH(shuffle), .missing = "true", .commands = T | B, HOW,
     .help = "a new order of samples each epoch"},
    {"seed", .type = LS_OPTION_SEED, .offset = AT(seed), .missing = "1", .commands = RUNS, HOW, .value = "N",
     .help = "the one source of all random numbers"},

    {"threads", WHOLE(threads), .missing = "0", .free = true, .commands = RUNS | C, MACHINE, .low = 0, .high = 65536,
     .help = "threads that compute; 0: all cores this process may use, within its CPU quota"},
    {"loader-threads", WHOLE(loader_threads), .missing = "0", .free = true, .commands = T | E | B | D, MACHINE,
     .low = 0, .high = 4096,
     .help = "threads that read and augment; 0: chosen by measuring while training"},
    {"decode", TEXT(decode), .missing = "cpu", .commands = T | E | B | D, MACHINE, .value = "NAME",
     .choices = "cpu gpu hardware",
     .help = "what decodes JPEGs (gpu: nvJPEG; hardware: a GPU's JPEG engines); each rounds in its own way"},
    {"backend", TEXT(backend), .missing = "auto", .commands = RUNS, MACHINE, .value = "NAME",
     .choices = "auto onednn ref cuda",
     .help = "what computes (cuda: an NVIDIA GPU)"},
    {"dtype", TEXT(dtype), .missing = "f32", .commands = RUNS, MACHINE, .value = "TYPE",
     .choices = "f32 tf32 bf16 fp16",
     .help = "type of activations, beside f32 weights (tf32 and fp16 with cuda alone)"},
    {"fast", SWITCH(fast), .missing = "false", .commands = RUNS, MACHINE,
     .help = "cuda: faster kernels whose sums come in no fixed order; runs then differ in rounding"},
    {"loss-scale", REAL(loss_scale), .missing = "0", .commands = T | B, MACHINE, .low = 0, .high = 16777216,
     .help = "fp16: gradients are multiplied by this on their way back; 0: chosen as training goes"},
    {"tune", .type = LS_OPTION_AUTO, .offset = AT(tune), .missing = "auto", .free = true, .commands = RUNS, MACHINE,
     .help = "measure kernels, and leave the usual one for a clearly faster one (auto: with cuda alone)"},
    {"reuse", SWITCH(reuse), .missing = "true", .free = true, .commands = RUNS, MACHINE,
     .help = "reuse the memory of activations"},
    {"plan", TEXT(plan), .here = true, .commands = RUNS, MACHINE, .value = "FILE|RUN",
     .help = "compute with the kernels (and threads) of that run, so with its bits"},
    {"plan-cache", TEXT(plan_cache), .free = true, .commands = RUNS | C, MACHINE, .value = "FILE",
     .help = "measured kernels (~/.cache/lockstep/plans)"},

    {"workers", WHOLE(workers), .missing = "1", .commands = SEVERAL, WORKERS, .low = 1, .high = 4096,
     .here = true,
     .help = "processes to start on this machine and train with"},
    {"master-ip", TEXT(master_ip), .commands = SEVERAL, WORKERS, .value = "HOST", .here = true,
     .help = "where rank 0 is, for processes that were started by hand (MASTER_ADDR)"},
    {"master-port", WHOLE(master_port), .missing = "29500", .commands = SEVERAL, WORKERS, .low = 1, .high = 65535,
     .here = true,
     .help = "port of rank 0, or MASTER_PORT"},
    {"num-nodes", WHOLE(num_nodes), .missing = "0", .commands = SEVERAL, WORKERS, .low = 1, .high = 65536,
     .here = true,
     .help = "processes in all; 0: as the launcher says"},
    {"rank", WHOLE(rank), .missing = "-1", .commands = SEVERAL, WORKERS, .low = 0, .high = 65535, .here = true,
     .help = "number of this process; -1: as the launcher says, or in order of arrival"},
    {"rendezvous", TEXT(rendezvous), .commands = SEVERAL, WORKERS, .value = "URL", .here = true,
     .help = "file:///PATH: meet in a folder that all can reach"},
    {"token", TEXT(token), .commands = SEVERAL, WORKERS, .value = "TEXT", .here = true,
     .secret = true,
     .help = "secret the processes share; as LOCKSTEP_TOKEN no other user sees it"},
    {"transport", TEXT(transport), .missing = "tcp", .commands = SEVERAL, WORKERS, .value = "NAME", .here = true,
     .choices = "tcp ucx",
     .help = "what carries messages without MPI: tcp, or ucx for RDMA, which anybody who reaches its ports can crash"},
    {"sync", TEXT(sync), .missing = "overlap", .commands = T | B, WORKERS, .value = "NAME",
     .choices = "gather allreduce overlap server async cutoff local",
     .help = "how gradients are brought together"},
    {"compress", TEXT(compress), .missing = "none", .commands = T | B, WORKERS, .value = "NAME", .head = true,
     .choices = "none fp16 bf16 1bit powersgd",
     .help = "how gradients travel: none, fp16, bf16, 1bit, powersgd[:RANK]"},
    {"collective", TEXT(collective), .missing = "auto", .commands = T | B, WORKERS, .value = "NAME", .alone = true,
     .choices = "auto tree hier ring mpi nccl",
     .help = "how sums are made over processes (nccl: by GPUs, one a process); of bench: measure that"},
    {"bucket-mb", REAL(bucket_mb), .missing = "0", .free = true, .commands = T | B, WORKERS, .low = 0, .high = 65536,
     .help = "MiB of gradients that travel together; 0: from measurements"},
    {"deadline", REAL(deadline), .missing = "60", .free = true, .commands = SEVERAL, WORKERS, .low = 0.1, .high = 1e6,
     .help = "seconds a process may be late before it counts as lost"},
    {"check-every", WHOLE(check_every), .missing = "100", .free = true, .commands = T, WORKERS, .low = 0, .high = MANY,
     .help = "steps between comparisons of all processes' parameters, beside those before each checkpoint; 0: none at all"},
    {"servers", WHOLE(servers), .missing = "0", .commands = T | B, WORKERS, .low = 0, .high = 4096,
     .help = "server, async, cutoff: the last processes only serve; 0: one, with server all share it"},
    {"staleness", WHOLE(staleness), .missing = "4", .commands = T | B, WORKERS, .low = 0, .high = 1e6,
     .help = "async: steps a worker may be ahead of the slowest"},
    {"cutoff-k", WHOLE(cutoff_k), .missing = "0", .commands = T | B, WORKERS, .low = 0, .high = 65536,
     .help = "cutoff: gradients that are waited for; 0: all but one"},
    {"local-steps", WHOLE(local_steps), .missing = "8", .commands = T | B, WORKERS, .low = 1, .high = 1e9,
     .help = "local: steps between two averages"},
    {"block-momentum", REAL(block_momentum), .missing = "0", .commands = T | B, WORKERS,
     .low = 0, .high = 1, .below = true,
     .help = "local: share of the last average's change kept; 0: none"},

    {"run", TEXT(run), .free = true, .commands = T | E | P, RUN, .value = "DIR",
     .names = LS_NAMES_RUNS, .help = "the run directory (train: a new one under runs/)"},
    {"resume", TEXT(resume), .free = true, .commands = T, RUN, .value = "CHECKPOINT", .alone = true,
     .names = LS_NAMES_RUNS, .help = "go on from a checkpoint folder; alone: from the newest of --run, or start there (start anew)"},
    {"checkpoint-every", WHOLE(checkpoint_every), .missing = "0", .free = true, .commands = T, RUN, .low = 0, .high = MANY,
     .help = "steps between checkpoints; 0: each epoch"},
    {"keep", WHOLE(keep), .missing = "3", .free = true, .commands = T, RUN, .low = 1, .high = 1e6,
     .help = "checkpoints kept besides the best"},
    {"written-in", TEXT(written_in), .free = true, .commands = T, RUN, .value = "DIR",
     .help = "of a config.yaml: the run it is from; a path in it that is gone is looked for as far from the file as from there"},
    {"evaluate", SWITCH(evaluate), .missing = "true", .free = true, .commands = T, RUN,
     .help = "evaluate after each epoch"},

    {"log-every", WHOLE(log_every), .missing = "0", .free = true, .commands = T, OUTPUT, .low = 0, .high = MANY,
     .help = "steps between lines when piped; 0: chosen"},
    {"log-format", TEXT(log_format), .missing = "plain", .free = true, .commands = T | E, OUTPUT, .value = "NAME",
     .choices = "plain cntk thesis", .help = "format of these lines"},
    {"warmup-steps", WHOLE(warmup_steps), .missing = "2", .commands = B, OUTPUT, .low = 0, .high = 1e6,
     .help = "steps before the clock starts"},
    {"repeat", WHOLE(repeat), .missing = "5", .commands = B, OUTPUT, .low = 1, .high = 1e6,
     .help = "repetitions the figures are over"},
    {"scale", TEXT(scale), .commands = B, OUTPUT, .value = "LIST",
     .help = "measure with each of these numbers of workers, such as 1,2,4; none: as --workers says"},
    {"weak", SWITCH(weak), .missing = "false", .commands = B, OUTPUT,
     .help = "--scale: --batch is for one worker and grows with their number"},
    {"profile", SWITCH(profile), .missing = "false", .commands = B, OUTPUT,
     .help = "also say where a step's time goes, node by node"},
    {"largest-mb", WHOLE(largest_mb), .missing = "256", .commands = B, OUTPUT, .low = 1, .high = 16384,
     .help = "--collective: the largest sum, in MiB"},
    {"gpu", SWITCH(gpu), .missing = "false", .commands = C, MACHINE,
     .help = "a GPU must be there; test every op on it against plain C, in each --dtype"},
    {"json", SWITCH(json), .missing = "false", .view = true, .commands = E | P | B | M | L | D | C, OUTPUT,
     .help = "one JSON object instead of text"},
    {"yaml", SWITCH(yaml), .missing = "false", .commands = M, OUTPUT,
     .help = "models show: a layer list to edit and train with --model FILE.yaml"},
    {"quiet", SWITCH(quiet), .missing = "false", .view = true, .commands = RUNS | D | C, OUTPUT,
     .help = "say only errors"},
    {"progress", SWITCH(progress), .missing = "true", .view = true, .commands = RUNS | D | C, OUTPUT,
     .help = "a live line on a terminal"},
    {"color", SWITCH(color), .missing = "true", .view = true, .commands = RUNS | D | C, OUTPUT,
     .help = "colours on a terminal"},
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
