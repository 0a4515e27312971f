/*
 * The drain loop. One round: look at the clock, read what is there, write what is taken, judge, sleep.
 *
 * The order is the point. A process can be stopped between any two instructions, and the child can write and exit
 * meanwhile. So the clock and the child's exit are looked at first, and whatever they say is believed only after a
 * read that came later found nothing.
 */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "child.h"
#include "clock.h"
#include "feed.h"
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
    struct fork_hook hook;
    fdw_source *sources;
    fdw_feed *feeds;

    struct child child;
    int child_required;
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
    process_remove_hook(&pump->hook);
    while (pump->sources) {
        fdw_source *s = pump->sources;
        pump->sources = s->next;
        source_close(s);
        free(s);
    }
    while (pump->feeds) {
        fdw_feed *f = pump->feeds;
        pump->feeds = f->next;
        feed_close(f);
        free(f);
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
    return s;
}

static fdw_feed *add_feed(fdw_pump *pump, int fd, const char *data, int64_t size, fdw_source *from,
                          int *error)
{
    fdw_feed *f = malloc(sizeof *f);
    *error = f ? feed_open(f, fd, data, size, from) : -ENOMEM;
    if (*error < 0) {
        free(f);
        return NULL;
    }
    f->next = pump->feeds;
    pump->feeds = f;
    return f;
}

fdw_feed *fdw_pump_feed(fdw_pump *pump, int fd, const char *data, int64_t size, int *error)
{
    return add_feed(pump, fd, data, size, NULL, error);
}

fdw_feed *fdw_pump_pass_on(fdw_pump *pump, fdw_source *source, int fd, int *error)
{
    fdw_feed *f = add_feed(pump, fd, NULL, 0, source, error);
    source->is_passed_on = f != NULL;
    return f;
}

int fdw_source_peer(const fdw_source *source)
{
    return source->channel.peer;
}

int fdw_feed_peer(const fdw_feed *feed)
{
    return feed->channel.peer;
}

/* The worker that a fork makes would keep the pipes open: the command would see no end of its input, and we none
 * of its output. */
static void close_own_pipes(struct fork_hook *hook)
{
    struct fdw_pump *pump = (struct fdw_pump *)((char *)hook - offsetof(struct fdw_pump, hook));
    for (fdw_source *s = pump->sources; s; s = s->next)
        channel_close(&s->channel);
    for (fdw_feed *f = pump->feeds; f; f = f->next)
        channel_close(&f->channel);
}

/* The other end of a feed stays open here until the child is gone, since it can tell what was left unread. */
void fdw_pump_started(fdw_pump *pump)
{
    for (fdw_source *s = pump->sources; s; s = s->next)
        channel_close_peer(&s->channel);
    pump->hook.in_child = close_own_pipes;
    process_add_hook(&pump->hook);
}

static int64_t span(double seconds)
{
    if (seconds <= 0)
        return 0;
    return seconds >= 9e9 ? FDW_FOREVER : (int64_t)ceil(seconds * 1e9);
}

int fdw_pump_child(fdw_pump *pump, int pid, double linger, double cap, int required)
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
    pump->child_required = required;
    child_watch(&pump->child, &pump->poller, pid);
    return 0;
}

int fdw_pump_signal(fdw_pump *pump, int signal, int group)
{
    return child_signal(&pump->child, signal, group);
}

/* ---- registration ---- */

static int watch_sources(fdw_pump *pump)
{
    int r = 0;
    for (fdw_source *s = pump->sources; s && r == 0; s = s->next) {
        r = channel_watch(&s->channel, &pump->poller, source_is_open(s) && source_room(s) > 0);
        if (r == -EBADF) {
            source_fail(s, EBADF);
            r = 0;
        }
    }
    return r;
}

