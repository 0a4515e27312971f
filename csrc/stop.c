/* A flag that ends calls from another thread: no descriptor of its own, no lock but the process lock. */
#include "stop.h"

#include <stdlib.h>

#include "process.h"

struct fdw_stop {
    atomic_int is_set;
    struct stoppable *calls; /* under the process lock */
};

fdw_stop *fdw_stop_new(void)
{
    return calloc(1, sizeof(fdw_stop));
}

void fdw_stop_free(fdw_stop *stop)
{
    free(stop);
}

void fdw_stop_set(fdw_stop *stop)
{
    process_lock();
    atomic_store(&stop->is_set, 1);
    for (struct stoppable *call = stop->calls; call; call = call->next) {
        atomic_store(&call->stopped, 1);
        poller_wake(call->poller);
    }
    process_unlock();
}

void fdw_stop_clear(fdw_stop *stop)
{
    atomic_store(&stop->is_set, 0);
}

int fdw_stop_is_set(const fdw_stop *stop)
{
    return atomic_load(&stop->is_set);
}

void stop_attach(fdw_stop *stop, struct stoppable *call)
{
    call->stop = stop;
    if (!stop)
        return;
    process_lock();
    call->next = stop->calls;
    if (stop->calls)
        stop->calls->prev = call;
    stop->calls = call;
    atomic_store(&call->stopped, atomic_load(&stop->is_set));
    process_unlock();
}

void stop_detach(struct stoppable *call)
{
    if (!call->stop)
        return;
    process_lock();
    if (call->prev)
        call->prev->next = call->next;
    else
        call->stop->calls = call->next;
    if (call->next)
        call->next->prev = call->prev;
    process_unlock();
    call->stop = NULL;
}
