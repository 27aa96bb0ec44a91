/* lockstep predict: the likeliest classes of images. Loader threads read and decode images while earlier ones are
 * classified, a batch at a time. */
#include "base/log.h"
#include "base/memory.h"
#include "base/system/clock.h"
#include "cmd/arguments.h"
#include "cmd/cmd.h"
#include "cmd/predict/results.h"
#include "data/data.h"
#include "infer/classifier.h"
#include "report/console.h"

#define BATCH 32

struct predict {
    const struct ls_options *o;
    struct ls_pictures pictures;
    struct ls_classifier classifier;
    struct ls_results results;
    struct ls_dataset *images; /* owned; the pictures, in the same order */
    struct ls_loader *loader;
    struct ls_console console;
    float *logits;            /* owned; of a batch */
    struct ls_guess *guesses; /* owned; of an image */
    struct ls_image image;    /* to find out again why a file cannot be read */
    int64_t unread;
};

static enum ls_status make_loader(struct predict *p)
{
    const struct ls_engine *e = &p->classifier.engine;
    int most, threads = ls_task_loader_threads(p->o, e, &most);
    struct ls_loader_options options = {
        .set = p->images,
        .augment = p->classifier.augment,
        .form = LS_FORM_PLANES,
        .on_bad = LS_BAD_LEFT_OUT,
        .threads = threads,
        .max_threads = most,
        .ring = 3,
        .batch = p->classifier.task.size.batch,
        .parts = 1,
        .own = 1,
        .epochs = 1,
    };
    return ls_loader_new(&options, &p->loader);
}

static enum ls_status setup(struct predict *p, struct ls_options *o)
{
    const struct ls_model_size *size = &p->classifier.task.size;
    LS_TRY(ls_pictures_find(&p->pictures, o));
    LS_TRY(ls_classifier_open(&p->classifier, o, p->pictures.model, p->pictures.n < BATCH ? p->pictures.n : BATCH));
    LS_TRY(ls_results_open(&p->results, o, &p->classifier));
    if (ls_results_for_people(&p->results) && !o->quiet)
        ls_print("Each image: %s.", p->classifier.transform);
    p->logits = ls_alloc((size_t)(size->batch * size->classes), sizeof *p->logits);
    p->guesses = ls_alloc((size_t)(o->top < size->classes ? o->top : size->classes), sizeof *p->guesses);
    if (!p->logits || !p->guesses)
        return LS_FAILED;
    LS_TRY(ls_dataset_of_files(p->pictures.files, p->pictures.n, &p->images));
    return make_loader(p);
}

/* A file that cannot be read is reported, and the others are still classified. */
static void report_unread(struct predict *p, const char *file)
{
    int side = ls_augment_view(&p->classifier.augment, 0, 0, 0).min_side;
    p->unread++;
    if (ls_image_read_file(file, side, 3, &p->image) == LS_OK)
        ls_fail(LS_BAD_INPUT, "%s: it could not be read at first, and can now; predict it again", file);
}

static enum ls_status answer(struct predict *p, const struct ls_slot *slot)
{
    int64_t classes = p->classifier.task.size.classes;
    int top = (int)(p->o->top < classes ? p->o->top : classes);
    LS_TRY(ls_classifier_run(&p->classifier, slot->images, slot->valid, p->logits));
    for (int64_t i = 0; i < slot->valid; i++) {
        const char *file = p->pictures.files[slot->position + i];
        if (slot->labels[i] < 0)
            report_unread(p, file);
        else
            ls_results_add(&p->results, file, p->guesses,
                           ls_classifier_top(p->logits + i * classes, classes, top, p->guesses));
    }
    return ls_results_flush(&p->results);
}

static enum ls_status predict_all(struct predict *p)
{
    const struct ls_slot *slot;
    int64_t done = 0;
    for (;;) {
        LS_TRY(ls_loader_next(p->loader, &slot));
        if (!slot)
            return LS_OK;
        LS_TRY(answer(p, slot));
        done += slot->valid;
        if (p->results.to_file)
            ls_console_progress(&p->console, "predicting", done, p->pictures.n);
    }
}

/* Says how many there were, where that is more than the eye counts. */
static enum ls_status conclude(struct predict *p, bool people, double seconds)
{
    int n = p->pictures.n;
    if (p->unread > 0 && n > 1 && !p->o->quiet)
        ls_warn("%lld of %d images cannot be read; the others are predicted", (long long)p->unread, n);
    if (people && !p->o->quiet && n > BATCH)
        ls_print("%lld images in %.2f s: %.0f images/s.", (long long)(n - p->unread), seconds, (double)n / seconds);
    return p->unread > 0 ? LS_BAD_INPUT : LS_OK;
}

enum ls_status ls_cmd_predict(struct ls_options *o)
{
    struct predict p = {.o = o};
    enum ls_status st;
    LS_TRY_GOTO(out, setup(&p, o));
    bool people = ls_results_for_people(&p.results);
    double start = ls_now();
    ls_console_begin(&p.console, o, 0);
    st = predict_all(&p);
    ls_console_end(&p.console);
    if (st == LS_OK)
        st = ls_results_close(&p.results);
    if (st == LS_OK)
        st = conclude(&p, people, ls_now() - start);
out:
    ls_loader_free(p.loader);
    if (p.images)
        ls_dataset_close(p.images);
    ls_free(p.logits);
    ls_free(p.guesses);
    ls_image_release(&p.image);
    ls_results_release(&p.results);
    ls_classifier_release(&p.classifier);
    ls_pictures_release(&p.pictures);
    return st;
}
