#include "train/ranks/fingerprint.h"
#include "base/system/clock.h"
#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text/utf8.h"
#include "base/files/checksum.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define READERS 8    /* threads that read file sizes; they wait for the file system, not for a core */
#define PATIENCE 3.0 /* seconds before a message is printed */
#define NAMED 4      /* differences in a message */
#define LARGEST ((size_t)256 << 20)

/* --- one sample --------------------------------------------------------------------------------------- */

/* Digests of the name and the content of a sample. */
struct mark {
    uint64_t name, content;
};

struct marks {
    struct mark *of; /* owned; one for each sample */
    uint64_t every;  /* a power of two: the content of one sample in so many is read */
    double start;
    bool said;
};

static uint64_t file_size(const struct ls_dataset *set, int64_t i)
{
    char path[PATH_MAX];
    struct stat s;
    ls_dataset_where(set, i, path, sizeof path);
    return stat(path, &s) == 0 ? (uint64_t)s.st_size : UINT64_MAX;
}

static struct mark mark_sample(const struct ls_dataset *set, int64_t i, uint64_t every)
{
    struct ls_identity id;
    struct ls_checksum sum;
    ls_dataset_identify(set, i, &id);
    if (!id.name)
        return (struct mark){.content = ((uint64_t)i & (every - 1)) == 0 ? ls_checksum_of(id.bytes, id.size) : 0};
    ls_checksum_init(&sum);
    ls_checksum_add(&sum, id.folder, strlen(id.folder));
    ls_checksum_add(&sum, "/", 1);
    ls_checksum_add(&sum, id.name, strlen(id.name));
    uint64_t name = ls_checksum_value(&sum);
    if ((name & (every - 1)) != 0)
        return (struct mark){.name = name};
    return (struct mark){.name = name, .content = id.size > 0 ? id.size : file_size(set, i)};
}

static void say_slow(struct marks *m, const char *spec, int64_t count)
{
    if (m->said || omp_get_thread_num() != 0 || ls_now() - m->start < PATIENCE)
        return;
    m->said = true;
    ls_print("Looking at the sizes of some %" PRId64 " files of %s ...", count / (int64_t)m->every, spec);
}

static enum ls_status mark_all(struct marks *m, const struct ls_dataset *set, const char *spec, bool quiet)
{
    int64_t count = ls_dataset_info(set)->count;
    *m = (struct marks){.every = 1, .start = ls_now(), .said = quiet};
    m->of = ls_alloc((size_t)count, sizeof *m->of);
    if (!m->of)
        return LS_FAILED;
    while ((uint64_t)count / m->every > LS_FINGERPRINT_SIZES)
        m->every *= 2;
#pragma omp parallel for schedule(dynamic, 256) num_threads(READERS)
    for (int64_t i = 0; i < count; i++) {
        m->of[i] = mark_sample(set, i, m->every);
        say_slow(m, spec, count);
    }
    return LS_OK;
}

/* --- one data set ------------------------------------------------------------------------------------- */