static int watch_feeds(fdw_pump *pump)
{
    int r = 0;
    for (fdw_feed *f = pump->feeds; f && r == 0; f = f->next) {
        r = channel_watch(&f->channel, &pump->poller, !f->is_over && feed_has_bytes(f));
        if (r == -EBADF) {
            feed_fail(f, EBADF);
            r = 0;
        }
    }
    return r;
}

static int watch_all(fdw_pump *pump)
{
    int r = watch_sources(pump);
    return r < 0 ? r : watch_feeds(pump);
}

static void forget_all(fdw_pump *pump)
{
    for (fdw_source *s = pump->sources; s; s = s->next)
        s->channel.watched = s->channel.always_ready = 0;
    for (fdw_feed *f = pump->feeds; f; f = f->next)
        f->channel.watched = f->channel.always_ready = 0;
}

/* The same with another poller: this one cannot wait on one of them, or it is the parent's. */
static int move_to(fdw_pump *pump, const struct poller_ops *ops)
{
    int watched = pump->child.state == CHILD_WATCHED || pump->child.state == CHILD_LOOKED_AT;
    child_forget(&pump->child, &pump->poller);
    forget_all(pump);
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
    int r = watch_all(pump);
    const struct poller_ops *other = poller_fallback(r);
    return other ? move_to(pump, other) : r;
}

/* An own pipe that nobody needs any more is closed at once, so that the child notices. */
static void retire_source(fdw_pump *pump, fdw_source *s)
{
    if (!s->channel.own || s->channel.fd < 0)
        return;
    channel_watch(&s->channel, &pump->poller, 0);
    channel_close_end(&s->channel);
}

static void retire_feed(fdw_pump *pump, fdw_feed *f)
{
    if (!f->channel.own || f->channel.fd < 0)
        return;
    channel_watch(&f->channel, &pump->poller, 0);
    feed_end(f);
}

/* ---- one round ---- */

static int is_own_feed(const fdw_feed *f)
{
    return f->channel.own && !f->is_over;
}

/* What the linger is for: there are sources, or what a child takes, that have not ended. */
static int is_lingering(const fdw_pump *pump)
{
    int n = 0;
    for (const fdw_source *s = pump->sources; s; s = s->next)
        n += source_is_open(s);
    for (const fdw_feed *f = pump->feeds; f; f = f->next)
        n += is_own_feed(f);
    return pump->gone_at && n;
}

static int is_done(const fdw_pump *pump)
{
    for (const fdw_source *s = pump->sources; s; s = s->next)
        if (source_is_open(s))
            return 0;
    for (const fdw_feed *f = pump->feeds; f; f = f->next)
        if (!f->is_over)
            return 0;
    return !pump->child_required || pump->child.state == CHILD_GONE;
}

static void end_sources(fdw_pump *pump, int end)
{
    for (fdw_source *s = pump->sources; s; s = s->next)
        if (source_is_open(s))
            source_end(s, end);
}

static void end_own_feeds(fdw_pump *pump)
{
    for (fdw_feed *f = pump->feeds; f; f = f->next) {
        if (!is_own_feed(f))
            continue;
        f->is_over = 1;
        retire_feed(pump, f);
    }
}

static void try_all(fdw_pump *pump)
{
    for (fdw_source *s = pump->sources; s; s = s->next)
        s->channel.maybe_ready = 1;
    for (fdw_feed *f = pump->feeds; f; f = f->next) {
        f->channel.maybe_ready = 1;
        if (is_own_feed(f))
            feed_leave_alone(f);
    }
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
    int empty;  /* every open source had nothing more, and no feed took anything */
    int paused; /* a source waits for those that its bytes are passed on to */
    int more;   /* at least one is worth reading again */
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
    return now >= deadline || (is_lingering(pump) && (now >= linger_end(pump) || now >= cap_end(pump)));
}

