/* lockstep data [check] [DATA]: prints what a data set holds and checks that every file of it can be read. */
#include "cmd/data/check.h"
#include "cmd/data/data_commands.h"

#include "base/log.h"
#include "base/memory.h"
#include "report/console.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

static enum ls_status add_broken(struct ls_data_part *p, int64_t sample, const char *why)
{
    if (p->n_broken == p->room) {
        int64_t room = p->room ? 2 * p->room : 64;
        struct ls_broken_sample *larger = ls_realloc(p->broken, (size_t)p->room, (size_t)room, sizeof *larger);
        if (!larger)
            return LS_FAILED;
        p->broken = larger;
        p->room = room;
    }
    p->broken[p->n_broken].sample = sample;
    snprintf(p->broken[p->n_broken++].why, sizeof p->broken->why, "%s", why);
    return LS_OK;
}

static int by_sample(const void *a, const void *b)
{
    int64_t x = ((const struct ls_broken_sample *)a)->sample, y = ((const struct ls_broken_sample *)b)->sample;
    return (x > y) - (x < y);
}

static enum ls_status check_samples(struct ls_data_part *p, struct ls_console *console, int threads)
{
    int64_t count = ls_dataset_info(p->set)->count, done = 0;
    enum ls_status st = LS_OK;
    char what[64];
    snprintf(what, sizeof what, "checking %s", p->name);
#pragma omp parallel num_threads(threads)
    {
        struct ls_image image = {0};
        struct ls_tally mine = {0};
#pragma omp for schedule(dynamic, 16)
        for (int64_t i = 0; i < count; i++) {
            int32_t label;
            int64_t now;
            if (ls_dataset_try(p->set, i, NULL, &image, &label) == LS_OK)
                ls_tally_image(&mine, &image);
            else
#pragma omp critical(broken)
                if (add_broken(p, i, image.why) != LS_OK)
                st = LS_FAILED;
#pragma omp atomic capture
            now = ++done;
            if (omp_get_thread_num() == 0)
                ls_console_progress(console, what, now, count);
        }
#pragma omp critical(tally)
        ls_tally_add(&p->tally, &mine);
        ls_image_release(&image);
    }
    if (p->n_broken > 1)
        qsort(p->broken, (size_t)p->n_broken, sizeof *p->broken, by_sample);
    return st;
}

static enum ls_status count_classes(struct ls_data_part *p)
{
    const struct ls_dataset_info *info = ls_dataset_info(p->set);
    p->class_counts = ls_alloc((size_t)info->classes, sizeof *p->class_counts);
    if (!p->class_counts)
        return LS_FAILED;
    for (int64_t i = 0; i < info->count; i++)
        p->class_counts[ls_dataset_label(p->set, i)]++;
    for (int64_t c = 1; c < info->classes; c++) {
        p->smallest = p->class_counts[c] < p->class_counts[p->smallest] ? c : p->smallest;
        p->largest = p->class_counts[c] > p->class_counts[p->largest] ? c : p->largest;
    }
    return LS_OK;
}

/* True when both parts read the same folder, because it has no train and test parts. Its images are then checked
 * once. */
static bool same_images(const struct ls_data_part *p, const struct ls_data_part *before)
{
    const char *folder = ls_dataset_info(p->set)->folder;
    const char *other = before && before->set ? ls_dataset_info(before->set)->folder : NULL;
    return ls_dataset_info(p->set)->whole && folder && other && strcmp(folder, other) == 0 &&
           ls_dataset_info(p->set)->count == ls_dataset_info(before->set)->count;
}

static enum ls_status examine(struct ls_data_part *p, const struct ls_data_part *before, const char *spec,
                              const char *decode, struct ls_console *console, int threads)
{
    LS_TRY(ls_dataset_open(spec, p->name, &p->set));
    if (!before)
        ls_dataset_warn_inner(p->set, spec);
    enum ls_status st = ls_dataset_decode_by(p->set, decode);
    p->same = same_images(p, before);
    if (st == LS_OK)
        st = count_classes(p);
    if (st == LS_OK && p->same)
        p->tally = before->tally;
    else if (st == LS_OK)
        st = check_samples(p, console, threads);
    if (st != LS_OK) {
        ls_dataset_close(p->set);
        p->set = NULL;
    }
    return st;
}

static void name_broken(const struct ls_data_part *p)
{
    for (int64_t b = 0; b < p->n_broken; b++) {
        char where[512];
        ls_dataset_where(p->set, p->broken[b].sample, where, sizeof where);
        ls_fail(LS_BAD_INPUT, "%s: %s", where, p->broken[b].why);
    }
}

enum ls_status ls_data_check(struct ls_options *o, int n_words, char **words)
{
    struct ls_data_part parts[2] = {{.name = "train"}, {.name = "test"}};
    const char *spec = n_words > 0 ? words[0] : o->data;
    struct ls_console console;
    enum ls_status st = LS_OK;
    if (n_words > 1)
        return ls_fail(LS_USAGE, "one data set at a time: '%s' is one too many", words[1]);
    int threads = o->loader_threads > 0 ? (int)o->loader_threads : omp_get_max_threads();
    ls_console_begin(&console, o, 0);
    for (int p = 0; p < 2 && st == LS_OK; p++)
        st = examine(&parts[p], p > 0 ? &parts[p - 1] : NULL, spec, o->decode, &console, threads);
    ls_console_end(&console);
    if (parts[0].set) {
        enum ls_status printed = o->json ? ls_data_print_json(spec, parts, 2) : ls_data_print_text(spec, parts);
        st = st == LS_OK ? printed : st;
    }
    for (int p = 0; p < 2; p++) {
        if (parts[p].set)
            name_broken(&parts[p]);
        if (parts[p].n_broken && st == LS_OK)
            st = LS_BAD_INPUT;
        ls_dataset_close(parts[p].set);
        ls_free(parts[p].class_counts);
        ls_free(parts[p].broken);
    }
    return st;
}
