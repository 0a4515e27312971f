/* macOS, FreeBSD, NetBSD, OpenBSD. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "os.h"
#include "process.h"

const struct poller_ops *const os_backends[] = {&fdw_kqueue, &fdw_poll, &fdw_select_poller, NULL};

/* POLLHUP and POLLOUT exclude each other there (poll(2)), and select says writable of a pipe without reader. */
const short os_poll_writable = POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR | POLLHUP;

const int os_poll_watches_exits = 0;
const int os_write_end_counts = 0;

/* macOS has no ppoll: milliseconds, rounded up so that no wait is short. */
int os_poll(struct pollfd *fds, unsigned n, int64_t deadline)
{
    int ms = 0;
    if (deadline > 0) {
        struct timespec left = clock_left(deadline);
        ms = (int)(left.tv_sec * 1000 + (left.tv_nsec + NS_PER_MS - 1) / NS_PER_MS);
    }
    int r = poll(fds, n, ms);
    return r < 0 ? -errno : r;
}

enum os_io_mode os_io_mode(mode_t mode)
{
    if (S_ISREG(mode) || S_ISDIR(mode) || S_ISBLK(mode))
        return OS_PLAIN;
    return S_ISSOCK(mode) ? OS_DONTWAIT : OS_ONCE;
}

ssize_t os_read(int fd, const struct iovec *iov, int n, enum os_io_mode *mode)
{
    ssize_t got;
    if (*mode == OS_DONTWAIT) {
        struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};
        got = recvmsg(fd, &msg, MSG_DONTWAIT);
    } else {
        got = readv(fd, iov, n);
    }
    return got < 0 ? -errno : got;
}

ssize_t os_write(int fd, const char *data, size_t size, enum os_io_mode *mode)
{
    ssize_t put = *mode == OS_DONTWAIT ? send(fd, data, size, MSG_DONTWAIT) : write(fd, data, size);
    return put < 0 ? -errno : put;
}

/* The input queue of a terminal is full at an odd number of bytes, and nothing tells how far it is from that. */
size_t os_write_step(int fd, const char *data, size_t size)
{
    (void)data;
    if (isatty(fd))
        return 1;
    return size < PIPE_BUF ? size : PIPE_BUF; /* writable means that much room: pipe(2) of macOS, POSIX */
}

/* macOS has no pipe2. The lock keeps a fork from coming in between. */
int os_pipe(int ends[2])
{
    process_lock();
    int r = pipe(ends) < 0 ? -errno : 0;
    if (r == 0 && (fcntl(ends[0], F_SETFD, FD_CLOEXEC) < 0 || fcntl(ends[1], F_SETFD, FD_CLOEXEC) < 0)) {
        r = -errno;
        close(ends[0]);
        close(ends[1]);
    }
    process_unlock();
    return r;
}

size_t os_pipe_capacity(int fd)
{
    (void)fd;
    return 0; /* grown by the kernel as it sees fit, and not to be asked */
}

int os_other_end(int fd)
{
    (void)fd;
    return -1;
}

int os_pipe_enlarge(int fd, size_t bytes)
{
    (void)fd, (void)bytes;
    return 0;
}

void *os_map(size_t size)
{
    void *raw = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    return raw == MAP_FAILED ? NULL : raw;
}

void os_prefer_large_pages(void *memory, size_t size)
{
    (void)memory, (void)size;
}

int os_watch_exit(struct poller *p, pid_t pid, void *tag)
{
    (void)p, (void)pid, (void)tag;
    return -ENOSYS; /* kqueue.c has EVFILT_PROC; beside it there is nothing */
}

/* Without sigtimedwait(2) two threads that see one signal of the process pending could both wait for it. */
#if defined(__APPLE__) || defined(__OpenBSD__)
void os_take_pending(const sigset_t *signals)
{
    int taken;
    sigwait(signals, &taken);
}
#else
void os_take_pending(const sigset_t *signals)
{
    static const struct timespec at_once;
    sigtimedwait(signals, NULL, &at_once);
}
#endif

/* macOS has no condition that counts in the monotonic clock, but one that is told a span. */
#ifdef __APPLE__
int os_cond_init(pthread_cond_t *cond)
{
    return pthread_cond_init(cond, NULL);
}

static void wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline)
{
    struct timespec left = clock_left(deadline);
    pthread_cond_timedwait_relative_np(cond, lock, &left);
}
#else
int os_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;
    int r = pthread_condattr_init(&monotonic);
    if (r != 0)
        return r;
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    r = pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return r;
}

static void wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline)
{
    struct timespec at = {.tv_sec = (time_t)(deadline / NS_PER_S), .tv_nsec = (long)(deadline % NS_PER_S)};
    pthread_cond_timedwait(cond, lock, &at);
}
#endif

void os_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline)
{
    if (deadline == FDW_FOREVER)
        pthread_cond_wait(cond, lock);
    else
        wait_until(cond, lock, deadline);
}

const char *fdw_feature(int i, int *found)
{
    (void)i, (void)found;
    return NULL;
}
