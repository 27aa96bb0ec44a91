/* Parts of a model on several ranks: read and written whole, on rank 0. */
#include "comm_ranks.h"

#include "parallel/parts.h"

enum { MOST = 64 };

/* What a rank holds of every tensor. */
struct held {
    const struct ls_parts *parts;
    float values[4][MOST];
};

static enum ls_status read_held(void *context, int tensor, float *values)
{
    struct held *h = context;
    struct ls_rows rows = ls_parts_rows(h->parts, ls_comm_rank(h->parts->comm), tensor);
    memcpy(values, h->values[tensor],
           (size_t)(rows.count * ls_row_values(&h->parts->whole->tensors[tensor])) * sizeof *values);
    return LS_OK;
}

static enum ls_status write_held(void *context, int tensor, const float *values)
{
    struct held *h = context;
    struct ls_rows rows = ls_parts_rows(h->parts, ls_comm_rank(h->parts->comm), tensor);
    NEED(rows.count > 0);
    memcpy(h->values[tensor], values,
           (size_t)(rows.count * ls_row_values(&h->parts->whole->tensors[tensor])) * sizeof *values);
    return LS_OK;
}

/* A matrix, a vector, an activation that nobody holds, and a value without a dimension. */
static void make_model(struct ls_graph *g)
{
    ls_graph_init(g);
    ls_graph_tensor(g, "matrix", LS_ROLE_PARAM, LS_F32, ls_shape_make(2, 7, 3, 0, 0));
    ls_graph_tensor(g, "vector", LS_ROLE_STATE, LS_F32, ls_shape_make(1, 5, 0, 0, 0));
    ls_graph_tensor(g, "x", LS_ROLE_ACT, LS_F32, ls_shape_make(2, 4, 4, 0, 0));
    ls_graph_tensor(g, "scalar", LS_ROLE_OPTIMIZER, LS_F32, ls_shape_make(0, 0, 0, 0, 0));
}

/* The matrix by rows, unevenly; the vector on the last rank; the scalar on all. */
static void divide(struct ls_rows *mine, int rank, int size)
{
    int64_t first = 7 * rank / size, next = 7 * (rank + 1) / size;
    mine[0] = (struct ls_rows){first, next - first};
    mine[1] = (struct ls_rows){0, rank == size - 1 ? 5 : 0};
    mine[2] = (struct ls_rows){0};
    mine[3] = (struct ls_rows){0, 1};
}

static void round_trip(struct ls_comm *c, const struct ranks *r)
{
    static const int order[] = {3, 0, 1, 0};
    static const int counts[] = {21, 5, 0, 1};
    struct held held = {0};
    struct ls_graph g;
    struct ls_rows mine[4];
    float values[MOST], back[MOST];
    int rank = ls_comm_rank(c);
    make_model(&g);
    divide(mine, rank, r->size);
    struct ls_parts p = {.comm = c, .whole = &g, .read = read_held, .write = write_held, .context = &held};
    held.parts = &p;
    NEED(ls_parts_open(&p, mine) == LS_OK);
    for (int round = 0; round < 2; round++) {
        if (rank > 0) {
            NEED(ls_parts_serve(&p) == LS_OK);
            continue;
        }
        for (int i = 0; i < 4; i++) {
            for (int k = 0; k < counts[order[i]]; k++)
                values[k] = (float)(100 * round + 10 * i + k);
            NEED(ls_parts_write(&p, order[i], values) == LS_OK);
            NEED(ls_parts_read(&p, order[i], back) == LS_OK);
            NEED(memcmp(values, back, (size_t)counts[order[i]] * sizeof *back) == 0);
        }
        NEED(ls_parts_end(&p) == LS_OK);
    }
    if (mine[0].count > 0) /* the last write was 100 + 30 + its place in the whole */
        NEED(held.values[0][0] == (float)(130 + 3 * mine[0].first));
    NEED(held.values[3][0] == 100);
    ls_parts_close(&p);
    ls_graph_release(&g);
    NEED(ls_comm_close(c, LS_OK) == LS_OK);
}

static void tensors_go_to_the_ranks_that_hold_them(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++)
        run_ranks((struct ranks){.size = size, .replicas = size, .loud = true}, round_trip);
}

static void open_with_a_gap(struct ls_comm *c, const struct ranks *r)
{
    struct ls_graph g;
    struct ls_rows mine[4];
    make_model(&g);
    divide(mine, ls_comm_rank(c), r->size);
    mine[1].count = 0;
    struct ls_parts p = {.comm = c, .whole = &g};
    NEED(ls_parts_open(&p, mine) == LS_FAILED);
    NEED(strstr(ls_log_last(), "no rank holds row 0 of vector"));
    ls_parts_close(&p);
    ls_graph_release(&g);
}

static void a_tensor_that_no_rank_holds_is_an_error(void **state)
{
    (void)state;
    run_ranks((struct ranks){.size = 2, .replicas = 2}, open_with_a_gap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_go_to_the_ranks_that_hold_them),
        cmocka_unit_test(a_tensor_that_no_rank_holds_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
