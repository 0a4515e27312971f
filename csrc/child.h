/* Noticing that a process is gone, without reaping it. */
#ifndef FDW_CHILD_H
#define FDW_CHILD_H

#include <stdint.h>
#include <sys/types.h>

#include "poller.h"

struct child {
    pid_t pid;
    enum { CHILD_NONE, CHILD_WATCHED, CHILD_LOOKED_AT, CHILD_GONE } state;
    int fd;            /* of the watch; -1: none */
    int was_ours;      /* waitid knew it once, so that ECHILD means that somebody reaped it */
    int64_t next_look; /* CHILD_LOOKED_AT */
    int64_t interval;
};

/* Start to watch `pid` (0: it is gone already) through `p`, which will hand back `c` as the tag. */
void child_watch(struct child *c, struct poller *p, pid_t pid);

/* The poller handed it back, or it is time for a look. */
void child_take_ready(struct child *c, struct poller *p, int events);
void child_look(struct child *c, int64_t now);

/* Look at it whether it is time or not: the watch may have been closed by somebody, or not have been asked. */
void child_look_closely(struct child *c, struct poller *p);

void child_forget(struct child *c, struct poller *p);

/* Signal it, or the group that it leads, unless it was reaped. -errno. */
int child_signal(const struct child *c, int signal, int group);

#endif
