/*
 * Writing without ever sleeping in write(2): a blocking write of a megabyte sleeps until all of it is taken, and
 * readiness promises room for a page at best.
 */
#include "feed.h"

#include <errno.h>
#include <sys/ioctl.h>

#include "clock.h"

int feed_open(fdw_feed *f, int fd, const char *data, int64_t size, fdw_source *from)
{
    struct stat st;
    *f = (fdw_feed){.data = data, .size = size, .from = from, .result.last = -1};
    return channel_open(&f->channel, fd, FDW_WRITE, &st);
}

void feed_close(fdw_feed *f)
{
    channel_close(&f->channel);
}

void feed_fail(fdw_feed *f, int error)
{
    f->result.error = error;
    f->is_over = 1;
}

static size_t front(const fdw_feed *f, const char **bytes)
{
    if (f->from)
        return sink_front(&f->from->sink, bytes);
    *bytes = f->data;
    return (size_t)f->size;
}

int feed_has_bytes(const fdw_feed *f)
{
    const char *bytes;
    return front(f, &bytes) > 0;
}

static void take(fdw_feed *f, const char *bytes, size_t n)
{
    f->result.taken += (int64_t)n;
    f->result.last = (unsigned char)bytes[n - 1];
    if (f->from) {
        sink_pass(&f->from->sink, n);
    } else {
        f->data += n;
        f->size -= (int64_t)n;
    }
}

/* One write. Bytes; -EAGAIN; -errno. */
static ssize_t write_some(fdw_feed *f, const char *bytes, size_t *size)
{
    struct channel *c = &f->channel;
    if (c->mode == OS_ONCE) {
        int r = look_fd(c->fd, FDW_WRITE);
        if (r <= 0)
            return r == 0 || r == -EINTR ? -EAGAIN : r;
        *size = os_write_step(c->fd, bytes, *size);
    }
    ssize_t n = os_write(c->fd, bytes, *size, &c->mode);
    return n == 0 ? -EAGAIN : n;
}

int64_t feed_turn(fdw_feed *f, int64_t budget)
{
    int64_t before = f->result.taken;
    const char *bytes;
    size_t size;
    f->blocked = 0;
    while ((size = front(f, &bytes)) && f->result.taken - before < budget) {
        enum os_io_mode mode = f->channel.mode;
        size = (size_t)min64((int64_t)size, budget - (f->result.taken - before));
        ssize_t n = write_some(f, bytes, &size);
        if (n == -EINTR || (n == -EAGAIN && f->channel.mode != mode))
            continue;
        if (n > 0)
            take(f, bytes, (size_t)n);
        else if (n != -EAGAIN)
            feed_fail(f, (int)-n);
        if (n < (ssize_t)size) {
            f->blocked = 1; /* The poller will say when it is not any more. */
            f->channel.maybe_ready = 0;
            break;
        }
    }
    if (f->from ? !source_is_open(f->from) && !feed_has_bytes(f) : f->size == 0)
        f->is_over = 1;
    return f->result.taken - before;
}

void fdw_feed_next(fdw_feed *f, const char *data, int64_t size)
{
    f->data = data;
    f->size = size;
    f->is_over = f->result.error != 0;
    f->channel.maybe_ready = 1;
}

/* What lies in the pipe to the child, as far as one of our ends can tell. */
static void count_unread(fdw_feed *f)
{
    const struct channel *c = &f->channel;
    int n;
    int fd = c->peer >= 0 ? c->peer : os_write_end_counts ? c->fd : -1;
    if (c->own && fd >= 0 && ioctl(fd, FIONREAD, &n) == 0)
        f->result.unread = n;
}

void feed_leave_alone(fdw_feed *f)
{
    count_unread(f);
    if (!f->is_over)
        channel_close_peer(&f->channel);
}

void feed_end(fdw_feed *f)
{
    struct channel *c = &f->channel;
    count_unread(f);
    if (c->peer < 0 && !f->result.error)
        c->peer = os_other_end(c->fd); /* somebody else reads on after the child: count at the end */
    channel_close_end(c);
}

const fdw_fed *fdw_feed_result(fdw_feed *f)
{
    count_unread(f);
    return &f->result;
}
