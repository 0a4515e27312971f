/*
 * The drain loop. One round: look at the clock, read what is there, judge, sleep.
 *
 * The order is the point. A process can be stopped between any two instructions, and the child can write and exit
 * meanwhile. So the clock and the child's exit are looked at first, and whatever they say is believed only after a
 * read that came later found nothing.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "child.h"
#include "clock.h"
#include "os.h"
#include "poller.h"
#include "process.h"
#include "source.h"
#include "stop.h"

#define TURN ((int64_t)1 << 20) /* bytes before the other sources and the clock have their turn */
#define UNWATCHED_INTERVAL (50 * NS_PER_MS)

#define KEEP_GOING 100 /* beside FDW_READY and its like */

struct fdw_pump {
    struct poller poller;
    struct stoppable call;
    fdw_source *sources;
    int registered; /* the sources are with the poller */

    struct child child;
    int64_t linger, linger_cap; /* spans */
    int64_t gone_at;            /* when the exit was noticed; 0: not yet */
    int64_t silent_since;
    int settled; /* all sources were empty once after the exit */
    int busy;    /* and bytes have come since */
};

fdw_pump *fdw_pump_new(void)
{
    fdw_pump *pump = calloc(1, sizeof *pump);
    if (pump)
        pump->child.fd = -1;
    return pump;
}

/* A few descriptors are waited on fastest by poll, which also works when no descriptor is free. But a poll cannot
 * be woken. */
int fdw_pump_open(fdw_pump *pump, fdw_stop *stop)
{
    int r = poller_open(&pump->poller, !stop);
    if (r < 0)
        return r;
    pump->call.poller = &pump->poller;
    stop_attach(stop, &pump->call);
    return 0;
}

void fdw_pump_free(fdw_pump *pump)
{
    if (!pump)
        return;
    stop_detach(&pump->call);
    child_forget(&pump->child, &pump->poller);
    poller_close(&pump->poller);
    while (pump->sources) {
        fdw_source *s = pump->sources;
        pump->sources = s->next;
        source_close(s);
        free(s);
    }
    free(pump);
}

fdw_source *fdw_pump_source(fdw_pump *pump, int fd, int64_t head, int64_t tail, int64_t limit, int *error)
{
    fdw_source *s = malloc(sizeof *s);
    *error = s ? source_open(s, fd, head, tail, limit) : -ENOMEM;
    if (*error < 0) {
        free(s);
        return NULL;
    }
    s->next = pump->sources;
    pump->sources = s;
    pump->registered = 0;
    return s;
}

static int64_t span(double seconds)
{
    if (seconds <= 0)
        return 0;
    return seconds >= 9e9 ? FDW_FOREVER : (int64_t)ceil(seconds * 1e9);
}

int fdw_pump_child(fdw_pump *pump, int pid, double linger, double cap)
{
    if (isnan(linger) || isnan(cap))
        return -EINVAL;
    if (pump->child.state != CHILD_NONE)
        return -EBUSY;
    if (!os_poll_watches_exits) {
        poller_close(&pump->poller);
        int r = poller_open(&pump->poller, 0);
        if (r < 0)
            return r;
    }
    pump->linger = span(linger);
    pump->linger_cap = span(cap);
    child_watch(&pump->child, &pump->poller, pid);
    return 0;
}

/* ---- registration ---- */

static int watch(fdw_pump *pump, fdw_source *s)
{
    int r = pump->poller.ops->set(&pump->poller, s->fd, FDW_READ, s);
    s->watched = r == 0;
    return r == -EPERM ? 0 : r; /* always ready: it is read without asking */
}

static void unwatch(fdw_pump *pump, fdw_source *s)
{
    if (s->watched)
        pump->poller.ops->set(&pump->poller, s->fd, 0, s);
    s->watched = 0;
}

static int watch_all(fdw_pump *pump)
{
    for (fdw_source *s = pump->sources; s; s = s->next) {
        int r = source_is_open(s) && !s->watched ? watch(pump, s) : 0;
        if (r == -EBADF)
            source_fail(s, EBADF);
        else if (r < 0)
            return r;
    }
    return 0;
}

