/*
 * fdwait.h: the whole C API. No Python in it; it compiles and can be tested by itself.
 *
 * Rules for every function here
 *   - A negative return is -errno. Nothing is reported through errno itself.
 *   - A descriptor handed in is borrowed: never closed, its O_NONBLOCK never changed.
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

/* ---- process ---- */

/* Which thread runs signal handlers, as pthread_self() tells it. Calls made from it come back with FDW_AGAIN
 * after at most 200 ms of sleep or 100 ms of flood, since a signal may land on another thread or just before
 * the call. Zero: none. */
void fdw_main_thread(uintptr_t thread);

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
    int64_t left;   /* bytes still in the descriptor (FIONREAD); -1: not known */
} fdw_result;

/* A pump for the calling thread, made and opened like a waiter. `stop` may be NULL; it must outlive the pump. */
fdw_pump *fdw_pump_new(void);
int fdw_pump_open(fdw_pump *pump, fdw_stop *stop);
void fdw_pump_free(fdw_pump *pump);

/* Drain `fd`. What is kept: `head` bytes from the start and `tail` from the end; head < 0 keeps everything.
 * At most `limit` bytes are taken; limit < 0: no limit. The source belongs to the pump.
 * NULL and *error: -EBADF, -ENOMEM; -EPROTOTYPE for sockets that keep packets apart, of which a read
 * throws away what it does not take. */
fdw_source *fdw_pump_source(fdw_pump *pump, int fd, int64_t head, int64_t tail, int64_t limit, int *error);

/* Bytes that were read before, from a stream's own buffer: taken in as if just read. How many were: fewer than
 * `size` where the source has ended by its limit, or else for want of memory. Only before the first fdw_pump_run. */
int64_t fdw_source_put(fdw_source *source, const char *data, size_t size);

/* Watch for the exit of process `pid` (never reaped here); 0: it is gone already. From the exit on, sources
 * that stay silent for `linger` seconds end as EXITED, and those still busy after `cap` seconds as EXITED_BUSY.
 * One child a pump, before the first fdw_pump_run. -EINVAL: NaN; -EBUSY: there is one; -ENOMEM. */
int fdw_pump_child(fdw_pump *pump, int pid, double linger, double cap);

/* Move bytes until every source has ended: FDW_READY, FDW_DEADLINE, FDW_STOPPED, FDW_AGAIN, or -errno if the
 * pump itself failed. A source's own error ends that source and is in its result. At FDW_DEADLINE and
 * FDW_STOPPED the open sources have that end. */
int fdw_pump_run(fdw_pump *pump, int64_t deadline);

/* The state of a source; it belongs to the source and is brought up to date by this call. */
const fdw_result *fdw_source_result(fdw_source *source);

/* Copy out the kept bytes to `to`: the head, `gap` bytes, the tail, as many as the result says. Memory is given
 * back as the copy goes on; afterwards the source keeps nothing, and another call copies nothing. */
void fdw_source_take(fdw_source *source, char *to, const char *gap, size_t gap_size);

/* Whether `size` bytes hold `word`. */
int fdw_contains(const char *bytes, size_t size, const char *word, size_t word_size);

/* cdef: end */
#endif
