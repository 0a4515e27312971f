/*
 * fdwait.h: the whole C API. No Python in it; it compiles and can be tested by itself.
 *
 * Rules for every function here
 *   - A negative return is -errno. Nothing is reported through errno itself.
 *   - A descriptor handed in is borrowed: never closed, its O_NONBLOCK never changed.
 *   - No write raises SIGPIPE.
 *   - Time is CLOCK_MONOTONIC in nanoseconds and always absolute: a deadline. FDW_FOREVER never comes; a
 *     deadline in the past means one look without sleeping.
 *   - FDW_AGAIN means "come back with the same arguments": a signal arrived, or the slice of the main thread
 *     is over (see fdw_main_thread). No state is lost, and the deadline, being absolute, does not drift.
 *   - Every descriptor made here is close-on-exec from the call that makes it and is never 0, 1 or 2.
 *   - Objects may be used from any thread. An object must not be freed while another thread is in a call on it;
 *     fdw_waiter_close and fdw_stop_set may be called at any time.
 */
#ifndef FDWAIT_H
#define FDWAIT_H

#include <stddef.h>
#include <stdint.h>

/* Everything between the two marks is also what the Python binding declares. */
/* cdef: begin */

#define FDW_READ 1
#define FDW_WRITE 2
#define FDW_FOREVER 0x7fffffffffffffff

/* What a call that may sleep answers. */
#define FDW_DEADLINE 0 /* the time is up */
#define FDW_READY 1    /* a read (write) will not block; for a pump: all its work is done */
#define FDW_AGAIN 2    /* call again with the same arguments */
#define FDW_STOPPED 3  /* ended by fdw_stop_set */

/* ---- clock ---- */

/* The deadline `seconds` from now, rounded up to the nanosecond. Infinity, and what no int64 can hold, is
 * FDW_FOREVER; zero and less is a deadline already past. NaN: -EINVAL. */
int64_t fdw_deadline(double seconds);

/* Whether a deadline has come. */
int fdw_is_past(int64_t deadline);

/* ---- process ---- */

/* Which thread runs signal handlers, as pthread_self() tells it. Calls made from it come back with FDW_AGAIN
 * after at most 200 ms of sleep or 100 ms of flood, since a signal may land on another thread or just before
 * the call. Zero: none. */
void fdw_main_thread(uintptr_t thread);

/* Between the two, the handlers of these signals (bit 0 is signal 1) wait; they run when they are released. In the main
 * thread only, and not nested. */
void fdw_handlers_hold(uint64_t signals);
void fdw_handlers_release(void);

/* A start of a process, from before its pipes are made until its exec, and a fork of the host's exclude each other. Each
 * waits for the other kind two seconds at most. fdw_start_begin: FDW_READY, FDW_AGAIN. It does not wait with -1; then it
 * is called with fdw_start_patience() of the beginning. Once it begins, `signals` are held, and released with the end at
 * the latest: few calls, because each may cost its caller the interpreter for 5 ms. An end without its begin does nothing, nor does a fork within a start. */
int64_t fdw_start_patience(void);
int fdw_start_begin(int64_t patience, uint64_t signals);
void fdw_start_end(void);
void fdw_fork_begin(void);
void fdw_fork_end(void);

/* Name of the i-th backend built in, best first; NULL past the last. */
const char *fdw_backend_name(int i);

/* Use only this backend from now on (tests). NULL: the default choice again. -EINVAL: not built in. */
int fdw_force_backend(const char *name);

/* Name of the i-th optional kernel feature; NULL past the last. *found: 1 it works here, 0 it does not. */
const char *fdw_feature(int i, int *found);

/* ---- one descriptor ---- */

typedef struct fdw_waiter fdw_waiter;

/* One look at `fd` without sleeping, with no object and no descriptor: 1 ready, 0 not, -EBADF closed. */
int fdw_look_readable(int fd);
int fdw_look_writable(int fd);

/* Making and opening are two steps, so that whoever makes it can own the memory before it owns a descriptor.
 * NULL: no memory. */
fdw_waiter *fdw_waiter_new(void);

