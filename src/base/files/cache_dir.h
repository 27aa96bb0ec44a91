/* Where files are kept that can be made again. */
#ifndef LS_BASE_CACHE_DIR_H
#define LS_BASE_CACHE_DIR_H

/* Returns $XDG_CACHE_HOME/lockstep/NAME or ~/.cache/lockstep/NAME, free it with ls_free; NULL: there is no home. */
char *ls_cache_path(const char *name);

#endif
