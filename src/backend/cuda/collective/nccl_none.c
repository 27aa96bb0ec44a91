/* Replaces nccl.c where nccl.h was not found. */
#include "backend/cuda/collective/collective.h"

#include <stdio.h>

static const char why_not[] = "Lockstep was built without NCCL; install libnccl-dev and build it again, or leave "
                              "--collective out";

bool nccl_there(char *text, size_t room)
{
    snprintf(text, room, "%s", why_not);
    return false;
}

enum ls_status nccl_open(struct collective *s, char *why, size_t room)
{
    return collective_agree(s, why_not, why, room);
}

enum ls_status nccl_share(struct collective *s)
{
    (void)s;
    return LS_FAILED;
}

enum ls_status nccl_sum(struct collective *s, int cut)
{
    (void)s;
    (void)cut;
    return LS_FAILED;
}

const char *nccl_trouble(const struct collective *s)
{
    (void)s;
    return NULL;
}

void nccl_close(struct collective *s)
{
    (void)s;
}
