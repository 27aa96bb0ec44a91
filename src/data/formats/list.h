/* Lists of image files. */
#ifndef LS_DATA_FORMATS_LIST_H
#define LS_DATA_FORMATS_LIST_H

#include "data/files/files.h"

/* Adds the lines of a list, which are changed, to a new data set. text[size] is writable. path is for messages; folder is in
 * the arena. */
enum ls_status ls_list_parse(struct ls_files *f, const char *path, const char *folder, char *text, size_t size);

#endif
