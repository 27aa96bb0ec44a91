#define _GNU_SOURCE
#include "base/log.h"
#include "base/system/module.h"
#include "cmd/doctor/doctor.h"

#include <string.h>
#include <unistd.h>

/* --- the module, its libraries, the cards ------------------------------------------------------------------------- */

static bool has_driver(void)
{
    return access("/dev/nvidiactl", F_OK) == 0;
}

/* Without --gpu and without a driver the machine has no card, and nothing is wrong. */
static enum ls_health missing(bool wanted)
{
    return wanted ? LS_HEALTH_ERROR : has_driver() ? LS_HEALTH_WARNING : LS_HEALTH_MISSING;
}

static bool load(struct ls_findings *f, bool wanted, const struct ls_backend **backend)
{
    char path[512], why[600];
    if (!ls_module_find("lockstep-cuda.so", path, sizeof path)) {
        ls_find(f, missing(wanted), "cuda", "",
                "not built: no CUDA toolkit with cuDNN 9 was found when Lockstep was compiled");
        if (missing(wanted) != LS_HEALTH_MISSING)
            ls_advise(f,
                      "Install the CUDA toolkit and cuDNN 9 and build Lockstep again, or set LOCKSTEP_MODULES to the "
                      "folder of lockstep-cuda.so.");
        return false;
    }
    ls_log_mute(1);
    enum ls_status st = ls_backend_open("cuda", backend);
    ls_log_mute(0);
    if (st == LS_OK)
        return true;
    ls_log_last_copy(why, sizeof why);
    ls_find(f, missing(wanted), "cuda", "", "built, but %s", why);
    if (missing(wanted) != LS_HEALTH_MISSING)
        ls_advise(f, "Let the loader find CUDA's and cuDNN's libraries (ldconfig, LD_LIBRARY_PATH).");
    return false;
}

static void describe_card(struct ls_findings *f, const struct ls_backend_card *c, int number)
{
    bool old = c->major < 8;
    ls_find(f, old && c->mine ? LS_HEALTH_ERROR : LS_HEALTH_OK, "card", "",
            "%d%s: %s, PCI %s, compute capability %d.%d%s, %d multiprocessors, %.1f GiB", number,
            c->mine ? " (this process's)" : "", c->name, c->bus, c->major, c->minor, old ? " (8.0 is needed)" : "",
            c->multiprocessors, (double)c->memory / 0x1p30);
    if (old && c->mine)
        ls_advise(f, "Take --backend onednn, or a card of the Ampere generation or later (CUDA_VISIBLE_DEVICES).");
}

const struct ls_backend *ls_check_cuda(struct ls_findings *f, bool wanted, struct ls_cards *cards)
{
    const struct ls_backend *backend;
    struct ls_backend_about about;
    char why[256] = "", driver[96] = "unknown";
    if (!load(f, wanted, &backend))
        return NULL;
    backend->about(&about);
    cards->n = backend->cards(cards->list, LS_CARDS, why, sizeof why);
    if (cards->n == 0) {
        ls_find(f, missing(wanted), "cuda", "", "built (%s), but no card can be used: %s", about.library, why);
        if (missing(wanted) != LS_HEALTH_MISSING)
            ls_advise(f,
                      "See whether nvidia-smi lists a card, whether CUDA_VISIBLE_DEVICES hides it, and in a container "
                      "whether it was given one (--gpus all).");
        return NULL;
    }
    ls_gpu_driver(driver, sizeof driver);
    ls_find(f, *about.caution ? LS_HEALTH_WARNING : LS_HEALTH_OK, "cuda", "", "built: %s; driver %s%s%s", about.library,
            driver, *about.caution ? "; " : "", about.caution);
    if (*about.caution)
        ls_advise(f, "Update the driver; a kernel that it cannot load fails when training starts.");
    for (int i = 0; i < cards->n; i++)
        describe_card(f, &cards->list[i], i);
    bool nccl = backend->peers->nccl(why, sizeof why);
    ls_find(f, nccl ? LS_HEALTH_OK : LS_HEALTH_MISSING, "nccl", "", nccl ? "%s, for --collective nccl" : "%s", why);
    return backend;
}

json_t *ls_cards_json(const struct ls_cards *cards)
{
    json_t *list = json_array();
    for (int i = 0; i < cards->n; i++) {
        const struct ls_backend_card *c = &cards->list[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:[i,i], s:i, s:I, s:b}", "name", c->name, "bus", c->bus,
                                              "capability", c->major, c->minor, "multiprocessors", c->multiprocessors,
                                              "memory_bytes", (json_int_t)c->memory, "mine", c->mine));
    }
    return list;
}
