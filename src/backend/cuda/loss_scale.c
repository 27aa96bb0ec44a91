/* The loss scale of fp16. It lies in the store, because the lanes of a pipeline are programs that run passes of one step. */
#include "backend/core/store.h"
#include "backend/cuda/kernels/given.h"
#include "backend/cuda/program.h"

enum ls_status program_open_scale(struct ls_program *p)
{
    static const char name[] = "\tloss scale"; /* no tensor's */
    struct ls_store_entry *entry = ls_store_find(p->core.store, name);
    float fixed = p->core.options.loss_scale;
    const struct ls_cuda_scale start = {.scale = fixed > 0 ? fixed : 65536};
    if (p->core.g->act_dtype != LS_F16 || !p->core.g->training)
        return LS_OK;
    if (!entry) {
        LS_TRY(ls_store_add(p->core.store, name, sizeof *p->scale, &entry));
        LS_TRY(device_put(entry->memory, &start, sizeof start));
        *(uint64_t *)(void *)entry->layout = UINT64_MAX;
    }
    p->scale = entry->memory;
    p->scaled_step = (uint64_t *)(void *)entry->layout;
    return LS_OK;
}

/* The step that began last is over: adjust the scale. */
static void end_scaled_step(struct ls_program *p)
{
    enum { GROWTH = 2000 };
    if (*p->scaled_step != UINT64_MAX)
        ls_cuda_scale_end(p->device->compute, p->scale, p->core.options.loss_scale > 0 ? 0 : GROWTH);
    *p->scaled_step = UINT64_MAX;
}

enum ls_status program_get_scale(struct ls_program *p, struct ls_loss_scale *scale)
{
    struct ls_cuda_scale now;
    *scale = (struct ls_loss_scale){0};
    if (!p->scale)
        return LS_OK;
    end_scaled_step(p);
    CUDA_TRY(cudaEventRecord(p->here, p->device->compute));
    LS_TRY(program_await(p, p->here));
    CUDA_TRY(cudaMemcpy(&now, p->scale, sizeof now, cudaMemcpyDeviceToHost));
    *scale = (struct ls_loss_scale){p->core.options.loss_scale > 0 ? 0 : now.scale, now.good, now.skipped};
    return LS_OK;
}

enum ls_status program_set_scale(struct ls_program *p, const struct ls_loss_scale *scale)
{
    const struct ls_cuda_scale start = {.scale = scale->scale, .good = scale->steady};
    if (!p->scale || p->core.options.loss_scale > 0)
        return LS_OK;
    *p->scaled_step = UINT64_MAX;
    return device_put(p->scale, &start, sizeof start);
}

void program_settle_scale(struct ls_program *p, const struct ls_run *run)
{
    if (!p->scale)
        return;
    if (!run->forward_only && run->step != *p->scaled_step) {
        end_scaled_step(p);
        ls_cuda_scale_begin(p->device->compute, p->scale);
        *p->scaled_step = run->step;
    }
    if (run->overflow)
        ls_cuda_scale_overflow(p->device->compute, p->scale);
}
