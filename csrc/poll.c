/*
 * poll(2), everywhere: needs no descriptor of its own, so it works when there is none left. And select(2) in the
 * same shape, for what poll cannot wait on.
 *
 * What poll says is not always what select means by ready:
 *   - POLLHUP comes unasked. For a writer it is no readiness, and poll would return at once for ever.
 *   - macOS answers POLLNVAL for open terminals and devices.
 *   - More entries than RLIMIT_NOFILE are EINVAL, also when the limit was lowered below what is open.
 * In each of these cases the same question is put to select.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "clock.h"
#include "os.h"

short poll_bits(int events)
{
    return (short)((events & FDW_READ ? POLLIN : 0) | (events & FDW_WRITE ? POLLOUT : 0));
}

int poll_events(short revents)
{
    int readable = revents & (POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR);
    return (readable ? FDW_READ : 0) | (revents & os_poll_writable ? FDW_WRITE : 0);
}

/* revents as select means them. How many entries have any. */
static int translate(struct pollfd *fds, unsigned n, int *lies)
{
    int count = 0;
    for (unsigned i = 0; i < n; i++) {
        if (!fds[i].revents)
            continue;
        if (fds[i].revents & POLLNVAL) {
            *lies |= fcntl(fds[i].fd, F_GETFD) >= 0;
            fds[i].revents = POLLNVAL;
        } else {
            fds[i].revents = poll_bits(poll_events(fds[i].revents)) & fds[i].events;
        }
        count += fds[i].revents != 0;
    }
    return count;
}

int poll_fds(struct pollfd *fds, unsigned n, int64_t deadline)
{
    int lies = 0;
    int r = os_poll(fds, n, deadline);
    if (r == 0 || r == -EINTR)
        return r;
    if (r > 0) {
        int count = translate(fds, n, &lies);
        if (count > 0 && !lies)
            return count;
        if (!lies && deadline <= 0)
            return 0;
    }
    struct sets sets = {0};
    r = select_fds(&sets, fds, n, deadline);
    free(sets.words);
    return r;
}

int look_fd(int fd, int events)
{
    struct pollfd one = {.fd = fd, .events = poll_bits(events)};
    int r = poll_fds(&one, 1, 0);
    return r > 0 && one.revents & POLLNVAL ? -EBADF : r;
}

int fdw_look_readable(int fd)
{
    return look_fd(fd, FDW_READ);
}

int fdw_look_writable(int fd)
{
    return look_fd(fd, FDW_WRITE);
}

/* ---- the poller ---- */

/* Blind among files that share an inode and are open in the same way: PTY masters, eventfds. The two ends of a pipe
 * share one, and are told apart by the way they are open. */
struct identity {
    dev_t dev, rdev;
    ino_t ino;
    int access;
};

struct list {
    int (*sleep)(struct list *list, int64_t deadline);
    struct sets sets;
    unsigned n, room;
    struct pollfd *fds;
    void **tags;
    struct identity *ids;
};

static int sleep_poll(struct list *list, int64_t deadline)
{
    return poll_fds(list->fds, list->n, deadline);
}

static int sleep_select(struct list *list, int64_t deadline)
{
    return select_fds(&list->sets, list->fds, list->n, deadline);
}

static int open_list(struct poller *p, int (*sleep)(struct list *, int64_t))
{
    struct list *list = calloc(1, sizeof *list);
    if (!list)
        return -ENOMEM;
    list->sleep = sleep;
    p->state = list;
    return 0;
}

static int open_poll(struct poller *p)
{
    return open_list(p, sleep_poll);
}

static int open_select(struct poller *p)
{
    return open_list(p, sleep_select);
}

static int identify(int fd, struct identity *id)
{
    struct stat st;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fstat(fd, &st) < 0)
        return -errno;
    *id = (struct identity){st.st_dev, st.st_rdev, st.st_ino, flags & O_ACCMODE};
    return 0;
}

static unsigned find(const struct list *list, int fd)
{
    unsigned i = 0;
    while (i < list->n && list->fds[i].fd != fd)
        i++;
    return i;
}

static int grow(struct list *list)
{
    unsigned room = list->room ? 2 * list->room : 4;
    void *fds = realloc(list->fds, room * sizeof *list->fds);
    if (fds)
        list->fds = fds;
    void *tags = realloc(list->tags, room * sizeof *list->tags);
    if (tags)
        list->tags = tags;
    void *ids = realloc(list->ids, room * sizeof *list->ids);
    if (ids)
        list->ids = ids;
    if (!fds || !tags || !ids)
        return -ENOMEM;
    list->room = room;
    return 0;
}

