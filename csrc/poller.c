/* Which poller is used, and what becomes of it in a forked child. */
#include "poller.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "os.h"
#include "process.h"

static _Atomic(const struct poller_ops *) forced;

const char *fdw_backend_name(int i)
{
    for (int j = 0; os_backends[j]; j++)
        if (i == j)
            return os_backends[j]->name;
    return NULL;
}

int fdw_force_backend(const char *name)
{
    if (!name) {
        atomic_store(&forced, NULL);
        return 0;
    }
    for (int i = 0; os_backends[i]; i++) {
        if (strcmp(os_backends[i]->name, name) == 0) {
            atomic_store(&forced, os_backends[i]);
            return 0;
        }
    }
    return -EINVAL;
}

static void in_child(struct fork_hook *hook)
{
    struct poller *p = (struct poller *)((char *)hook - offsetof(struct poller, hook));
    p->ops->in_child(p);
}

/* The lock is held from before the descriptor is there until the hook is, and the other way round in poller_close:
 * a fork in between would leave the child with an epoll that nobody knows of. */
int poller_open_with(struct poller *p, const struct poller_ops *ops)
{
    process_lock();
    *p = (struct poller){.ops = ops, .fd = -1, .forks = process_forks(), .hook = {.in_child = in_child}};
    int r = ops->open(p);
    if (r < 0)
        p->ops = NULL;
    else if (ops->in_child)
        process_add_hook(&p->hook);
    process_unlock();
    return r;
}

int poller_open(struct poller *p, int light)
{
    const struct poller_ops *ops = atomic_load(&forced);
    if (!ops)
        ops = light ? &fdw_poll : os_backends[0];
    else if (light && ops != &fdw_select_poller)
        ops = &fdw_poll;
    int r = poller_open_with(p, ops);
    return r < 0 && ops != &fdw_poll ? poller_open_with(p, &fdw_poll) : r;
}

void poller_close(struct poller *p)
{
    if (!p->ops)
        return;
    process_lock();
    process_remove_hook(&p->hook);
    p->ops->close(p);
    p->ops = NULL;
    process_unlock();
}

/* Poll needs no room in the kernel, and select can wait on what poll cannot. */
const struct poller_ops *poller_fallback(int error)
{
    if (error == -ENOSPC || error == -ENOMEM)
        return &fdw_poll;
    return error == -ENOTSUP ? &fdw_select_poller : NULL;
}

void poller_wake(struct poller *p)
{
    if (p->ops && p->ops->wake && p->forks == process_forks())
        p->ops->wake(p);
}

int poller_sleep_on(struct poller *p, int fd, int events, int64_t deadline)
{
    struct ready ready;
    (void)fd, (void)events;
    int r = p->ops->wait(p, &ready, 1, deadline);
    return r < 0 ? r : 0;
}
