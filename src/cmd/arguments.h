/* The words of a command line that are not options: what a user may have meant by them. */
#ifndef LS_CMD_ARGUMENTS_H
#define LS_CMD_ARGUMENTS_H

#include "base/memory.h"
#include "config/options.h"

/* Refuses words that the command does not take; the error names the command that does what the user probably wants. */
enum ls_status ls_arguments_check(const struct ls_command_info *command, const struct ls_options *o);

/* What predict is asked: the model and the images, of which a folder stands for all that lie in it. */
struct ls_pictures {
    const char *model; /* a run, checkpoint or file, borrowed from the options */
    const char **files;
    int n, room;
    struct ls_arena strings;
};
enum ls_status ls_pictures_find(struct ls_pictures *p, const struct ls_options *o);
/* Safe on a zeroed struct. */
void ls_pictures_release(struct ls_pictures *p);

#endif
