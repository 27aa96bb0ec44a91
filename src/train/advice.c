/* Messages about the input of a run: how many threads prepare it, and what makes it faster when it is too slow. */
#include "train/trainer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Waiting for input is reported above this share of the time and this many seconds. */
#define WORTH_SHARE 0.10
#define WORTH_SECONDS 0.5
#define ADVICE_ROOM 640

int ls_trainer_watch_loader(struct ls_trainer *t)
{
    if (!t->root || !t->loader)
        return 0;
    struct ls_loader_pace pace = ls_loader_pace(t->loader);
    bool chosen = t->o->loader_threads == 0 && pace.max_threads > 1 && pace.settled && pace.uses > 0;
    if (chosen && pace.threads != t->said_threads) {
        ls_trainer_say(
            t, "Loader threads: %d, chosen by measuring: one prepares %.0f samples/s, and the compute can take %.0f.",
            pace.threads, pace.prepares, pace.uses);
        t->said_threads = pace.threads;
    }
    return pace.threads;
}

/* Appends a piece of advice, after a separator. */
__attribute__((format(printf, 2, 3))) static void add(char text[ADVICE_ROOM], const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    used += (size_t)snprintf(text + used, ADVICE_ROOM - used, "%s", used > 0 ? "; " : "");
    va_start(args, format);
    vsnprintf(text + used, ADVICE_ROOM - used, format, args);
    va_end(args);
}

/* Lists what would help, best first. */
static void gather(const struct ls_trainer *t, const struct ls_loader_pace *pace, char text[ADVICE_ROOM])
{
    const struct ls_dataset_info *info = ls_dataset_info(t->task.train);
    struct ls_identity first;
    bool files = ls_dataset_identify(t->task.train, 0, &first) && first.name;
    int cores = ls_task_cores(&t->engine);
    text[0] = 0;
    if (t->o->loader_threads > 0 && pace->threads < cores)
        add(text, "leave --loader-threads out, or raise it to %d, the number of cores", cores);
    if (pace->reading > 0.5)
        add(text,
            "%.0f%% of the loader's time goes into waiting for storage: copy the data to a faster place, or read more files "
            "at once with --loader-threads %d",
            100 * pace->reading, 2 * pace->threads);
    if (files && t->engine.backend->queue->own_memory && strcmp(t->o->decode, "cpu") == 0)
        add(text, "let the GPU decode JPEGs with --decode gpu");
    if (files && info->height == 0 && pace->reading <= 0.5)
        add(text,
            "store the images no larger than needed: a shorter side of about %lld pixels is enough for this --input",
            (long long)(t->task.size.height * 8 / 7));
    add(text, "more cores");
}

void ls_trainer_advise(struct ls_trainer *t, const struct ls_report *r)
{
    if (!t->root || !t->loader || r->input_seconds < WORTH_SECONDS || r->input_seconds < WORTH_SHARE * r->seconds)
        return;
    struct ls_loader_pace pace = ls_loader_pace(t->loader);
    char text[ADVICE_ROOM];
    gather(t, &pace, text);
    double computing = r->seconds - r->input_seconds;
    ls_trainer_say(t,
                   "Advice: %.0f%% of the training time was spent waiting for input: %.0f samples/s with %d loader "
                   "thread%s, where %.0f would be possible. What helps: %s.",
                   100 * r->input_seconds / r->seconds, ls_report_speed(r), pace.threads, pace.threads == 1 ? "" : "s",
                   computing > 0 ? (double)r->samples / computing : 0, text);
    t->advised = true;
}
