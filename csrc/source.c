/*
 * Reading until there is nothing, and telling nothing-yet from the end.
 *
 * Only a read of zero bytes is an end, or EIO from a terminal that is hung up. And a zero read is none if it is that
 * of a FIFO which no writer has opened yet: it has no POLLHUP. Sockets that keep packets apart are refused (in
 * channel.c), since an empty packet is a zero read, and a packet larger than the room loses its rest. (A pipe that
 * does so, O_DIRECT, cannot be told from its reading end.)
 */
#include "source.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"

#define PIPE_SIZE ((int64_t)64 << 10) /* pipe(7): the capacity since Linux 2.6.11 */
#define LARGE_PIPE ((size_t)256 << 10)
#define FULL_READS_TO_ENLARGE 8
#define PASSED_AHEAD ((int64_t)1 << 20) /* bytes that may wait to be passed on */
#define ENLARGED_AT_ONCE 8 /* pipe memory is limited for each user: pipe(7), pipe-user-pages-soft */

static atomic_int enlarged;

int source_open(fdw_source *s, int fd, int64_t head, int64_t tail, int64_t limit)
{
    struct stat st;
    *s = (fdw_source){.limit = limit < 0 ? INT64_MAX : limit};
    int r = channel_open(&s->channel, fd, FDW_READ, &st);
    if (r < 0)
        return r;
    fd = s->channel.fd;
    sink_init(&s->sink, head, tail);
    s->is_file = S_ISREG(st.st_mode);
    s->is_fifo = S_ISFIFO(st.st_mode) && !s->channel.own;
    s->is_terminal = S_ISCHR(st.st_mode) && isatty(fd);
    if (s->is_fifo)
        source_measure(s);
    if (s->limit == 0)
        source_end(s, FDW_END_LIMIT);
    return 0;
}

void source_measure(fdw_source *s)
{
    s->capacity = os_pipe_capacity(s->channel.fd);
}

void source_close(fdw_source *s)
{
    if (s->holds_a_place)
        atomic_fetch_sub(&enlarged, 1);
    channel_close(&s->channel);
    sink_free(&s->sink);
}

int source_is_open(const fdw_source *s)
{
    return !s->result.end && !s->result.error;
}

void source_end(fdw_source *s, int end)
{
    s->result.end = end;
}

void source_fail(fdw_source *s, int error)
{
    s->result.error = error;
}

int64_t source_worth(const fdw_source *s)
{
    return (int64_t)s->capacity > PIPE_SIZE ? (int64_t)s->capacity : PIPE_SIZE;
}

int64_t source_room(const fdw_source *s)
{
    return s->is_passed_on && s->sink.head < s->sink.head_limit ? PASSED_AHEAD - sink_waiting(&s->sink)
                                                                : INT64_MAX;
}

static int bytes_readable(int fd)
{
    int n = 0;
    return ioctl(fd, FIONREAD, &n) < 0 ? -1 : n;
}

/* Whether fd is hung up; -errno if poll(2) cannot say. */
static int is_hung_up(int fd, short *revents)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    int r = os_poll(&one, 1, 0);
    *revents = one.revents;
    return r < 0 ? r : (one.revents & POLLHUP) != 0;
}

/* Hung up and empty. At the end Linux says POLLHUP alone, the BSDs POLLIN with it. -errno as above. */
static int is_at_end(int fd)
{
    short revents;
    int r = is_hung_up(fd, &revents);
    return r <= 0 ? r : !(revents & POLLIN) || bytes_readable(fd) == 0;
}

int source_is_at_end(const fdw_source *s)
{
    return is_at_end(s->channel.fd) > 0;
}

/* A read that gave no bytes: 0 at the end, else -EAGAIN or the error that it is. */
static ssize_t end_or_error(const fdw_source *s, ssize_t got)
{
    if (got == -EIO && s->is_terminal) {
        int r = is_at_end(s->channel.fd);
        return r < 0 ? -EAGAIN : r ? 0 : got;
    }
    if (got == 0 && s->is_fifo) { /* POLLHUP from when its first writer has come and gone: fifo(7) */
        short revents;
        int r = is_hung_up(s->channel.fd, &revents);
        if (r < 0)
            r = look_fd(s->channel.fd, FDW_READ) == FDW_READY;
        return r ? 0 : -EAGAIN;
    }
    return got;
}