/* Wait for `events` (FDW_READ, FDW_WRITE or both) on `fd`. With `light`, without taking a descriptor. Call it once.
 * -EBADF closed, -ENOMEM, or what the kernel says of a descriptor that nothing can wait on. */
int fdw_waiter_open(fdw_waiter *waiter, int fd, int events, int light);

/* One look without sleeping: 1 ready, 0 not. -EBADF: closed, or the number is another file now.
 * -ECANCELED: fdw_waiter_close was called. */
int fdw_waiter_look(fdw_waiter *waiter);

/* Sleep until ready or the deadline: FDW_READY, FDW_DEADLINE, FDW_AGAIN; errors as for fdw_waiter_look. */
int fdw_waiter_wait(fdw_waiter *waiter, int64_t deadline);

/* "epoll" "kqueue" "poll" "select" "always" */
const char *fdw_waiter_backend(const fdw_waiter *waiter);

/* Ends every call on the waiter in every thread, waits until they have left, then gives back its descriptor.
 * Idempotent. `fdw_waiter_free` closes first; no other call may be made then or later. */
void fdw_waiter_close(fdw_waiter *waiter);
void fdw_waiter_free(fdw_waiter *waiter);

/* ---- select ---- */

/* The scratch memory of one select at a time, kept between calls. After fdw_select, `ready` holds how many readers,
 * writers and others are ready, then the place of each in its own list, ascending. */
typedef struct {
    int *ready;
    struct fdw_selection_memory *memory;
} fdw_selection;

/* NULL: no memory. */
fdw_selection *fdw_selection_new(void);
void fdw_selection_free(fdw_selection *s);

/* Both take native ints in one block: how many readers, writers and others, then their descriptors. A negative
 * descriptor is -EINVAL, a closed one -EBADF. */

#define FDW_LOOK_MANY 62

/* One look at up to FDW_LOOK_MANY descriptors in all, with no object: a mask, bit i for the i-th of the block. */
int64_t fdw_look_many(const char *ints);

/* select(2) without its ceiling. How many entries are ready, 0 at the deadline, -ENOMEM; -EINTR where others say
 * FDW_AGAIN, at the latest after 5 s. */
int fdw_select(fdw_selection *s, const char *ints, int64_t deadline);

/* ---- stop ---- */

typedef struct fdw_stop fdw_stop;

fdw_stop *fdw_stop_new(void);
void fdw_stop_free(fdw_stop *stop);
void fdw_stop_set(fdw_stop *stop);
void fdw_stop_clear(fdw_stop *stop);
int fdw_stop_is_set(const fdw_stop *stop);

/* ---- pump ---- */

typedef struct fdw_pump fdw_pump;
typedef struct fdw_source fdw_source;
typedef struct fdw_feed fdw_feed;

/* Instead of a descriptor: one end of a new pipe, which is the pump's own, and whose other end is for a child. */
#define FDW_PIPE -1

/* Why a source ended. 0: it has not. */
#define FDW_END_EOF 1
#define FDW_END_EXITED 2
#define FDW_END_EXITED_BUSY 3
#define FDW_END_TIMEOUT 4
#define FDW_END_LIMIT 5
#define FDW_END_STOPPED 6

typedef struct {
    int end;        /* FDW_END_*, or 0 */
    int error;      /* errno that ended it, or 0 */
    int64_t total;  /* bytes taken in = head + tail + elided */
    int64_t head;   /* bytes kept from the start */
    int64_t tail;   /* bytes kept from the end */
    int64_t elided; /* bytes left out between them */
    int64_t passed; /* bytes of the head that were passed on, and are not kept any more */
    int64_t left;   /* bytes still in the descriptor (FIONREAD); -1: not known */
} fdw_result;

typedef struct {
    int error;      /* errno that ended it, or 0 */
    int last;       /* the last byte that the descriptor took; -1: none */
    int64_t taken;  /* bytes that the descriptor took */
    int64_t unread; /* bytes of them that still lie in an own pipe */
} fdw_fed;

/* A pump for the calling thread, made and opened like a waiter; open it last, since a source that was closed before might
 * have the number that the pump gets. `stop` may be NULL; it must outlive the pump. A descriptor is in one pump once. */
