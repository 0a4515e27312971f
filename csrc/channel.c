#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "process.h"

static int has_packets(int fd, mode_t mode)
{
    int type = SOCK_STREAM;
    socklen_t size = sizeof type;
    return S_ISSOCK(mode) && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type != SOCK_STREAM;
}

/* A pipe has two open files: our end can be made non-blocking without the child's noticing. */
static int open_pipe(struct channel *c)
{
    int ends[2];
    int r = os_pipe(ends);
    if (r < 0)
        return r;
    for (int i = 0; i < 2; i++) {
        int fd = process_above_stdio(ends[i]);
        if (fd < 0) {
            close(ends[!i]);
            return fd;
        }
        ends[i] = fd;
    }
    c->own = 1;
    c->fd = ends[c->events == FDW_WRITE];
    c->peer = ends[c->events == FDW_READ];
    if (fcntl(c->fd, F_SETFL, O_NONBLOCK) < 0) {
        r = -errno;
        channel_close(c);
    }
    return r;
}

int channel_open(struct channel *c, int fd, int events, struct stat *st)
{
    *c = (struct channel){.fd = fd, .peer = -1, .events = events, .maybe_ready = 1};
    if (fd == FDW_PIPE) {
        *st = (struct stat){.st_mode = S_IFIFO};
        c->mode = OS_PLAIN;
        return open_pipe(c);
    }
    if (fstat(fd, st) < 0)
        return -errno;
    c->dev = st->st_dev;
    c->ino = st->st_ino;
    c->mode = os_io_mode(st->st_mode);
    return has_packets(fd, st->st_mode) ? -EPROTOTYPE : 0;
}

/* A fork in between would leave the child with a number that means something else. */
static void close_own(int *fd)
{
    process_lock();
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    process_unlock();
}

void channel_close_end(struct channel *c)
{
    if (c->own)
        close_own(&c->fd);
}

void channel_close_peer(struct channel *c)
{
    close_own(&c->peer);
}

void channel_close(struct channel *c)
{
    channel_close_end(c);
    channel_close_peer(c);
}

int channel_watch(struct channel *c, struct poller *p, int wanted)
{
    if (wanted == c->watched || (wanted && c->always_ready))
        return 0;
    int r = p->ops->set(p, c->fd, wanted ? c->events : 0, c);
    if (!wanted) {
        c->watched = 0;
        return 0;
    }
    c->watched = r == 0;
    c->always_ready = r == -EPERM;
    return c->always_ready ? 0 : r;
}

/* A hang-up that was not asked for would come again at once: such a descriptor is tried now and then instead. */
void channel_take_ready(struct channel *c, struct poller *p, int events)
{
    c->maybe_ready = 1; /* or gone: its turn will tell */
    if (events & c->events || !channel_is_same_file(c, p))
        return;
    channel_watch(c, p, 0);
    c->always_ready = 1;
}

static int has_same_inode(const struct channel *c)
{
    struct stat now;
    if (fstat(c->fd, &now) < 0)
        return errno != EBADF; /* another error (of a network file, say) proves nothing */
    return now.st_dev == c->dev && now.st_ino == c->ino;
}

/* Nobody else closes what is our own. */
int channel_is_same_file(struct channel *c, struct poller *p)
{
    if (c->own)
        return 1;
    if (c->always_ready)
        return has_same_inode(c);
    return !c->watched || p->ops->check(p, c->fd, c->events, c) == 0;
}
