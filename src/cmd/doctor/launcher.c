#define _GNU_SOURCE
#include "base/log.h"
#include "base/system/module.h"
#include "cmd/doctor/doctor.h"
#include "comm/transports.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- transports ------------------------------------------------------------------------------------------- */

/* In the child process: writes the path of the module, or why it cannot be loaded, to the pipe `words`. */
static int load_module(const struct ls_launch *launch, int words)
{
    const struct ls_transport *transport;
    Dl_info info;
    dup2(words, STDERR_FILENO);
    ls_log_mute(0);
    if (ls_transport_find(launch, &transport) != LS_OK)
        return 1;
    if (dladdr(transport, &info) && info.dli_fname)
        dprintf(words, "%s", info.dli_fname);
    return 0;
}

/* Loads a module in a child process, as two MPI libraries cannot live in one. text gets its path; false: the reason. */
static bool try_module(const struct ls_launch *launch, char *text, size_t room)
{
    static const char prefix[] = "lockstep: error: ";
    int ends[2], how = 1;
    size_t used = 0;
    snprintf(text, room, "it cannot be tried: %s", strerror(errno));
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        _exit(load_module(launch, ends[1]));
    }
    close(ends[1]);
    for (ssize_t n = 1; pid > 0 && n > 0 && used + 1 < room; used += n > 0 ? (size_t)n : 0)
        n = read(ends[0], text + used, room - 1 - used);
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &how, 0) != pid)
        return false;
    text[used] = 0;
    text[strcspn(text, "\n")] = 0;
    if (strncmp(text, prefix, strlen(prefix)) == 0)
        memmove(text, text + strlen(prefix), strlen(text + strlen(prefix)) + 1);
    if (WIFSIGNALED(how))
        snprintf(text, room, "loading it ends in signal %d (%s)", WTERMSIG(how), strsignal(WTERMSIG(how)));
    return WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

static const struct transport_module {
    const char *topic, *file;
    struct ls_launch launch; /* that needs it */
} modules[] = {
    {"mpi-openmpi", "lockstep-mpi-openmpi.so", {.kind = LS_LAUNCH_MPI, .mpi = "openmpi"}},
    {"mpi-mpich", "lockstep-mpi-mpich.so", {.kind = LS_LAUNCH_MPI, .mpi = "mpich"}},
#define X(name) {#name, "lockstep-" #name ".so", {.kind = LS_LAUNCH_TCP, .transport = #name}},
#include "config/lists/transports.def"
};

static bool is_needed(const struct transport_module *m, const struct ls_launch *launch)
{
    if (!launch)
        return false;
    if (m->launch.kind == LS_LAUNCH_MPI)
        return launch->kind == LS_LAUNCH_MPI && strcmp(launch->mpi, m->launch.mpi) == 0;
    return (launch->kind == LS_LAUNCH_TCP || launch->kind == LS_LAUNCH_FILE) &&
           strcmp(m->launch.transport, launch->transport) == 0;
}

static void check_transport(struct ls_findings *f, const struct transport_module *m, bool needed)
{
    char text[1024];
    if (!ls_module_find(m->file, NULL, 0)) {
        ls_find(f, needed ? LS_HEALTH_ERROR : LS_HEALTH_MISSING, m->topic, "",
                "not here: this Lockstep was built without %s", ls_module_library(m->file));
        ls_module_remedy(m->file, text, sizeof text);
        ls_advise(f, "To have it: %s", text);
    } else if (try_module(&m->launch, text, sizeof text))
        ls_find(f, LS_HEALTH_OK, m->topic, "", "%s", text);
    else {
        ls_find(f, needed ? LS_HEALTH_ERROR : LS_HEALTH_WARNING, m->topic, "", "not usable: %s", text);
        ls_module_remedy(m->file, text, sizeof text);
        ls_advise(f, "To fix it: %s", text);
    }
}

void ls_check_transports(struct ls_findings *f, const struct ls_launch *launch)
{
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        check_transport(f, &modules[i], is_needed(&modules[i], launch));
}

/* --- variables --------------------------------------------------------------------------------------------- */

static const char *const variables[] = {
    "LOCKSTEP_WORKER_RANK",
    "LOCKSTEP_LAUNCH_RANK",
    "LOCKSTEP_LAUNCH_LOCAL_RANK",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_JOB_NUM_NODES",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPU_BIND",
    "TORCHELASTIC_RUN_ID",
    "JOB_COMPLETION_INDEX",
};

static void list_variables(struct ls_findings *f)
{
    char text[900] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);
        if (value && *value && used < sizeof text - 128)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%s=%.64s", used ? " " : "", variables[i], value);
    }
    ls_find(f, LS_HEALTH_OK, "variables", "", "%s", used ? text : "none of a launcher");
}

/* In a Slurm job of several tasks, but not started by srun. */
static bool is_forgotten_srun(void)
{
    const char *tasks = getenv("SLURM_NTASKS");
    return getenv("SLURM_JOB_ID") && tasks && strtol(tasks, NULL, 10) > 1;
}

void ls_check_launch(struct ls_findings *f, const struct ls_launch *launch, const char *why)
{
    list_variables(f);
    if (!launch)
        ls_find(f, LS_HEALTH_ERROR, "launcher", "", "%s", why);
    else if (launch->kind == LS_LAUNCH_ALONE && is_forgotten_srun()) {
        ls_find(f, LS_HEALTH_WARNING, "launcher", "", "alone, in a Slurm job of %s tasks", getenv("SLURM_NTASKS"));
        ls_advise(f, "Start Lockstep with srun in front, so that all tasks train together.");
    } else if (launch->kind == LS_LAUNCH_ALONE)
        ls_find(f, LS_HEALTH_OK, "launcher", "", "none: this process is alone");
    else if (launch->kind == LS_LAUNCH_TCP)
        ls_find(f, LS_HEALTH_OK, "launcher", "", "%s: rank %d of %d, meeting at %s port %d", launch->how, launch->rank,
                launch->size, launch->address, launch->port);
    else if (launch->kind == LS_LAUNCH_FILE)
        ls_find(f, LS_HEALTH_OK, "launcher", "", "%s: %d processes, meeting in %s", launch->how, launch->size,
                launch->path);
    else
        ls_find(f, LS_HEALTH_OK, "launcher", "", "%s: rank %d of %d", launch->how, launch->rank, launch->size);
    if (launch && launch->kind == LS_LAUNCH_TCP && !launch->token) {
        ls_find(f, LS_HEALTH_WARNING, "token", "", "none: any user of this machine can join");
        ls_advise(f, "Set LOCKSTEP_TOKEN to the same secret everywhere, such as `openssl rand -hex 16` makes.");
    }
}
