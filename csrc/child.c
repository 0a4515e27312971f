/*
 * The exit is told by the kernel (pidfd, EVFILT_PROC). Where that is not to be had (an old kernel, a sandbox, no
 * descriptor left) the process is looked at, at intervals that grow to 50 ms. It is never reaped here: its exit
 * status belongs to whoever started it.
 */
#include "child.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

#define FIRST_LOOK NS_PER_MS
#define LONGEST_INTERVAL (50 * NS_PER_MS)

void child_watch(struct child *c, struct poller *p, pid_t pid)
{
    *c = (struct child){.pid = pid, .state = CHILD_GONE, .fd = -1};
    if (pid == 0)
        return;
    int r = p->ops->watch_exit(p, pid, c);
    if (r == -ESRCH)
        return;
    c->state = r < 0 ? CHILD_LOOKED_AT : CHILD_WATCHED;
    c->fd = r > 0 ? r : -1;
    c->interval = FIRST_LOOK;
}

void child_forget(struct child *c, struct poller *p)
{
    if (c->state == CHILD_WATCHED && c->fd >= 0) {
        p->ops->set(p, c->fd, 0, c);
        close(c->fd);
    }
    c->fd = -1;
}

/* Not our child, or not any more. Reaped children are gone; of strangers only a vanished number is. */
static int is_gone_without_wait(const struct child *c)
{
    return c->was_ours || (kill(c->pid, 0) < 0 && errno == ESRCH);
}

static int is_gone(struct child *c)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
        return errno == ECHILD && is_gone_without_wait(c);
    c->was_ours = 1;
    return info.si_pid != 0;
}

/* A child of ours that has not exited. */
static int is_alive(struct child *c)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    return waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

/* Somebody closed our watch: its number is not ours to close any more. */
static void lose_watch(struct child *c, struct poller *p)
{
    p->ops->set(p, c->fd, 0, c);
    c->fd = -1;
    c->state = CHILD_LOOKED_AT;
    c->next_look = 0;
}

void child_look_closely(struct child *c, struct poller *p)
{
    if ((c->state != CHILD_WATCHED && c->state != CHILD_LOOKED_AT) || !is_gone(c))
        return;
    child_forget(c, p);
    c->state = CHILD_GONE;
}

/* A closed watch is told by poll(2) as no readiness, and its number may be another file's by now. */
void child_take_ready(struct child *c, struct poller *p, int events)
{
    if (c->fd >= 0 && (!(events & FDW_READ) || is_alive(c))) {
        lose_watch(c, p);
        return;
    }
    child_forget(c, p);
    c->state = CHILD_GONE;
}

void child_look(struct child *c, int64_t now)
{
    if (c->state != CHILD_LOOKED_AT || now < c->next_look)
        return;
    if (is_gone(c))
        c->state = CHILD_GONE;
    c->next_look = clock_after(now, c->interval);
    c->interval = min64(2 * c->interval, LONGEST_INTERVAL);
}

/* A zombie still has its number, and so has its group: only the reaping gives them back. */
int child_signal(const struct child *c, int signal, int group)
{
    siginfo_t info;
    if (c->pid <= 0 ||
        (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD))
        return -ESRCH;
    return kill(group ? -c->pid : c->pid, signal) < 0 ? -errno : 0;
}
