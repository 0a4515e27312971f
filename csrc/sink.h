/* Where drained bytes go: everything, or a head and a tail with a counted gap between them. */
#ifndef FDW_SINK_H
#define FDW_SINK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct chunk;

struct sink {
    int64_t head_limit, tail_limit; /* head_limit INT64_MAX: everything */
    int64_t total;

    struct chunk *first, *last; /* the head, less what was passed on */
    int64_t head;
    int64_t passed;

    char *ring; /* the latest bytes behind the head; made when the head is full */
    size_t ring_size, ring_at;
    int64_t behind; /* bytes that came behind the head */
};

/* head < 0: everything. */
void sink_init(struct sink *s, int64_t head, int64_t tail);

/* Where the next bytes go, at most `most`: one or two pieces, to be read into directly. Their number, or -ENOMEM. */
int sink_room(struct sink *s, int64_t most, struct iovec room[2]);

/* `n` bytes have been put there. */
void sink_commit(struct sink *s, size_t n);

/* What is kept. Where something is left out, no UTF-8 sequence is split: up to 3 bytes less at either edge. */
int64_t sink_head(const struct sink *s);
int64_t sink_tail(const struct sink *s);

/* Bytes of the head that were not passed on, and the oldest of them as far as they lie together (0: none). Of a head
 * that ends, the last 3 stay: they may begin a sequence that the gap cuts off. */
int64_t sink_waiting(const struct sink *s);
size_t sink_front(const struct sink *s, const char **bytes);

/* `n` bytes of that front have been passed on. They count as kept. */
void sink_pass(struct sink *s, size_t n);

/* Copy out head (without what was passed on), gap and tail, giving memory back on the way. Once: nothing is left then. */
void sink_take(struct sink *s, char *to, const char *gap, size_t gap_size);
void sink_free(struct sink *s);

#endif
