/* Any bytes as a message of a collective: too short, or a mark that has a name and is the same as itself. */
#include "comm/group.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ls_mark mark;
    const void *packed;
    size_t rest;
    volatile uint8_t last = 0;
    if (!ls_mark_read(data, size, &mark, &packed, &rest)) {
        if (size >= sizeof mark)
            abort();
        return 0;
    }
    for (size_t i = 0; i < rest; i++)
        last = (uint8_t)(last + ((const uint8_t *)packed)[i]);
    if (!ls_mark_same(&mark, &mark) || !ls_work_name((enum ls_work_kind)mark.kind))
        abort();
    return 0;
}
