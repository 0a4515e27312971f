/*
 * macOS and the BSDs: kqueue(2).
 *
 * Where kevent and select disagree, and what is done about it:
 *   - A regular file at its end waits for growth; select calls it ready. Files and directories are not
 *     registered but said to be always ready (-EPERM).
 *   - Devices that cannot be watched answer EINVAL (XNU) or ENODEV (FreeBSD): -ENOTSUP, select serves them.
 *   - A pipe without reader cannot be registered for writing: EPIPE, on NetBSD EBADF. It will never block: -EPERM.
 *   - close() removes entries in silence. EV_ENABLE without EV_ADD then says ENOENT.
 *   - Two filters for one descriptor arrive as two events: they are put together.
 * Every change asks for a receipt, one entry with EV_ERROR and 0 or an errno; EV_ERROR is one bit among others.
 * A kqueue is not inherited by fork, so its number must not be closed in the child: it may be another file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/event.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "clock.h"
#include "os.h"
#include "process.h"

#define BATCH 64

typedef __typeof__(((struct kevent *)0)->udata) udata;

static const struct timespec no_time;

/* 0, or what the receipt or the call says. After EINTR the change has been applied (FreeBSD kqueue(2)). */
static int change(struct poller *p, struct kevent *c)
{
    struct kevent receipt;
    c->flags |= EV_RECEIPT;
    int n = kevent(p->fd, c, 1, &receipt, 1, &no_time);
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    return n == 1 && receipt.flags & EV_ERROR ? -(int)receipt.data : 0;
}

static int open_kqueue(struct poller *p)
{
    struct kevent wake;
    int fd = kqueue();
    if (fd < 0)
        return -errno;
    /* Not inherited by fork: between the two calls nobody but an exec of this very process could take it. */
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    p->fd = process_above_stdio(fd);
    if (p->fd < 0)
        return p->fd;
    EV_SET(&wake, 0, EVFILT_USER, EV_ADD, 0, 0, (udata)0);
    int r = change(p, &wake);
    if (r < 0)
        close(p->fd);
    return r;
}

static int always_ready(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ? -EPERM : 0;
}

static int filter_off(struct poller *p, int fd, int filter)
{
    struct kevent c;
    EV_SET(&c, (uintptr_t)fd, filter, EV_DELETE, 0, 0, (udata)0);
    int r = change(p, &c);
    return r == -ENOENT ? 0 : r;
}

static int filter_on(struct poller *p, int fd, int filter, void *tag)
{
    struct kevent c;
    EV_SET(&c, (uintptr_t)fd, filter, EV_ADD | EV_ENABLE, 0, 0, (udata)tag);
    int r = change(p, &c);
    switch (r) {
    case -EPIPE:
        return -EPERM;
    case -EBADF:
        return filter == EVFILT_WRITE && fcntl(fd, F_GETFD) >= 0 ? -EPERM : r;
    case -EINVAL:
    case -ENODEV:
        return -ENOTSUP;
    default:
        return r;
    }
}

static int set_kqueue(struct poller *p, int fd, int events, void *tag)
{
    static const int filters[2] = {EVFILT_READ, EVFILT_WRITE};
    static const int wanted[2] = {FDW_READ, FDW_WRITE};
    int r = events ? always_ready(fd) : 0;
    for (int i = 0; i < 2 && r == 0; i++)
        r = events & wanted[i] ? filter_on(p, fd, filters[i], tag) : filter_off(p, fd, filters[i]);
    if (r < 0 && events)
        for (int i = 0; i < 2; i++)
            filter_off(p, fd, filters[i]);
    return r;
}

static int look_kqueue(struct poller *p, int fd, int events)
{
    struct kevent got[4];
    (void)events;
    int n = kevent(p->fd, NULL, 0, got, 4, &no_time);
    if (n < 0)
        return -errno;
    for (int i = 0; i < n; i++)
        if (got[i].filter != EVFILT_USER)
            return fcntl(fd, F_GETFD) < 0 ? -EBADF : FDW_READY;
    return 0;
}

static int ready_events(const struct kevent *e)
{
    if (e->flags & EV_ERROR)
        return 0;
    return e->filter == EVFILT_WRITE ? FDW_WRITE : FDW_READ;
}

static int add_ready(struct ready *ready, int filled, void *tag, int events)
{
    for (int i = 0; i < filled; i++) {
        if (ready[i].tag == tag) {
            ready[i].events |= events;
            return filled;
        }
    }
    ready[filled] = (struct ready){tag, events};
    return filled + 1;
}

static int wait_kqueue(struct poller *p, struct ready *ready, int room, int64_t deadline)
{
    struct kevent got[BATCH];
    struct timespec left = {0};
    int filled = 0;
    if (deadline > 0)
        left = clock_left(deadline);
    int n = kevent(p->fd, NULL, 0, got, room < BATCH ? room : BATCH, &left);
    if (n < 0)
        return -errno;
    for (int i = 0; i < n; i++)
        if (got[i].filter != EVFILT_USER)
            filled = add_ready(ready, filled, (void *)got[i].udata, ready_events(&got[i]));
    return filled;
}

static int check_kqueue(struct poller *p, int fd, int events, void *tag)
{
    struct kevent c;
    int filter = events & FDW_READ ? EVFILT_READ : EVFILT_WRITE;
    if (fcntl(fd, F_GETFD) < 0)
        return -EBADF;
    EV_SET(&c, (uintptr_t)fd, filter, EV_ENABLE, 0, 0, (udata)tag);
    int r = change(p, &c);
    return r == -ENOENT || r == -EBADF ? -EBADF : 0;
}

static void wake_kqueue(struct poller *p)
{
    struct kevent c;
    EV_SET(&c, 0, EVFILT_USER, 0, NOTE_TRIGGER, 0, (udata)0);
    change(p, &c);
}

static int watch_exit_kqueue(struct poller *p, pid_t pid, void *tag)
{
    struct kevent c;
    EV_SET(&c, (uintptr_t)pid, EVFILT_PROC, EV_ADD | EV_ONESHOT, NOTE_EXIT, 0, (udata)tag);
    return change(p, &c);
}

static void close_kqueue(struct poller *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

static void in_child_kqueue(struct poller *p)
{
    p->fd = -1;
}

const struct poller_ops fdw_kqueue = {
    .name = "kqueue",
    .open = open_kqueue,
    .set = set_kqueue,
    .look = look_kqueue,
    .wait = wait_kqueue,
    .sleep_on = poller_sleep_on,
    .check = check_kqueue,
    .wake = wake_kqueue,
    .watch_exit = watch_exit_kqueue,
    .close = close_kqueue,
    .in_child = in_child_kqueue,
};
