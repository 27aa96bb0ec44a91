/* A training graph cut into stages: nothing is lost, nothing is twice, little travels. */
#include "backend/backend.h"
#include "base/log.h"
#include "config/options.h"
#include "graph/ops.h"
#include "model/model.h"
#include "optim/optim.h"
#include "parallel/stages.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

static void build(const char *model, int64_t edge, struct ls_graph *g)
{
    struct ls_options o;
    assert_int_equal(ls_options_default(&o), LS_OK);
    struct ls_model_request request = {
        .model = model,
        .size = {.batch = 4, .channels = 3, .height = edge, .width = edge, .classes = 10},
        .training = true,
        .dtype = LS_F32,
        .loss = "xent",
        .dropout = -1,
        .drop_path = -1};
    assert_int_equal(ls_model_build(&request, g), LS_OK);
    assert_int_equal(ls_graph_fuse(g, true), LS_OK);
    assert_int_equal(ls_graph_backward(g), LS_OK);
    assert_int_equal(ls_optim_update(g, &o, false), LS_OK);
    ls_options_release(&o);
}

static bool travels(const struct ls_node *n)
{
    return n->op == &ls_op_send || n->op == &ls_op_receive;
}

/* Every node of the whole is in one part, in order, over tensors of the same names; what one sends another receives. */
static void check_parts(const struct ls_graph *g, const struct ls_stages *s)
{
    int nodes = 0, sent = 0, received = 0;
    for (int stage = 0; stage < s->n; stage++) {
        struct ls_graph part;
        ls_graph_init(&part);
        assert_int_equal(ls_stage_graph(g, s, stage, &part), LS_OK);
        bool forward = true;
        int at = 0, forward_sent = 0, forward_received = 0;
        for (int n = 0; n < part.n_nodes; n++) {
            const struct ls_node *node = &part.nodes[n];
            forward = forward && node->phase == LS_FORWARD;
            sent += node->op == &ls_op_send;
            received += node->op == &ls_op_receive;
            forward_sent += forward && node->op == &ls_op_send;
            forward_received += forward && node->op == &ls_op_receive;
            if (travels(node)) {
                assert_int_equal(node->attr.size, stage + ((node->op == &ls_op_send) == forward ? 1 : -1));
                continue;
            }
            while (s->of_node[at] != stage)
                at++;
            const struct ls_node *whole = &g->nodes[at++];
            assert_ptr_equal(node->op, whole->op);
            assert_memory_equal(&node->attr, &whole->attr, sizeof node->attr);
            for (int i = 0; i < LS_MAX_IN; i++) {
                assert_int_equal(node->in[i] == LS_NONE, whole->in[i] == LS_NONE);
                if (node->in[i] != LS_NONE)
                    assert_string_equal(part.tensors[node->in[i]].name, g->tensors[whole->in[i]].name);
            }
            nodes++;
        }
        assert_int_equal(forward_sent, stage < s->n - 1);
        assert_int_equal(forward_received, stage > 0);
        ls_graph_release(&part);
    }
    assert_int_equal(nodes, g->n_nodes);
    assert_int_equal(sent, received);
}

static void stages_have_all_nodes_once(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int64_t edge;
    } models[] = {{"lenet", 32}, {"resnet18", 64}, {"densenet121", 64}, {"mobilenet_v2", 64}, {"vgg11", 32}};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct ls_graph g;
        build(models[m].model, models[m].edge, &g);
        for (int n = 1; n <= 4; n++) {
            struct ls_stages s;
            assert_int_equal(ls_stages_choose(&g, n, NULL, 0, NULL, &s), LS_OK);
            check_parts(&g, &s);
            ls_stages_release(&s);
        }
        ls_graph_release(&g);
    }
}

static void stages_begin_where_they_are_told_to(void **state)
{
    (void)state;
    static const char at[] = "layer2+layer4";
    struct ls_graph g;
    struct ls_stages s;
    build("resnet18", 64, &g);
    assert_int_equal(ls_stages_choose(&g, 3, at, (int)strlen(at), NULL, &s), LS_OK);
    assert_non_null(strstr(s.first[1], "layer2.0."));
    assert_non_null(strstr(s.first[2], "layer4.0."));
    check_parts(&g, &s);
    ls_stages_release(&s);
    ls_graph_release(&g);
}

/* The node of a graph that a name, op and phase tell. */
static int node_like(const struct ls_graph *g, const struct ls_node *like)
{
    for (int n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].op == like->op && g->nodes[n].phase == like->phase && strcmp(g->nodes[n].name, like->name) == 0)
            return n;
    return LS_NONE;
}

/* What a stage computes together may depend on what is there by then: it has what the whole graph has. */
static void check_order(const struct ls_graph *g, const struct ls_graph *part)
{
    for (int n = 0; n < part->n_nodes; n++) {
        if (part->nodes[n].op != &ls_op_receive)
            continue;
        int tensor = ls_graph_find(g, part->tensors[part->nodes[n].out[0]].name);
        for (int before = n - 1; before >= 0; before--)
            if (!travels(&part->nodes[before]) && part->nodes[before].phase == part->nodes[n].phase)
                assert_true(node_like(g, &part->nodes[before]) < ls_graph_producer(g, tensor));
    }
}

