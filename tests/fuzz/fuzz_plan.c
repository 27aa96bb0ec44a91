/* Any bytes as a plan file, that of a run or the cache: lines that make no sense are passed over, and what is kept can be
 * written and read again. */
#include "backend/core/tune_cache.h"
#include "base/log.h"
#include "base/memory.h"
#include "exec/identity.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *choices_of(const char *text)
{
    struct ls_tune_cache a = {.machine = "fuzz", .plan = text, .quiet = true};
    char *choices = NULL;
    if (ls_tune_cache_open(&a, NULL) != LS_OK)
        return NULL;
    for (int i = 0; i < a.n; i++) {
        struct ls_tune_choice *found = ls_tune_cache_find(&a, a.list[i].question);
        if (!found)
            abort();
        ls_tune_cache_use(&a, found);
    }
    return ls_tune_cache_close(&a, NULL, &choices) == LS_OK ? choices : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char identity[LS_IDENTITY_ROOM];
    char *text = fuzz_text(data, size);
    ls_log_mute(1);
    if (!text)
        return 0;
    ls_identity_of_plan(text, identity);
    char *once = choices_of(text), *twice = once ? choices_of(once) : NULL;
    if (once && twice && ls_tune_cache_identity(once) != ls_tune_cache_identity(twice))
        abort();
    ls_free(once);
    ls_free(twice);
    free(text);
    return 0;
}
