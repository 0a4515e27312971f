/*
 * select(2) with sets of any size. The kernel takes them: it is FD_SET and the fd_set type that end at 1024. So
 * the words are set by hand on the heap, and a select here means select because it is select.
 *
 * The kernel does not look at numbers beyond its descriptor table and leaves their bits as they were, and a
 * descriptor that is closed while it sleeps counts as ready (Linux 5.17 and later): every descriptor that is
 * reported is confirmed with F_GETFD.
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

static int once(struct sets *sets, struct pollfd *fds, unsigned n, int64_t deadline)
{
    word *set[3];
    int highest = -1;
    for (unsigned i = 0; i < n; i++)
        if (fds[i].fd > highest)
            highest = fds[i].fd;
    if (prepare(sets, (size_t)(highest + 1) / WORD_BITS + 1, set) < 0)
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            if (fds[i].events & kinds[k])
                set[k][(unsigned)fds[i].fd / WORD_BITS] |= bit(fds[i].fd);
    struct timespec left = {0};
    if (deadline > 0)
        left = clock_left(deadline);
    int r = pselect(highest + 1, (fd_set *)set[0], (fd_set *)set[1], (fd_set *)set[2], &left, NULL);
    if (r < 0)
        return errno == EBADF ? find_closed(fds, n) : -errno;
    return r == 0 ? 0 : collect(fds, n, set);
}

/* Again while the sleep was shorter than the deadline, and when EBADF turns out to be over. */
int select_fds(struct sets *sets, struct pollfd *fds, unsigned n, int64_t deadline)
{
    int r;
    do
        r = once(sets, fds, n, deadline);
    while (r == 0 && deadline > 0 && (deadline == FDW_FOREVER || clock_now() < deadline));
    return r;
}

/* ---- the C side of fdwait.select ---- */

struct fdw_selection {
    struct sets sets;
    unsigned room;
    struct pollfd *fds;
    int *ready;
};

fdw_selection *fdw_selection_new(void)
{
    return calloc(1, sizeof(fdw_selection));
}

void fdw_selection_free(fdw_selection *s)
{
    if (!s)
        return;
    free(s->sets.words);
    free(s->fds);
    free(s->ready);
    free(s);
}

const int *fdw_selection_ready(const fdw_selection *s)
{
    return s->ready;
}

static int make_room(fdw_selection *s, unsigned n)
{
    if (n <= s->room)
        return 0;
    void *fds = realloc(s->fds, n * sizeof *s->fds);
    if (fds)
        s->fds = fds;
    void *ready = realloc(s->ready, n * sizeof *s->ready);
    if (ready)
        s->ready = ready;
    if (!fds || !ready)
        return -ENOMEM;
    s->room = n;
    return 0;
}

static struct pollfd *append(struct pollfd *to, const char *ints, int n, short events)
{
    for (int i = 0; i < n; i++, to++) {
        memcpy(&to->fd, ints + (size_t)i * sizeof(int), sizeof(int));
        to->events = events;
        to->revents = 0;
    }
    return to;
}

/* The positions of what is ready. -EBADF if one is closed. */
static int report(fdw_selection *s, unsigned n)
{
    int count = 0;
    for (unsigned i = 0; i < n; i++) {
        if (s->fds[i].revents & POLLNVAL)
            return -EBADF;
        if (s->fds[i].revents)
            s->ready[count++] = (int)i;
    }
    return count;
}

int fdw_select(fdw_selection *s, const char *r, int nr, const char *w, int nw, const char *x, int nx,
               int64_t deadline)
{
    unsigned n = (unsigned)nr + (unsigned)nw + (unsigned)nx;
    if (make_room(s, n) < 0)
        return -ENOMEM;
    append(append(append(s->fds, r, nr, POLLIN), w, nw, POLLOUT), x, nx, POLLPRI);
    int64_t until = clock_min(deadline, process_slice(200 * NS_PER_MS));
    int only_reading = nw == 0 && nx == 0;
    int found = only_reading ? poll_fds(s->fds, n, until) : select_fds(&s->sets, s->fds, n, until);
    if (found > 0)
        return report(s, n);
    return found == 0 && until < deadline ? -EINTR : found;
}

int64_t fdw_look_many(const char *ints)
{
    struct pollfd fds[62];
    int64_t mask = 0;
    int n;
    memcpy(&n, ints, sizeof n);
    append(fds, ints + sizeof n, n, POLLIN);
    int r = poll_fds(fds, (unsigned)n, 0);
    if (r <= 0)
        return r;
    for (int i = 0; i < n; i++) {
        if (fds[i].revents & POLLNVAL)
            return -EBADF;
        if (fds[i].revents)
            mask |= (int64_t)1 << i;
    }
    return mask;
}