static json_t *hex(uint64_t value)
{
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

struct class_sums {
    int64_t count;
    struct ls_checksum names, contents;
};

/* [["rose", 100, "digest of names", "digest of contents"], ...] */
static json_t *classes_json(const struct ls_dataset_info *info, const struct class_sums *sums)
{
    json_t *list = json_array();
    const char *const *names = info->class_ids ? info->class_ids : info->class_names;
    for (int64_t c = 0; c < info->classes; c++) {
        char name[256];
        if (names)
            ls_utf8_escape(names[c], name, sizeof name);
        else
            snprintf(name, sizeof name, "%" PRId64, c);
        json_array_append_new(list, json_pack("[s, I, o, o]", name, (json_int_t)sums[c].count,
                                              hex(ls_checksum_value(&sums[c].names)),
                                              hex(ls_checksum_value(&sums[c].contents))));
    }
    return list;
}

static void add_up(const struct ls_dataset *set, const struct marks *m, struct class_sums *sums,
                   struct ls_checksum *order)
{
    const struct ls_dataset_info *info = ls_dataset_info(set);
    ls_checksum_init(order);
    for (int64_t c = 0; c < info->classes; c++) {
        ls_checksum_init(&sums[c].names);
        ls_checksum_init(&sums[c].contents);
    }
    for (int64_t i = 0; i < info->count; i++) {
        int32_t label = ls_dataset_own_class(set, i);
        ls_checksum_add(order, &m->of[i].name, sizeof m->of[i].name);
        ls_checksum_add(order, &label, sizeof label);
        ls_checksum_add(&sums[label].names, &m->of[i].name, sizeof m->of[i].name);
        ls_checksum_add(&sums[label].contents, &m->of[i].content, sizeof m->of[i].content);
        sums[label].count++;
    }
}

static enum ls_status take_samples(const struct ls_dataset *set, const char *spec, bool quiet, json_t *out)
{
    const struct ls_dataset_info *info = ls_dataset_info(set);
    struct ls_checksum order;
    struct marks marks = {0};
    struct class_sums *sums = ls_alloc((size_t)info->classes, sizeof *sums);
    enum ls_status st = sums ? mark_all(&marks, set, spec, quiet) : LS_FAILED;
    if (st == LS_OK) {
        add_up(set, &marks, sums, &order);
        json_object_set_new(out, "looked_into_one_of", json_integer((json_int_t)marks.every));
        json_object_set_new(out, "order", hex(ls_checksum_value(&order)));
        json_object_set_new(out, "classes", classes_json(info, sums));
    }
    ls_free(marks.of);
    ls_free(sums);
    return st;
}

static enum ls_status take_part(const struct ls_dataset *set, const char *spec, bool quiet, json_t *all,
                                const char *part)
{
    const struct ls_dataset_info *info = ls_dataset_info(set);
    struct ls_identity id;
    char image[80];
    snprintf(image, sizeof image, "%" PRId64 "x%" PRId64 "x%" PRId64, info->channels, info->height, info->width);
    json_t *out = json_pack("{s:s, s:I, s:s, s:I}", "format", info->format, "count", (json_int_t)info->count, "image",
                            image, "n_classes", (json_int_t)info->classes);
    enum ls_status st = LS_OK;
    if (ls_dataset_identify(set, 0, &id)) {
        json_object_set_new(out, "files", json_boolean(id.name != NULL));
        st = take_samples(set, spec, quiet, out);
    }
    json_object_set_new(all, part, out);
    return st;
}

enum ls_status ls_fingerprint_take(const struct ls_task *task, const struct ls_options *o, char **text)
{
    json_t *all = json_object();
    enum ls_status st = LS_OK;
    *text = NULL;
    if (task->train)
        st = take_part(task->train, o->data, o->quiet || o->json, all, "train");
    if (st == LS_OK && task->test)
        st = take_part(task->test, o->eval_data ? o->eval_data : o->data, o->quiet || o->json, all, "test");
    char *made = st == LS_OK ? json_dumps(all, JSON_COMPACT) : NULL;
    if (made)
        *text = ls_strdup(made);
    free(made);
    json_decref(all);
    return st == LS_OK && !*text ? LS_FAILED : st;
}

/* --- comparing ---------------------------------------------------------------------------------------- */

struct report {
    char *text;
    size_t room, used;
    const char *then, *now;
    int n, mended; /* differences; those that are only a changed file size */
    bool files;    /* samples are files */
};

/* Adds a difference to the text. The first NAMED are described, the others are counted. */
__attribute__((format(printf, 2, 3))) static void differs(struct report *r, const char *format, ...)
{
    va_list args;
    if (r->n++ >= NAMED || r->used + 1 >= r->room)
        return;
    r->used += (size_t)snprintf(r->text + r->used, r->room - r->used, "%s", r->n > 1 ? "; " : "");
    va_start(args, format);
    if (r->used + 1 < r->room)
        r->used += (size_t)vsnprintf(r->text + r->used, r->room - r->used, format, args);
    va_end(args);
}

static const char *text_of(const json_t *list, size_t i)
{
    const char *text = json_string_value(json_array_get(list, i));
    return text ? text : "";
}

static int64_t count_of(const json_t *class)
{
    return json_integer_value(json_array_get(class, 1));
}

static void compare_class(struct report *r, const json_t *was, const json_t *is, bool contents)
{
    const char *name = text_of(was ? was : is, 0);
    int64_t before = was ? count_of(was) : 0, after = is ? count_of(is) : 0;
    if (before != after)
        differs(r, "class '%.64s': %" PRId64 " sample%s %s, %" PRId64 " %s", name, before, before == 1 ? "" : "s",
                r->then, after, r->now);
    else if (!was || !is)
        return; /* a class without samples */
    else if (strcmp(text_of(was, 2), text_of(is, 2)) != 0)
        differs(r, "class '%.64s': files of other names", name);
    else if (contents && strcmp(text_of(was, 3), text_of(is, 3)) != 0) {
        differs(r, "class '%.64s': the same samples with other content", name);
        r->mended += r->files;
    }
}

/* Compares classes by name. Each list is traversed once. */
static void compare_classes(struct report *r, const json_t *was, const json_t *is, bool contents)
{
    json_t *by_name = json_object();
    size_t i;
    json_t *class;
    json_array_foreach(is, i, class) json_object_set(by_name, text_of(class, 0), class);
    json_array_foreach(was, i, class)
    {
        compare_class(r, class, json_object_get(by_name, text_of(class, 0)), contents);
        json_object_del(by_name, text_of(class, 0));
    }
    json_array_foreach(is, i, class) if (json_object_get(by_name, text_of(class, 0)))
        compare_class(r, NULL, class, contents);
    json_decref(by_name);
}

static const char *fact(const json_t *part, const char *key)
{
    const char *text = json_string_value(json_object_get(part, key));
    return text ? text : "";
}

static int64_t number(const json_t *part, const char *key)
{
    return json_integer_value(json_object_get(part, key));
}

static void compare_parts(struct report *r, const json_t *was, const json_t *is)
{
    if (strcmp(fact(was, "format"), fact(is, "format")) != 0)
        differs(r, "format %s %s, %s %s", fact(was, "format"), r->then, fact(is, "format"), r->now);
    if (strcmp(fact(was, "image"), fact(is, "image")) != 0)
        differs(r, "images of %s %s, of %s %s", fact(was, "image"), r->then, fact(is, "image"), r->now);
    r->files = json_is_true(json_object_get(was, "files")) && json_is_true(json_object_get(is, "files"));
    bool listed = json_object_get(was, "classes") && json_object_get(is, "classes");
    if (!listed && number(was, "n_classes") != number(is, "n_classes"))
        differs(r, "%" PRId64 " classes %s, %" PRId64 " %s", number(was, "n_classes"), r->then, number(is, "n_classes"),
                r->now);
    if (listed)
        compare_classes(r, json_object_get(was, "classes"), json_object_get(is, "classes"),
                        number(was, "looked_into_one_of") == number(is, "looked_into_one_of"));
    if (r->n == 0 && number(was, "count") != number(is, "count"))
        differs(r, "%" PRId64 " samples %s, %" PRId64 " %s", number(was, "count"), r->then, number(is, "count"),
                r->now);
    if (r->n == 0 && strcmp(fact(was, "order"), fact(is, "order")) != 0)
        differs(r, "the same samples in another order");
    if (r->n > NAMED && r->used < r->room)
        snprintf(r->text + r->used, r->room - r->used, "; and %d more differences", r->n - NAMED);
}

enum ls_data_change ls_fingerprint_compare(const char *was, const char *is, const char *part, const char *then,
                                           const char *now, char *text, size_t room)
{
    struct report r = {.text = text, .room = room, .then = then, .now = now};
    json_t *a = json_loads(was, 0, NULL), *b = json_loads(is, 0, NULL);
    const json_t *part_a = json_object_get(a, part), *part_b = json_object_get(b, part);
    text[0] = 0;
    if (part_a && part_b)
        compare_parts(&r, part_a, part_b);
    /* A class without samples still adds an output to the model. */
    if (part_a && part_b && r.n == 0 && strcmp(part, "train") == 0 &&
        number(part_a, "n_classes") != number(part_b, "n_classes"))
        differs(&r, "%" PRId64 " classes %s, %" PRId64 " %s", number(part_a, "n_classes"), then,
                number(part_b, "n_classes"), now);
    json_decref(a);
    json_decref(b);
    return r.n == 0 ? LS_DATA_SAME : r.n == r.mended ? LS_DATA_MENDED : LS_DATA_OTHER;
}

static enum ls_status check_against(const char *checkpoint, const char *was, const char *text)
{
    char what[512];
    enum ls_data_change change = ls_fingerprint_compare(was, text, "train", "then", "now", what, sizeof what);
    if (change == LS_DATA_MENDED)
        ls_warn("files of the training data have another size than before: %s; unless they were broken and are mended "
                "now, the result will differ from the uninterrupted run's",
                what);
    if (change == LS_DATA_OTHER)
        return ls_fail(
            LS_BAD_INPUT,
            "%s: the training data is not that of the run: %s. Put it back, or train on it in a new run with "
            "--init %s/model.safetensors",
            checkpoint, what, checkpoint);
    if (ls_fingerprint_compare(was, text, "test", "then", "now", what, sizeof what) != LS_DATA_SAME)
        ls_warn("evaluation is on other data than before: %s; earlier figures, and the best checkpoint, are not "
                "comparable",
                what);
    return LS_OK;
}

enum ls_status ls_fingerprint_check(const char *checkpoint, const char *text)
{
    char *was = NULL, *path = ls_format("%s/data.json", checkpoint);
    size_t size;
    enum ls_status st = path ? LS_OK : LS_FAILED;
    if (path && ls_file_exists(path))
        st = ls_file_read(path, LARGEST, &was, &size);
    json_t *readable = was ? json_loads(was, 0, NULL) : NULL;
    if (was && !readable)
        ls_warn("%s: damaged; whether the data is still that of the run is not known", path);
    else if (st == LS_OK && was)
        st = check_against(checkpoint, was, text);
    json_decref(readable);
    ls_free(was);
    ls_free(path);
    return st;
}
