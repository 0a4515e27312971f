/*
 * One round: look at the clock, read what is there, write what is taken, judge.
 *
 * The order is the point. A process can be stopped between any two instructions, and the child can write and exit
 * meanwhile. So the clock and the child's exit are looked at first, and whatever they say is believed only after a
 * read that came later found nothing.
 */
#include "job.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define TURN ((int64_t)1 << 20) /* bytes before the other sources and the clock have their turn */
#define UNWATCHED_INTERVAL (50 * NS_PER_MS)

void job_init(struct job *job, struct poller *p)
{
    *job = (struct job){.poller = p, .child.fd = -1};
}

void job_close(struct job *job)
{
    while (job->sources) {
        fdw_source *s = job->sources;
        job->sources = s->next;
        source_close(s);
        free(s);
    }
    while (job->feeds) {
        fdw_feed *f = job->feeds;
        job->feeds = f->next;
        feed_close(f);
        free(f);
    }
}

fdw_source *job_add_source(struct job *job, int fd, int64_t head, int64_t tail, int64_t limit, int *error)
{
    fdw_source *s = malloc(sizeof *s);
    *error = s ? source_open(s, fd, head, tail, limit) : -ENOMEM;
    if (*error < 0) {
        free(s);
        return NULL;
    }
    s->next = job->sources;
    job->sources = s;
    return s;
}

fdw_feed *job_add_feed(struct job *job, int fd, const char *data, int64_t size, fdw_source *from, int *error)
{
    fdw_feed *f = malloc(sizeof *f);
    *error = f ? feed_open(f, fd, data, size, from) : -ENOMEM;
    if (*error < 0) {
        free(f);
        return NULL;
    }
    f->next = job->feeds;
    job->feeds = f;
    if (from)
        from->is_passed_on = 1;
    return f;
}

/* The other end of a feed stays open here until the child is gone, since it can tell what was left unread. */
void job_started(struct job *job)
{
    for (fdw_source *s = job->sources; s; s = s->next) {
        if (s->channel.own)
            source_measure(s);
        channel_close_peer(&s->channel);
    }
}

void job_close_own_descriptors(struct job *job)
{
    for (fdw_source *s = job->sources; s; s = s->next)
        channel_close(&s->channel);
    for (fdw_feed *f = job->feeds; f; f = f->next)
        channel_close(&f->channel);
    if (job->child.fd >= 0)
        close(job->child.fd);
    job->child.fd = -1;
}

static int64_t span(double seconds)
{
    if (seconds <= 0)
        return 0;
    return seconds >= 9e9 ? FDW_FOREVER : (int64_t)ceil(seconds * 1e9);
}

int job_watch_child(struct job *job, int pid, double linger, double cap, int required)
{
    if (isnan(linger) || isnan(cap))
        return -EINVAL;
    if (job->child.state != CHILD_NONE)
        return -EBUSY;
    job->linger = span(linger);
    job->linger_cap = span(cap);
    job->child_required = required;
    child_watch(&job->child, job->poller, pid);
    return 0;
}

/* ---- registration ---- */

static int watch_sources(struct job *job)
{
    int r = 0;
    for (fdw_source *s = job->sources; s && r == 0; s = s->next) {
        r = channel_watch(&s->channel, job->poller, source_is_open(s) && source_room(s) > 0);
        if (r == -EBADF) {
            source_fail(s, EBADF);
            r = 0;
        }
    }
    return r;
}

static int watch_feeds(struct job *job)
{
    int r = 0;
    for (fdw_feed *f = job->feeds; f && r == 0; f = f->next) {
        r = channel_watch(&f->channel, job->poller, !f->is_over && feed_has_bytes(f));
        if (r == -EBADF) {
            feed_fail(f, EBADF);
            r = 0;
        }
    }
    return r;
}

int job_watch_all(struct job *job)
{
    int r = watch_sources(job);
    return r < 0 ? r : watch_feeds(job);
}

void job_forget_poller(struct job *job)
{
    child_forget(&job->child, job->poller);
    for (fdw_source *s = job->sources; s; s = s->next)
        s->channel.watched = s->channel.always_ready = 0;
    for (fdw_feed *f = job->feeds; f; f = f->next)
        f->channel.watched = f->channel.always_ready = 0;
}

/* An own pipe that nobody needs any more is closed at once, so that the child notices. */
static void retire_source(struct job *job, fdw_source *s)
{
    if (!s->channel.own || s->channel.fd < 0)
        return;
    channel_watch(&s->channel, job->poller, 0);
    channel_close_end(&s->channel);
}

static void retire_feed(struct job *job, fdw_feed *f)
{
    if (!f->channel.own || f->channel.fd < 0)
        return;
    channel_watch(&f->channel, job->poller, 0);
    feed_end(f);
}

/* ---- one round ---- */

