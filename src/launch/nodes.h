/* Nodes that are started once each, and the workers that each start makes: --workers, --npernode, --hostfile. For the files of
 * this folder. */
#ifndef LS_LAUNCH_NODES_H
#define LS_LAUNCH_NODES_H

#include "launch/hostfile.h"
#include "launch/launch.h"

struct ls_nodes {
    int workers;             /* that each start makes; 0: none, every process is a rank */
    struct ls_hostfile file; /* its slots are the workers of each host; no hosts: every node has the same number */
    int this;                /* with hosts: the one that this process runs on */
};

/* Reads the options. Fails where the launcher has started the processes of the nodes already, and in other numbers. The caller
 * releases nodes->file. */
enum ls_status ls_nodes_read(const struct ls_options *o, const struct ls_launch *l, struct ls_nodes *nodes);
/* Sets rank and size of l in nodes, and the address of the first host, from the hostfile. */
enum ls_status ls_nodes_place(const struct ls_options *o, struct ls_nodes *nodes, struct ls_launch *l);
/* Turns rank and size in nodes into those of workers: the ranks of a node's workers follow each other. */
enum ls_status ls_nodes_multiply(const struct ls_nodes *nodes, struct ls_launch *l);
/* The error for mpirun with one process on each node, which does not tell where the first node is. */
enum ls_status ls_nodes_refuse_mpi(const struct ls_options *o, const struct ls_launch *l);

#endif
