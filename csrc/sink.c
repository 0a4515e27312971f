/*
 * The head is a list of chunks: 64 KiB first, since most outputs are small, then 2 MiB in large pages, because
 * touching memory in pages of 4 KiB costs more than reading a pipe into it. Bytes never move until they are
 * taken. The tail is a ring of at least a pipe's worth, so that reads into it are large whatever the tail is.
 */
#include "sink.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"
#include "os.h"

#define SMALL ((size_t)64 << 10)
#define LARGE ((size_t)2 << 20)
#define CUT_AT_MOST 3 /* bytes of an unfinished UTF-8 sequence */

struct chunk {
    struct chunk *next;
    char *bytes;
    size_t size, used, from; /* what was passed on lies before `from` */
};

void sink_init(struct sink *s, int64_t head, int64_t tail)
{
    *s = (struct sink){.head_limit = head < 0 ? INT64_MAX : head, .tail_limit = tail};
}

static void free_bytes(char *bytes, size_t size)
{
    if (size == LARGE)
        munmap(bytes, size);
    else
        free(bytes);
}

static struct chunk *add_chunk(struct sink *s)
{
    size_t size = s->first ? LARGE : SMALL;
    struct chunk *c = malloc(sizeof *c);
    char *bytes = size == LARGE ? os_map(size) : malloc(size);
    if (!c || !bytes) {
        free(c);
        if (bytes)
            free_bytes(bytes, size);
        return NULL;
    }
    *c = (struct chunk){.bytes = bytes, .size = size};
    if (s->last)
        s->last->next = c;
    else
        s->first = c;
    s->last = c;
    return c;
}

static int head_room(struct sink *s, int64_t most, struct iovec *room)
{
    struct chunk *c = s->last;
    if (!c || c->used == c->size)
        c = add_chunk(s);
    if (!c)
        return -ENOMEM;
    most = min64(most, s->head_limit - s->head);
    *room = (struct iovec){c->bytes + c->used, (size_t)min64(most, (int64_t)(c->size - c->used))};
    return 1;
}

static int ring_room(struct sink *s, int64_t most, struct iovec room[2])
{
    if (!s->ring) {
        if ((uint64_t)s->tail_limit > SIZE_MAX / 2)
            return -ENOMEM;
        s->ring_size = s->tail_limit > (int64_t)SMALL ? (size_t)s->tail_limit : SMALL;
        s->ring = malloc(s->ring_size);
        if (!s->ring)
            return -ENOMEM;
    }
    size_t n = (size_t)min64(most, (int64_t)s->ring_size);
    size_t to_end = s->ring_size - s->ring_at;
    room[0] = (struct iovec){s->ring + s->ring_at, n < to_end ? n : to_end};
    room[1] = (struct iovec){s->ring, n - room[0].iov_len};
    return room[1].iov_len ? 2 : 1;
}

int sink_room(struct sink *s, int64_t most, struct iovec room[2])
{
    return s->head < s->head_limit ? head_room(s, most, room) : ring_room(s, most, room);
}

void sink_commit(struct sink *s, size_t n)
{
    s->total += (int64_t)n;
    if (s->head < s->head_limit) {
        s->head += (int64_t)n;
        s->last->used += n;
    } else {
        s->behind += (int64_t)n;
        s->ring_at = (s->ring_at + n) % s->ring_size;
    }
}

/* ---- what is kept ---- */

int64_t sink_waiting(const struct sink *s)
{
    return s->head - s->passed;
}

/* The last n bytes of the head, oldest first. */
static void peek_head(const struct sink *s, unsigned char *to, int64_t n)
{
    int64_t skip = sink_waiting(s) - n;
    for (const struct chunk *c = s->first; c; c = c->next) {
        size_t skipped = (size_t)min64(skip, (int64_t)(c->used - c->from));
        size_t from = c->from + skipped;
        memcpy(to, c->bytes + from, c->used - from);
        to += c->used - from;
        skip -= (int64_t)skipped;
    }
}

