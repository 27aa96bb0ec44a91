#include "base/files/cache_dir.h"
#include "base/files/file.h"
#include "base/memory.h"

#include <stdlib.h>

char *ls_cache_path(const char *name)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        return ls_format("%s/lockstep/%s", cache, name);
    return home && *home && ls_file_is_dir(home) ? ls_format("%s/.cache/lockstep/%s", home, name) : NULL;
}

char *ls_data_home(const char *name)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME"), *slash = *name ? "/" : "";
    if (data && *data)
        return ls_format("%s/lockstep%s%s", data, slash, name);
    return home && *home && ls_file_is_dir(home) ? ls_format("%s/.local/share/lockstep%s%s", home, slash, name) : NULL;
}
