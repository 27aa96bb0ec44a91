#include "data/records/labels.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 6 /* a longer number is a name */

static bool is_number(const char *text, int32_t *value)
{
    size_t n = strlen(text);
    if (n == 0 || n > DIGITS || strspn(text, "0123456789") != n)
        return false;
    *value = (int32_t)strtol(text, NULL, 10);
    return true;
}

static enum ls_status number_classes(int64_t n, struct ls_arena *arena, int32_t *of, struct ls_labels *found)
{
    int32_t least = INT32_MAX, most = 0;
    for (int64_t i = 0; i < n; i++) {
        least = of[i] < least ? of[i] : least;
        most = of[i] > most ? of[i] : most;
    }
    int32_t first = least > 0 ? 1 : 0;
    found->classes = most - first + 1;
    found->names = ls_alloc((size_t)found->classes, sizeof *found->names);
    if (!found->names)
        return LS_FAILED;
    for (int64_t c = 0; c < found->classes; c++)
        if (!(found->names[c] = ls_arena_format(arena, "%" PRId64, c + first)))
            return LS_FAILED;
    for (int64_t i = 0; i < n; i++)
        of[i] -= first;
    return LS_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum ls_status name_classes(const char *const *label, int64_t n, struct ls_arena *arena, int32_t *of,
                                   struct ls_labels *found)
{
    const char **names = found->names = ls_alloc((size_t)n, sizeof *names);
    int64_t classes = 0;
    if (!names)
        return LS_FAILED;
    memcpy(names, label, (size_t)n * sizeof *names);
    qsort(names, (size_t)n, sizeof *names, by_text);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || strcmp(names[classes - 1], names[i]) != 0)
            names[classes++] = names[i];
    for (int64_t c = 0; c < classes; c++)
        if (!(names[c] = ls_arena_strdup(arena, names[c])))
            return LS_FAILED;
    for (int64_t i = 0; i < n; i++) {
        const char **at = bsearch(&label[i], names, (size_t)classes, sizeof *names, by_text);
        of[i] = (int32_t)(at - names);
    }
    found->classes = classes;
    return LS_OK;
}

enum ls_status ls_labels_find(const char *const *label, int64_t n, struct ls_arena *arena, int32_t *of,
                              struct ls_labels *found)
{
    bool numbers = true;
    *found = (struct ls_labels){0};
    for (int64_t i = 0; i < n && numbers; i++)
        numbers = is_number(label[i], &of[i]);
    enum ls_status st = numbers ? number_classes(n, arena, of, found) : name_classes(label, n, arena, of, found);
    if (st != LS_OK) {
        ls_free(found->names);
        *found = (struct ls_labels){0};
    }
    return st;
}
