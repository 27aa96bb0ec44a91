/* The nodes that stem.c inserts: images into a map, or unfolded for the first convolution. */
#include "backend/cuda/program.h"

static enum ls_status image_run(struct ls_program *p, int node)
{
    const struct ls_node *n = &p->core.g->nodes[node];
    const struct ls_shape *image = &p->core.g->tensors[p->core.g->input].shape;
    struct ls_cuda_map y = map_of(p, n->out[0]);
    void *to = data_of(p, n->out[0]);
    if (p->core.places[n->out[0]].unmade) /* STEM-1 */
        return LS_OK;
    if (is_unfolded(p, n->out[0])) {
        const struct ls_cuda_unfold u = stem_unfolding(p);
        ls_cuda_unfold(stream_of(p), type_of(p), p->run, p->pixels, &u, &y, to);
    } else if (p->pixels) {
        ls_cuda_image_crops(stream_of(p), type_of(p), p->run, p->pixels, &y, image->dim[1], to);
    } else {
        ls_cuda_image_planes(stream_of(p), type_of(p), p->run, &y, image->dim[1], to);
    }
    return LS_OK;
}

const struct kernel ls_cuda_ops_image[] = {
    {.op = "reorder", .prepare = place_outputs, .run = image_run},
    {0},
};
