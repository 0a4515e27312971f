/* What differs between operating systems, and only that: os_linux.c and os_bsd.c (macOS and the BSDs). */
#ifndef FDW_OS_H
#define FDW_OS_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "poller.h"

/* The backends built in, best first, poll and select last; ends with NULL. */
extern const struct poller_ops *const os_backends[];

/* Which bits of poll(2) make a descriptor writable as select(2) means it. */
extern const short os_poll_writable;

/* Whether a poller without a descriptor of its own can be told of an exit (by a pidfd), too. */
extern const int os_poll_watches_exits;

/* poll(2) until a deadline, to the nanosecond where the kernel has that. -errno. */
int os_poll(struct pollfd *fds, unsigned n, int64_t deadline);

/* How a descriptor can be read and written so that the call never sleeps, whatever its O_NONBLOCK flag says and
 * whoever else changes it or uses the same open file. */
enum os_io_mode {
    OS_NOWAIT,   /* preadv2, pwritev2 (RWF_NOWAIT) */
    OS_DONTWAIT, /* recvmsg, sendmsg (MSG_DONTWAIT) */
    OS_ONCE,     /* neither: one plain call after each readiness, of no more than os_write_step() */
    OS_PLAIN, /* a file: it waits for the disk, never for another process; or a non-blocking pipe of our own */
};

/* The first mode to try for a file of this st_mode. */
enum os_io_mode os_io_mode(mode_t mode);

/* Read, or write, without sleeping (OS_ONCE: only after poll said so). *mode steps down where the kernel refuses
 * it. Bytes, 0 at the end, -EAGAIN, -errno; -EAGAIN also when *mode has just become OS_ONCE. */
ssize_t os_read(int fd, const struct iovec *iov, int n, enum os_io_mode *mode);
ssize_t os_write(int fd, const char *data, size_t size, enum os_io_mode *mode);

/* How many bytes of `data`, at least 1, a blocking write takes without sleeping when poll called fd writable. */
size_t os_write_step(int fd, const char *data, size_t size);

/* A pipe, close-on-exec. -errno. */
int os_pipe(int ends[2]);

/* Capacity of a pipe in bytes; 0: not known here. */
size_t os_pipe_capacity(int fd);

/* Whether FIONREAD on the writing end of a pipe, too, tells what lies in it. */
extern const int os_write_end_counts;

/* Another reading end of the pipe whose writing end `fd` is, close-on-exec; -1: not to be had. */
int os_other_end(int fd);

/* Ask for a larger pipe. 1: it is. 0: it stays as it is. */
int os_pipe_enlarge(int fd, size_t bytes);

/* Memory for `size` bytes, a multiple of 2 MiB, in pages as large as can be had. NULL: none. */
void *os_map(size_t size);

/* Make the kernel back a large allocation of somebody else's with large pages. */
void os_prefer_large_pages(void *memory, size_t size);

/* For pollers that have no filter for it: watch the exit of a process through a descriptor of its own.
 * The descriptor, which the caller closes, or -errno. */
int os_watch_exit(struct poller *p, pid_t pid, void *tag);

/* A condition that is waited on until a deadline of the monotonic clock. 0 or an errno, as pthread_cond_init(3); the lock
 * is held by whoever waits, who may come back early. */
int os_cond_init(pthread_cond_t *cond);
void os_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline);

/* Take one of these signals, which are blocked, if one is pending still: another thread may have been faster. */
void os_take_pending(const sigset_t *signals);

/* fdw_feature() is there too: what is optional differs. */

#endif
