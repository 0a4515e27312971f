/* kqueue.c against a scripted kernel: the answers that libkqueue never gives. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "fake_kevent.h"
#include "fdwait.h"
#include "poller.h"

static char tag_a, tag_b;

static int pipe_ends[2];

static void opened(struct poller *p)
{
    fake_reset();
    CHECK(poller_open_with(p, &fdw_kqueue) == 0);
}

static int set(struct poller *p, int fd, int events)
{
    return p->ops->set(p, fd, events, &tag_a);
}

static struct kevent event(int ident, int filter, int flags, void *tag)
{
    struct kevent e;
    EV_SET(&e, (uintptr_t)ident, filter, flags, 0, 0, tag);
    return e;
}

static int is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* ---- opening ---- */

static void test_open_reports_the_errno_of_kqueue(void)
{
    static const int errors[] = {EMFILE, ENFILE, ENOMEM};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct poller p;
        fake_reset();
        fake_no_kqueue(errors[i]);
        CHECK(poller_open_with(&p, &fdw_kqueue) == -errors[i]);
        CHECK(p.ops == NULL);
    }
}

static void test_open_fails_and_closes_when_the_wake_cannot_be_registered(void)
{
    struct poller p;
    fake_reset();
    fake_receipt(EVFILT_USER, ENOMEM, 0);
    CHECK(poller_open_with(&p, &fdw_kqueue) == -ENOMEM);
    CHECK(!is_open(fake.fd));
}

static void test_the_kqueue_is_close_on_exec_and_above_the_standard_streams(void)
{
    int saved = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    struct poller p;
    opened(&p);
    CHECK(p.fd > STDERR_FILENO);
    CHECK(fcntl(p.fd, F_GETFD) & FD_CLOEXEC);
    CHECK(!is_open(STDIN_FILENO));
    poller_close(&p);
    dup2(saved, STDIN_FILENO);
    close(saved);
}

/* ---- changes and their receipts ---- */

static void test_every_change_asks_for_a_receipt(void)
{
    struct poller p;
    opened(&p);
    CHECK(set(&p, pipe_ends[0], FDW_READ) == 0);
    CHECK(p.ops->check(&p, pipe_ends[0], FDW_READ, &tag_a) == 0);
    p.ops->wake(&p);
    CHECK(fake.n_changes >= 4);
    for (int i = 0; i < fake.n_changes; i++)
        CHECK(fake.changes[i].flags & EV_RECEIPT);
    poller_close(&p);
}

static void test_errors_of_registration(void)
{
    static const struct {
        int events, filter, error, result;
    } cases[] = {
        {FDW_READ, EVFILT_READ, EBADF, -EBADF},      {FDW_READ, EVFILT_READ, EINVAL, -ENOTSUP},
        {FDW_READ, EVFILT_READ, ENODEV, -ENOTSUP},   {FDW_READ, EVFILT_READ, ENOMEM, -ENOMEM},
        {FDW_WRITE, EVFILT_WRITE, EPIPE, -EPERM},    {FDW_WRITE, EVFILT_WRITE, EBADF, -EPERM},
        {FDW_WRITE, EVFILT_WRITE, EINVAL, -ENOTSUP}, {FDW_WRITE, EVFILT_WRITE, ENOMEM, -ENOMEM},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd = cases[i].events == FDW_READ ? pipe_ends[0] : pipe_ends[1];
        /* Alone, and as kernels send it that leave the flags of the change beside the error. */
        for (int flags = 0; flags <= EV_ADD; flags += EV_ADD) {
            struct poller p;
            opened(&p);
            fake_receipt(cases[i].filter, cases[i].error, flags);
            CHECK(set(&p, fd, cases[i].events) == cases[i].result);
            poller_close(&p);
        }
    }
}

static void test_a_receipt_with_many_flags_and_no_error_is_success(void)
{
    struct poller p;
    opened(&p);
    fake_receipt(EVFILT_READ, 0, EV_ADD | EV_ENABLE | EV_RECEIPT);
    CHECK(set(&p, pipe_ends[0], FDW_READ) == 0);
    poller_close(&p);
}

