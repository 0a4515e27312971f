/*
 * The core under threads, without Python: what the sanitizers are to see. Every scene is repeated for each
 * backend, with moments that differ from round to round.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "fdwait.h"

#define ROUNDS 20
#define THREADS 4

static unsigned seed = 1;

/* A moment of up to two milliseconds: long enough for either order of events. */
static void a_moment(void)
{
    struct timespec t = {.tv_nsec = (long)(rand_r(&seed) % 2000) * 1000};
    nanosleep(&t, NULL);
}

static void start(pthread_t *thread, void *(*body)(void *), void *argument)
{
    if (pthread_create(thread, NULL, body, argument) != 0)
        abort();
}

static int joined(pthread_t thread)
{
    void *result;
    pthread_join(thread, &result);
    return (int)(intptr_t)result;
}

/* ---- one waiter, many threads ---- */

static void *wait_for_ever(void *waiter)
{
    return (void *)(intptr_t)fdw_waiter_wait(waiter, FDW_FOREVER);
}

static void *close_waiter(void *waiter)
{
    fdw_waiter_close(waiter);
    return NULL;
}

static void test_close_ends_every_wait(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        int ends[2];
        pthread_t waiting[THREADS], closing[2];
        CHECK(pipe(ends) == 0);
        fdw_waiter *w = fdw_waiter_new();
        CHECK(fdw_waiter_open(w, ends[0], FDW_READ, 0) == 0);
        for (int i = 0; i < THREADS; i++)
            start(&waiting[i], wait_for_ever, w);
        a_moment();
        for (int i = 0; i < 2; i++)
            start(&closing[i], close_waiter, w);
        for (int i = 0; i < THREADS; i++)
            CHECK(joined(waiting[i]) == -ECANCELED);
        for (int i = 0; i < 2; i++)
            joined(closing[i]);
        CHECK(fdw_waiter_look(w) == -ECANCELED);
        fdw_waiter_free(w);
        close(ends[0]);
        close(ends[1]);
    }
}

static void test_one_byte_wakes_every_thread(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        int ends[2];
        pthread_t waiting[THREADS];
        CHECK(pipe(ends) == 0);
        fdw_waiter *w = fdw_waiter_new();
        CHECK(fdw_waiter_open(w, ends[0], FDW_READ, 0) == 0);
        for (int i = 0; i < THREADS; i++)
            start(&waiting[i], wait_for_ever, w);
        a_moment();
        CHECK(write(ends[1], "x", 1) == 1);
        for (int i = 0; i < THREADS; i++)
            CHECK(joined(waiting[i]) == FDW_READY);
        fdw_waiter_free(w);
        close(ends[0]);
        close(ends[1]);
    }
}

/* ---- objects that come and go beside each other ---- */

static void *make_and_close(void *unused)
{
    int failures = 0;
    (void)unused;
    for (int i = 0; i < 50; i++) {
        int ends[2];
        if (pipe(ends) < 0)
            return (void *)(intptr_t)1;
        fdw_waiter *w = fdw_waiter_new();
        failures += fdw_waiter_open(w, ends[0], FDW_READ, i % 2) != 0;
        failures += fdw_waiter_look(w) != 0;
        failures += write(ends[1], "x", 1) != 1;
        failures += fdw_waiter_wait(w, FDW_FOREVER) != FDW_READY;
        fdw_waiter_free(w);
        close(ends[0]);
        close(ends[1]);
    }
    return (void *)(intptr_t)failures;
}

static void test_waiters_come_and_go_in_many_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        start(&threads[i], make_and_close, NULL);
    for (int i = 0; i < THREADS; i++)
        CHECK(joined(threads[i]) == 0);
}

/* ---- stop ---- */

struct drain {
    int fd;
    fdw_stop *stop;
    int64_t total;
    atomic_int over;
};

/* The result of the run; FDW_AGAIN cannot be, since no main thread is set. */
static void *drain(void *argument)
{
    struct drain *d = argument;
    int error;
    fdw_pump *pump = fdw_pump_new();
    if (fdw_pump_open(pump, d->stop) < 0)
        return (void *)(intptr_t)-ENOMEM;
    fdw_source *source = fdw_pump_source(pump, d->fd, 1000, 1000, -1, &error);
    int r = fdw_pump_run(pump, FDW_FOREVER);
    d->total += fdw_source_result(source)->total;
    fdw_pump_free(pump);
    atomic_store(&d->over, 1);
    return (void *)(intptr_t)r;
}

