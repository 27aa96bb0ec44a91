/* The user of the process at the other end of a loopback connection. */
#ifndef LS_COMM_RENDEZVOUS_OWNER_H
#define LS_COMM_RENDEZVOUS_OWNER_H

#include <stdbool.h>

/* The process at the other end of this loopback connection belongs to the user of this process. False also when that is
 * not known. */
bool ls_owner_is_same_user(int socket);

#endif