/* The number may have been given to another file meanwhile, whose bytes and whose end are not ours to take. */
static void give_source_turn(fdw_pump *pump, fdw_source *s, struct round *round)
{
    if (!channel_is_same_file(&s->channel, &pump->poller)) {
        source_fail(s, EBADF);
        return;
    }
    int64_t budget = min64(round->due ? source_worth(s) : TURN, source_room(s));
    round->moved += source_turn(s, budget, round->due || pump->gone_at);
    if (round->due && source_is_open(s) && !s->empty && source_is_at_end(s))
        source_end(s, FDW_END_EOF);
    if (s->result.end == FDW_END_EOF && !channel_is_same_file(&s->channel, &pump->poller)) {
        source_end(s, 0);
        source_fail(s, EBADF);
    }
}

static void read_all(fdw_pump *pump, struct round *round)
{
    for (fdw_source *s = pump->sources; s; s = s->next) {
        struct channel *c = &s->channel;
        int paused = source_is_open(s) && source_room(s) <= 0;
        if (source_is_open(s) && !paused && (c->maybe_ready || !c->watched || round->due))
            give_source_turn(pump, s, round);
        if (s->result.end == FDW_END_EOF || s->result.error)
            retire_source(pump, s);
        if (!source_is_open(s))
            continue;
        round->paused |= paused;
        round->empty &= s->empty;
        round->more |= !paused && (c->maybe_ready || (c->always_ready && !s->empty));
    }
}

static void give_feed_turn(fdw_pump *pump, fdw_feed *f, struct round *round)
{
    if (!channel_is_same_file(&f->channel, &pump->poller)) {
        feed_fail(f, EBADF);
        return;
    }
    int64_t moved = feed_turn(f, TURN);
    if (f->channel.own)
        round->moved += moved;
}

/* Whoever reads what is passed on has gone: let the child know it in the same way. */
static void end_what_is_passed_on(fdw_pump *pump, const fdw_feed *f)
{
    if (!f->result.error || !f->from || !source_is_open(f->from))
        return;
    source_fail(f->from, f->result.error);
    retire_source(pump, f->from);
}

static void write_all(fdw_pump *pump, struct round *round)
{
    for (fdw_feed *f = pump->feeds; f; f = f->next) {
        struct channel *c = &f->channel;
        if (!f->is_over && (c->maybe_ready || !c->watched || !feed_has_bytes(f) || round->due))
            give_feed_turn(pump, f, round);
        if (f->is_over) {
            retire_feed(pump, f);
            end_what_is_passed_on(pump, f);
        } else {
            round->more |= !f->blocked && feed_has_bytes(f);
        }
    }
}

static void note_activity(fdw_pump *pump, const struct round *round)
{
    if (!pump->gone_at)
        return;
    if (round
            ->paused) { /* that the output is not taken is not the child's doing: the clocks start afterwards */
        pump->gone_at = pump->silent_since = clock_now();
        pump->settled = pump->busy = 0;
        return;
    }
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
        if (source_is_open(s) && !channel_is_same_file(&s->channel, &pump->poller))
            source_fail(s, EBADF);
    for (fdw_feed *f = pump->feeds; f; f = f->next)
        if (!f->is_over && !channel_is_same_file(&f->channel, &pump->poller))
            feed_fail(f, EBADF);
}

static void end_by_exit(fdw_pump *pump, int end)
{
    end_sources(pump, end);
    end_own_feeds(pump);
}

/* Has the time come for an end? FDW_AGAIN: no. */
static int judge(fdw_pump *pump, const struct round *round, int64_t deadline)
{
    if (is_lingering(pump) && !round->paused) {
        if (round->empty && !round->moved && round->now >= linger_end(pump))
            end_by_exit(pump, FDW_END_EXITED);
        else if (round->now >= cap_end(pump))
            end_by_exit(pump, pump->busy || !pump->settled ? FDW_END_EXITED_BUSY : FDW_END_EXITED);
    }
    if (is_done(pump))
        return FDW_READY;
    if (round->now >= deadline) {
        check_all(pump);
        end_sources(pump, FDW_END_TIMEOUT);
        return FDW_DEADLINE;
    }
    return FDW_AGAIN;
}

