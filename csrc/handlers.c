/*
 * Signal handlers wait while a child is started or ended: an exception out of one, between the fork and the moment when
 * its pid is noted, would leave a child that nobody can find.
 *
 * Blocking the signals would do, if the child did not inherit the mask. So a handler takes their place that only notes
 * what came, and passes it on afterwards. A handler is not inherited through exec.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>

#include "fdwait.h"
#include "process.h"

static struct sigaction host[NSIG];
static atomic_int came[NSIG];
static int is_host_known[NSIG];
static int are_held; /* by the main thread, which alone looks at it */
static struct fork_hook hook;

static void note(int signal)
{
    atomic_store(&came[signal], 1);
}

/* Those of a fault cannot wait; those that cannot be caught do not. */
static int can_wait(int signal)
{
    switch (signal) {
    case SIGILL:
    case SIGTRAP:
    case SIGABRT:
    case SIGBUS:
    case SIGFPE:
    case SIGSEGV:
    case SIGSYS:
        return 0;
    default:
        return 1;
    }
}

static void hold(int signal)
{
    struct sigaction ours = {.sa_handler = note};
    if (!can_wait(signal) || sigaction(signal, NULL, &host[signal]) < 0)
        return;
    if (host[signal].sa_handler == SIG_DFL || host[signal].sa_handler == SIG_IGN)
        return;
    ours.sa_flags = host[signal].sa_flags & (SA_RESTART | SA_ONSTACK);
    is_host_known[signal] = sigaction(signal, &ours, NULL) == 0;
}

static void give_back(void)
{
    for (int signal = 1; signal < NSIG; signal++)
        if (is_host_known[signal])
            sigaction(signal, &host[signal], NULL);
    are_held = 0;
}

static void in_child(struct fork_hook *unused)
{
    (void)unused;
    if (are_held)
        give_back();
    for (int signal = 1; signal < NSIG; signal++)
        is_host_known[signal] = came[signal] = 0;
}

void fdw_handlers_hold(void)
{
    if (!process_is_main_thread() || are_held)
        return;
    process_lock(); /* a fork in between would find half of them */
    process_add_hook_once(&hook, in_child);
    for (int signal = 1; signal < NSIG; signal++)
        hold(signal);
    are_held = 1;
    process_unlock();
}

void fdw_handlers_release(void)
{
    if (!process_is_main_thread() || !are_held)
        return;
    process_lock();
    give_back();
    process_unlock();
    for (int signal = 1; signal < NSIG; signal++) {
        if (is_host_known[signal] && atomic_exchange(&came[signal], 0))
            raise(signal);
        is_host_known[signal] = 0;
    }
}