static void test_a_closed_descriptor_is_ebadf_for_writing_too(void)
{
    struct poller p;
    opened(&p);
    int fd = dup(pipe_ends[1]);
    close(fd);
    CHECK(set(&p, fd, FDW_WRITE) == -EBADF);
    poller_close(&p);
}

static void test_nothing_stays_registered_after_an_error(void)
{
    int both[2] = {0, 0};
    struct poller p;
    opened(&p);
    fake_receipt(EVFILT_WRITE, EPIPE, 0);
    CHECK(set(&p, pipe_ends[1], FDW_READ | FDW_WRITE) == -EPERM);
    for (int i = 0; i < 2; i++) {
        CHECK(fake_change(i)->flags & EV_DELETE);
        both[i] = fake_change(i)->filter;
    }
    CHECK(both[0] != both[1]);
    poller_close(&p);
}

static void test_an_interrupted_change_was_applied(void)
{
    struct poller p;
    opened(&p);
    int before = fake.n_changes;
    fake_fail(EINTR);
    CHECK(set(&p, pipe_ends[0], FDW_READ) == 0);
    int adds = 0;
    for (int i = before; i < fake.n_changes; i++)
        adds += fake.changes[i].filter == EVFILT_READ;
    CHECK(adds == 1);
    poller_close(&p);
}

static void test_taking_off_what_is_not_there_is_no_error(void)
{
    struct poller p;
    opened(&p);
    fake_receipt(EVFILT_WRITE, ENOENT, 0);
    CHECK(set(&p, pipe_ends[0], FDW_READ) == 0);
    fake_receipt(EVFILT_READ, ENOENT, 0);
    fake_receipt(EVFILT_WRITE, ENOENT, 0);
    CHECK(set(&p, pipe_ends[0], 0) == 0);
    poller_close(&p);
}

static void test_files_and_directories_are_never_registered(void)
{
    static const char *const paths[] = {"/", __FILE__};
    for (size_t i = 0; i < 2; i++) {
        struct poller p;
        opened(&p);
        int before = fake.n_changes;
        int fd = open(paths[i], O_RDONLY);
        CHECK(fd >= 0);
        CHECK(set(&p, fd, FDW_READ) == -EPERM);
        for (int j = before; j < fake.n_changes; j++)
            CHECK(fake.changes[j].flags & EV_DELETE);
        close(fd);
        poller_close(&p);
    }
}

/* ---- looking, waiting, checking ---- */

static void test_two_filters_of_one_descriptor_are_one_answer(void)
{
    struct poller p;
    opened(&p);
    struct ready ready[8];
    struct kevent told[3] = {event(5, EVFILT_READ, 0, &tag_a), event(6, EVFILT_READ, 0, &tag_b),
                             event(5, EVFILT_WRITE, 0, &tag_a)};
    for (int i = 0; i < 3; i++)
        fake_event(&told[i]);
    CHECK(p.ops->wait(&p, ready, 8, FDW_FOREVER) == 2);
    CHECK(ready[0].tag == &tag_a && ready[0].events == (FDW_READ | FDW_WRITE));
    CHECK(ready[1].tag == &tag_b && ready[1].events == FDW_READ);
    poller_close(&p);
}

static void test_end_of_file_is_readable_also_with_data_pending(void)
{
    struct poller p;
    opened(&p);
    struct ready ready[2];
    struct kevent e = event(5, EVFILT_READ, EV_EOF, &tag_a);
    e.data = 100;
    fake_event(&e);
    CHECK(p.ops->wait(&p, ready, 2, FDW_FOREVER) == 1);
    CHECK(ready[0].events == FDW_READ);
    poller_close(&p);
}

static void test_an_error_in_a_wait_is_neither_readable_nor_writable(void)
{
    struct poller p;
    opened(&p);
    struct ready ready[2];
    struct kevent e = event(5, EVFILT_READ, EV_ERROR | EV_ADD, &tag_a);
    e.data = EBADF;
    fake_event(&e);
    CHECK(p.ops->wait(&p, ready, 2, FDW_FOREVER) == 1);
    CHECK(ready[0].tag == &tag_a && ready[0].events == 0);
    poller_close(&p);
}

