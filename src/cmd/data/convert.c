/* lockstep data convert SRC DST: writes a data set in another format, and smaller if wanted. */
#include "cmd/data/convert.h"
#include "cmd/data/data_commands.h"
#include "cmd/data/new_folder.h"

#include "base/files/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/system/interrupt.h"
#include "base/text/text.h"
#include "data/dataset.h"
#include "data/records/records.h"

#include <inttypes.h>
#include <limits.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MARK ".lockstep-converted" /* in a folder that this command has written */
#define MIB ((uint64_t)1 << 20)
#define QUALITY 90 /* of images that have to be encoded again */

/* --- options ---------------------------------------------------------------------------------------------------------- */

/* The format that the name of DST ends in, with or without an s: trees.packed, tars. */
static const struct ls_writer_ops *writer_of(const char *path)
{
    char name[NAME_MAX + 1];
    snprintf(name, sizeof name, "%s", path);
    for (size_t n = strlen(name); n > 1 && (name[n - 1] == '/' || name[n - 1] == 's'); n--)
        name[n - 1] = 0;
    for (const struct ls_writer_ops *const *w = ls_writers; *w; w++) {
        size_t n = strlen(name), m = strlen((*w)->name);
        if (n >= m && strcasecmp(name + n - m, (*w)->name) == 0)
            return *w;
    }
    return NULL;
}

static enum ls_status find_writer(const struct ls_options *o, const char *to, struct ls_conversion *c)
{
    for (const struct ls_writer_ops *const *w = ls_writers; o->to && *w; w++)
        if (strcmp((*w)->name, o->to) == 0)
            c->writer = *w;
    if (!o->to)
        c->writer = writer_of(to);
    if (!c->writer && o->to)
        return ls_fail(LS_USAGE, "--to %s: not one of folder, tar, tfrecord, packed", o->to);
    if (!c->writer)
        return ls_fail(LS_USAGE, "data convert: which format? Add --to folder, tar, tfrecord or packed");
    return LS_OK;
}

static enum ls_status parse_resize(const char *text, struct ls_conversion *c)
{
    int height, width, used = 0;
    if (sscanf(text, "%5dx%5d%n", &height, &width, &used) == 2 && !text[used] && height > 0 && width > 0 &&
        height <= LS_IMAGE_MAX_SIDE && width <= LS_IMAGE_MAX_SIDE) {
        c->height = height;
        c->width = width;
        return LS_OK;
    }
    if (sscanf(text, "%5d%n", &height, &used) == 1 && !text[used] && height > 0 && height <= LS_IMAGE_MAX_SIDE) {
        c->shorter = height;
        return LS_OK;
    }
    return ls_fail(LS_USAGE, "--resize %s: expected HxW, such as 250x250, or a number of pixels for the shorter side",
                   text);
}

static enum ls_status take_options(const struct ls_options *o, const char *to, struct ls_conversion *c)
{
    LS_TRY(find_writer(o, to, c));
    if (o->resize)
        LS_TRY(parse_resize(o->resize, c));
    if (!c->writer->takes_pixels && strcmp(o->store, "pixels") == 0)
        return ls_fail(LS_USAGE, "--store pixels: only packed data holds pixels; %s holds files", c->writer->name);
    if (!c->writer->is_sharded && (o->shards > 0 || ls_options_given(o, "shard-mb")))
        return ls_fail(LS_USAGE, "--%s: %s data has no shards", o->shards > 0 ? "shards" : "shard-mb", c->writer->name);
    if (o->shards > 0 && ls_options_given(o, "shard-mb"))
        return ls_fail(LS_USAGE, "--shards and --shard-mb: give one of them");
    if (strcmp(o->store, "pixels") == 0 && o->quality > 0)
        return ls_fail(LS_USAGE, "--quality: pixels are stored without loss; give --store file for JPEGs");
    c->quality = (int)o->quality;
    c->pixels = strcmp(o->store, "pixels") == 0;
    c->files = strcmp(o->store, "file") == 0;
    if (strcmp(o->store, "auto") == 0 && c->writer->takes_pixels && o->resize && !c->quality)
        c->pixels = true;
    if (o->resize && !c->pixels && !c->quality)
        c->quality = QUALITY;
    c->skips_bad = strcmp(o->on_bad_sample, "skip") == 0;
    c->shards = o->shards;
    c->shard_bytes = (uint64_t)o->shard_mb * MIB;
    c->threads = o->loader_threads > 0 ? (int)o->loader_threads : omp_get_max_threads();
    return LS_OK;
}

