/* What belongs to the process as a whole: its forks, its main thread, one lock. */
#ifndef FDW_PROCESS_H
#define FDW_PROCESS_H

#include <signal.h>
#include <stdint.h>

#include "clock.h"

/* How often this process is a forked child: an object that remembers another number was made in a parent. */
unsigned process_forks(void);

/* The one lock of the core, recursive. It is held for a few instructions or system calls that do not sleep, and
 * it is free in a forked child. process_wait_until, for whoever holds it once, gives it up while it sleeps until
 * process_wake_all, the deadline, or for no reason. */
void process_lock(void);
void process_unlock(void);
void process_wait_until(int64_t deadline);
void process_wake_all(void);

/* What has to be done in a forked child, where no other thread is: letting go of what is shared with the parent. Both
 * take the lock. A hook that was never added, or was removed, may be removed. */
struct fork_hook {
    void (*in_child)(struct fork_hook *hook);
    struct fork_hook *next, *prev;
};
void process_add_hook(struct fork_hook *hook);
void process_remove_hook(struct fork_hook *hook);

/* For a hook that stays as long as the process. */
void process_add_hook_once(struct fork_hook *hook, void (*in_child)(struct fork_hook *hook));

/* Between the two, a write of this thread to a pipe without readers does not raise SIGPIPE, whatever its disposition. */
struct sigpipe {
    sigset_t mask;
    int was_pending;
};
void process_hold_sigpipe(struct sigpipe *held);
void process_release_sigpipe(const struct sigpipe *held, int met_epipe);

#define SLEEP_SLICE (200 * NS_PER_MS)
#define FLOOD_SLICE (100 * NS_PER_MS)

int process_is_main_thread(void);

/* When a call that runs in the main thread has to go back to its caller so that signal handlers can run;
 * FDW_FOREVER in other threads. */
int64_t process_slice(int64_t span);

/* `fd` moved above the standard streams, still close-on-exec; -errno (then `fd` is closed). */
int process_above_stdio(int fd);

#endif