static void test_a_wake_ends_the_wait_and_names_nothing(void)
{
    struct poller p;
    opened(&p);
    struct ready ready[2];
    struct kevent e = event(0, EVFILT_USER, 0, NULL);
    p.ops->wake(&p);
    CHECK(fake_change(0)->filter == EVFILT_USER && fake_change(0)->fflags & NOTE_TRIGGER);
    fake_event(&e);
    CHECK(p.ops->wait(&p, ready, 2, FDW_FOREVER) == 0);
    fake_event(&e);
    CHECK(p.ops->look(&p, pipe_ends[0], FDW_READ) == 0);
    poller_close(&p);
}

static void test_timeouts_are_ones_every_kernel_takes(void)
{
    static const int64_t deadlines[] = {INT64_MIN, 0, 1, FDW_FOREVER - 1, FDW_FOREVER};
    struct poller p;
    opened(&p);
    struct ready ready[1];
    for (size_t i = 0; i < sizeof deadlines / sizeof *deadlines; i++) {
        CHECK(p.ops->wait(&p, ready, 1, deadlines[i]) == 0);
        CHECK(fake.forever || (fake.timeout.tv_sec >= 0 && fake.timeout.tv_sec <= 1000000));
        CHECK(fake.forever || (fake.timeout.tv_nsec >= 0 && fake.timeout.tv_nsec < NS_PER_S));
        CHECK(deadlines[i] > 1 || (!fake.forever && fake.timeout.tv_sec == 0 && fake.timeout.tv_nsec == 0));
    }
    poller_close(&p);
}

static void test_an_interrupted_wait_says_so(void)
{
    struct poller p;
    opened(&p);
    struct ready ready[1];
    fake_fail(EINTR);
    CHECK(p.ops->wait(&p, ready, 1, FDW_FOREVER) == -EINTR);
    poller_close(&p);
}

static void test_a_look_confirms_that_the_descriptor_is_open(void)
{
    struct poller p;
    opened(&p);
    int fd = dup(pipe_ends[0]);
    struct kevent e = event(fd, EVFILT_READ, 0, &tag_a);
    fake_event(&e);
    CHECK(p.ops->look(&p, fd, FDW_READ) == FDW_READY);
    CHECK(p.ops->look(&p, fd, FDW_READ) == 0);
    fake_event(&e);
    close(fd);
    CHECK(p.ops->look(&p, fd, FDW_READ) == -EBADF);
    poller_close(&p);
}

static void test_a_forgotten_registration_is_found_out(void)
{
    static const int errors[] = {ENOENT, EBADF};
    for (size_t i = 0; i < 2; i++) {
        struct poller p;
        opened(&p);
        CHECK(set(&p, pipe_ends[0], FDW_READ) == 0);
        CHECK(p.ops->check(&p, pipe_ends[0], FDW_READ, &tag_a) == 0);
        CHECK(fake_change(0)->flags & EV_ENABLE && !(fake_change(0)->flags & EV_ADD));
        fake_receipt(EVFILT_READ, errors[i], EV_ENABLE);
        CHECK(p.ops->check(&p, pipe_ends[0], FDW_READ, &tag_a) == -EBADF);
        poller_close(&p);
    }
}

static void test_the_exit_of_a_process(void)
{
    static const int errors[] = {ESRCH, EPERM, ENOMEM};
    struct poller p;
    opened(&p);
    CHECK(p.ops->watch_exit(&p, getpid(), &tag_b) == 0);
    const struct kevent *c = fake_change(0);
    CHECK(c->filter == EVFILT_PROC && c->ident == (uintptr_t)getpid() && c->udata == &tag_b);
    CHECK(c->flags & EV_ONESHOT && c->fflags & NOTE_EXIT);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        fake_receipt(EVFILT_PROC, errors[i], EV_ADD);
        CHECK(p.ops->watch_exit(&p, getpid(), &tag_b) == -errors[i]);
    }
    poller_close(&p);
}

static void test_the_number_is_not_closed_in_a_child(void)
{
    struct poller p;
    opened(&p);
    int fd = p.fd;
    p.ops->in_child(&p);
    CHECK(is_open(fd));
    poller_close(&p);
    CHECK(is_open(fd));
    close(fd);
}