static void consider_enlarging(fdw_source *s, size_t got)
{
    s->full_reads = s->capacity && got >= s->capacity ? s->full_reads + 1 : 0;
    if (s->full_reads < FULL_READS_TO_ENLARGE || s->capacity >= LARGE_PIPE || s->holds_a_place)
        return;
    s->full_reads = 0;
    if (atomic_fetch_add(&enlarged, 1) < ENLARGED_AT_ONCE && os_pipe_enlarge(s->channel.fd, LARGE_PIPE)) {
        s->holds_a_place = 1;
        s->capacity = LARGE_PIPE;
    } else {
        atomic_fetch_sub(&enlarged, 1);
    }
}

/* One read. Bytes; 0 at the end; -EAGAIN; -errno. */
static ssize_t read_some(fdw_source *s, int64_t most, size_t *asked)
{
    struct iovec room[2];
    if (s->channel.mode == OS_ONCE) {
        int r = look_fd(s->channel.fd, FDW_READ);
        if (r <= 0)
            return r == 0 || r == -EINTR ? -EAGAIN : r;
    }
    int n = sink_room(&s->sink, most, room);
    if (n < 0)
        return n;
    *asked = room[0].iov_len + (n > 1 ? room[1].iov_len : 0);
    ssize_t got = os_read(s->channel.fd, room, n, &s->channel.mode);
    if (got <= 0)
        return end_or_error(s, got);
    sink_commit(&s->sink, (size_t)got);
    return got;
}

/* What a read that gave no bytes means. */
static void take_failure(fdw_source *s, ssize_t got)
{
    s->channel.maybe_ready = 0;
    if (got == -EAGAIN)
        s->empty = 1;
    else if (got == 0)
        source_end(s, FDW_END_EOF);
    else
        source_fail(s, (int)-got);
}

int64_t source_turn(fdw_source *s, int64_t budget, int thorough)
{
    int64_t before = s->sink.total;
    s->empty = 0;
    while (s->sink.total - before < budget) {
        size_t asked = 0;
        enum os_io_mode mode = s->channel.mode;
        int64_t left = budget - (s->sink.total - before);
        ssize_t got = read_some(s, min64(left, s->limit - s->sink.total), &asked);
        if (got == -EINTR || (got == -EAGAIN && s->channel.mode != mode))
            continue;
        if (got <= 0) {
            take_failure(s, got);
            break;
        }
        consider_enlarging(s, (size_t)got);
        if (s->sink.total == s->limit) {
            source_end(s, FDW_END_LIMIT);
            break;
        }
        /* A short read emptied it, most likely. The poller will say if not. */
        if (s->channel.watched && !thorough && (size_t)got < asked) {
            s->channel.maybe_ready = 0;
            break;
        }
    }
    return s->sink.total - before;
}

int64_t fdw_source_put(fdw_source *s, const char *data, size_t size)
{
    size_t put = 0;
    while (put < size && source_is_open(s)) {
        struct iovec room[2];
        int n = sink_room(&s->sink, min64((int64_t)(size - put), s->limit - s->sink.total), room);
        if (n < 0)
            break;
        memcpy(room[0].iov_base, data + put, room[0].iov_len);
        sink_commit(&s->sink, room[0].iov_len);
        put += room[0].iov_len;
        if (s->sink.total == s->limit)
            source_end(s, FDW_END_LIMIT);
    }
    return (int64_t)put;
}

static int64_t file_left(int fd)
{
    struct stat st;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (at < 0 || fstat(fd, &st) < 0 || st.st_size == 0) /* files of /proc have no size */
        return -1;
    return st.st_size > at ? st.st_size - at : 0;
}

static int64_t bytes_left(const fdw_source *s)
{
    if (s->result.end == FDW_END_EOF)
        return 0;
    if (s->result.error == EBADF)
        return -1;
    return s->is_file ? file_left(s->channel.fd) : bytes_readable(s->channel.fd); /* FIONREAD is an int */
}

const fdw_result *fdw_source_result(fdw_source *s)
{
    s->result.total = s->sink.total;
    s->result.head = sink_head(&s->sink);
    s->result.tail = sink_tail(&s->sink);
    s->result.passed = s->sink.passed;
    s->result.elided = s->result.total - s->result.head - s->result.tail;
    s->result.left = bytes_left(s);
    return &s->result;
}

void fdw_source_take(fdw_source *s, char *to, const char *gap, size_t gap_size)
{
    sink_take(&s->sink, to, gap, gap_size);
}

int fdw_contains(const char *bytes, size_t size, const char *word, size_t word_size)
{
    return memmem(bytes, size, word, word_size) != NULL;
}
