#include "backend/host_queue.h"
#include "base/memory.h"

#include <string.h>

enum ls_status ls_host_take(size_t bytes, void **memory)
{
    return ls_region_map(bytes, memory);
}

void ls_host_give(void *memory, size_t bytes)
{
    ls_region_unmap(memory, bytes);
}

void ls_host_taken(size_t *now, size_t *most)
{
    *now = *most = ls_memory_peak();
}

void ls_host_pin(void *host, size_t bytes)
{
    (void)host;
    (void)bytes;
}

void ls_host_unpin(void *host)
{
    (void)host;
}

enum ls_status ls_host_copy(struct ls_program *p, float *to, const float *from, size_t count)
{
    (void)p;
    if (to == from)
        return LS_OK;
#pragma omp parallel for simd
    for (size_t i = 0; i < count; i++)
        to[i] = from[i];
    return LS_OK;
}

enum ls_status ls_host_add(struct ls_program *p, float *to, const float *other, size_t count)
{
    (void)p;
#pragma omp parallel for simd
    for (size_t i = 0; i < count; i++)
        to[i] = other[i] + to[i];
    return LS_OK;
}

enum ls_status ls_host_clear(struct ls_program *p, float *to, size_t count)
{
    (void)p;
    memset(to, 0, count * sizeof *to);
    return LS_OK;
}

enum ls_status ls_host_columns(struct ls_program *p, void *to, size_t to_step, const void *from, size_t from_step,
                               size_t bytes, size_t rows)
{
    (void)p;
    for (size_t i = 0; i < rows; i++)
        memcpy((char *)to + i * to_step, (const char *)from + i * from_step, bytes);
    return LS_OK;
}

enum ls_status ls_host_fetch(struct ls_program *p, int mark, float *host, const float *from, size_t count)
{
    (void)mark;
    return count == 0 ? LS_OK : ls_host_copy(p, host, from, count);
}

enum ls_status ls_host_arrived(struct ls_program *p, int mark)
{
    (void)p;
    (void)mark;
    return LS_OK;
}

enum ls_status ls_host_ask(struct ls_program *p, int slot)
{
    (void)p;
    (void)slot;
    return LS_OK;
}

enum ls_status ls_host_get_scale(struct ls_program *p, struct ls_loss_scale *scale)
{
    (void)p;
    *scale = (struct ls_loss_scale){0};
    return LS_OK;
}

enum ls_status ls_host_set_scale(struct ls_program *p, const struct ls_loss_scale *scale)
{
    (void)p;
    (void)scale;
    return LS_OK;
}
