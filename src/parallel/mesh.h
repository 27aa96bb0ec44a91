/* How the processes of a run are laid out: --parallel, a list of axes such as data:4,pipeline:2.
 *
 * The processes form a grid with one axis per entry of config/lists/parallel.def. The last axis of the list changes fastest
 * with the rank, so that its neighbours are neighbours on a machine. An axis that is not given has size 1, except data, which
 * has what is left. */
#ifndef LS_PARALLEL_MESH_H
#define LS_PARALLEL_MESH_H

#include "base/status.h"
#include <stdbool.h>

enum ls_parallel {
#define X(name, NAME, form) LS_PARALLEL_##NAME,
#include "config/lists/parallel.def"
    LS_PARALLELS
};

struct ls_mesh {
    struct ls_mesh_axis {
        int size, place; /* place: of this rank, 0 .. size-1 */
        const char *at;  /* what follows '@', up to the next ',' or the end; borrowed from the text; NULL: nothing */
        int at_length;
    } axes[LS_PARALLELS];
};

/* The layout is to be chosen (exec/layout/layout.h). The other functions take layouts that are. */
bool ls_mesh_is_auto(const char *text);
/* LS_USAGE if the text is no layout, or is not one of `size` processes. */
enum ls_status ls_mesh_parse(const char *text, int size, int rank, struct ls_mesh *mesh);
/* The number of processes that the text names; 1 where it leaves them open, or is no layout. */
int ls_mesh_size(const char *text);
/* The layout as text that names every size, for which ls_mesh_size is that of the mesh. Freed by ls_free; NULL: no memory. */
char *ls_mesh_text(const struct ls_mesh *mesh);
/* Whether the text has a pipeline of several stages. */
bool ls_mesh_has_pipeline(const char *text);
/* Whether a process holds only a part of the model: pipeline or dense. */
bool ls_mesh_divides_model(const char *text);
/* The rank that differs from this one in its place on one axis. */
int ls_mesh_rank(const struct ls_mesh *mesh, enum ls_parallel axis, int place);

#endif
