/*
 * Starts of processes and Python's forks exclude each other.
 *
 * A worker that is forked while a start is between making its pipes and the exec has copies of them, for as long as it
 * lives: the start would wait for an end of file that comes with the worker's exit. Close-on-exec does not help, as
 * a worker does not exec. Starts may overlap each other: each of them execs.
 *
 * Each kind lets those of the other go that came before. Neither waits for ever: a fork hook of the host may take a lock
 * that another thread holds while it starts a command, and then going on is better than not.
 */
#include <pthread.h>

#include "fdwait.h"

#include "clock.h"
#include "process.h"

#define PATIENCE (2 * NS_PER_S) /* starts and forks take milliseconds */

static struct {
    unsigned starts, forks; /* under way */
    unsigned starts_waiting, forks_waiting;
    unsigned starts_admitted; /* of those that wait: they go before the next fork */
} now;

/* How many of each this thread has begun, as one number: A_START and A_FORK are added up. Not a _Thread_local, which
 * LeakSanitizer crashes on in a module that was loaded late. */
static pthread_key_t mine;

#define A_START ((uintptr_t)1)
#define A_FORK ((uintptr_t)1 << 16)

static uintptr_t my_starts(void)
{
    return (uintptr_t)pthread_getspecific(mine) % A_FORK;
}

static uintptr_t my_forks(void)
{
    return (uintptr_t)pthread_getspecific(mine) / A_FORK;
}

static void add_to_mine(uintptr_t what)
{
    pthread_setspecific(mine, (void *)((uintptr_t)pthread_getspecific(mine) + what));
}

__attribute__((constructor)) static void make_key(void)
{
    pthread_key_create(&mine, NULL);
}

static struct fork_hook hook;

static void start_afresh(struct fork_hook *unused)
{
    (void)unused;
    now.starts = now.forks = now.starts_waiting = now.forks_waiting = now.starts_admitted = 0;
    pthread_setspecific(mine, NULL);
}

static int start_may_go(void)
{
    return !now.forks && (!now.forks_waiting || now.starts_admitted);
}

int64_t fdw_start_patience(void)
{
    return clock_after(clock_now(), PATIENCE);
}

int fdw_start_begin(int64_t patience, uint64_t signals)
{
    int64_t until = patience < 0 ? 0 : min64(patience, process_slice(SLEEP_SLICE));
    process_lock();
    process_add_hook_once(&hook, start_afresh);
    now.starts_waiting++;
    while (!start_may_go() && until && clock_now() < until)
        process_wait_until(until);
    int goes = start_may_go() || (until && clock_now() >= patience);
    now.starts_waiting--;
    if (now.starts_admitted && (goes || now.starts_admitted > now.starts_waiting))
        now.starts_admitted--;
    if (goes) {
        now.starts++;
        add_to_mine(A_START);
    }
    process_unlock();
    if (goes)
        fdw_handlers_hold(signals);
    return goes ? FDW_READY : FDW_AGAIN;
}

void fdw_start_end(void)
{
    if (my_starts()) {
        process_lock();
        add_to_mine(-A_START);
        now.starts--;
        process_wake_all();
        process_unlock();
    }
    fdw_handlers_release();
}

void fdw_fork_begin(void)
{
    if (my_starts()) /* that fork is part of the start: preexec_fn */
        return;
    int64_t patience = fdw_start_patience();
    process_lock();
    now.forks_waiting++;
    while ((now.starts || now.starts_admitted) && clock_now() < patience)
        process_wait_until(patience);
    now.forks_waiting--;
    now.forks++;
    add_to_mine(A_FORK);
    process_unlock();
}

void fdw_fork_end(void)
{
    if (!my_forks())
        return;
    process_lock();
    add_to_mine(-A_FORK);
    now.forks--;
    now.starts_admitted = now.starts_waiting;
    process_wake_all();
    process_unlock();
}