static void blocks_are_cut_where_layers_are_joined(void **state)
{
    (void)state;
    static const char joined[] = "layer2.0.bn2\tlayer2.1.conv1\nlayer2.1.bn1\tlayer2.1.conv1\n",
                      at[] = "layer2.1.conv2";
    struct ls_graph g, part;
    struct ls_stages s;
    build("resnet18", 64, &g);
    assert_int_equal(ls_stages_choose(&g, 2, at, (int)strlen(at), joined, &s), LS_OK);
    for (int stage = 0; stage < 2; stage++) {
        int forward = 0, received = 0;
        ls_graph_init(&part);
        assert_int_equal(ls_stage_graph(&g, &s, stage, &part), LS_OK);
        for (int n = 0; n < part.n_nodes; n++) {
            received += part.nodes[n].op == &ls_op_receive;
            forward += travels(&part.nodes[n]) && part.nodes[n].phase == LS_FORWARD;
        }
        assert_int_equal(forward, 2); /* what the 3x3 convolution reads, and the shortcut */
        assert_int_equal(received, 2);
        check_order(&g, &part);
        ls_graph_release(&part);
    }
    ls_stages_release(&s);
    bool muted = ls_log_mute(true);
    assert_int_equal(ls_stages_choose(&g, 2, "layer2.1", 8, joined, &s), LS_USAGE);
    ls_log_mute(muted);
    ls_stages_release(&s);
    ls_graph_release(&g);
}

static void expect_refused(const struct ls_graph *g, int n, const char *at, const char *why)
{
    struct ls_stages s;
    bool muted = ls_log_mute(true);
    assert_int_equal(ls_stages_choose(g, n, at, at ? (int)strlen(at) : 0, NULL, &s), LS_USAGE);
    ls_log_mute(muted);
    if (!strstr(ls_log_last(), why))
        fail_msg("%s", ls_log_last());
    ls_stages_release(&s);
}

static void impossible_cuts_are_refused(void **state)
{
    (void)state;
    struct ls_graph g;
    build("resnet18", 64, &g);
    expect_refused(&g, 2, "layer9", "there is no place before 'layer9'; possible are");
    expect_refused(&g, 2, "layer1.0.conv2", "the model cannot be cut before 'layer1.0.conv2'");
    expect_refused(&g, 2, "layer1+layer2", "2 layers are named");
    expect_refused(&g, 3, "layer3+layer2", "would train nothing");
    expect_refused(&g, 60, NULL, "too few places");
    expect_refused(&g, 65, NULL, "at most 64");
    ls_graph_release(&g);
}

/* The time of a step whose passes take one unit forward and two backward in each stage, and travel in no time. */
static int makespan(int stages, int passes)
{
    int forward[16][64] = {{0}}, backward[16][64] = {{0}}; /* when they end; 0: not yet */
    int begun[16] = {0}, done[16] = {0}, free_at[16] = {0}, last = 0;
    for (int left = 2 * stages * passes; left > 0;) {
        int before = left;
        for (int s = 0; s < stages; s++) {
            int lanes = ls_stage_lanes(stages, s, passes);
            bool begins = ls_stage_begins_next(lanes, passes, begun[s], done[s]);
            if (done[s] == passes)
                continue;
            int *ends = begins ? &forward[s][begun[s]] : &backward[s][done[s]];
            int needs = begins ? (s > 0 ? forward[s - 1][begun[s]] : -1)
                               : (s + 1 < stages ? backward[s + 1][done[s]] : forward[s][done[s]]);
            if (needs == 0) /* what it needs is not there */
                continue;
            *ends = (needs > free_at[s] ? needs : free_at[s]) + (begins ? 1 : 2);
            free_at[s] = *ends;
            last = *ends > last ? *ends : last;
            *(begins ? &begun[s] : &done[s]) += 1;
            assert_in_range(begun[s] - done[s], 0, lanes);
            left--;
        }
        assert_true(left < before); /* somebody can always go on */
    }
    return last;
}

/* The idle share of a step is (S - 1) / (M + S - 1), with at most S - s passes under way in stage s. */
static void the_schedule_leaves_as_little_idle_as_possible(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 8; stages++)
        for (int passes = 1; passes <= 32; passes++)
            assert_int_equal(makespan(stages, passes), 3 * (passes + stages - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_have_all_nodes_once),
        cmocka_unit_test(stages_begin_where_they_are_told_to),
        cmocka_unit_test(blocks_are_cut_where_layers_are_joined),
        cmocka_unit_test(impossible_cuts_are_refused),
        cmocka_unit_test(the_schedule_leaves_as_little_idle_as_possible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
