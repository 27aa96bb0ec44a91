/* A program that uses liblockstep, one process of several: for tests/cli/test-liblockstep.sh.
 *
 *     library_probe calls BEFORE FIRST SECOND   after so many calls rank 1 makes the second and the others the first:
 *                                               sum:N, mean:N (floats), broadcast:N (bytes from rank 0), barrier,
 *                                               order:A,B (submits both), finish
 *     library_probe again TIMES                 connect, sum and finish so many times
 *     library_probe wait                        connect, and do nothing
 *
 * `calls` prints what the library says and ends with what lockstep_finish returns. */
#include <lockstep.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static float room[1 << 20];

static int make_call(struct lockstep *l, const char *what)
{
    const char *number = strchr(what, ':');
    size_t n = number ? strtoul(number + 1, NULL, 10) : 0;
    if (strncmp(what, "sum", 3) == 0)
        return lockstep_allreduce(l, room, n, LOCKSTEP_SUM);
    if (strncmp(what, "mean", 4) == 0)
        return lockstep_allreduce(l, room, n, LOCKSTEP_MEAN);
    if (strncmp(what, "broadcast", 9) == 0)
        return lockstep_broadcast(l, 0, room, n);
    if (strncmp(what, "order", 5) == 0) {
        int other = atoi(strchr(what, ',') + 1);
        lockstep_submit(l, (int)n, room + 100 * n, 100, LOCKSTEP_SUM);
        lockstep_submit(l, other, room + 100 * other, 100, LOCKSTEP_SUM);
        return lockstep_wait_all(l);
    }
    return strcmp(what, "finish") == 0 ? -1 : lockstep_barrier(l);
}

static int calls(char **words)
{
    struct lockstep *l = lockstep_init(NULL);
    const int before = atoi(words[0]), rank = lockstep_rank(l);
    int st = lockstep_status(l), later = 0;
    for (int i = 0; i < before && st == 0; i++)
        st = make_call(l, i % 2 ? "sum:10" : "barrier");
    if (st == 0)
        st = make_call(l, words[rank == 1 ? 2 : 1]);
    if (st != -1)
        later = make_call(l, "sum:10");
    printf("rank %d: %d, later %d: %s\n", rank, st, later, lockstep_error(l));
    return lockstep_finish(l, 0);
}

static int again(int times)
{
    for (int i = 1; i <= times; i++) {
        struct lockstep *l = lockstep_init(NULL);
        float sum = (float)i;
        int st = lockstep_allreduce(l, &sum, 1, LOCKSTEP_SUM);
        int rank = lockstep_rank(l), size = lockstep_size(l);
        st = lockstep_finish(l, st);
        if (st != 0 || sum != (float)(i * size))
            return st != 0 ? st : 1;
        if (rank == 0)
            printf("%d: %d processes\n", i, size);
    }
    return 0;
}

int main(int argc, char **argv)
{
    alarm(120); /* whatever becomes of the test */
    if (argc == 5 && strcmp(argv[1], "calls") == 0)
        return calls(argv + 2);
    if (argc == 3 && strcmp(argv[1], "again") == 0)
        return again(atoi(argv[2]));
    struct lockstep *l = lockstep_init(NULL);
    if (lockstep_status(l) == 0)
        printf("rank %d of %d\n", lockstep_rank(l), lockstep_size(l));
    fflush(stdout);
    while (lockstep_status(l) == 0)
        usleep(10000);
    return lockstep_finish(l, 0);
}
