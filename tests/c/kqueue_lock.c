/* For tests on libkqueue 2.3.1, in which two threads inside kqueue() at once deadlock: one at a time.
 * Linked with --wrap=kqueue. */
#include <pthread.h>

int __real_kqueue(void);
int __wrap_kqueue(void);

int __wrap_kqueue(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    int fd = __real_kqueue();
    pthread_mutex_unlock(&lock);
    return fd;
}
