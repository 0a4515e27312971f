/* One descriptor that bytes are written to: from memory, or what a source takes in. */
#ifndef FDW_FEED_H
#define FDW_FEED_H

#include <stddef.h>
#include <stdint.h>

#include "channel.h"
#include "fdwait.h"
#include "source.h"

struct fdw_feed {
    struct fdw_feed *next;
    struct channel channel;
    fdw_source *from; /* passed on from there; NULL: from memory */
    const char *data; /* what is left of it */
    int64_t size;
    int is_over; /* everything was taken, or it failed, or nobody will take more */
    int blocked; /* the last write was not taken in full */
    fdw_fed result;
};

/* -errno */
int feed_open(fdw_feed *f, int fd, const char *data, int64_t size, fdw_source *from);
void feed_close(fdw_feed *f);

/* Write up to `budget` bytes without sleeping; how many it were. Ends the feed where that is due. */
int64_t feed_turn(fdw_feed *f, int64_t budget);

/* Whether there is something to write now. */
int feed_has_bytes(const fdw_feed *f);

/* The child is gone: with our copy of its end closed, an own feed fails as soon as nobody else has one. */
void feed_leave_alone(fdw_feed *f);

/* Close the own end, so that the child sees the end of its input. The poller must not know it any more. */
void feed_end(fdw_feed *f);

void feed_fail(fdw_feed *f, int error);

#endif
