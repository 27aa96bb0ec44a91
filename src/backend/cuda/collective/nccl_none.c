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
    return collective_agree(&s->g, why_not, why, room);
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

const char *nccl_trouble(const void *collective)
{
    (void)collective;
    return NULL;
}

void nccl_close(struct collective *s)
{
    (void)s;
}

static enum ls_status wires_open(struct ls_program *p, const struct ls_peers_group *group, const int peers[2],
                                 char *why, size_t room)
{
    (void)p;
    (void)peers;
    return collective_agree(group, why_not, why, room);
}

/* Nothing else is called after that. */
const struct ls_backend_wires ls_cuda_wires = {.open = wires_open};
