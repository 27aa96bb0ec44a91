/* A data set of image files that a user has named, in that order. */
#include "data/files/files.h"

static const struct ls_dataset_ops named_files = {
    .format = "files",
    .close = ls_files_close,
    .read = ls_files_read,
    .label = ls_files_label,
    .where = ls_files_where,
    .identify = ls_files_identify,
};

/* The folder of an absolute path is the root. */
static enum ls_status add_all(struct ls_files *f, const char *const *paths, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const char *name = ls_arena_strdup(&f->arena, paths[i] + (*paths[i] == '/'));
        LS_TRY(name ? ls_files_add(f, *paths[i] == '/' ? "" : ".", name, 0) : LS_FAILED);
    }
    return LS_OK;
}

enum ls_status ls_dataset_of_files(const char *const *paths, int64_t n, struct ls_dataset **set)
{
    struct ls_files *f;
    LS_TRY(ls_files_new(&f));
    enum ls_status st = add_all(f, paths, n);
    if (st != LS_OK) {
        ls_files_close(&f->base);
        return st;
    }
    ls_files_describe(f, "", 1);
    f->base.ops = &named_files;
    f->base.info.format = named_files.format;
    pthread_mutex_init(&f->base.bad.lock, NULL);
    *set = &f->base;
    return LS_OK;
}