fdw_pump *fdw_pump_new(void);
int fdw_pump_open(fdw_pump *pump, fdw_stop *stop);
void fdw_pump_free(fdw_pump *pump);

/* Drain `fd`, or with FDW_PIPE what a child writes. What is kept: `head` bytes from the start and `tail` from the end; head < 0 keeps everything.
 * At most `limit` bytes are taken; limit < 0: no limit. The source belongs to the pump.
 * NULL and *error: -EBADF, -ENOMEM; -EPROTOTYPE for sockets that keep packets apart, of which a read
 * throws away what it does not take. */
fdw_source *fdw_pump_source(fdw_pump *pump, int fd, int64_t head, int64_t tail, int64_t limit, int *error);

/* Bytes that were read before, from a stream's own buffer: taken in as if just read. How many were: fewer than
 * `size` where the source has ended by its limit, or else for want of memory. Only before the first fdw_pump_run. */
int64_t fdw_source_put(fdw_source *source, const char *data, size_t size);

/* Write `size` bytes to `fd`, or to the standard input of a child with FDW_PIPE, which then ends. They are borrowed
 * until the pump is freed. NULL and *error as for fdw_pump_source. */
fdw_feed *fdw_pump_feed(fdw_pump *pump, int fd, const char *data, int64_t size, int *error);

/* The bytes that follow, once all are taken. Not with FDW_PIPE. */
void fdw_feed_next(fdw_feed *feed, const char *data, int64_t size);

/* Write to `fd` what `source` takes in, as it comes, but for its tail. While `fd` takes nothing, the source is not read
 * more than 1 MiB ahead, until the head is full; when it fails, the source is not read any more. */
fdw_feed *fdw_pump_pass_on(fdw_pump *pump, fdw_source *source, int fd, int *error);

/* The other end of an own pipe, for a child to be started with. It is the pump's, who closes it. */
int fdw_source_peer(const fdw_source *source);
int fdw_feed_peer(const fdw_feed *feed);

/* The child is started: it has its ends now. From here on a fork of this process closes what is the pump's own in its
 * child. */
void fdw_pump_started(fdw_pump *pump);

/* Watch for the exit of process `pid` (never reaped here); 0: it is gone already. From the exit on, sources and own
 * feeds that stay silent for `linger` seconds end, sources as EXITED, and those still busy after `cap` seconds as
 * EXITED_BUSY. `required`: the pump's work is not done before the exit. One child a pump, before the first
 * fdw_pump_run. -EINVAL: NaN; -EBUSY: there is one; -ENOMEM. */
int fdw_pump_child(fdw_pump *pump, int pid, double linger, double cap, int required);

/* Send a signal to the child, or to the process group that it leads. It must not have been reaped, since its number
 * may belong to another process then: -ESRCH. Or -EPERM, -EINVAL. */
int fdw_pump_signal(fdw_pump *pump, int signal, int group);

/* Move bytes until every source and feed has ended: FDW_READY, FDW_DEADLINE, FDW_STOPPED, FDW_AGAIN, or -errno if
 * the pump itself failed. The error of a source or feed ends that one and is in its result. At FDW_DEADLINE and
 * FDW_STOPPED the open sources have that end. */
int fdw_pump_run(fdw_pump *pump, int64_t deadline);

/* The child is being killed, after whatever fdw_pump_run said: the next one takes what it has still written, feeds it
 * nothing, passes nothing on and does not linger. */
void fdw_pump_finish(fdw_pump *pump);

/* The state of a source; it belongs to the source and is brought up to date by this call. */
const fdw_result *fdw_source_result(fdw_source *source);

const fdw_fed *fdw_feed_result(fdw_feed *feed);

/* Copy out the kept bytes to `to`: the head, `gap` bytes, the tail, as many as the result says. Memory is given
 * back as the copy goes on; afterwards the source keeps nothing, and another call copies nothing. */
void fdw_source_take(fdw_source *source, char *to, const char *gap, size_t gap_size);

/* Whether `size` bytes hold `word`. */
int fdw_contains(const char *bytes, size_t size, const char *word, size_t word_size);

/* cdef: end */
#endif
