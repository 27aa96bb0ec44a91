/* The context and the worker of UCX, and its configuration. */
#define _GNU_SOURCE
#include "base/log.h"
#include "comm/modules/ucx_group.h"
#include "comm/rendezvous/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucs/debug/log_def.h>

/* UCX writes to standard output; its messages go to log.txt instead. */
static ucs_log_func_rc_t redirect_message(const char *file, unsigned line, const char *function, ucs_log_level_t level,
                                          const ucs_log_component_config_t *component, const char *message,
                                          va_list args)
{
    char text[512];
    (void)file, (void)line, (void)function, (void)component;
    if (level > UCS_LOG_LEVEL_WARN)
        return UCS_LOG_FUNC_RC_CONTINUE; /* the user set UCX_LOG_LEVEL */
    vsnprintf(text, sizeof text, message, args);
    ls_note("ucx: %s", text);
    return UCS_LOG_FUNC_RC_STOP;
}

/* UCX_* variables of the user take precedence. */
static void set_default(ucp_config_t *config, const char *name, const char *value)
{
    char variable[64];
    snprintf(variable, sizeof variable, "UCX_%s", name);
    if (!getenv(variable))
        ucp_config_modify(config, name, value);
}

enum ls_status ls_ucx_start(struct ls_ucx_group *g, const struct ls_launch *l)
{
    ucp_config_t *config;
    char device[64];
    ucs_log_push_handler(redirect_message);
    ucs_status_t code = ucp_config_read(NULL, NULL, &config);
    if (code != UCS_OK)
        return ls_ucx_fail(code, "reading its configuration");
    set_default(config, "KEEPALIVE_INTERVAL", "1s"); /* a dead peer on this host is noticed in seconds */
    if (l->kind == LS_LAUNCH_TCP && ls_device_towards(l, device))
        set_default(config, "NET_DEVICES", device);
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                           .estimated_num_eps = (size_t)l->size};
    code = ucp_init(&params, config, &g->context);
    ucp_config_release(config);
    if (code != UCS_OK)
        return ls_ucx_fail(code, "ucp_init");
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    code = ucp_worker_create(g->context, &worker, &g->worker);
    return code == UCS_OK ? LS_OK : ls_ucx_fail(code, "ucp_worker_create");
}
