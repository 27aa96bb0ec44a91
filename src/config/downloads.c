#include "config/downloads.h"
#include "base/files/cache_dir.h"
#include "base/memory.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
const struct ls_download ls_downloads[] = {
#define SET(name, folder, address) {name, folder, address},
#include "config/lists/downloads.def"
    {0},
};

const struct ls_download_file ls_download_files[] = {
#define ARCHIVE(set, name, bytes, checksum) {set, name, bytes, checksum},
#include "config/lists/downloads.def"
    {0},
};
/* clang-format on */

static const char *skip(const char *text)
{
    return text + strspn(text, "-_");
}

static bool same_name(const char *a, const char *b)
{
    for (a = skip(a), b = skip(b); *a && *b; a = skip(a + 1), b = skip(b + 1))
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return false;
    return !*a && !*b;
}

const struct ls_download *ls_download_find(const char *name)
{
    for (const struct ls_download *set = ls_downloads; set->name; set++)
        if (same_name(name, set->name) || same_name(name, set->folder))
            return set;
    return NULL;
}

static bool put(char path[PATH_MAX], const char *name)
{
    char *full = ls_data_home(name);
    bool fits = full && snprintf(path, PATH_MAX, "%s", full) < PATH_MAX;
    ls_free(full);
    return fits;
}

bool ls_download_root(char path[PATH_MAX])
{
    return put(path, "");
}

bool ls_download_path(const struct ls_download *set, char path[PATH_MAX])
{
    return put(path, set->folder);
}