/* --- parts and classes ------------------------------------------------------------------------------------------------ */

struct parts {
    struct ls_conversion_part part[2];
    int n;
    int32_t *class; /* owned; of part 1 */
};

static const char *class_name(const struct ls_dataset_info *info, int64_t c)
{
    return info->class_ids ? info->class_ids[c] : info->class_names[c];
}

/* Finds the class of the training part for each class of the other part. */
static enum ls_status match_classes(const struct ls_dataset_info *train, const struct ls_dataset_info *test,
                                    const char *spec, int32_t **class)
{
    int32_t *of = *class = ls_alloc((size_t)test->classes, sizeof *of);
    if (!of)
        return LS_FAILED;
    for (int64_t c = 0; c < test->classes; c++) {
        int64_t k = c < train->classes ? c : 0, tried = 0;
        bool named = train->class_names && test->class_names;
        while (named && tried < train->classes && strcmp(class_name(train, k), class_name(test, c)) != 0) {
            k = (k + 1) % train->classes;
            tried++;
        }
        if (named ? tried == train->classes : c >= train->classes)
            return ls_fail(LS_BAD_INPUT, "%s: its validation part has the class %s, which its training part lacks",
                           spec, named ? class_name(test, c) : "of a larger number");
        of[c] = (int32_t)k;
    }
    return LS_OK;
}

static enum ls_status open_parts(const struct ls_options *o, const char *spec, struct parts *p)
{
    struct ls_conversion_part *train = &p->part[0], *test = &p->part[1];
    bool only_train = strcmp(o->part, "train") == 0, only_test = strcmp(o->part, "val") == 0;
    LS_TRY(ls_dataset_open(spec, only_test ? "test" : "train", &train->set));
    p->n = 1;
    ls_dataset_warn_inner(train->set, spec);
    const struct ls_dataset_info *info = ls_dataset_info(train->set);
    bool alone = info->whole && !o->eval_data;
    if (alone && (only_train || only_test))
        return ls_fail(LS_USAGE, "--part %s: %s has no parts", o->part, spec);
    train->name = alone ? "" : only_test ? "val" : "train";
    train->said = "writing";
    train->classes = info;
    if (alone || only_train || only_test)
        return LS_OK;
    LS_TRY(ls_dataset_open(o->eval_data ? o->eval_data : spec, "test", &test->set));
    p->n = 2;
    train->said = "writing train";
    test->name = "val";
    test->said = "writing val";
    test->classes = info;
    LS_TRY(match_classes(info, ls_dataset_info(test->set), o->eval_data ? o->eval_data : spec, &p->class));
    test->class = p->class;
    return LS_OK;
}

/* Numbers in shards carry no names of classes, and names no order (data/records/class_file.c). */
static enum ls_status write_classes(const char *folder, const struct ls_dataset_info *info)
{
    char *path = ls_format("%s/%s", folder, LS_CLASS_FILE);
    struct ls_out out = {0};
    enum ls_status st = LS_OK;
    if (!info->class_names) {
        ls_free(path);
        return LS_OK;
    }
    st = ls_out_open(&out, path);
    for (int64_t c = 0; st == LS_OK && c < info->classes; c++) {
        const char *name = info->class_names[c], *id = info->class_ids ? info->class_ids[c] : "";
        if (!*name || strpbrk(name, "\n\r") || strpbrk(id, "\n\r\t"))
            st = ls_fail(LS_BAD_INPUT, "class %" PRId64 " has an empty name, or one with a line break: '%s'", c, name);
        else if (fprintf(out.file, "%s%s%s\n", id, *id ? "\t" : "", name) < 0)
            st = ls_fail(LS_FAILED, "%s: writing failed", path);
    }
    if (st == LS_OK)
        st = ls_out_close(&out);
    ls_out_release(&out);
    return st;
}

