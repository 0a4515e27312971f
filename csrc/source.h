/* One descriptor that is being drained into a sink. */
#ifndef FDW_SOURCE_H
#define FDW_SOURCE_H

#include <stdint.h>

#include "channel.h"
#include "fdwait.h"
#include "sink.h"

struct fdw_source {
    struct fdw_source *next;
    struct channel channel;
    int64_t limit; /* bytes to take at most; INT64_MAX: none */
    struct sink sink;
    fdw_result result;

    int is_passed_on; /* a feed takes what comes in */
    int is_file, is_terminal;
    int is_fifo;       /* which may have had no writer yet */
    int empty;         /* the last read found nothing */
    size_t capacity;   /* of a pipe; 0: not known */
    int full_reads;    /* reads in a row that emptied a full pipe */
    int holds_a_place; /* counted among the enlarged pipes */
};

/* -errno */
int source_open(fdw_source *s, int fd, int64_t head, int64_t tail, int64_t limit);
void source_close(fdw_source *s);

/* Learn the capacity of a pipe; of an own one when whoever makes the child has set it. */
void source_measure(fdw_source *s);

/* Read up to `budget` bytes without sleeping; how many it were. `thorough`: until a read says that there is
 * nothing more. Sets maybe_ready and empty, and ends the source where that is due. */
int64_t source_turn(fdw_source *s, int64_t budget, int thorough);

/* A pipe's worth: what an expired deadline still takes. */
int64_t source_worth(const fdw_source *s);

/* The other side is gone and nothing is left to read. */
int source_is_at_end(const fdw_source *s);

/* How much more may be taken in before what is passed on has gone out; 0: the source is paused. */
int64_t source_room(const fdw_source *s);

int source_is_open(const fdw_source *s);
void source_end(fdw_source *s, int end);
void source_fail(fdw_source *s, int error);

#endif