/* A device that nothing can wait on, and that had nothing to give, or took nothing. */
static int must_be_tried(const fdw_pump *pump)
{
    int n = 0;
    for (const fdw_source *s = pump->sources; s; s = s->next)
        n += source_is_open(s) && s->channel.always_ready && source_room(s) > 0;
    for (const fdw_feed *f = pump->feeds; f; f = f->next)
        n += !f->is_over && f->channel.always_ready && feed_has_bytes(f);
    return n;
}

static int64_t wake_up_at(const fdw_pump *pump, int64_t now, int64_t until)
{
    int unwakeable = pump->call.stop && !pump->poller.ops->wake;
    until = min64(until, clock_after(now, unwakeable ? POLLER_UNWAKEABLE_SLEEP : POLLER_CHECK_EVERY));
    if (pump->child.state == CHILD_LOOKED_AT)
        until = min64(until, pump->child.next_look);
    if (is_lingering(pump))
        until = min64(until, min64(linger_end(pump), cap_end(pump)));
    if (must_be_tried(pump))
        until = min64(until, clock_after(now, UNWATCHED_INTERVAL));
    return until;
}

static void take_ready(fdw_pump *pump, const struct ready *ready)
{
    struct channel *c = ready->tag;
    if (ready->tag == &pump->child)
        child_is_gone(&pump->child, &pump->poller);
    else
        c->maybe_ready = 1; /* or gone: its turn will tell */
}

static int sleep_until(fdw_pump *pump, int64_t until)
{
    struct ready ready[16];
    int n = prepare(pump);
    if (n < 0)
        return n;
    n = pump->poller.ops->wait(&pump->poller, ready, 16, until);
    for (int i = 0; i < n; i++)
        take_ready(pump, &ready[i]);
    if (n == 0)
        check_all(pump);
    return n;
}

static int go_round(fdw_pump *pump, int64_t deadline, int64_t started, int is_main)
{
    notice_exit(pump);
    struct round round = {.now = clock_now(), .empty = 1};
    round.due = is_due(pump, round.now, deadline);
    read_all(pump, &round);
    write_all(pump, &round);
    if (is_done(pump))
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

static int run(fdw_pump *pump, int64_t deadline)
{
    int is_main = process_slice(0) != FDW_FOREVER;
    int64_t started = clock_now();
    int r = prepare(pump);
    if (r < 0)
        return r;
    do {
        if (atomic_load(&pump->call.stopped)) {
            end_sources(pump, FDW_END_STOPPED);
            return FDW_STOPPED;
        }
        r = go_round(pump, deadline, started, is_main);
    } while (r == KEEP_GOING);
    return r;
}

int fdw_pump_run(fdw_pump *pump, int64_t deadline)
{
    struct sigpipe held;
    if (!pump->feeds)
        return run(pump, deadline);
    process_hold_sigpipe(&held);
    int r = run(pump, deadline);
    process_release_sigpipe(&held);
    return r;
}

void fdw_pump_finish(fdw_pump *pump)
{
    stop_detach(&pump->call);
    atomic_store(&pump->call.stopped, 0);
    pump->linger = pump->linger_cap = 0;
    end_own_feeds(pump);
    for (fdw_feed *f = pump->feeds; f; f = f->next) {
        f->is_over = 1;
        if (f->from)
            f->from->is_passed_on = 0; /* its rest is kept instead */
    }
    for (fdw_source *s = pump->sources; s; s = s->next)
        if (s->result.end == FDW_END_TIMEOUT || s->result.end == FDW_END_STOPPED)
            source_end(s, 0);
    try_all(pump);
    /* A poller that was woken by the stop sleeps no more. */
    child_forget(&pump->child, &pump->poller);
    poller_close(&pump->poller);
}