/* --- DST -------------------------------------------------------------------------------------------------------------- */

/* Neither the source nor something that is not ours may be lost. */
static enum ls_status check_target(const struct ls_options *o, const char *spec, const struct ls_new_folder *n)
{
    char mark[PATH_MAX], source[PATH_MAX];
    if (realpath(spec, source)) {
        if (ls_path_is_in(source, n->path))
            return ls_fail(LS_USAGE, "data convert: %s lies in %s and would be replaced; give another folder", spec,
                           n->path);
        if (ls_path_is_in(n->path, source))
            return ls_fail(LS_USAGE, "data convert: %s lies in %s and would become a part of it; give another folder",
                           n->path, spec);
    }
    bool ours = snprintf(mark, sizeof mark, "%s/%s", n->path, MARK) < (int)sizeof mark && ls_file_exists(mark);
    if (ls_folder_is_empty(n->path) || ours || o->overwrite)
        return LS_OK;
    return ls_fail(LS_USAGE,
                   "%s: it holds files that `lockstep data convert` has not written; give another folder, or "
                   "--overwrite to replace everything in it",
                   n->path);
}

static enum ls_status write_all(struct ls_conversion *c, struct parts *p, struct ls_new_folder *n,
                                struct ls_console *console, const char *spec)
{
    char mark[PATH_MAX + 128];
    LS_TRY(ls_new_folder_begin(n));
    if (c->writer->is_sharded)
        LS_TRY(write_classes(n->temporary, p->part[0].classes));
    for (int i = 0; i < p->n; i++)
        LS_TRY(ls_convert_part(c, n->temporary, &p->part[i], console));
    if (ls_interrupted())
        return LS_INTERRUPTED;
    snprintf(mark, sizeof mark, "lockstep data convert --to %s\nsource: %s\n", c->writer->name, spec);
    return ls_new_folder_commit(n, MARK, mark);
}

static void tell(const struct ls_conversion *c, const struct parts *p, const char *path)
{
    uint64_t bytes = 0;
    int64_t left_out = 0;
    char text[128] = "", size[32];
    for (int i = 0; i < p->n; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%" PRId64 " sample%s%s%s", i ? ", " : "", p->part[i].written,
                 p->part[i].written == 1 ? "" : "s", *p->part[i].name ? " in " : "", p->part[i].name);
        bytes += p->part[i].bytes;
        left_out += p->part[i].left_out;
    }
    ls_print("%s: %s, %s, %s", path, c->writer->name, text, ls_bytes_text(bytes, size));
    if (left_out > 0)
        ls_warn("%" PRId64 " sample%s cannot be read and %s left out", left_out, left_out == 1 ? "" : "s",
                left_out == 1 ? "is" : "are");
}

static enum ls_status convert(const struct ls_options *o, const char *spec, const char *path, struct ls_conversion *c)
{
    struct parts p = {0};
    struct ls_new_folder n = {0};
    struct ls_console console;
    enum ls_status st = open_parts(o, spec, &p);
    if (st == LS_OK)
        st = ls_new_folder_lock(&n, path, false, NULL);
    if (st == LS_OK)
        st = check_target(o, spec, &n);
    if (st == LS_OK) {
        ls_console_begin(&console, o, 0);
        st = write_all(c, &p, &n, &console, spec);
        ls_console_end(&console);
    }
    if (st == LS_OK && !o->quiet)
        tell(c, &p, path);
    if (st == LS_INTERRUPTED)
        ls_print("interrupted; nothing was written to %s", path);
    ls_new_folder_release(&n);
    ls_free(p.class);
    for (int i = 0; i < 2; i++)
        ls_dataset_close(p.part[i].set);
    return st;
}

enum ls_status ls_data_convert(struct ls_options *o, int n_words, char **words)
{
    struct ls_conversion c = {0};
    if (n_words != 2)
        return ls_fail(LS_USAGE, "data convert: expected SRC and DST; type: lockstep data convert SRC DST --to packed");
    LS_TRY(take_options(o, words[1], &c));
    ls_interrupt_watch();
    enum ls_status st = convert(o, words[0], words[1], &c);
    ls_interrupt_release();
    return st;
}
