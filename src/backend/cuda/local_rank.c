/* The local rank of this process, from the environment of its launcher. Of several launchers the innermost counts, as in
 * launch/launchers.c: what sets RANK may itself have been started by Slurm. */
#include "backend/cuda/device.h"

#include <limits.h>
#include <stdlib.h>

int device_rank(void)
{
    static const struct {
        const char *name, *by; /* by: a variable that its launcher sets, too; NULL: any */
    } places[] = {{"LOCKSTEP_WORKER_RANK", NULL},
                  {"LOCKSTEP_LAUNCH_LOCAL_RANK", NULL},
                  {"OMPI_COMM_WORLD_LOCAL_RANK", NULL},
                  {"MPI_LOCALRANKID", NULL},
                  {"PMI_LOCAL_RANK", NULL},
                  {"LOCAL_RANK", "RANK"},
                  {"SLURM_LOCALID", NULL},
                  {"LOCAL_RANK", NULL}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].name);
        if (value && *value && (!places[i].by || getenv(places[i].by)))
            return (int)(strtol(value, NULL, 10) & INT_MAX);
    }
    return 0;
}
