#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "clock.h"
#include "os.h"

static atomic_uint forks;
static atomic_uintptr_t main_thread;
static pthread_mutex_t lock; /* recursive */
static pthread_cond_t changed;
static struct fork_hook *hooks; /* under the lock */

static void make_lock(void)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    os_cond_init(&changed);
}

/* In the child only the forking thread exists, and it holds the lock since before the fork. The lock is made
 * anew instead of unlocked: the condition may have had waiters that are no more. */
static void in_child(void)
{
    atomic_fetch_add(&forks, 1);
    make_lock();
    for (struct fork_hook *hook = hooks; hook; hook = hook->next)
        hook->in_child(hook);
}

__attribute__((constructor)) static void set_up(void)
{
    make_lock();
    pthread_atfork(process_lock, process_unlock, in_child);
}

void process_add_hook(struct fork_hook *hook)
{
    process_lock();
    hook->prev = NULL;
    hook->next = hooks;
    if (hooks)
        hooks->prev = hook;
    hooks = hook;
    process_unlock();
}

void process_remove_hook(struct fork_hook *hook)
{
    process_lock();
    if (hook->prev)
        hook->prev->next = hook->next;
    else if (hooks == hook)
        hooks = hook->next;
    if (hook->next)
        hook->next->prev = hook->prev;
    hook->next = hook->prev = NULL;
    process_unlock();
}

void process_add_hook_once(struct fork_hook *hook, void (*run)(struct fork_hook *hook))
{
    process_lock();
    if (!hook->in_child) {
        hook->in_child = run;
        process_add_hook(hook);
    }
    process_unlock();
}

static int sigpipe_is_pending(void)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE);
}

/* A signal that is held is kept as pending, even one that is ignored; it is taken back afterwards. */
void process_hold_sigpipe(struct sigpipe *held)
{
    sigset_t sigpipe;
    sigemptyset(&sigpipe);
    sigaddset(&sigpipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe, &held->mask);
    held->was_pending = sigpipe_is_pending();
}

void process_release_sigpipe(const struct sigpipe *held, int met_epipe)
{
    if (met_epipe && sigpipe_is_pending()) {
        sigset_t sigpipe;
        sigemptyset(&sigpipe);
        sigaddset(&sigpipe, SIGPIPE);
        os_take_pending(&sigpipe); /* this thread's before the process's */
        if (held->was_pending && !sigpipe_is_pending())
            raise(SIGPIPE); /* both were this thread's, and one */
    }
    pthread_sigmask(SIG_SETMASK, &held->mask, NULL);
}

unsigned process_forks(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

void process_lock(void)
{
    pthread_mutex_lock(&lock);
}

void process_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void process_wait_until(int64_t deadline)
{
    os_cond_wait(&changed, &lock, deadline);
}

void process_wake_all(void)
{
    pthread_cond_broadcast(&changed);
}

void fdw_main_thread(uintptr_t thread)
{
    atomic_store(&main_thread, thread);
}

int process_is_main_thread(void)
{
    return atomic_load_explicit(&main_thread, memory_order_relaxed) == (uintptr_t)pthread_self();
}

int64_t process_slice(int64_t span)
{
    return process_is_main_thread() ? clock_after(clock_now(), span) : FDW_FOREVER;
}

int process_above_stdio(int fd)
{
    if (fd > STDERR_FILENO)
        return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int error = higher < 0 ? -errno : 0;
    close(fd);
    return higher < 0 ? error : higher;
}
