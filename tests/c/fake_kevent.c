#include "fake_kevent.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

struct fake fake;

static int no_kqueue, fail;
static int n_receipts, n_events;
static struct kevent receipts[FAKE_ROOM], events[FAKE_ROOM];

void fake_reset(void)
{
    memset(&fake, 0, sizeof fake);
    no_kqueue = fail = n_receipts = n_events = 0;
}

void fake_no_kqueue(int error)
{
    no_kqueue = error;
}

void fake_fail(int error)
{
    fail = error;
}

void fake_receipt(int filter, int error, int flags)
{
    receipts[n_receipts].filter = (short)filter;
    receipts[n_receipts].data = error;
    receipts[n_receipts].flags = (unsigned short)flags;
    n_receipts++;
}

void fake_event(const struct kevent *event)
{
    events[n_events++] = *event;
}

const struct kevent *fake_change(int i)
{
    return &fake.changes[fake.n_changes - 1 - i];
}

int kqueue(void)
{
    if (no_kqueue) {
        errno = no_kqueue;
        no_kqueue = 0;
        return -1;
    }
    return fake.fd = open("/dev/null", O_RDONLY);
}

/* The receipt of one change, as told or a success. */
static struct kevent receipt_of(const struct kevent *change)
{
    struct kevent receipt = *change;
    receipt.flags = EV_ERROR;
    receipt.data = 0;
    for (int i = 0; i < n_receipts; i++) {
        if (receipts[i].filter == change->filter) {
            receipt.flags |= receipts[i].flags;
            receipt.data = receipts[i].data;
            receipts[i] = receipts[--n_receipts];
            break;
        }
    }
    return receipt;
}

static void record(const struct kevent *changes, int n, const struct timespec *timeout)
{
    fake.calls++;
    for (int i = 0; i < n; i++)
        fake.changes[fake.n_changes++] = changes[i];
    fake.forever = timeout == NULL;
    if (timeout)
        fake.timeout = *timeout;
}

static int answer_changes(const struct kevent *changes, int n, struct kevent *out, int room)
{
    int filled = 0;
    for (int i = 0; i < n && filled < room; i++) {
        struct kevent receipt = receipt_of(&changes[i]);
        if (receipt.data || changes[i].flags & EV_RECEIPT)
            out[filled++] = receipt;
    }
    return filled;
}

static int answer_events(struct kevent *out, int room)
{
    int n = n_events < room ? n_events : room;
    memcpy(out, events, (size_t)n * sizeof *out);
    n_events = 0;
    return n;
}

int kevent(int kq, const struct kevent *changes, int n_changes, struct kevent *out, int room,
           const struct timespec *timeout)
{
    record(changes, n_changes, timeout);
    if (fail || fcntl(kq, F_GETFD) < 0) {
        errno = fail ? fail : EBADF;
        fail = 0;
        return -1;
    }
    /* As kernels do it: where a change has something to say, nothing else is said. */
    int filled = answer_changes(changes, n_changes, out, room);
    return filled ? filled : answer_events(out, room);
}