/* ---- what a waiter makes of it ---- */

static const char *backend_after(int filter, int error, int fd, int events)
{
    static char name[64];
    fake_reset();
    fake_receipt(filter, error, EV_ADD);
    fdw_waiter *w = fdw_waiter_new();
    int failed = fdw_waiter_open(w, fd, events, 0);
    strncpy(name, failed ? strerror(-failed) : fdw_waiter_backend(w), sizeof name - 1);
    fdw_waiter_free(w);
    return name;
}

static void test_a_waiter_goes_on_where_kqueue_cannot(void)
{
    CHECK(strcmp(backend_after(EVFILT_READ, 0, pipe_ends[0], FDW_READ), "kqueue") == 0);
    CHECK(strcmp(backend_after(EVFILT_READ, ENODEV, pipe_ends[0], FDW_READ), "select") == 0);
    CHECK(strcmp(backend_after(EVFILT_READ, EINVAL, pipe_ends[0], FDW_READ), "select") == 0);
    CHECK(strcmp(backend_after(EVFILT_READ, ENOMEM, pipe_ends[0], FDW_READ), "poll") == 0);
    CHECK(strcmp(backend_after(EVFILT_WRITE, EPIPE, pipe_ends[1], FDW_WRITE), "always") == 0);
    CHECK(strcmp(backend_after(EVFILT_USER, ENOMEM, pipe_ends[0], FDW_READ), "poll") == 0);
    CHECK(strcmp(backend_after(EVFILT_READ, EBADF, pipe_ends[0], FDW_READ), strerror(EBADF)) == 0);

    fake_reset();
    fake_no_kqueue(EMFILE);
    fdw_waiter *w = fdw_waiter_new();
    CHECK(fdw_waiter_open(w, pipe_ends[0], FDW_READ, 0) == 0);
    CHECK(strcmp(fdw_waiter_backend(w), "poll") == 0);
    CHECK(fdw_waiter_look(w) == 0);
    CHECK(write(pipe_ends[1], "x", 1) == 1);
    CHECK(fdw_waiter_wait(w, FDW_FOREVER) == FDW_READY);
    char byte;
    CHECK(read(pipe_ends[0], &byte, 1) == 1);
    fdw_waiter_free(w);
}

static void test_a_waiter_whose_number_was_reused_says_closed(void)
{
    fake_reset();
    fdw_waiter *w = fdw_waiter_new();
    CHECK(fdw_waiter_open(w, pipe_ends[0], FDW_READ, 0) == 0);
    fake_receipt(EVFILT_READ, ENOENT, EV_ENABLE);
    CHECK(fdw_waiter_wait(w, fdw_deadline(0.01)) == -EBADF);
    fdw_waiter_free(w);
}

int main(void)
{
    if (pipe(pipe_ends) < 0)
        return 2;
    test_open_reports_the_errno_of_kqueue();
    test_open_fails_and_closes_when_the_wake_cannot_be_registered();
    test_the_kqueue_is_close_on_exec_and_above_the_standard_streams();
    test_every_change_asks_for_a_receipt();
    test_errors_of_registration();
    test_a_receipt_with_many_flags_and_no_error_is_success();
    test_a_closed_descriptor_is_ebadf_for_writing_too();
    test_nothing_stays_registered_after_an_error();
    test_an_interrupted_change_was_applied();
    test_taking_off_what_is_not_there_is_no_error();
    test_files_and_directories_are_never_registered();
    test_two_filters_of_one_descriptor_are_one_answer();
    test_end_of_file_is_readable_also_with_data_pending();
    test_an_error_in_a_wait_is_neither_readable_nor_writable();
    test_a_wake_ends_the_wait_and_names_nothing();
    test_timeouts_are_ones_every_kernel_takes();
    test_an_interrupted_wait_says_so();
    test_a_look_confirms_that_the_descriptor_is_open();
    test_a_forgotten_registration_is_found_out();
    test_the_exit_of_a_process();
    test_the_number_is_not_closed_in_a_child();
    test_a_waiter_goes_on_where_kqueue_cannot();
    test_a_waiter_whose_number_was_reused_says_closed();
    return report();
}
