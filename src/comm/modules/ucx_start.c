/* The context and the worker of UCX, and its configuration.
 *
 * The TCP ports of UCX 1.13 stay open while a run lasts, and a message that UCX cannot read makes it abort the process.
 * So TCP is switched off unless the user allows it. Without TCP, UCX uses RDMA.
 *
 *   UCX-3  Without --allow-unprotected-ucx the process listens on no port of UCX, whatever the configuration of UCX is. */
#define _GNU_SOURCE
#include "base/log.h"
#include "comm/modules/ucx_group.h"
#include "comm/rendezvous/device.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
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

/* The number of TCP ports that this process listens on; -1: unknown. */
static int listening_ports(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = dir ? 0 : -1;
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        int fd = (int)strtol(e->d_name, NULL, 10), domain = 0, listens = 0;
        socklen_t a = sizeof domain, b = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &a) == 0 && (domain == AF_INET || domain == AF_INET6) &&
            getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &b) == 0)
            n += listens;
    }
    if (dir)
        closedir(dir);
    return n;
}

static enum ls_status create_worker(struct ls_ucx_group *g)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    int before = listening_ports();
    ucs_status_t code = ucp_worker_create(g->context, &params, &g->worker);
    if (code != UCS_OK)
        return ls_ucx_fail(code, "ucp_worker_create");
    if (g->may_listen || (before >= 0 && listening_ports() == before))
        return LS_OK;
    return ls_fail(LS_USAGE,
                   "UCX would listen on a TCP port, and anybody who reaches that port could end the run: leave out tcp "
                   "and all from UCX_TLS (%s), or accept the risk with --allow-unprotected-ucx",
                   getenv("UCX_TLS") ? getenv("UCX_TLS") : "which is not set");
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
    g->may_listen = l->ucx_tcp;
    if (!g->may_listen)
        set_default(config, "TLS", "^tcp");
    else if (l->kind == LS_LAUNCH_TCP && ls_device_towards(l, device))
        set_default(config, "NET_DEVICES", device);
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                           .estimated_num_eps = (size_t)l->size};
    code = ucp_init(&params, config, &g->context);
    ucp_config_release(config);
    if (code != UCS_OK)
        return ls_ucx_fail(code, "ucp_init");
    return create_worker(g);
}
