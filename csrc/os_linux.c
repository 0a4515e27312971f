/* Linux. System calls that are younger than glibc 2.17 go through syscall(2), so that one wheel runs on all. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "clock.h"
#include "os.h"
#include "process.h"

#ifndef SYS_pidfd_open /* Linux 5.3; one number on every architecture (asm-generic) */
#define SYS_pidfd_open 434
#endif
#ifndef RWF_NOWAIT /* Linux 4.14 */
#define RWF_NOWAIT 0x00000008
#endif
#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE 14
#endif

#define LARGE_PAGE ((size_t)2 << 20)
#define TERMINAL_PIECE ((size_t)256)

#ifdef FDW_WITH_KQUEUE /* libkqueue, for tests */
const struct poller_ops *const os_backends[] = {&fdw_kqueue, &fdw_poll, &fdw_select_poller, NULL};
#else
const struct poller_ops *const os_backends[] = {&fdw_epoll, &fdw_poll, &fdw_select_poller, NULL};
#endif

/* fs/select.c: POLLOUT_SET. A hang-up alone is readable, not writable. */
const short os_poll_writable = POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR;

const int os_poll_watches_exits = 1;
const int os_write_end_counts = 1;

int os_poll(struct pollfd *fds, unsigned n, int64_t deadline)
{
    int r;
    if (deadline <= 0) {
        r = poll(fds, n, 0);
    } else {
        struct timespec left = clock_left(deadline);
        r = ppoll(fds, n, &left, NULL);
    }
    return r < 0 ? -errno : r;
}

enum os_io_mode os_io_mode(mode_t mode)
{
    if (S_ISREG(mode) || S_ISDIR(mode) || S_ISBLK(mode))
        return OS_PLAIN;
    return S_ISSOCK(mode) ? OS_DONTWAIT : OS_NOWAIT;
}

/* Files without RWF_NOWAIT say EOPNOTSUPP (terminals, pipes before Linux 6.4), kernels without it EINVAL,
 * without preadv2 ENOSYS, and sandboxes EPERM. */
static ssize_t with_nowait(long call, int fd, const struct iovec *iov, int n, enum os_io_mode *mode)
{
    ssize_t done = syscall(call, fd, iov, (long)n, -1L, -1L, RWF_NOWAIT);
    if (done >= 0)
        return done;
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL && errno != EPERM)
        return -errno;
    *mode = OS_ONCE;
    return -EAGAIN;
}

static ssize_t read_dontwait(int fd, const struct iovec *iov, int n)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
    ssize_t got = recvmsg(fd, &msg, MSG_DONTWAIT);
    return got < 0 ? -errno : got;
}

ssize_t os_read(int fd, const struct iovec *iov, int n, enum os_io_mode *mode)
{
    if (*mode == OS_NOWAIT)
        return with_nowait(SYS_preadv2, fd, iov, n, mode);
    if (*mode == OS_DONTWAIT)
        return read_dontwait(fd, iov, n);
    ssize_t got = readv(fd, iov, n);
    return got < 0 ? -errno : got;
}

ssize_t os_write(int fd, const char *data, size_t size, enum os_io_mode *mode)
{
    struct iovec all = {(void *)data, size};
    if (*mode == OS_NOWAIT)
        return with_nowait(SYS_pwritev2, fd, &all, 1, mode);
    ssize_t put = *mode == OS_DONTWAIT ? send(fd, data, size, MSG_DONTWAIT) : write(fd, data, size);
    return put < 0 ? -errno : put;
}

/* drivers/tty: a terminal is writable while its buffer may get one more piece, of at least 256 bytes, and a write
 * sleeps where the next piece is refused. Output processing asks for a piece before each character that it may
 * change; masters have no output processing. */
static size_t terminal_step(int fd, const struct termios *t, const char *data, size_t size)
{
    unsigned number;
    size_t n = size < TERMINAL_PIECE ? size : TERMINAL_PIECE;
    if (!(t->c_oflag & OPOST) || ioctl(fd, TIOCGPTN, &number) == 0)
        return n;
    size_t plain = 0;
    while (plain < n && !(t->c_oflag & OLCUC) && !memchr("\n\r\t\b", data[plain], 4))
        plain++;
    return plain ? plain : 1;
}