static int is_own_feed(const fdw_feed *f)
{
    return f->channel.own && !f->is_over;
}

/* What the linger is for: there are sources, or what a child takes, that have not ended. */
static int is_lingering(const struct job *job)
{
    int n = 0;
    for (const fdw_source *s = job->sources; s; s = s->next)
        n += source_is_open(s);
    for (const fdw_feed *f = job->feeds; f; f = f->next)
        n += is_own_feed(f);
    return job->gone_at && n;
}

static int is_done(const struct job *job)
{
    for (const fdw_source *s = job->sources; s; s = s->next)
        if (source_is_open(s))
            return 0;
    for (const fdw_feed *f = job->feeds; f; f = f->next)
        if (!f->is_over)
            return 0;
    return !job->child_required || job->child.state == CHILD_GONE;
}

int job_met_epipe(const struct job *job)
{
    int n = 0;
    for (const fdw_feed *f = job->feeds; f; f = f->next)
        n += f->result.error == EPIPE;
    return n;
}

void job_end_sources(struct job *job, int end)
{
    for (fdw_source *s = job->sources; s; s = s->next)
        if (source_is_open(s))
            source_end(s, end);
}

static void end_own_feeds(struct job *job)
{
    for (fdw_feed *f = job->feeds; f; f = f->next) {
        if (!is_own_feed(f))
            continue;
        f->is_over = 1;
        retire_feed(job, f);
    }
}

static void try_all(struct job *job)
{
    for (fdw_source *s = job->sources; s; s = s->next)
        s->channel.maybe_ready = 1;
    for (fdw_feed *f = job->feeds; f; f = f->next) {
        f->channel.maybe_ready = 1;
        if (is_own_feed(f))
            feed_leave_alone(f);
    }
}

static void notice_exit(struct job *job, int64_t deadline)
{
    int64_t now = clock_now();
    child_look(&job->child, now);
    if (now >= deadline) /* the poller may not have been asked since: a signal handler can take its time */
        child_look_closely(&job->child, job->poller);
    if (job->child.state != CHILD_GONE || job->gone_at)
        return;
    job->gone_at = job->silent_since = clock_now();
    try_all(job);
}

struct round {
    int64_t now; /* seen before anything was read */
    int due;     /* an end, a cap or a deadline has come: look thoroughly, and take a pipe's worth at most */
    int64_t moved;
    int empty;  /* every open source had nothing more */
    int paused; /* a source waits for those that its bytes are passed on to */
    int more;   /* at least one is worth reading again */
};

static int64_t linger_end(const struct job *job)
{
    return clock_after(job->silent_since, job->linger);
}

static int64_t cap_end(const struct job *job)
{
    return clock_after(job->gone_at, job->linger_cap);
}

static int is_due(const struct job *job, int64_t now, int64_t deadline)
{
    return now >= deadline || (is_lingering(job) && (now >= linger_end(job) || now >= cap_end(job)));
}

/* The number may have been given to another file meanwhile, whose bytes and whose end are not ours to take. */
static void give_source_turn(struct job *job, fdw_source *s, struct round *round)
{
    if (!channel_is_same_file(&s->channel, job->poller)) {
        source_fail(s, EBADF);
        return;
    }
    int64_t budget = min64(round->due ? source_worth(s) : TURN, source_room(s));
    round->moved += source_turn(s, budget, round->due || job->gone_at);
    if (round->due && source_is_open(s) && !s->empty && source_is_at_end(s))
        source_end(s, FDW_END_EOF);
    if (s->result.end == FDW_END_EOF && !channel_is_same_file(&s->channel, job->poller)) {
        source_end(s, 0);
        source_fail(s, EBADF);
    }
}

static void read_all(struct job *job, struct round *round)
{
    for (fdw_source *s = job->sources; s; s = s->next) {
        struct channel *c = &s->channel;
        int paused = source_is_open(s) && source_room(s) <= 0;
        if (source_is_open(s) && !paused && (c->maybe_ready || !c->watched || round->due))
            give_source_turn(job, s, round);
        if (s->result.end == FDW_END_EOF || s->result.error)
            retire_source(job, s);
        if (!source_is_open(s))
            continue;
        round->paused |= paused;
        round->empty &= s->empty;
        round->more |= !paused && (c->maybe_ready || (c->always_ready && !s->empty));
    }
}

static void give_feed_turn(struct job *job, fdw_feed *f, struct round *round)
{
    if (!channel_is_same_file(&f->channel, job->poller)) {
        feed_fail(f, EBADF);
        return;
    }
    int64_t moved = feed_turn(f, TURN);
    if (f->channel.own)
        round->moved += moved;
}

