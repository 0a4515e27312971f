/* What fdw_stop_set reaches: a call under way that can be ended from another thread. */
#ifndef FDW_STOP_H
#define FDW_STOP_H

#include <stdatomic.h>

#include "fdwait.h"
#include "poller.h"

struct stoppable {
    atomic_int stopped; /* stays, even when the stop is cleared at once: this call was told to end */
    struct poller *poller;
    fdw_stop *stop;
    struct stoppable *next, *prev;
};

/* `stop` may be NULL. */
void stop_attach(fdw_stop *stop, struct stoppable *call);
void stop_detach(struct stoppable *call);

#endif
