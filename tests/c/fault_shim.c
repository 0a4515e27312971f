/*
 * LD_PRELOAD: makes one chosen system call of fdwait fail once, with a chosen errno.
 *
 * Only calls that come straight out of the extension module count and fail, told by their return address; what
 * Python itself calls goes through untouched. A test sets it up through ctypes:
 *   fault_range(low, high)          where the code of the module lies
 *   fault_set(name, errno, nth)     the nth call of that name from now on fails; counts start again
 *   fault_always(name, errno)       beside that, every call of that name fails; 0: not any more
 *   fault_seen(name), fault_hits(name), fault_name(i)
 *
 * With FAULT_NO_DESCRIPTOR in the environment, every call of fdwait that would make a descriptor fails with EMFILE,
 * while the rest of the process opens what it likes: a whole test suite can run like that.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#ifndef SYS_pidfd_open /* kernel headers before Linux 5.3 */
#define SYS_pidfd_open 434
#endif

struct fault {
    const char *name;
    int error, nth, always;
    atomic_int seen, hits;
};

static struct fault faults[] = {
    {.name = "epoll_create1"},
    {.name = "epoll_ctl_add"},
    {.name = "epoll_ctl_mod"},
    {.name = "epoll_ctl_del"},
    {.name = "epoll_wait"},
    {.name = "poll"},
    {.name = "ppoll"},
    {.name = "pselect"},
    {.name = "readv"},
    {.name = "preadv2"},
    {.name = "recvmsg"},
    {.name = "write"},
    {.name = "pwritev2"},
    {.name = "send"},
    {.name = "fcntl_getfd"},
    {.name = "fcntl_getfl"},
    {.name = "fcntl_setfl"},
    {.name = "fcntl_dupfd"},
    {.name = "fcntl_getpipesz"},
    {.name = "fcntl_setpipesz"},
    {.name = "fstat"},
    {.name = "ioctl_fionread"},
    {.name = "ioctl_tiocgptn"},
    {.name = "tcgetattr"},
    {.name = "pidfd_open"},
    {.name = "waitid"},
    {.name = "kill"},
    {.name = "eventfd"},
    {.name = "pipe2"},
    {.name = "mmap"},
    {.name = "munmap"},
    {.name = "madvise"},
    {.name = "malloc"},
    {.name = "calloc"},
    {.name = "realloc"},
    {.name = "getsockopt"},
    {.name = "lseek"},
};

#define N_FAULTS (sizeof faults / sizeof *faults)

static uintptr_t code_low, code_high;

static struct fault *find(const char *name)
{
    for (size_t i = 0; i < N_FAULTS; i++)
        if (strcmp(faults[i].name, name) == 0)
            return &faults[i];
    return NULL;
}

void fault_range(uintptr_t low, uintptr_t high)
{
    code_low = low;
    code_high = high;
}

const char *fault_name(int i)
{
    return i >= 0 && (size_t)i < N_FAULTS ? faults[i].name : NULL;
}

void fault_set(const char *name, int error, int nth)
{
    for (size_t i = 0; i < N_FAULTS; i++) {
        faults[i].nth = 0;
        atomic_store(&faults[i].seen, 0);
        atomic_store(&faults[i].hits, 0);
    }
    struct fault *f = name ? find(name) : NULL;
    if (f) {
        f->error = error;
        f->nth = nth;
    }
}

void fault_always(const char *name, int error)
{
    find(name)->always = error;
}

int fault_seen(const char *name)
{
    return atomic_load(&find(name)->seen);
}

int fault_hits(const char *name)
{
    return atomic_load(&find(name)->hits);
}

static int makes_descriptor(const char *name)
{
    static const char *const makers[] = {"epoll_create1", "pidfd_open", "eventfd", "pipe2", "fcntl_dupfd"};
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (strcmp(name, makers[i]) == 0)
            return 1;
    return 0;
}

static int is_from_fdwait(const void *caller)
{
    Dl_info info;
    return dladdr(caller, &info) && strstr(info.dli_fname, "/fdwait/_native");
}

static int fails(const char *name, void *caller)
{
    if (name && makes_descriptor(name) && getenv("FAULT_NO_DESCRIPTOR") && is_from_fdwait(caller)) {
        errno = EMFILE;
        return 1;
    }
    if (!name || (uintptr_t)caller < code_low || (uintptr_t)caller >= code_high)
        return 0;
    struct fault *f = find(name);
    if (atomic_fetch_add(&f->seen, 1) + 1 == f->nth) {
        atomic_fetch_add(&f->hits, 1);
        errno = f->error;
        return 1;
    }
    if (!f->always)
        return 0;
    errno = f->always;
    return 1;
}

#define FAILS(name) fails(name, __builtin_return_address(0))