/* Whoever reads what is passed on has gone: let the child know it in the same way. */
static void end_what_is_passed_on(struct job *job, const fdw_feed *f)
{
    if (!f->result.error || !f->from || !source_is_open(f->from))
        return;
    source_fail(f->from, f->result.error);
    retire_source(job, f->from);
}

static void write_all(struct job *job, struct round *round)
{
    for (fdw_feed *f = job->feeds; f; f = f->next) {
        struct channel *c = &f->channel;
        if (!f->is_over && (c->maybe_ready || !c->watched || !feed_has_bytes(f) || round->due))
            give_feed_turn(job, f, round);
        if (f->is_over) {
            retire_feed(job, f);
            end_what_is_passed_on(job, f);
        } else {
            round->more |= !f->blocked && feed_has_bytes(f);
        }
    }
}

static void note_activity(struct job *job, const struct round *round)
{
    if (!job->gone_at)
        return;
    if (round->paused) {
        /* That the output is not taken is not the child's doing: the clocks start afterwards. */
        job->gone_at = job->silent_since = clock_now();
        job->settled = job->busy = 0;
        return;
    }
    if (round->moved) {
        job->silent_since = clock_now();
        job->busy = job->settled;
    }
    job->settled |= round->empty;
}

/* A descriptor that was closed under us is an error, not a silence. */
void job_check_all(struct job *job)
{
    child_look_closely(&job->child, job->poller);
    for (fdw_source *s = job->sources; s; s = s->next)
        if (source_is_open(s) && !channel_is_same_file(&s->channel, job->poller))
            source_fail(s, EBADF);
    for (fdw_feed *f = job->feeds; f; f = f->next)
        if (!f->is_over && !channel_is_same_file(&f->channel, job->poller))
            feed_fail(f, EBADF);
}

static void end_by_exit(struct job *job, int end)
{
    job_end_sources(job, end);
    end_own_feeds(job);
}

/* Has the time come for an end? FDW_AGAIN: no. */
static int judge(struct job *job, const struct round *round, int64_t deadline)
{
    if (is_lingering(job) && !round->paused) {
        if (round->empty && !round->moved && round->now >= linger_end(job))
            end_by_exit(job, FDW_END_EXITED);
        else if (round->now >= cap_end(job))
            end_by_exit(job, job->busy || !job->settled ? FDW_END_EXITED_BUSY : FDW_END_EXITED);
    }
    if (is_done(job))
        return FDW_READY;
    if (round->now >= deadline) {
        job_check_all(job);
        job_end_sources(job, FDW_END_TIMEOUT);
        return FDW_DEADLINE;
    }
    return FDW_AGAIN;
}

/* A device that nothing can wait on, and that had nothing to give, or took nothing. */
static int must_be_tried(const struct job *job)
{
    int n = 0;
    for (const fdw_source *s = job->sources; s; s = s->next)
        n += source_is_open(s) && s->channel.always_ready && source_room(s) > 0;
    for (const fdw_feed *f = job->feeds; f; f = f->next)
        n += !f->is_over && f->channel.always_ready && feed_has_bytes(f);
    return n;
}

static int64_t wake_up_at(const struct job *job, int64_t now, int64_t until)
{
    until = min64(until, clock_after(now, POLLER_CHECK_EVERY));
    if (job->child.state == CHILD_LOOKED_AT)
        until = min64(until, job->child.next_look);
    if (is_lingering(job))
        until = min64(until, min64(linger_end(job), cap_end(job)));
    if (must_be_tried(job))
        until = min64(until, clock_after(now, UNWATCHED_INTERVAL));
    return until;
}

void job_take_ready(struct job *job, const struct ready *ready)
{
    struct channel *c = ready->tag;
    if (ready->tag == &job->child)
        child_take_ready(&job->child, job->poller, ready->events);
    else
        channel_take_ready(c, job->poller, ready->events);
}

int job_round(struct job *job, int64_t deadline, int64_t *wake_at)
{
    notice_exit(job, deadline);
    struct round round = {.now = clock_now(), .empty = 1};
    round.due = is_due(job, round.now, deadline);
    read_all(job, &round);
    write_all(job, &round);
    if (is_done(job))
        return FDW_READY;
    note_activity(job, &round);
    int r = judge(job, &round, deadline);
    if (r == FDW_AGAIN)
        *wake_at = round.more ? 0 : wake_up_at(job, round.now, deadline);
    return r;
}

void job_finish(struct job *job)
{
    job->linger = job->linger_cap = 0;
    end_own_feeds(job);
    for (fdw_feed *f = job->feeds; f; f = f->next) {
        f->is_over = 1;
        if (f->from)
            f->from->is_passed_on = 0; /* its rest is kept instead */
    }
    for (fdw_source *s = job->sources; s; s = s->next)
        if (s->result.end == FDW_END_TIMEOUT || s->result.end == FDW_END_STOPPED)
            source_end(s, 0);
    try_all(job);
}
