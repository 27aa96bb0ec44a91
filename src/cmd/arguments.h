/* Arguments: the words of a command line that are not options. */
#ifndef LS_CMD_ARGUMENTS_H
#define LS_CMD_ARGUMENTS_H

#include "base/memory.h"
#include "config/options.h"

/* Rejects arguments that the command does not take. The error shows the command line that the user probably wants. */
enum ls_status ls_arguments_check(const struct ls_command_info *command, const struct ls_options *o);

/* The arguments of predict: a model and images. A folder stands for all images in it, a text file for the images that its
 * lines name. */
struct ls_pictures {
    const char *model; /* run, checkpoint or file; borrowed from the options */
    const char **files;
    int n, room;
    struct ls_arena strings;
};
enum ls_status ls_pictures_find(struct ls_pictures *p, const struct ls_options *o);
/* Safe on a zeroed struct. */
void ls_pictures_release(struct ls_pictures *p);

#endif
