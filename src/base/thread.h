/* Threads that work beside the caller's. */
#ifndef LS_BASE_THREAD_H
#define LS_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create, for a thread that takes no signals: they are left to the caller's. */
int ls_thread_create(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
