/* Any bytes as a checkpoint's state.json: refused with a reason, or read into counts that make sense. */
#include "checkpoint/state.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_state s;
    char reason[256] = "";
    bool good = ls_state_parse((const char *)data, size, &s, reason, sizeof reason);
    if (good ? s.position < 0 || s.batch < 0 || s.replicas < 0 || !memchr(s.identity, 0, sizeof s.identity) : !*reason)
        abort();
    return 0;
}
