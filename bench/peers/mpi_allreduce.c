/* MPI's side of `bench/many sums`: the time of MPI_Allreduce of 1 KB to 256 MB of f32, as nccl-tests measures it. Sums in
 * place, one after the other, for about 0.1 s a size. Rank 0 prints lines of "BYTES MICROSECONDS". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* Seconds of one of `times` sums. */
static double measure(float *data, int count, int times)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < times; i++)
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / times;
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (size_t bytes = 1 << 10; bytes <= 256u << 20; bytes *= 4) {
        float *data = calloc(1, bytes);
        int count = (int)(bytes / sizeof *data);
        if (!data) {
            fprintf(stderr, "mpi_allreduce: %zu bytes: out of memory\n", bytes);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        double wanted = 0.1 / measure(data, count, 3);
        int times = wanted < 5 ? 5 : wanted > 10000 ? 10000 : (int)wanted;
        MPI_Bcast(&times, 1, MPI_INT, 0, MPI_COMM_WORLD);
        double took = measure(data, count, times);
        if (rank == 0)
            printf("%zu %.2f\n", bytes, took * 1e6);
        free(data);
    }
    MPI_Finalize();
    return 0;
}
