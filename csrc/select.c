/*
 * select(2) with sets of any size. The kernel takes them: it is FD_SET and the fd_set type that end at 1024. So
 * the words are set by hand on the heap, and a select here means select because it is select.
 *
 * Linux does not look at numbers beyond its descriptor table, sleeps on without them and leaves their bits as they
 * were: that the highest one is open, and so within the table, is made sure of first. And a descriptor that is
 * closed while it sleeps counts as ready (Linux 5.17 and later): every one that is reported is confirmed.
 */
#define _DARWIN_UNLIMITED_SELECT 1 /* macOS: without it the C library keeps the ceiling */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>

#include "clock.h"
#include "os.h"
#include "process.h"

typedef __typeof__(((fd_set *)0)->fds_bits[0]) word;

#define WORD_BITS (8 * sizeof(word))

static const short kinds[3] = {POLLIN, POLLOUT, POLLPRI};

static word bit(int fd)
{
    return (word)((unsigned long)1 << (unsigned)fd % WORD_BITS);
}

/* The three sets, cleared, each for `words` words. */
static int prepare(struct sets *sets, size_t words, word *set[3])
{
    size_t size = 3 * words * sizeof(word);
    if (size > sets->size) {
        void *larger = realloc(sets->words, size);
        if (!larger)
            return -ENOMEM;
        sets->words = larger;
        sets->size = size;
    }
    memset(sets->words, 0, size);
    for (int k = 0; k < 3; k++)
        set[k] = (word *)sets->words + (size_t)k * words;
    return 0;
}

static int is_closed(int fd)
{
    return fcntl(fd, F_GETFD) < 0;
}

/* pselect failed as a whole: which ones are closed? */
static int find_closed(struct pollfd *fds, unsigned n)
{
    int count = 0;
    for (unsigned i = 0; i < n; i++) {
        fds[i].revents = is_closed(fds[i].fd) ? POLLNVAL : 0;
        count += fds[i].revents != 0;
    }
    return count;
}

static int collect(struct pollfd *fds, unsigned n, word *const set[3])
{
    int count = 0;
    for (unsigned i = 0; i < n; i++) {
        int fd = fds[i].fd;
        fds[i].revents = 0;
        for (int k = 0; k < 3; k++)
            if (fds[i].events & kinds[k] && set[k][(unsigned)fd / WORD_BITS] & bit(fd))
                fds[i].revents |= kinds[k];
        if (!fds[i].revents)
            continue;
        if (is_closed(fd))
            fds[i].revents = POLLNVAL;
        count++;
    }
    return count;
}

static int highest(const struct pollfd *fds, unsigned n)
{
    int fd = -1;
    for (unsigned i = 0; i < n; i++)
        if (fds[i].fd > fd)
            fd = fds[i].fd;
    return fd;
}

static int ask(struct sets *sets, struct pollfd *fds, unsigned n, int end, int64_t deadline)
{
    word *set[3];
    if (prepare(sets, (size_t)end / WORD_BITS + 1, set) < 0)
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            if (fds[i].events & kinds[k])
                set[k][(unsigned)fds[i].fd / WORD_BITS] |= bit(fds[i].fd);
    struct timespec left = {0};
    if (deadline > 0)
        left = clock_left(deadline);
    int r = pselect(end, (fd_set *)set[0], (fd_set *)set[1], (fd_set *)set[2], &left, NULL);
    if (r < 0)
        return errno == EBADF ? find_closed(fds, n) : -errno;
    return r == 0 ? 0 : collect(fds, n, set);
}

/* Again while the sleep was shorter than the deadline, or an EBADF turned out to be over. */
int select_fds(struct sets *sets, struct pollfd *fds, unsigned n, int64_t deadline)
{
    int last = highest(fds, n);
    int r;
    do {
        r = last >= 0 && is_closed(last) ? find_closed(fds, n) : 0;
        if (r > 0)
            return r;
        r = ask(sets, fds, n, last + 1, deadline);
    } while (r == 0 && deadline > 0 && (deadline == FDW_FOREVER || clock_now() < deadline));
    return r;
}

/* ---- the C side of fdwait.select ---- */

