/*
 * Linux: epoll(7).
 *
 * The kernel keeps interest by (number, open file), and forgets an entry only when the last number of the file
 * is closed. Three traps follow:
 *   - A closed number is dropped in silence: a wait on it lasts for ever. So a wait that comes back empty asks
 *     with EPOLL_CTL_MOD, which answers EBADF for a closed number, and ENOENT or EPERM for a reused one.
 *   - While a duplicate lives elsewhere, the entry of a closed number keeps firing. So a look asks poll(2) about
 *     the epoll and about the number together, in one call: both have to say ready.
 *   - A forked child shares the set: it must never change it, only close its copy.
 * Regular files and the like are refused with EPERM; select calls them always ready.
 * epoll_wait counts in milliseconds. The last two of a wait are slept in ppoll on the epoll itself, which counts
 * in nanoseconds and is older and allowed in more sandboxes than epoll_pwait2.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "clock.h"
#include "os.h"
#include "process.h"

#define BATCH 64

/* Registered with every epoll from the start, at first for no event, so that waking it needs no memory and no
 * descriptor then. One for the process, made at first use. */
static int always_readable = -1;
static struct fork_hook always_readable_hook;

static void close_always_readable(struct fork_hook *hook)
{
    (void)hook;
    if (always_readable >= 0)
        close(always_readable);
    always_readable = -1;
}

static int always_readable_fd(void)
{
    process_lock();
    int fd = always_readable;
    if (fd < 0) {
        fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
        fd = fd < 0 ? -errno : process_above_stdio(fd);
        always_readable = fd < 0 ? -1 : fd;
        process_add_hook_once(&always_readable_hook, close_always_readable);
    }
    process_unlock();
    return fd;
}

static int open_epoll(struct poller *p)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd >= 0)
        fd = process_above_stdio(fd);
    else
        fd = -errno;
    if (fd < 0)
        return fd;
    struct epoll_event none = {0};
    int wake_fd = always_readable_fd();
    int r = wake_fd < 0 ? wake_fd : epoll_ctl(fd, EPOLL_CTL_ADD, wake_fd, &none) < 0 ? -errno : 0;
    if (r < 0) {
        close(fd);
        return r;
    }
    p->fd = fd;
    return 0;
}

static struct epoll_event interest(int events, void *tag)
{
    return (struct epoll_event){.events = (uint32_t)poll_bits(events), .data.ptr = tag};
}

static int set_failed(struct poller *p, int fd)
{
    switch (errno) {
    case EPERM:
    case EBADF:
    case ENOSPC:
    case ENOMEM:
        return -errno;
    case EINVAL: /* the number was closed, and this very epoll got it */
        return fd == p->fd ? -EBADF : -ENOTSUP;
    default: /* ELOOP: epolls nested too deep */
        return -ENOTSUP;
    }
}

static int set_epoll(struct poller *p, int fd, int events, void *tag)
{
    struct epoll_event e = interest(events, tag);
    if (!events)
        return epoll_ctl(p->fd, EPOLL_CTL_DEL, fd, &e) < 0 ? -errno : 0;
    if (epoll_ctl(p->fd, EPOLL_CTL_ADD, fd, &e) == 0)
        return 0;
    if (errno == EEXIST && epoll_ctl(p->fd, EPOLL_CTL_MOD, fd, &e) == 0)
        return 0;
    return set_failed(p, fd);
}

static int check_epoll(struct poller *p, int fd, int events, void *tag)
{
    struct epoll_event e = interest(events, tag);
    if (epoll_ctl(p->fd, EPOLL_CTL_MOD, fd, &e) == 0)
        return 0;
    /* closed; another file; another file, of those that cannot be watched */
    return errno == EBADF || errno == ENOENT || errno == EPERM ? -EBADF : 0;
}

static int look_epoll(struct poller *p, int fd, int events)
{
    struct pollfd both[2] = {{.fd = p->fd, .events = POLLIN}, {.fd = fd, .events = poll_bits(events)}};
    int n = poll_fds(both, 2, 0);
    if (n <= 0)
        return n;
    if (both[1].revents & POLLNVAL || both[0].revents & POLLNVAL)
        return -EBADF;
    if (both[0].revents && both[1].revents)
        return FDW_READY;
    /* The epoll fires for a hang-up that is not asked for, or the number has another file now. */
    return both[0].revents ? -EAGAIN : 0;
}

static int wait_epoll(struct poller *p, struct ready *ready, int room, int64_t deadline)
{
    struct epoll_event got[BATCH];
    int n, ms, filled = 0;
    do {
        struct timespec left = {0};
        if (deadline > 0)
            left = clock_left(deadline);
        ms = deadline == FDW_FOREVER ? -1 : (int)(left.tv_sec * 1000 + left.tv_nsec / NS_PER_MS);
        if (ms >= 0 && ms < 2 && (left.tv_sec || left.tv_nsec)) {
            struct pollfd self = {.fd = p->fd, .events = POLLIN};
            int r = os_poll(&self, 1, deadline);
            if (r == -EINTR)
                return r;
            ms = 0;
        }
        n = epoll_wait(p->fd, got, room < BATCH ? room : BATCH, ms);
    } while (n == 0 && ms != 0);
    for (int i = 0; i < n; i++)
        if (got[i].data.ptr) /* else it is what wakes us */
            ready[filled++] = (struct ready){got[i].data.ptr, poll_events((short)got[i].events)};
    return n < 0 ? -errno : filled;
}

/* Cannot fail: the entry is there, and changing it takes no memory. */
static void wake_epoll(struct poller *p)
{
    struct epoll_event e = interest(FDW_READ, NULL);
    epoll_ctl(p->fd, EPOLL_CTL_MOD, always_readable, &e);
}

static void close_epoll(struct poller *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

const struct poller_ops fdw_epoll = {
    .name = "epoll",
    .open = open_epoll,
    .set = set_epoll,
    .look = look_epoll,
    .wait = wait_epoll,
    .sleep_on = poller_sleep_on,
    .check = check_epoll,
    .wake = wake_epoll,
    .watch_exit = os_watch_exit,
    .close = close_epoll,
    .in_child = close_epoll,
};
