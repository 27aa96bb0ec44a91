/* What a group counts: calls, bytes and seconds of collectives and messages, waits, and for whom. */
#include "comm_ranks.h"

#include "comm/group.h"
#include "exec/step_usage.h"

#include <math.h>

static void expect_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-6))
        fail_msg("%.9f is not %.9f", a, b);
}

/* --- arithmetic: a group of three that exchanges nothing ------------------------------------------------- */

static struct ls_comm *fake(struct ls_peer peers[3])
{
    struct ls_comm *c = calloc(1, sizeof *c);
    assert_non_null(c);
    memset(peers, 0, 3 * sizeof *peers);
    c->size = 3;
    c->peers = peers;
    return c;
}

/* A sum that began at 10 s, for which rank 2 came at 14 s. */
static struct ls_work late_sum(void)
{
    return (struct ls_work){
        .kind = LS_WORK_ALLREDUCE, .bytes = 400, .begun = 10, .last_rank = 2, .last_wait = 4, .stall_rank = -1};
}

static void a_wait_is_split_by_when_the_last_rank_came(void **state)
{
    (void)state;
    struct ls_peer peers[3];
    struct ls_comm *c = fake(peers);
    struct ls_work w = late_sum();
    double waited[3];
    ls_usage_waited(c, &w, 9, 15); /* from before it began to after it ended: 6 s, of them 4 for rank 2 */
    ls_comm_waited_for(c, waited);
    expect_near(ls_comm_waited(c), 6);
    expect_near(waited[2], 4);
    ls_usage_waited(c, &w, 13, 15); /* began to wait a second before rank 2 came */
    ls_comm_waited_for(c, waited);
    expect_near(waited[2], 5);
    ls_usage_waited(c, &w, 14.5, 15); /* computed until rank 2 was there */
    ls_comm_waited_for(c, waited);
    expect_near(waited[2], 5);
    expect_near(waited[0] + waited[1], 0);
    expect_near(ls_comm_waited(c), 8.5);
    free(c);
}

/* All came at once, and rank 1 stood still from 11 s to 16 s, when the sum ended. */
static void a_rank_that_stands_still_within_a_sum_is_waited_for(void **state)
{
    (void)state;
    struct ls_peer peers[3];
    struct ls_comm *c = fake(peers);
    struct ls_work w = late_sum();
    struct ls_comm_usage used;
    double waited[3];
    w.last_wait = 0;
    w.stall_rank = 1;
    w.stall = 5;
    w.done = 16;
    ls_usage_count(c, &w, 6);
    ls_usage_waited(c, &w, 12, 16.5);
    ls_comm_waited_for(c, waited);
    ls_comm_usage(c, &used);
    expect_near(waited[1], 4);
    expect_near(waited[0] + waited[2], 0);
    expect_near(used.waited, 4.5);
    expect_near(used.late, 5);
    free(c);
}

static void no_rank_is_late_for_itself_or_in_a_failure_or_a_message(void **state)
{
    (void)state;
    struct ls_peer peers[3];
    struct ls_comm *c = fake(peers);
    struct ls_work own = late_sum(), unknown = late_sum(), failed = late_sum(), message = late_sum();
    double waited[3];
    c->rank = 2;
    unknown.last_rank = -1;
    failed.last_rank = message.last_rank = 1;
    failed.status = LS_PEER_LOST;
    message.kind = LS_WORK_RECEIVE;
    ls_usage_waited(c, &own, 10, 15);
    ls_usage_waited(c, &unknown, 10, 15);
    ls_usage_waited(c, &failed, 10, 15);
    ls_usage_waited(c, &message, 10, 15);
    ls_comm_waited_for(c, waited);
    expect_near(waited[0] + waited[1] + waited[2], 0);
    expect_near(ls_comm_waited(c), 20);
    free(c);
}

/* Between two looks: a sum of 6 s, of which 4 passed before rank 2 came; the caller waited from 13 to 16. */
static void a_step_knows_what_was_exposed_late_and_hidden(void **state)
{
    (void)state;
    struct ls_peer peers[3];
    struct ls_comm *c = fake(peers);
    struct ls_step_usage u;
    struct ls_report r = {0};
    struct ls_work w = late_sum();
    assert_int_equal(ls_step_usage_init(&u, c), LS_OK);
    ls_usage_count(c, &w, 6);
    ls_step_usage_skip(&u, c); /* that one came before the step */
    ls_usage_count(c, &w, 6);
    ls_usage_waited(c, &w, 13, 14.5);
    ls_step_usage_take(&u, c, &r);
    expect_near(r.wait_seconds, 1.5);
    expect_near(r.late_seconds, 1);     /* 13 to 14 */
    expect_near(r.hidden_seconds, 1.5); /* 14 to 16 was communication, of which half a second was waited for */
    assert_int_equal(u.spent.kinds[LS_WORK_ALLREDUCE].calls, 1);
    assert_int_equal(u.spent.kinds[LS_WORK_ALLREDUCE].bytes, 400);
    expect_near(u.waited_for[2], 1);
    ls_step_usage_take(&u, c, &r); /* nothing since */
    expect_near(r.wait_seconds + r.late_seconds + r.hidden_seconds, 0);
    assert_int_equal(u.spent.kinds[LS_WORK_ALLREDUCE].calls, 1);
    ls_step_usage_clear(&u, c);
    assert_int_equal(u.spent.kinds[LS_WORK_ALLREDUCE].calls, 0);
    expect_near(u.waited_for[2], 0);
    ls_step_usage_release(&u);
    free(c);
}

