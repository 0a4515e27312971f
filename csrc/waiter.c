/*
 * One descriptor, many waits.
 *
 * A wait is: look, sleep, look again. The look tells the truth (ready, not ready, closed); the sleep only passes
 * the time. A sleep that comes back empty is followed by a check that the number is still the same file, and an
 * endless one is cut every five seconds for that.
 *
 * Closing from another thread: mark, wake, wait until nobody is inside, then give the descriptor back. Where the
 * poller cannot be woken (poll, select), sleeps are cut to 100 ms.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "clock.h"
#include "poller.h"
#include "process.h"

struct fdw_waiter {
    struct poller poller;
    int fd, events;
    int light;
    const char *backend;
    int always;        /* ready whenever it is open: no poller */
    struct stat file;  /* which file it was when it was opened */
    atomic_int inside; /* calls under way */
    atomic_int closed;
    atomic_uint forks;
};

static int is_same_file(const fdw_waiter *w)
{
    struct stat now;
    if (fstat(w->fd, &now) < 0)
        return errno == EBADF ? -EBADF : FDW_READY;
    return now.st_dev == w->file.st_dev && now.st_ino == w->file.st_ino ? FDW_READY : -EBADF;
}

static int watch(fdw_waiter *w)
{
    return w->poller.ops->set(&w->poller, w->fd, w->events, w);
}

static int set_up(fdw_waiter *w)
{
    int r = poller_open(&w->poller, w->light);
    if (r == 0)
        r = watch(w);
    const struct poller_ops *other = poller_fallback(r);
    if (w->poller.ops && other) {
        poller_close(&w->poller);
        r = poller_open_with(&w->poller, other);
        if (r == 0)
            r = watch(w);
    }
    if (r < 0)
        poller_close(&w->poller);
    if (r == -EPERM) {
        w->always = 1;
        r = 0;
    }
    w->backend = w->always ? "always" : w->poller.ops ? w->poller.ops->name : NULL;
    return r;
}

fdw_waiter *fdw_waiter_new(void)
{
    fdw_waiter *w = calloc(1, sizeof *w);
    if (w) {
        w->forks = process_forks();
        w->closed = 1;
    }
    return w;
}

int fdw_waiter_open(fdw_waiter *w, int fd, int events, int light)
{
    w->fd = fd;
    w->events = events;
    w->light = light;
    int r = fstat(fd, &w->file) < 0 ? -errno : set_up(w);
    if (r == 0)
        atomic_store(&w->closed, 0);
    return r;
}

const char *fdw_waiter_backend(const fdw_waiter *w)
{
    return w->backend;
}

/* In a forked child: start afresh, once. The parent's threads that were inside do not exist here, and whoever
 * comes in later passes here first. */
static int renew(fdw_waiter *w)
{
    int r = 0;
    process_lock();
    if (atomic_load(&w->forks) != process_forks()) {
        atomic_store(&w->inside, 0);
        poller_close(&w->poller);
        if (!w->always && !atomic_load(&w->closed))
            r = is_same_file(w) < 0 ? -EBADF : set_up(w);
        if (r == 0)
            atomic_store(&w->forks, process_forks());
    }
    process_unlock();
    return r;
}

static void leave(fdw_waiter *w)
{
    if (atomic_fetch_sub(&w->inside, 1) > 1 || !atomic_load(&w->closed))
        return;
    process_lock();
    process_wake_all();
    process_unlock();
}

static int enter(fdw_waiter *w)
{
    if (atomic_load_explicit(&w->forks, memory_order_relaxed) != process_forks()) {
        int r = renew(w);
        if (r < 0)
            return r;
    }
    atomic_fetch_add(&w->inside, 1);
    if (!atomic_load(&w->closed))
        return 0;
    leave(w);
    return -ECANCELED;
}

static int look(fdw_waiter *w)
{
    return w->always ? is_same_file(w) : w->poller.ops->look(&w->poller, w->fd, w->events);
}

int fdw_waiter_look(fdw_waiter *w)
{
    int r = enter(w);
    if (r < 0)
        return r;
    r = look(w);
    if (r == 0 || r == -EAGAIN)
        r = w->poller.ops->check(&w->poller, w->fd, w->events, w);
    leave(w);
    return r;
}

static int wait_ready(fdw_waiter *w, int64_t deadline, int64_t slice)
{
    for (;;) {
        if (atomic_load(&w->closed))
            return -ECANCELED;
        int r = look(w);
        if (r != 0 && r != -EAGAIN)
            return r == -EINTR ? FDW_AGAIN : r;
        int in_select = r == -EAGAIN && !atomic_load(&w->closed);
        r = w->poller.ops->check(&w->poller, w->fd, w->events, w);
        if (r < 0)
            return r;
        int64_t now = clock_now();
        if (now >= deadline)
            return FDW_DEADLINE;
        if (now >= slice)
            return FDW_AGAIN;
        int wakeable = w->poller.ops->wake && !in_select;
        int64_t until = clock_after(now, wakeable ? POLLER_CHECK_EVERY : POLLER_UNWAKEABLE_SLEEP);
        until = min64(min64(until, slice), deadline);
        r = in_select ? sleep_in_select(w->fd, w->events, until)
                      : w->poller.ops->sleep_on(&w->poller, w->fd, w->events, until);
        if (r < 0)
            return r == -EINTR ? FDW_AGAIN : r;
    }
}

int fdw_waiter_wait(fdw_waiter *w, int64_t deadline)
{
    int64_t slice = process_slice(SLEEP_SLICE);
    int r = enter(w);
    if (r < 0)
        return r;
    r = wait_ready(w, deadline, slice);
    leave(w);
    return r;
}

void fdw_waiter_close(fdw_waiter *w)
{
    atomic_store(&w->closed, 1); /* first, so that a forked child does not set up what is to go */
    if (atomic_load(&w->forks) != process_forks())
        renew(w);
    process_lock();
    poller_wake(&w->poller);
    while (atomic_load(&w->inside) > 0)
        process_wait_until(FDW_FOREVER);
    poller_close(&w->poller);
    process_unlock();
}

void fdw_waiter_free(fdw_waiter *w)
{
    if (!w)
        return;
    fdw_waiter_close(w);
    free(w);
}
