/* Helper threads. */
#ifndef LS_BASE_THREAD_H
#define LS_BASE_THREAD_H

#include <pthread.h>

/* Like pthread_create, but the new thread blocks all signals except SIGBUS. */
int ls_thread_create(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
