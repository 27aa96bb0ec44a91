/* Folders of this user: for files that can be made again, and for data sets. */
#ifndef LS_BASE_CACHE_DIR_H
#define LS_BASE_CACHE_DIR_H

/* Returns $XDG_CACHE_HOME/lockstep/NAME or ~/.cache/lockstep/NAME, free it with ls_free; NULL: there is no home. */
char *ls_cache_path(const char *name);
/* Returns $XDG_DATA_HOME/lockstep/NAME or ~/.local/share/lockstep/NAME in the same way; without "/NAME" if name is "". */
char *ls_data_home(const char *name);

#endif
