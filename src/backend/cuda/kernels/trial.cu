/* Switches of a trial, to be removed with the variants that lose. */
#include <stdlib.h>

static int given(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

extern "C" {
extern int ls_cuda_trial_sgd, ls_cuda_trial_apply, ls_cuda_trial_dz, ls_cuda_trial_behind;
int ls_cuda_trial_sgd = given("LS_TRIAL_SGD", 0);
int ls_cuda_trial_apply = given("LS_TRIAL_APPLY", 0);
int ls_cuda_trial_dz = given("LS_TRIAL_DZ", 0);
int ls_cuda_trial_behind = given("LS_TRIAL_BEHIND", 1);
}
