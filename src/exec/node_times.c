#include "exec/node_times.h"
#include "base/system/clock.h"

enum ls_status ls_time_nodes_once(const struct ls_backend *b, const struct ls_net *net, const struct ls_run *run,
                                  double (*clock)(void), bool again, double *seconds)
{
    for (int n = 0; n < net->graph.n_nodes; n++) {
        double start = clock();
        LS_TRY(b->run(net->program, n, n + 1, run));
        double took = clock() - start;
        seconds[n] = again && seconds[n] < took ? seconds[n] : took;
    }
    return LS_OK;
}

enum ls_status ls_time_nodes(const struct ls_backend *b, const struct ls_net *net, const struct ls_run *run,
                             double *seconds)
{
    enum { ROUNDS = 5 };
    if (b->profile)
        return b->profile(net->program, 0, net->graph.n_nodes, run, seconds);
    for (int round = 0; round < ROUNDS; round++)
        LS_TRY(ls_time_nodes_once(b, net, run, ls_now, round > 0, seconds));
    return LS_OK;
}