static void test_stop_ends_silent_drains_of_many_threads(void)
{
    fdw_stop *stop = fdw_stop_new();
    for (int round = 0; round < ROUNDS; round++) {
        int ends[THREADS][2];
        pthread_t threads[THREADS];
        struct drain drains[THREADS];
        for (int i = 0; i < THREADS; i++) {
            CHECK(pipe(ends[i]) == 0);
            drains[i] = (struct drain){.fd = ends[i][0], .stop = stop};
            start(&threads[i], drain, &drains[i]);
        }
        a_moment();
        fdw_stop_set(stop);
        for (int i = 0; i < THREADS; i++) {
            CHECK(joined(threads[i]) == FDW_STOPPED);
            close(ends[i][0]);
            close(ends[i][1]);
        }
        fdw_stop_clear(stop);
    }
    fdw_stop_free(stop);
}

struct flood {
    int fd;
    atomic_int over;
    int64_t written;
};

static void *flood(void *argument)
{
    static const char block[4096];
    struct flood *f = argument;
    while (!atomic_load(&f->over)) {
        ssize_t n = write(f->fd, block, sizeof block);
        if (n > 0)
            f->written += n;
    }
    close(f->fd);
    return NULL;
}

static void test_stop_in_a_flood_loses_no_byte(void)
{
    fdw_stop *stop = fdw_stop_new();
    for (int round = 0; round < ROUNDS; round++) {
        int ends[2];
        pthread_t writer, reader;
        CHECK(pipe(ends) == 0);
        struct flood f = {.fd = ends[1]};
        struct drain d = {.fd = ends[0], .stop = stop};
        start(&writer, flood, &f);
        start(&reader, drain, &d);
        a_moment();
        fdw_stop_set(stop);
        CHECK(joined(reader) == FDW_STOPPED);
        fdw_stop_clear(stop);
        atomic_store(&f.over, 1);
        CHECK(drain(&d) == (void *)(intptr_t)FDW_READY);
        joined(writer);
        CHECK(d.total == f.written);
        close(ends[0]);
    }
    fdw_stop_free(stop);
}

static void *set_and_clear(void *stop)
{
    for (int i = 0; i < 200; i++) {
        fdw_stop_set(stop);
        fdw_stop_is_set(stop);
        fdw_stop_clear(stop);
    }
    return NULL;
}

/* Whatever the order: STOPPED while it sleeps, and nothing else. A set that was taken back before the drain began
 * does not count. */
static void test_stop_that_is_set_and_cleared_all_the_time(void)
{
    fdw_stop *stop = fdw_stop_new();
    pthread_t toggler;
    int ends[2];
    CHECK(pipe(ends) == 0);
    start(&toggler, set_and_clear, stop);
    for (int i = 0; i < 50; i++) {
        struct drain d = {.fd = ends[0], .stop = stop};
        pthread_t reader;
        start(&reader, drain, &d);
        do {
            a_moment();
            fdw_stop_set(stop);
        } while (!atomic_load(&d.over));
        CHECK(joined(reader) == FDW_STOPPED);
    }
    joined(toggler);
    fdw_stop_free(stop);
    close(ends[0]);
    close(ends[1]);
}

/* Version 2.3.1 now and then crashes when kqueues are made and closed in many threads. */
static int is_libkqueue(const char *backend)
{
#ifdef __linux__
    return strcmp(backend, "kqueue") == 0;
#else
    return (void)backend, 0;
#endif
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    alarm(120);
    for (int i = 0; fdw_backend_name(i); i++) {
        CHECK(fdw_force_backend(fdw_backend_name(i)) == 0);
        test_close_ends_every_wait();
        test_one_byte_wakes_every_thread();
        if (!is_libkqueue(fdw_backend_name(i)))
            test_waiters_come_and_go_in_many_threads();
        test_stop_ends_silent_drains_of_many_threads();
        test_stop_in_a_flood_loses_no_byte();
        test_stop_that_is_set_and_cleared_all_the_time();
    }
    return report();
}