/* The real function, looked up at its first call: some are called before any constructor runs. */
#define WRAP(type, function, name, parameters, arguments, failed)                                            \
    type function parameters                                                                                 \
    {                                                                                                        \
        static type(*real) parameters;                                                                       \
        if (FAILS(name))                                                                                     \
            return failed;                                                                                   \
        if (!real)                                                                                           \
            *(void **)&real = dlsym(RTLD_NEXT, #function);                                                   \
        return real arguments;                                                                               \
    }

static const char *epoll_ctl_name(int op)
{
    return op == EPOLL_CTL_ADD ? "epoll_ctl_add" : op == EPOLL_CTL_MOD ? "epoll_ctl_mod" : "epoll_ctl_del";
}

WRAP(int, epoll_create1, "epoll_create1", (int flags), (flags), -1)
WRAP(int, epoll_ctl, epoll_ctl_name(op), (int ep, int op, int fd, struct epoll_event *e), (ep, op, fd, e), -1)
WRAP(int, epoll_wait, "epoll_wait", (int ep, struct epoll_event *e, int n, int ms), (ep, e, n, ms), -1)
WRAP(int, poll, "poll", (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms), -1)
WRAP(int, ppoll, "ppoll", (struct pollfd * fds, nfds_t n, const struct timespec *t, const sigset_t *mask),
     (fds, n, t, mask), -1)
/* What the two become with -D_FORTIFY_SOURCE. */
WRAP(int, __poll_chk, "poll", (struct pollfd * fds, nfds_t n, int ms, size_t size), (fds, n, ms, size), -1)
WRAP(int, __ppoll_chk, "ppoll",
     (struct pollfd * fds, nfds_t n, const struct timespec *t, const sigset_t *mask, size_t size),
     (fds, n, t, mask, size), -1)
WRAP(int, pselect, "pselect",
     (int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *t, const sigset_t *mask),
     (n, r, w, x, t, mask), -1)
WRAP(ssize_t, readv, "readv", (int fd, const struct iovec *iov, int n), (fd, iov, n), -1)
WRAP(ssize_t, recvmsg, "recvmsg", (int fd, struct msghdr *msg, int flags), (fd, msg, flags), -1)
WRAP(ssize_t, write, "write", (int fd, const void *data, size_t size), (fd, data, size), -1)
WRAP(ssize_t, send, "send", (int fd, const void *data, size_t size, int flags), (fd, data, size, flags), -1)
WRAP(int, tcgetattr, "tcgetattr", (int fd, struct termios *t), (fd, t), -1)
WRAP(int, fstat, "fstat", (int fd, struct stat *st), (fd, st), -1)
WRAP(int, __fxstat, "fstat", (int version, int fd, struct stat *st), (version, fd, st), -1) /* glibc < 2.33 */
WRAP(int, getsockopt, "getsockopt", (int fd, int level, int name, void *value, socklen_t *size),
     (fd, level, name, value, size), -1)
WRAP(off_t, lseek, "lseek", (int fd, off_t offset, int whence), (fd, offset, whence), -1)
WRAP(int, waitid, "waitid", (idtype_t type, id_t id, siginfo_t *info, int options), (type, id, info, options),
     -1)
WRAP(int, kill, "kill", (pid_t pid, int sig), (pid, sig), -1)
WRAP(int, eventfd, "eventfd", (unsigned value, int flags), (value, flags), -1)
WRAP(int, pipe2, "pipe2", (int ends[2], int flags), (ends, flags), -1)
WRAP(void *, mmap, "mmap", (void *at, size_t size, int prot, int flags, int fd, off_t offset),
     (at, size, prot, flags, fd, offset), MAP_FAILED)
WRAP(int, munmap, "munmap", (void *at, size_t size), (at, size), -1)
WRAP(int, madvise, "madvise", (void *at, size_t size, int advice), (at, size, advice), -1)
WRAP(void *, malloc, "malloc", (size_t size), (size), NULL)
WRAP(void *, calloc, "calloc", (size_t n, size_t size), (n, size), NULL)
WRAP(void *, realloc, "realloc", (void *old, size_t size), (old, size), NULL)

/* ---- the variadic ones ---- */

static const char *fcntl_name(int command)
{
    switch (command) {
    case F_GETFD:
        return "fcntl_getfd";
    case F_GETFL:
        return "fcntl_getfl";
    case F_SETFL:
        return "fcntl_setfl";
    case F_DUPFD_CLOEXEC:
        return "fcntl_dupfd";
    case F_GETPIPE_SZ:
        return "fcntl_getpipesz";
    case F_SETPIPE_SZ:
        return "fcntl_setpipesz";
    default:
        return NULL;
    }
}

static const char *ioctl_name(unsigned long request)
{
    return request == FIONREAD ? "ioctl_fionread" : request == TIOCGPTN ? "ioctl_tiocgptn" : NULL;
}

#define WRAP_ONE_MORE(type, function, name, first, second)                                                   \
    type function(int fd, first command, ...)                                                                \
    {                                                                                                        \
        static type (*real)(int, first, ...);                                                                \
        va_list rest;                                                                                        \
        va_start(rest, command);                                                                             \
        second argument = va_arg(rest, second);                                                              \
        va_end(rest);                                                                                        \
        if (FAILS(name))                                                                                     \
            return -1;                                                                                       \
        if (!real)                                                                                           \
            *(void **)&real = dlsym(RTLD_NEXT, #function);                                                   \
        return real(fd, command, argument);                                                                  \
    }

#ifdef __GLIBC__
typedef unsigned long ioctl_request;
#else
typedef int ioctl_request;
#endif

WRAP_ONE_MORE(int, fcntl, fcntl_name(command), int, void *)
WRAP_ONE_MORE(int, fcntl64, fcntl_name(command), int, void *)
WRAP_ONE_MORE(int, ioctl, ioctl_name((unsigned)command), ioctl_request, void *)

static const char *syscall_name(long number)
{
    switch (number) {
    case SYS_preadv2:
        return "preadv2";
    case SYS_pwritev2:
        return "pwritev2";
    case SYS_pidfd_open:
        return "pidfd_open";
    default:
        return NULL;
    }
}

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    if (FAILS(syscall_name(number)))
        return -1;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
