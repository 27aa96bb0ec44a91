/* A tiny MPI program: does MPI start under this launcher, and can the processes talk? Each says where it is and the sum
 * of all ranks' numbers 1 .. N. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, sum, mine, length;
    char host[MPI_MAX_PROCESSOR_NAME];
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS)
        return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);
    mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%s: rank %d of %d, sum %d\n", host, rank, size, sum);
    return MPI_Finalize() != MPI_SUCCESS;
}
