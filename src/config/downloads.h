/* The data sets that `lockstep data fetch` knows, and where it puts them. Made from lists/downloads.def. */
#ifndef LS_CONFIG_DOWNLOADS_H
#define LS_CONFIG_DOWNLOADS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct ls_download {
    const char *name;    /* "cifar10" */
    const char *folder;  /* "cifar-10-batches-bin", as the archive names it */
    const char *address; /* of the folder on the server that holds the files */
};
extern const struct ls_download ls_downloads[]; /* ends with a NULL name */

struct ls_download_file {
    const char *set, *name;
    int64_t bytes;
    const char *checksum; /* "sha256:HEX" or "md5:HEX" */
};
extern const struct ls_download_file ls_download_files[]; /* ends with a NULL name */

/* Returns the data set of that name or folder; NULL: none. Case, - and _ do not matter: CIFAR-10 is cifar10. */
const struct ls_download *ls_download_find(const char *name);
/* Writes the folder that holds fetched data sets: $XDG_DATA_HOME/lockstep or ~/.local/share/lockstep. Returns false if
 * there is no home or the path is too long. */
bool ls_download_root(char path[PATH_MAX]);
/* Writes the path of a data set that was fetched, or would be. Returns false like ls_download_root. */
bool ls_download_path(const struct ls_download *set, char path[PATH_MAX]);

#endif