static int unset(struct list *list, unsigned i)
{
    if (i == list->n)
        return -ENOENT;
    list->n--;
    list->fds[i] = list->fds[list->n];
    list->tags[i] = list->tags[list->n];
    list->ids[i] = list->ids[list->n];
    return 0;
}

static int set_list(struct poller *p, int fd, int events, void *tag)
{
    struct list *list = p->state;
    struct identity id;
    unsigned i = find(list, fd);
    if (!events)
        return unset(list, i);
    int r = identify(fd, &id);
    if (r < 0)
        return r;
    if (i == list->room && (r = grow(list)) < 0)
        return r;
    list->fds[i] = (struct pollfd){.fd = fd, .events = poll_bits(events)};
    list->tags[i] = tag;
    list->ids[i] = id;
    if (i == list->n)
        list->n++;
    return 0;
}

static int sleep_on_poll(struct poller *p, int fd, int events, int64_t deadline)
{
    struct pollfd one = {.fd = fd, .events = poll_bits(events)};
    (void)p;
    int r = poll_fds(&one, 1, deadline);
    return r < 0 ? r : 0;
}

static int select_one(int fd, int events, int64_t deadline)
{
    struct pollfd one = {.fd = fd, .events = poll_bits(events)};
    struct sets sets = {0};
    int r = select_fds(&sets, &one, 1, deadline);
    free(sets.words);
    return r > 0 && one.revents & POLLNVAL ? -EBADF : r;
}

int sleep_in_select(int fd, int events, int64_t deadline)
{
    int r = select_one(fd, events, deadline);
    return r < 0 && r != -EBADF ? r : 0;
}

static int sleep_on_select(struct poller *p, int fd, int events, int64_t deadline)
{
    (void)p;
    return sleep_in_select(fd, events, deadline);
}

static int wait_list(struct poller *p, struct ready *ready, int room, int64_t deadline)
{
    struct list *list = p->state;
    int filled = 0;
    int r = list->sleep(list, deadline);
    if (r <= 0)
        return r;
    for (unsigned i = 0; i < list->n && filled < room; i++)
        if (list->fds[i].revents)
            ready[filled++] = (struct ready){list->tags[i], poll_events(list->fds[i].revents)};
    return filled;
}

static int check_list(struct poller *p, int fd, int events, void *tag)
{
    struct list *list = p->state;
    struct identity now;
    unsigned i = find(list, fd);
    (void)events, (void)tag;
    int r = i < list->n ? identify(fd, &now) : -EBADF;
    if (r < 0)
        return r == -EBADF ? r : 0; /* another error (of a network file, say) proves nothing */
    const struct identity *then = &list->ids[i];
    int same =
        now.dev == then->dev && now.ino == then->ino && now.rdev == then->rdev && now.access == then->access;
    return same ? 0 : -EBADF;
}

/* Unlike an epoll, these know the number only: a ready one may be another file's. */
static int confirm(struct poller *p, int fd, int events, int r)
{
    return r == FDW_READY && check_list(p, fd, events, NULL) < 0 ? -EBADF : r;
}

static int look_poll(struct poller *p, int fd, int events)
{
    return confirm(p, fd, events, look_fd(fd, events));
}

static int look_select(struct poller *p, int fd, int events)
{
    return confirm(p, fd, events, select_one(fd, events, 0));
}

static void close_list(struct poller *p)
{
    struct list *list = p->state;
    free(list->sets.words);
    free(list->fds);
    free(list->tags);
    free(list->ids);
    free(list);
}

const struct poller_ops fdw_poll = {
    .name = "poll",
    .open = open_poll,
    .set = set_list,
    .look = look_poll,
    .wait = wait_list,
    .sleep_on = sleep_on_poll,
    .check = check_list,
    .watch_exit = os_watch_exit,
    .close = close_list,
};

const struct poller_ops fdw_select_poller = {
    .name = "select",
    .open = open_select,
    .set = set_list,
    .look = look_select,
    .wait = wait_list,
    .sleep_on = sleep_on_select,
    .check = check_list,
    .watch_exit = os_watch_exit,
    .close = close_list,
};
