/* Small questions about strings. */
#ifndef LS_BASE_TEXT_H
#define LS_BASE_TEXT_H

#include <stdbool.h>
#include <string.h>

/* Tests whether text ends in tail and is longer: ".yaml" alone is no name of a file. */
static inline bool ls_ends_in(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n > m && strcmp(text + n - m, tail) == 0;
}

/* Returns the part of a path behind its last slash. */
static inline const char *ls_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

#endif