/* The same sources with another poller: this one cannot wait on one of them, or it is the parent's. */
static int move_to(fdw_pump *pump, const struct poller_ops *ops)
{
    int watched = pump->child.state == CHILD_WATCHED || pump->child.state == CHILD_LOOKED_AT;
    child_forget(&pump->child, &pump->poller);
    for (fdw_source *s = pump->sources; s; s = s->next)
        s->watched = 0;
    process_lock();
    poller_close(&pump->poller);
    int r = poller_open_with(&pump->poller, ops);
    process_unlock();
    if (r < 0)
        return r;
    if (watched)
        child_watch(&pump->child, &pump->poller, pump->child.pid);
    return watch_all(pump);
}

static int prepare(fdw_pump *pump)
{
    if (!pump->poller.ops || pump->poller.forks != process_forks())
        return move_to(pump, &fdw_poll);
    if (pump->registered)
        return 0;
    int r = watch_all(pump);
    const struct poller_ops *other = poller_fallback(r);
    if (other)
        r = move_to(pump, other);
    pump->registered = r == 0;
    return r;
}

/* ---- one round ---- */

static int count_open(const fdw_pump *pump)
{
    int n = 0;
    for (const fdw_source *s = pump->sources; s; s = s->next)
        n += source_is_open(s);
    return n;
}

static void end_all(fdw_pump *pump, int end)
{
    for (fdw_source *s = pump->sources; s; s = s->next) {
        unwatch(pump, s);
        if (source_is_open(s))
            source_end(s, end);
    }
}

static void try_all(fdw_pump *pump)
{
    for (fdw_source *s = pump->sources; s; s = s->next)
        s->maybe_ready = 1;
}

static void notice_exit(fdw_pump *pump)
{
    child_look(&pump->child, clock_now());
    if (pump->child.state != CHILD_GONE || pump->gone_at)
        return;
    pump->gone_at = pump->silent_since = clock_now();
    try_all(pump);
}

struct round {
    int64_t now; /* seen before anything was read */
    int due;     /* an end, a cap or a deadline has come: look thoroughly, and take a pipe's worth at most */
    int64_t moved;
    int empty; /* every open source had nothing more */
    int more;  /* at least one is worth reading again */
};

static int64_t linger_end(const fdw_pump *pump)
{
    return clock_after(pump->silent_since, pump->linger);
}

static int64_t cap_end(const fdw_pump *pump)
{
    return clock_after(pump->gone_at, pump->linger_cap);
}

static int is_due(const fdw_pump *pump, int64_t now, int64_t deadline)
{
    return now >= deadline || (pump->gone_at && (now >= linger_end(pump) || now >= cap_end(pump)));
}

static int is_same_file(fdw_pump *pump, fdw_source *s)
{
    return !s->watched || pump->poller.ops->check(&pump->poller, s->fd, FDW_READ, s) == 0;
}

/* The number may have been given to another file meanwhile, whose bytes and whose end are not ours to take. */
static void give_turn(fdw_pump *pump, fdw_source *s, struct round *round)
{
    if (!is_same_file(pump, s)) {
        source_fail(s, EBADF);
        return;
    }
    round->moved += source_turn(s, round->due ? source_worth(s) : TURN, round->due || pump->gone_at);
    if (round->due && source_is_open(s) && !s->empty && source_is_at_end(s))
        source_end(s, FDW_END_EOF);
    if (s->result.end == FDW_END_EOF && !is_same_file(pump, s)) {
        source_end(s, 0);
        source_fail(s, EBADF);
    }
}

static void read_all(fdw_pump *pump, struct round *round)
{
    round->empty = 1;
    for (fdw_source *s = pump->sources; s; s = s->next) {
        if (!source_is_open(s)) {
            unwatch(pump, s); /* it failed while asleep */
            continue;
        }
        if (s->maybe_ready || !s->watched || round->due)
            give_turn(pump, s, round);
        if (!source_is_open(s))
            unwatch(pump, s);
        else
            round->empty &= s->empty;
        round->more |= source_is_open(s) && (s->maybe_ready || (!s->watched && !s->empty));
    }
}

