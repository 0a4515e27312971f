/* A pump for the calling thread: one job, and a poller to sleep in. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "clock.h"
#include "job.h"
#include "os.h"
#include "poller.h"
#include "process.h"
#include "stop.h"

#define KEEP_GOING 100 /* beside FDW_READY and its like */

struct fdw_pump {
    struct poller poller;
    struct stoppable call;
    struct fork_hook hook;
    struct job job;
};

fdw_pump *fdw_pump_new(void)
{
    fdw_pump *pump = calloc(1, sizeof *pump);
    if (pump)
        job_init(&pump->job, &pump->poller);
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
    job_forget_poller(&pump->job);
    poller_close(&pump->poller);
    job_close(&pump->job);
    process_remove_hook(&pump->hook);
    free(pump);
}

fdw_source *fdw_pump_source(fdw_pump *pump, int fd, int64_t head, int64_t tail, int64_t limit, int *error)
{
    return job_add_source(&pump->job, fd, head, tail, limit, error);
}

fdw_feed *fdw_pump_feed(fdw_pump *pump, int fd, const char *data, int64_t size, int *error)
{
    return job_add_feed(&pump->job, fd, data, size, NULL, error);
}

fdw_feed *fdw_pump_pass_on(fdw_pump *pump, fdw_source *source, int fd, int *error)
{
    return job_add_feed(&pump->job, fd, NULL, 0, source, error);
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
static void close_own_descriptors(struct fork_hook *hook)
{
    struct fdw_pump *pump = (struct fdw_pump *)((char *)hook - offsetof(struct fdw_pump, hook));
    job_close_own_descriptors(&pump->job);
}

void fdw_pump_started(fdw_pump *pump)
{
    job_started(&pump->job);
    process_add_hook_once(&pump->hook, close_own_descriptors);
}

int fdw_pump_child(fdw_pump *pump, int pid, double linger, double cap, int required)
{
    if (!os_poll_watches_exits && pump->job.child.state == CHILD_NONE) {
        poller_close(&pump->poller);
        int r = poller_open(&pump->poller, 0);
        if (r < 0)
            return r;
    }
    return job_watch_child(&pump->job, pid, linger, cap, required);
}

int fdw_pump_signal(fdw_pump *pump, int signal, int group)
{
    return child_signal(&pump->job.child, signal, group);
}

/* The same with another poller: this one cannot wait on one of them, or it is the parent's. */
static int move_to(fdw_pump *pump, const struct poller_ops *ops)
{
    struct child *child = &pump->job.child;
    int watched = child->state == CHILD_WATCHED || child->state == CHILD_LOOKED_AT;
    job_forget_poller(&pump->job);
    process_lock();
    poller_close(&pump->poller);
    int r = poller_open_with(&pump->poller, ops);
    process_unlock();
    if (r < 0)
        return r;
    if (watched)
        child_watch(child, &pump->poller, child->pid);
    return job_watch_all(&pump->job);
}

static int prepare(fdw_pump *pump)
{
    if (!pump->poller.ops || pump->poller.forks != process_forks())
        return move_to(pump, &fdw_poll);
    int r = job_watch_all(&pump->job);
    const struct poller_ops *other = poller_fallback(r);
    return other ? move_to(pump, other) : r;
}

static int sleep_until(fdw_pump *pump, int64_t until)
{
    struct ready ready[16];
    int n = prepare(pump);
    if (n < 0)
        return n;
    if (pump->call.stop && !pump->poller.ops->wake)
        until = min64(until, clock_after(clock_now(), POLLER_UNWAKEABLE_SLEEP));
    n = pump->poller.ops->wait(&pump->poller, ready, 16, until);
    for (int i = 0; i < n; i++)
        job_take_ready(&pump->job, &ready[i]);
    if (n == 0)
        job_check_all(&pump->job);
    return n;
}

static int go_round(fdw_pump *pump, int64_t deadline, int64_t started, int is_main)
{
    int64_t wake_at;
    int r = job_round(&pump->job, deadline, &wake_at);
    if (r != FDW_AGAIN || (is_main && clock_now() - started >= FLOOD_SLICE))
        return r;
    if (wake_at == 0)
        return KEEP_GOING;
    r = sleep_until(pump, is_main ? min64(wake_at, clock_after(started, SLEEP_SLICE)) : wake_at);
    return r >= 0 ? KEEP_GOING : r == -EINTR ? FDW_AGAIN : r;
}

static int run(fdw_pump *pump, int64_t deadline)
{
    int is_main = process_is_main_thread();
    int64_t started = clock_now();
    int r = prepare(pump);
    if (r < 0)
        return r;
    do {
        if (atomic_load(&pump->call.stopped)) {
            job_end_sources(&pump->job, FDW_END_STOPPED);
            return FDW_STOPPED;
        }
        r = go_round(pump, deadline, started, is_main);
    } while (r == KEEP_GOING);
    return r;
}

int fdw_pump_run(fdw_pump *pump, int64_t deadline)
{
    struct sigpipe held;
    if (!pump->job.feeds)
        return run(pump, deadline);
    process_hold_sigpipe(&held);
    int r = run(pump, deadline);
    process_release_sigpipe(&held, job_met_epipe(&pump->job));
    return r;
}

void fdw_pump_finish(fdw_pump *pump)
{
    stop_detach(&pump->call);
    atomic_store(&pump->call.stopped, 0);
    job_finish(&pump->job);
    /* A poller that was woken by the stop sleeps no more. */
    job_forget_poller(&pump->job);
    poller_close(&pump->poller);
}
