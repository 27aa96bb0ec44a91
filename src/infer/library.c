/* liblockstep-infer over the classifier: include/lockstep-infer.h is the contract. */
#include "base/log.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "infer/classifier.h"
#include <lockstep-infer.h>

#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct lockstep_model {
    pthread_mutex_t lock; /* one call at a time */
    struct ls_options options;
    struct ls_classifier classifier;
    const char **names; /* owned; of all classes, in `strings` */
    struct ls_arena strings;
    struct ls_image image, scratch;
    float *planes, *logits;   /* owned */
    struct ls_guess *guesses; /* owned; room for all classes */
};

/* Models are opened and closed one at a time: backends choose kernels and measure then. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local char error[1024];

const char *lockstep_model_error(void)
{
    return error;
}

/* --- open and close ------------------------------------------------------------------------------------- */

static enum ls_status make_names(struct lockstep_model *m)
{
    int64_t classes = m->classifier.task.size.classes;
    char name[256];
    m->names = ls_alloc((size_t)classes, sizeof *m->names);
    for (int64_t i = 0; m->names && i < classes; i++) {
        m->names[i] = ls_arena_strdup(&m->strings, ls_classifier_name(&m->classifier, i, name, sizeof name));
        if (!m->names[i])
            return LS_FAILED;
    }
    return m->names ? LS_OK : LS_FAILED;
}

static enum ls_status open_model(struct lockstep_model *m, const char *path, int threads)
{
    LS_TRY(ls_options_default(&m->options));
    m->options.quiet = true;
    m->options.threads = threads > 0 ? threads : 0;
    LS_TRY(ls_classifier_open(&m->classifier, &m->options, path, 1));
    int64_t classes = m->classifier.task.size.classes;
    m->planes = ls_alloc((size_t)ls_classifier_values(&m->classifier), sizeof *m->planes);
    m->logits = ls_alloc((size_t)classes, sizeof *m->logits);
    m->guesses = ls_alloc((size_t)classes, sizeof *m->guesses);
    return m->planes && m->logits && m->guesses ? make_names(m) : LS_FAILED;
}

static void release(struct lockstep_model *m)
{
    ls_classifier_release(&m->classifier);
    ls_options_release(&m->options);
    ls_image_release(&m->image);
    ls_image_release(&m->scratch);
    ls_free(m->names);
    ls_free(m->planes);
    ls_free(m->logits);
    ls_free(m->guesses);
    ls_arena_release(&m->strings);
    pthread_mutex_destroy(&m->lock);
    ls_free(m);
}

struct lockstep_model *lockstep_model_open(const char *path, int threads)
{
    if (!path || !*path) {
        snprintf(error, sizeof error, "lockstep_model_open: path is empty; name a run, a checkpoint or a file");
        return NULL;
    }
    int before = omp_get_max_threads();
    pthread_mutex_lock(&opening);
    bool muted = ls_log_mute(true);
    struct lockstep_model *m = ls_alloc(1, sizeof *m);
    enum ls_status st = m ? LS_OK : LS_FAILED;
    if (m) {
        pthread_mutex_init(&m->lock, NULL);
        st = open_model(m, path, threads);
    }
    if (st != LS_OK) {
        ls_log_last_copy(error, sizeof error);
        if (m)
            release(m);
        m = NULL;
    }
    ls_log_mute(muted);
    pthread_mutex_unlock(&opening);
    omp_set_num_threads(before);
    return m;
}

void lockstep_model_close(struct lockstep_model *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&opening);
    release(m);
    pthread_mutex_unlock(&opening);
}

/* --- classify ------------------------------------------------------------------------------------------- */

/* Classifies m->image. The number of threads belongs to the calling thread, so it is set for this call. */
static int classify(struct lockstep_model *m, struct lockstep_guess *guesses, int top)
{
    struct ls_classifier *c = &m->classifier;
    int64_t classes = c->task.size.classes;
    int before = omp_get_max_threads(), n = top < classes ? top : (int)classes;
    omp_set_num_threads(c->engine.threads);
    bool muted = ls_log_mute(true);
    enum ls_status st = ls_augment_apply(&c->augment, &m->image, 0, 0, 0, &m->scratch, m->planes);
    if (st == LS_OK)
        st = ls_classifier_run(c, m->planes, 1, m->logits);
    ls_log_mute(muted);
    omp_set_num_threads(before);
    if (st != LS_OK) {
        ls_log_last_copy(error, sizeof error);
        return -1;
    }
    n = ls_classifier_top(m->logits, classes, n, m->guesses);
    for (int i = 0; i < n; i++)
        guesses[i] = (struct lockstep_guess){.index = (int)m->guesses[i].index,
                                             .probability = m->guesses[i].probability,
                                             .name = m->names[m->guesses[i].index]};
    return n;
}

static int wrong(const char *call, const char *what)
{
    snprintf(error, sizeof error, "%s: %s", call, what);
    return -1;
}

int lockstep_model_classify(struct lockstep_model *m, const void *bytes, size_t size, struct lockstep_guess *guesses,
                            int top)
{
    if (!m || !guesses || top < 1 || (!bytes && size > 0))
        return wrong("lockstep_model_classify", "a model, bytes and room for at least one guess are needed");
    pthread_mutex_lock(&m->lock);
    struct ls_view view = ls_augment_view(&m->classifier.augment, 0, 0, 0);
    m->image.cropped = false;
    m->image.why[0] = 0;
    int n = -1;
    if (ls_image_decode(bytes, size, &view, 3, &m->image) == LS_OK)
        n = classify(m, guesses, top);
    else
        wrong("the image", m->image.why);
    pthread_mutex_unlock(&m->lock);
    return n;
}

int lockstep_model_classify_rgb(struct lockstep_model *m, const unsigned char *pixels, int height, int width,
                                size_t stride, struct lockstep_guess *guesses, int top)
{
    size_t row = width > 0 ? 3 * (size_t)width : 0, step = stride > 0 ? stride : row;
    if (!m || !pixels || !guesses || top < 1 || height < 1 || width < 1 || step < row || height > LS_IMAGE_MAX_SIDE ||
        width > LS_IMAGE_MAX_SIDE)
        return wrong(
            "lockstep_model_classify_rgb",
            "a model, pixels, a size of 1x1 to 65500x65500, rows that fit the stride and room for at least one "
            "guess are needed");
    pthread_mutex_lock(&m->lock);
    m->image.cropped = false;
    int n = -1;
    if (ls_image_reserve(&m->image, 3, height, width) == LS_OK) {
        for (int y = 0; y < height; y++)
            memcpy(m->image.pixels + (size_t)y * row, pixels + (size_t)y * step, row);
        n = classify(m, guesses, top);
    } else {
        ls_log_last_copy(error, sizeof error);
    }
    pthread_mutex_unlock(&m->lock);
    return n;
}

int lockstep_model_classes(const struct lockstep_model *m)
{
    return m ? (int)m->classifier.task.size.classes : 0;
}

const char *lockstep_model_class_name(const struct lockstep_model *m, int index)
{
    return m && index >= 0 && index < lockstep_model_classes(m) ? m->names[index] : NULL;
}