static void note_activity(fdw_pump *pump, const struct round *round)
{
    if (!pump->gone_at)
        return;
    if (round->moved) {
        pump->silent_since = clock_now();
        pump->busy = pump->settled;
    }
    pump->settled |= round->empty;
}

/* A descriptor that was closed under us is an error, not a silence. */
static void check_all(fdw_pump *pump)
{
    for (fdw_source *s = pump->sources; s; s = s->next)
        if (source_is_open(s) && !is_same_file(pump, s))
            source_fail(s, EBADF);
}

/* Has the time come for an end? FDW_AGAIN: no. */
static int judge(fdw_pump *pump, const struct round *round, int64_t deadline)
{
    if (pump->gone_at && round->empty && !round->moved && round->now >= linger_end(pump)) {
        end_all(pump, FDW_END_EXITED);
        return FDW_READY;
    }
    if (pump->gone_at && round->now >= cap_end(pump)) {
        end_all(pump, pump->busy || !pump->settled ? FDW_END_EXITED_BUSY : FDW_END_EXITED);
        return FDW_READY;
    }
    if (round->now >= deadline) {
        check_all(pump);
        end_all(pump, FDW_END_TIMEOUT);
        return FDW_DEADLINE;
    }
    return FDW_AGAIN;
}

static int64_t wake_up_at(const fdw_pump *pump, int64_t now, int64_t until)
{
    int unwakeable = pump->call.stop && !pump->poller.ops->wake;
    until = min64(until, clock_after(now, unwakeable ? POLLER_UNWAKEABLE_SLEEP : POLLER_CHECK_EVERY));
    if (pump->child.state == CHILD_LOOKED_AT)
        until = min64(until, pump->child.next_look);
    if (pump->gone_at)
        until = min64(until, min64(linger_end(pump), cap_end(pump)));
    for (const fdw_source *s = pump->sources; s; s = s->next)
        if (source_is_open(s) && !s->watched) /* a device that nothing can wait on, and empty now */
            until = min64(until, clock_after(now, UNWATCHED_INTERVAL));
    return until;
}

static void take_ready(fdw_pump *pump, const struct ready *ready)
{
    fdw_source *s = ready->tag;
    if (ready->tag == &pump->child)
        child_is_gone(&pump->child, &pump->poller);
    else
        s->maybe_ready = 1; /* or gone: its turn will tell */
}

static int sleep_until(fdw_pump *pump, int64_t until)
{
    struct ready ready[16];
    int n = pump->poller.ops->wait(&pump->poller, ready, 16, until);
    for (int i = 0; i < n; i++)
        take_ready(pump, &ready[i]);
    if (n == 0)
        check_all(pump);
    return n;
}

static int go_round(fdw_pump *pump, int64_t deadline, int64_t started, int is_main)
{
    notice_exit(pump);
    struct round round = {.now = clock_now()};
    round.due = is_due(pump, round.now, deadline);
    read_all(pump, &round);
    if (count_open(pump) == 0)
        return FDW_READY;
    note_activity(pump, &round);
    int r = judge(pump, &round, deadline);
    if (r != FDW_AGAIN || (is_main && round.now - started >= FLOOD_SLICE))
        return r;
    if (round.more)
        return KEEP_GOING;
    int64_t until = is_main ? min64(deadline, clock_after(started, SLEEP_SLICE)) : deadline;
    r = sleep_until(pump, wake_up_at(pump, round.now, until));
    return r >= 0 ? KEEP_GOING : r == -EINTR ? FDW_AGAIN : r;
}

int fdw_pump_run(fdw_pump *pump, int64_t deadline)
{
    int is_main = process_slice(0) != FDW_FOREVER;
    int64_t started = clock_now();
    int r = prepare(pump);
    if (r < 0)
        return r;
    do {
        if (atomic_load(&pump->call.stopped)) {
            end_all(pump, FDW_END_STOPPED);
            return FDW_STOPPED;
        }
        r = go_round(pump, deadline, started, is_main);
    } while (r == KEEP_GOING);
    return r;
}
