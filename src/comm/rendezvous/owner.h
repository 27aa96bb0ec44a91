/* Whose process is at the other end of a connection within this machine. */
#ifndef LS_COMM_RENDEZVOUS_OWNER_H
#define LS_COMM_RENDEZVOUS_OWNER_H

#include <stdbool.h>

/* The other end of this connected socket, over the loopback interface, belongs to the user of this process. False also
 * where that cannot be found out. */
bool ls_owner_same_user(int socket);

#endif