static void one_process_exchanges_nothing(void **state)
{
    (void)state;
    struct ls_step_usage u;
    struct ls_report r = {.wait_seconds = 9, .late_seconds = 9, .hidden_seconds = 9};
    assert_int_equal(ls_step_usage_init(&u, NULL), LS_OK);
    ls_step_usage_skip(&u, NULL);
    ls_step_usage_take(&u, NULL, &r);
    ls_step_usage_clear(&u, NULL);
    expect_near(r.wait_seconds + r.late_seconds + r.hidden_seconds, 0);
    ls_step_usage_release(&u);
}

/* --- real ranks ------------------------------------------------------------------------------------------ */

static void exchange(struct ls_comm *c, const struct ranks *r)
{
    struct ls_comm_usage before, now;
    float data[25] = {1};
    int64_t mine = 7, all[MOST_RANKS];
    char word[11] = "word";
    ls_comm_usage(c, &before);
    for (int i = 0; i < 3; i++) {
        struct ls_work sum = {.kind = LS_WORK_ALLREDUCE, .data = data, .bytes = sizeof data, .bucket = -1};
        NEED(ls_comm_do(c, &sum) == LS_OK);
    }
    NEED(ls_comm_allgather(c, &mine, sizeof mine, all) == LS_OK);
    NEED(ls_comm_barrier(c) == LS_OK);
    if (ls_comm_rank(c) < 2) {
        struct ls_work w = {.kind = ls_comm_rank(c) == 0 ? LS_WORK_SEND : LS_WORK_RECEIVE,
                            .peer = 1 - ls_comm_rank(c),
                            .data = word,
                            .bytes = sizeof word};
        NEED(ls_comm_do(c, &w) == LS_OK);
    }
    ls_comm_usage(c, &now);
    NEED(now.kinds[LS_WORK_ALLREDUCE].calls - before.kinds[LS_WORK_ALLREDUCE].calls == 3);
    NEED(now.kinds[LS_WORK_ALLREDUCE].bytes - before.kinds[LS_WORK_ALLREDUCE].bytes == 3 * sizeof data);
    NEED(now.kinds[LS_WORK_ALLGATHER].calls - before.kinds[LS_WORK_ALLGATHER].calls == 1);
    NEED(now.kinds[LS_WORK_ALLGATHER].bytes - before.kinds[LS_WORK_ALLGATHER].bytes == sizeof mine);
    NEED(now.kinds[LS_WORK_BARRIER].calls - before.kinds[LS_WORK_BARRIER].calls == 1);
    NEED(now.kinds[LS_WORK_BARRIER].bytes == before.kinds[LS_WORK_BARRIER].bytes);
    NEED(now.kinds[LS_WORK_SEND].bytes == (ls_comm_rank(c) == 0 ? sizeof word : 0));
    NEED(now.kinds[LS_WORK_RECEIVE].calls == (ls_comm_rank(c) == 1));
    NEED(now.kinds[LS_WORK_ALLREDUCE].seconds > before.kinds[LS_WORK_ALLREDUCE].seconds);
    NEED(now.waited >= before.waited && now.late >= before.late);
    NEED(ls_comm_close(c, LS_OK) == LS_OK);
    (void)r;
}

static void calls_and_bytes_are_counted(void **state)
{
    (void)state;
    run_ranks((struct ranks){.size = 3, .loud = true}, exchange);                /* through shared memory */
    run_ranks((struct ranks){.size = 3, .per_node = 1, .loud = true}, exchange); /* by messages */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_is_split_by_when_the_last_rank_came),
        cmocka_unit_test(a_rank_that_stands_still_within_a_sum_is_waited_for),
        cmocka_unit_test(no_rank_is_late_for_itself_or_in_a_failure_or_a_message),
        cmocka_unit_test(a_step_knows_what_was_exposed_late_and_hidden),
        cmocka_unit_test(one_process_exchanges_nothing),
        cmocka_unit_test(calls_and_bytes_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
