/* The tree of additions is the same however it is spread over processes. */
#include "comm/algorithms/tree.h"
#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 17, ROOM = 512 };

/* T(v, s) of exec/replicas.h, EXEC-2, written out. */
static void write_tree(int v, int s, int replicas, char *text)
{
    char left[ROOM], right[ROOM];
    if (s >= replicas) {
        snprintf(text, ROOM, "%d", v);
        return;
    }
    write_tree(v, 2 * s, replicas, left);
    if (v + s >= replicas) {
        memcpy(text, left, ROOM);
        return;
    }
    write_tree(v + s, 2 * s, replicas, right);
    assert_in_range(snprintf(text, ROOM, "(%.240s+%.240s)", left, right), 1, ROOM - 1);
}

static void run_sums(const struct ls_tree *t, char *whole)
{
    static char part[MOST][ROOM];
    char sum[ROOM];
    for (int i = 0; i < t->n_parts; i++)
        write_tree(t->parts[i].v, t->parts[i].s, t->replicas, part[i]);
    assert_int_equal(t->n_sums, t->n_parts - 1);
    for (int i = 0; i < t->n_sums; i++) {
        assert_in_range(snprintf(sum, ROOM, "(%.240s+%.240s)", part[t->sums[i].to], part[t->sums[i].from]), 1,
                        ROOM - 1);
        memcpy(part[t->sums[i].to], sum, ROOM);
    }
    memcpy(whole, part[0], ROOM);
}

/* Each process has a run of its own, and its parts cover exactly that run. */
static void check_runs(const struct ls_tree *t)
{
    bool dealt[MOST] = {false};
    assert_int_equal(t->first[0], 0);
    assert_int_equal(t->first[t->size], t->replicas);
    assert_int_equal(t->first_part[t->size], t->n_parts);
    for (int w = 0; w < t->size; w++) {
        bool mine[MOST] = {false};
        int first, n = ls_tree_parts(t, w, &first), run = t->first[w + 1] - t->first[w], covered = 0;
        assert_in_range(run, t->replicas / t->size, (t->replicas + t->size - 1) / t->size);
        for (int i = t->first[w]; i < t->first[w + 1]; i++) {
            assert_false(dealt[t->leaves[i]]);
            dealt[t->leaves[i]] = mine[t->leaves[i]] = true;
        }
        for (int i = first; i < first + n; i++) {
            assert_int_equal(t->parts[i].rank, w);
            for (int v = t->parts[i].v; v < t->replicas; v += t->parts[i].s, covered++)
                assert_true(mine[v]);
        }
        assert_int_equal(covered, run);
    }
}

static void any_number_of_processes_makes_the_same_sum(void **state)
{
    char expected[ROOM], found[ROOM];
    (void)state;
    for (int replicas = 1; replicas <= MOST; replicas++) {
        write_tree(0, 1, replicas, expected);
        for (int size = 1; size <= replicas; size++) {
            struct ls_tree t;
            assert_int_equal(ls_tree_init(&t, replicas, size), LS_OK);
            run_sums(&t, found);
            assert_string_equal(found, expected);
            check_runs(&t);
            ls_tree_release(&t);
        }
    }
}

static void a_power_of_two_gives_one_part_each(void **state)
{
    (void)state;
    for (int replicas = 1; replicas <= MOST; replicas++)
        for (int size = 1; size <= replicas; size++) {
            struct ls_tree t;
            bool divides = replicas % size == 0 && (size & (size - 1)) == 0;
            if (!divides && size != replicas)
                continue;
            assert_int_equal(ls_tree_init(&t, replicas, size), LS_OK);
            assert_int_equal(t.n_parts, size);
            for (int w = 0; w < size; w++) {
                assert_int_equal(t.parts[w].rank, w);
                assert_int_equal(t.parts[w].v, w);
                assert_true(t.parts[w].s == size || (t.parts[w].v + t.parts[w].s >= replicas));
                for (int i = t.first[w]; i < t.first[w + 1]; i++)
                    assert_int_equal(t.leaves[i] % size, w);
            }
            ls_tree_release(&t);
        }
}

static void ranks_can_change_places(void **state)
{
    static const int rank_of[4] = {0, 2, 1, 3};
    char expected[ROOM], found[ROOM];
    (void)state;
    for (int replicas = 4; replicas <= MOST; replicas++) {
        struct ls_tree t;
        write_tree(0, 1, replicas, expected);
        assert_int_equal(ls_tree_init_placed(&t, replicas, 4, rank_of), LS_OK);
        run_sums(&t, found);
        assert_string_equal(found, expected);
        check_runs(&t);
        if (replicas % 4 == 0)
            assert_int_equal(t.leaves[t.first[1]], 2);
        ls_tree_release(&t);
    }
}

static void groups_of_ranks_make_the_same_sum(void **state)
{
    char expected[ROOM], found[ROOM];
    (void)state;
    for (int replicas = 6; replicas <= MOST; replicas++)
        for (int each = 1; each <= 6; each++) {
            struct ls_tree ranks, t;
            int group_of[6], groups = (6 + each - 1) / each;
            for (int rank = 0; rank < 6; rank++)
                group_of[rank] = rank / each;
            write_tree(0, 1, replicas, expected);
            assert_int_equal(ls_tree_init(&ranks, replicas, 6), LS_OK);
            assert_int_equal(ls_tree_init_grouped(&t, &ranks, groups, group_of), LS_OK);
            run_sums(&t, found);
            assert_string_equal(found, expected);
            for (int rank = 0; rank < 6; rank++)
                for (int i = ranks.first[rank]; i < ranks.first[rank + 1]; i++) {
                    int at = t.first[rank / each];
                    while (at < t.first[rank / each + 1] && t.leaves[at] != ranks.leaves[i])
                        at++;
                    assert_int_not_equal(at, t.first[rank / each + 1]);
                }
            ls_tree_release(&ranks);
            ls_tree_release(&t);
        }
}

static void more_processes_than_replicas_are_refused(void **state)
{
    struct ls_tree t;
    (void)state;
    ls_log_mute(1);
    assert_int_equal(ls_tree_init(&t, 3, 4), LS_USAGE);
    assert_non_null(strstr(ls_log_last(), "--replicas 4"));
    ls_log_mute(0);
}

static void ranks_that_serve_have_no_part(void **state)
{
    struct ls_tree t, alone;
    (void)state;
    assert_int_equal(ls_tree_init(&alone, 5, 3), LS_OK);
    assert_int_equal(ls_tree_init(&t, 5, 3), LS_OK);
    assert_int_equal(ls_tree_add_idle(&t, 2), LS_OK);
    assert_int_equal(t.size, 5);
    for (int rank = 0; rank < 5; rank++) {
        int first, n = ls_tree_parts(&t, rank, &first), before;
        assert_int_equal(n, rank < 3 ? ls_tree_parts(&alone, rank, &before) : 0);
        assert_int_equal(t.first[rank + 1] - t.first[rank], rank < 3 ? alone.first[rank + 1] - alone.first[rank] : 0);
    }
    assert_int_equal(t.first[5], 5);
    ls_tree_release(&t);
    ls_tree_release(&alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_processes_makes_the_same_sum),
        cmocka_unit_test(a_power_of_two_gives_one_part_each),
        cmocka_unit_test(ranks_can_change_places),
        cmocka_unit_test(groups_of_ranks_make_the_same_sum),
        cmocka_unit_test(ranks_that_serve_have_no_part),
        cmocka_unit_test(more_processes_than_replicas_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