size_t os_write_step(int fd, const char *data, size_t size)
{
    struct termios t;
    if (tcgetattr(fd, &t) == 0)
        return terminal_step(fd, &t, data, size);
    return size < PIPE_BUF ? size : PIPE_BUF; /* pipe(7): writable means one free page */
}

int os_pipe(int ends[2])
{
    return pipe2(ends, O_CLOEXEC) < 0 ? -errno : 0;
}

size_t os_pipe_capacity(int fd)
{
    int size = fcntl(fd, F_GETPIPE_SZ);
    return size > 0 ? (size_t)size : 0;
}

/* proc(5): opening the link of a pipe gives a new end of it. */
int os_other_end(int fd)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int other = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return other < 0 ? -1 : process_above_stdio(other);
}

int os_pipe_enlarge(int fd, size_t bytes)
{
    return fcntl(fd, F_SETPIPE_SZ, (int)bytes) >= 0;
}

/* mmap aligns to pages only; take one large page more and give back both ends. */
void *os_map(size_t size)
{
    size_t padded = size + LARGE_PAGE;
    char *raw = mmap(NULL, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    size_t before = (LARGE_PAGE - (uintptr_t)raw % LARGE_PAGE) % LARGE_PAGE;
    if (before)
        munmap(raw, before);
    munmap(raw + before + size, padded - before - size);
    madvise(raw + before, size, MADV_HUGEPAGE);
    return raw + before;
}

void os_prefer_large_pages(void *memory, size_t size)
{
    uintptr_t start = ((uintptr_t)memory + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    uintptr_t end = ((uintptr_t)memory + size) / LARGE_PAGE * LARGE_PAGE;
    if (end > start)
        madvise((void *)start, end - start, MADV_HUGEPAGE);
}

static int pidfd_open_above_stdio(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by definition: pidfd_open(2) */
    return fd < 0 ? -errno : process_above_stdio(fd);
}

int os_watch_exit(struct poller *p, pid_t pid, void *tag)
{
    int fd = pidfd_open_above_stdio(pid);
    if (fd < 0)
        return fd;
    int r = p->ops->set(p, fd, FDW_READ, tag);
    if (r < 0) {
        close(fd);
        return r;
    }
    return fd;
}

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

void os_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline)
{
    struct timespec at = {.tv_sec = (time_t)(deadline / NS_PER_S), .tv_nsec = (long)(deadline % NS_PER_S)};
    if (deadline == FDW_FOREVER)
        pthread_cond_wait(cond, lock);
    else
        pthread_cond_timedwait(cond, lock, &at);
}

void os_take_pending(const sigset_t *signals)
{
    static const struct timespec at_once;
    sigtimedwait(signals, NULL, &at_once);
}

static int have_pidfd(void)
{
    int fd = pidfd_open_above_stdio(getpid());
    if (fd >= 0)
        close(fd);
    return fd >= 0 || fd == -EMFILE || fd == -ENFILE;
}

static int have_read_nowait(void)
{
    int ends[2];
    char byte;
    struct iovec iov = {&byte, 1};
    enum os_io_mode mode = OS_NOWAIT;
    int r = os_pipe(ends);
    if (r < 0)
        return r == -EMFILE || r == -ENFILE;
    os_read(ends[0], &iov, 1, &mode);
    close(ends[0]);
    close(ends[1]);
    return mode == OS_NOWAIT;
}

const char *fdw_feature(int i, int *found)
{
    static const struct {
        const char *name;
        int (*probe)(void);
    } features[] = {{"pidfd_open", have_pidfd}, {"RWF_NOWAIT on pipes", have_read_nowait}};
    if (i < 0 || (size_t)i >= sizeof features / sizeof *features)
        return NULL;
    *found = features[i].probe();
    return features[i].name;
}
