/* A program that uses MPI and liblockstep: for tests/cli/test-liblockstep.sh. Its words say what it does, one after the
 * other: init, use, finalize. It ends with what the last lockstep_finish returned. */
#include <lockstep.h>
#include <mpi.h>
#include <string.h>

static int use(void)
{
    struct lockstep *l = lockstep_init(NULL);
    float one = 1;
    int st = lockstep_allreduce(l, &one, 1, LOCKSTEP_SUM);
    if (st == 0 && one != (float)lockstep_size(l))
        st = LOCKSTEP_FAILED;
    return lockstep_finish(l, st);
}

int main(int argc, char **argv)
{
    int level, st = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "init") == 0)
            MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
        else if (strcmp(argv[i], "finalize") == 0)
            MPI_Finalize();
        else
            st = use();
    }
    return st;
}