struct fdw_selection_memory {
    struct sets sets;
    unsigned room;
    struct pollfd *fds;
};

fdw_selection *fdw_selection_new(void)
{
    struct {
        fdw_selection selection;
        struct fdw_selection_memory memory;
    } *both = calloc(1, sizeof *both);
    if (!both)
        return NULL;
    both->selection.memory = &both->memory;
    return &both->selection;
}

void fdw_selection_free(fdw_selection *s)
{
    if (!s)
        return;
    free(s->memory->sets.words);
    free(s->memory->fds);
    free(s->ready);
    free(s);
}

static int make_room(fdw_selection *s, unsigned n)
{
    struct fdw_selection_memory *m = s->memory;
    if (s->ready && n <= m->room)
        return 0;
    void *fds = realloc(m->fds, (n + 1) * sizeof *m->fds);
    if (fds)
        m->fds = fds;
    void *ready = realloc(s->ready, (3 + n) * sizeof *s->ready);
    if (ready)
        s->ready = ready;
    if (!fds || !ready)
        return -ENOMEM;
    m->room = n;
    return 0;
}

/* What is asked: three counts, then the descriptors as poll takes them. */
struct question {
    unsigned counts[3], n;
    const char *numbers;
};

static struct question parse(const char *ints)
{
    struct question q;
    memcpy(q.counts, ints, sizeof q.counts);
    q.n = q.counts[0] + q.counts[1] + q.counts[2];
    q.numbers = ints + sizeof q.counts;
    return q;
}

/* How many are ready by `until`; their revents are set. -EINVAL: a descriptor is negative. */
static int answer(const struct question *q, struct sets *sets, struct pollfd *fds, int64_t until)
{
    int sign = 0;
    unsigned i = 0;
    for (int k = 0; k < 3; k++) {
        for (unsigned j = 0; j < q->counts[k]; j++, i++) {
            memcpy(&fds[i].fd, q->numbers + i * sizeof(int), sizeof(int));
            fds[i].events = kinds[k];
            sign |= fds[i].fd;
        }
    }
    if (sign < 0)
        return -EINVAL;
    int only_readers = q->counts[0] == q->n; /* then poll means the same, and is faster */
    return only_readers ? poll_fds(fds, q->n, until) : select_fds(sets, fds, q->n, until);
}

static int report(fdw_selection *s, const struct question *q)
{
    const struct pollfd *fd = s->memory->fds;
    int *place = s->ready + 3;
    for (int k = 0; k < 3; k++) {
        int *first = place;
        for (unsigned i = 0; i < q->counts[k]; i++, fd++) {
            if (fd->revents & POLLNVAL)
                return -EBADF;
            if (fd->revents)
                *place++ = (int)i;
        }
        s->ready[k] = (int)(place - first);
    }
    return (int)(place - s->ready - 3);
}

/* A sleep is cut for signal handlers in the main thread, and everywhere to see whether one has been closed. */
static int64_t nap_end(void)
{
    return min64(process_slice(SLEEP_SLICE), clock_after(clock_now(), POLLER_CHECK_EVERY));
}

int fdw_select(fdw_selection *s, const char *ints, int64_t deadline)
{
    struct question q = parse(ints);
    if (make_room(s, q.n) < 0)
        return -ENOMEM;
    int64_t until = deadline > 0 ? min64(deadline, nap_end()) : deadline;
    int r = answer(&q, &s->memory->sets, s->memory->fds, until);
    if (r > 0)
        return report(s, &q);
    return r == 0 && until < deadline ? -EINTR : r;
}

int64_t fdw_look_many(const char *ints)
{
    struct question q = parse(ints);
    struct pollfd fds[FDW_LOOK_MANY];
    struct sets sets = {0};
    int64_t mask = 0;
    if (q.n > FDW_LOOK_MANY)
        return -EINVAL;
    int r = answer(&q, &sets, fds, 0);
    free(sets.words);
    if (r <= 0)
        return r;
    for (unsigned i = 0; i < q.n; i++) {
        if (fds[i].revents & POLLNVAL)
            return -EBADF;
        if (fds[i].revents)
            mask |= (int64_t)1 << i;
    }
    return mask;
}