static int is_continuation(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

static int sequence_length(unsigned char lead)
{
    return lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
}

/* Bytes at the end of the head that begin a sequence which the gap cuts off. */
static int cut_off(const struct sink *s)
{
    unsigned char end[CUT_AT_MOST];
    int n = (int)min64(CUT_AT_MOST, sink_waiting(s));
    peek_head(s, end, n);
    for (int back = 1; back <= n; back++) {
        unsigned char byte = end[n - back];
        if (!is_continuation(byte))
            return sequence_length(byte) > back ? back : 0;
    }
    return 0;
}

static int64_t raw_tail(const struct sink *s)
{
    return min64(s->behind, s->tail_limit);
}

static unsigned char ring_byte(const struct sink *s, int64_t i_from_end)
{
    size_t back = (size_t)i_from_end % s->ring_size;
    return (unsigned char)s->ring[(s->ring_at + s->ring_size - back) % s->ring_size];
}

/* Bytes at the start of the tail that continue a sequence which the gap swallowed. */
static int orphaned(const struct sink *s)
{
    int64_t tail = raw_tail(s);
    int n = 0;
    while (n < tail && n < 4 && is_continuation(ring_byte(s, tail - n)))
        n++;
    return n < 4 ? n : 0; /* four in a row are no UTF-8 */
}

static int has_gap(const struct sink *s)
{
    return s->behind > s->tail_limit;
}

int64_t sink_head(const struct sink *s)
{
    return has_gap(s) ? s->head - cut_off(s) : s->head;
}

int64_t sink_tail(const struct sink *s)
{
    return has_gap(s) ? raw_tail(s) - orphaned(s) : s->behind;
}

static void drop_first(struct sink *s)
{
    struct chunk *c = s->first;
    s->first = c->next;
    if (!s->first)
        s->last = NULL;
    free_bytes(c->bytes, c->size);
    free(c);
}

size_t sink_front(const struct sink *s, const char **bytes)
{
    int64_t end = s->head_limit == INT64_MAX ? s->head : min64(s->head, s->head_limit - CUT_AT_MOST);
    if (end <= s->passed)
        return 0;
    *bytes = s->first->bytes + s->first->from;
    return (size_t)min64(end - s->passed, (int64_t)(s->first->used - s->first->from));
}

void sink_pass(struct sink *s, size_t n)
{
    struct chunk *c = s->first;
    s->passed += (int64_t)n;
    c->from += n;
    if (c->from < c->used)
        return;
    if (c == s->last)
        c->from = c->used = 0; /* to be filled again */
    else
        drop_first(s);
}

static void take_head(struct sink *s, char *to, int64_t n)
{
    while (s->first) {
        struct chunk *c = s->first;
        size_t part = (size_t)min64(n, (int64_t)(c->used - c->from));
        memcpy(to, c->bytes + c->from, part);
        to += part;
        n -= (int64_t)part;
        drop_first(s);
    }
}

static void take_tail(const struct sink *s, char *to, int64_t n)
{
    if (n == 0)
        return;
    size_t size = (size_t)n;
    size_t from = (s->ring_at + s->ring_size - size % s->ring_size) % s->ring_size;
    size_t to_end = s->ring_size - from < size ? s->ring_size - from : size;
    memcpy(to, s->ring + from, to_end);
    memcpy(to + to_end, s->ring, size - to_end);
}

void sink_take(struct sink *s, char *to, const char *gap, size_t gap_size)
{
    int64_t head = sink_head(s) - s->passed, tail = sink_tail(s);
    if (head + tail == 0 && !s->first && !s->ring)
        return;
    os_prefer_large_pages(to, (size_t)(head + tail) + gap_size);
    take_head(s, to, head);
    memcpy(to + head, gap, gap_size);
    take_tail(s, to + head + gap_size, tail);
    sink_free(s);
}

void sink_free(struct sink *s)
{
    char nowhere[1];
    take_head(s, nowhere, 0);
    free(s->ring);
    s->ring = NULL;
    s->head = s->behind = s->passed = 0;
}
