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

static void hold(int signal)
{
    struct sigaction ours = {.sa_handler = note, .sa_flags = SA_ONSTACK};
    is_host_known[signal] = sigaction(signal, &ours, &host[signal]) == 0;
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

void fdw_handlers_hold(uint64_t signals)
{
    if (!process_is_main_thread() || are_held)
        return;
    process_lock(); /* a fork in between would find half of them */
    process_add_hook_once(&hook, in_child);
    for (int signal = 1; signal < NSIG && signal <= 64; signal++)
        if (signals >> (signal - 1) & 1)
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
