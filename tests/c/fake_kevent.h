/*
 * A kqueue() and kevent() that answer what a test tells them, for what no kernel at hand can be made to do.
 * Untold, kqueue() opens something, every change succeeds, and nothing is ever ready.
 */
#ifndef FAKE_KEVENT_H
#define FAKE_KEVENT_H

#include <stddef.h>
#include <sys/types.h>

#include <sys/event.h>
#include <time.h>

#define FAKE_ROOM 32

struct fake {
    int fd;        /* of the last kqueue() */
    int calls;     /* of kevent() */
    int n_changes; /* all changes so far */
    struct kevent changes[FAKE_ROOM];
    struct timespec timeout; /* of the last kevent() */
    int forever;             /* it had none */
};
extern struct fake fake;

/* Forget everything that was told and recorded. */
void fake_reset(void);

/* The next kqueue() fails. */
void fake_no_kqueue(int error);

/* The next kevent() returns -1. */
void fake_fail(int error);

/* The next change of `filter` answers with this errno in its receipt, and with `flags` set beside EV_ERROR. */
void fake_receipt(int filter, int error, int flags);

/* The next kevent() without changes returns this too. */
void fake_event(const struct kevent *event);

/* The i-th change from the end. */
const struct kevent *fake_change(int i);

#endif
