/* The private interface that epoll.c, kqueue.c and poll.c implement. */
#ifndef FDW_POLLER_H
#define FDW_POLLER_H

#include <poll.h>
#include <stdint.h>
#include <sys/types.h>

#include "clock.h"
#include "fdwait.h"
#include "process.h"

/* How often a sleep is cut to see whether its descriptors are still the same files, and how long it may last
 * where nobody could wake it. */
#define POLLER_CHECK_EVERY (5 * NS_PER_S)
#define POLLER_UNWAKEABLE_SLEEP (100 * NS_PER_MS)

struct poller_ops;

struct poller {
    const struct poller_ops *ops; /* NULL: closed */
    int fd;                       /* of the epoll or kqueue; -1: none */
    unsigned forks;               /* process_forks() when it was opened */
    void *state;                  /* of the implementation */
    struct fork_hook hook;
};

struct ready {
    void *tag;
    int events; /* FDW_READ | FDW_WRITE as select(2) means them. 0: neither, the descriptor may be gone */
};

struct poller_ops {
    const char *name;

    /* -EMFILE, -ENFILE, -ENOMEM: not now. */
    int (*open)(struct poller *p);

    /* Watch fd for `events`, level-triggered, and hand `tag` back with them; 0 ends it, before fd is closed.
     * -EPERM: nothing was registered, fd is always ready. -EBADF. -ENOSPC, -ENOMEM: no room for it here.
     * -ENOTSUP: this kernel interface cannot wait on it. */
    int (*set)(struct poller *p, int fd, int events, void *tag);

    /* Is a watched descriptor ready now? FDW_READY, 0, -EBADF if it was closed, -EINTR.
     * -EAGAIN: it is not, and yet wait() would return at once; sleep in select(2) instead. */
    int (*look)(struct poller *p, int fd, int events);

    /* Sleep until something is ready or the deadline, in one thread at a time. How many of `ready` were filled in, 0 at the deadline or
     * when woken, -EINTR. */
    int (*wait)(struct poller *p, struct ready *ready, int room, int64_t deadline);

    /* The same for one watched descriptor, in any number of threads at once. 0 also when it is ready: look. */
    int (*sleep_on)(struct poller *p, int fd, int events, int64_t deadline);

    /* Is fd still the file that was registered? 0, -EBADF. */
    int (*check)(struct poller *p, int fd, int events, void *tag);

    /* From any thread: wait() returns at once, now and later. NULL: it cannot be done, waits must be sliced. */
    void (*wake)(struct poller *p);

    /* Watch the exit of a process. 0 or a descriptor that the caller closes: it will be handed `tag`. -ESRCH:
     * gone already. Other errors: not to be had, look at it now and then. */
    int (*watch_exit)(struct poller *p, pid_t pid, void *tag);

    void (*close)(struct poller *p);

    /* In a forked child: let go of what it shares with its parent. NULL: nothing. */
    void (*in_child)(struct poller *p);
};

extern const struct poller_ops fdw_epoll, fdw_kqueue, fdw_poll, fdw_select_poller;

/* Open the best poller to be had: the forced one, else the first one built in, else poll, which can only fail
 * with -ENOMEM. With `light`, one that takes no descriptor. */
int poller_open(struct poller *p, int light);
int poller_open_with(struct poller *p, const struct poller_ops *ops);
void poller_close(struct poller *p);

/* What to try next where `set` answered `error`; NULL: nothing else would do better. */
const struct poller_ops *poller_fallback(int error);

/* Wake it, unless it belongs to the parent of this process. */
void poller_wake(struct poller *p);

/* sleep_on for pollers whose wait() keeps nothing between calls. */
int poller_sleep_on(struct poller *p, int fd, int events, int64_t deadline);

/* ---- poll(2) with the meaning of select(2); in select.c and poll.c ---- */

/* Memory for descriptor sets, kept between calls. Starts as {0}. */
struct sets {
    void *words;
    size_t size;
};

/* pselect(2) with sets of any size. revents become POLLIN, POLLOUT and POLLPRI as select says, POLLNVAL for a
 * descriptor that is closed. How many entries have any; 0 at the deadline; -EINTR, -ENOMEM. */
int select_fds(struct sets *sets, struct pollfd *fds, unsigned n, int64_t deadline);

/* The same by poll(2), which needs no memory, for POLLIN and POLLOUT. It goes over to select_fds where poll
 * cannot say the truth: it calls an open descriptor invalid, or returns for a hang-up that nobody asked for. */
int poll_fds(struct pollfd *fds, unsigned n, int64_t deadline);

/* One look at one descriptor: FDW_READY, 0, -EBADF, -EINTR. */
int look_fd(int fd, int events);

/* Until one descriptor is ready or the deadline, in select(2): 0, also when it is ready; -EINTR, -ENOMEM. */
int sleep_in_select(int fd, int events, int64_t deadline);

short poll_bits(int events);    /* FDW_READ | FDW_WRITE for struct pollfd */
int poll_events(short revents); /* and back, as select means them */

#endif
