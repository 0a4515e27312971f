/* One descriptor that a pump waits on: borrowed, or the pump's own end of a pipe to a child. */
#ifndef FDW_CHANNEL_H
#define FDW_CHANNEL_H

#include <sys/stat.h>

#include "os.h"
#include "poller.h"

struct channel {
    int fd;
    int events; /* FDW_READ or FDW_WRITE */
    int own;    /* our end of a pipe: it is non-blocking, and closed with the channel */
    int peer;   /* the other end of an own pipe, for the child; -1: none, or closed */
    enum os_io_mode mode;
    dev_t dev; /* what was opened, where no poller can tell */
    ino_t ino;

    int watched;      /* registered with the poller */
    int always_ready; /* what the poller cannot wait on is ready, as for select(2) */
    int maybe_ready;  /* worth a try */
};

/* `fd`, or with FDW_PIPE one end of a new pipe; *st says what it is. -errno; -EPROTOTYPE for sockets that keep packets apart. */
int channel_open(struct channel *c, int fd, int events, struct stat *st);

/* Each gives back what is the channel's own. The poller must not know fd any more. */
void channel_close(struct channel *c);
void channel_close_end(struct channel *c);
void channel_close_peer(struct channel *c);

/* Be registered with `p`, or not. -errno of its set(). */
int channel_watch(struct channel *c, struct poller *p, int wanted);

/* The poller had it. */
void channel_take_ready(struct channel *c, struct poller *p, int events);

/* Whether the number still belongs to the file that was registered. */
int channel_is_same_file(struct channel *c, struct poller *p);

#endif
