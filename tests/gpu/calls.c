/* Counts the calls of CUDA's runtime and driver that a program makes, by name. The driver loads this library into a program
 * that is started with CUDA_INJECTION64_PATH; at its end the file that CALLS_FILE names has a line for each function:
 *
 *   runtime cudaGraphLaunch 41     called by the program or a library
 *   driver cuLaunchKernelEx 7      likewise, not through the runtime
 *   inside cuGraphLaunch 41        called by the runtime on their behalf */
#include <cupti.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum kind { RUNTIME, DRIVER, INSIDE, KINDS };
#define MOST 2048 /* more than either interface has functions */

static struct {
    atomic_llong calls;
    _Atomic(const char *) name; /* CUPTI's, as long as the program lives */
} functions[KINDS][MOST];
static _Thread_local int depth; /* of calls of the runtime */
static pid_t owner;             /* children of the program count for nothing */

static void on_call(void *nothing, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    const CUpti_CallbackData *call = data;
    (void)nothing;
    if (domain != CUPTI_CB_DOMAIN_RUNTIME_API && domain != CUPTI_CB_DOMAIN_DRIVER_API)
        return;
    bool runtime = domain == CUPTI_CB_DOMAIN_RUNTIME_API;
    if (call->callbackSite != CUPTI_API_ENTER) {
        depth -= runtime;
        return;
    }
    enum kind kind = runtime ? RUNTIME : depth > 0 ? INSIDE : DRIVER;
    depth += runtime;
    if (id >= MOST)
        return;
    functions[kind][id].name = call->functionName;
    atomic_fetch_add(&functions[kind][id].calls, 1);
}

static void write_down(void)
{
    static const char *const kinds[] = {"runtime", "driver", "inside"};
    const char *path = getenv("CALLS_FILE");
    FILE *file = path && getpid() == owner ? fopen(path, "w") : NULL;
    if (!file)
        return;
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < MOST; i++) {
            const char *name = functions[k][i].name;
            long long calls = functions[k][i].calls;
            if (name && calls > 0)
                fprintf(file, "%s %s %lld\n", kinds[k], name, calls);
        }
    fclose(file);
}

/* The driver calls it as its own start begins. */
int InitializeInjection(void)
{
    CUpti_SubscriberHandle subscriber;
    owner = getpid();
    if (cuptiSubscribe(&subscriber, on_call, NULL) != CUPTI_SUCCESS ||
        cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API) != CUPTI_SUCCESS ||
        cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API) != CUPTI_SUCCESS) {
        fputs("calls: CUPTI cannot be used here\n", stderr);
        return 0;
    }
    return atexit(write_down) == 0;
}
