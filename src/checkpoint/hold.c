#include "checkpoint/hold.h"
#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *ls_checkpoint_hold(const char *folder)
{
    char path[LS_CHECKPOINT_PATH];
    struct stat s;
    FILE *file = fopen(ls_checkpoint_path(path, folder, "model.safetensors"), "rbe");
    if (!file)
        return NULL;
    while (flock(fileno(file), LOCK_SH) != 0 && errno == EINTR)
        ;
    if (fstat(fileno(file), &s) == 0 && s.st_nlink > 0)
        return file;
    fclose(file); /* its run was removing it */
    return NULL;
}

void ls_checkpoint_let_go(FILE **held)
{
    if (*held)
        fclose(*held);
    *held = NULL;
}

int ls_checkpoint_claim(const char *folder, bool *in_use)
{
    char path[LS_CHECKPOINT_PATH];
    int fd = open(ls_checkpoint_path(path, folder, "model.safetensors"), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    *in_use = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    return fd;
}
