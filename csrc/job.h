/* What is moved together: the streams of one command, and the process whose exit ends them. */
#ifndef FDW_JOB_H
#define FDW_JOB_H

#include "child.h"
#include "feed.h"
#include "poller.h"
#include "source.h"

struct job {
    struct poller *poller;
    fdw_source *sources;
    fdw_feed *feeds;

    struct child child;
    int child_required;
    int64_t linger, linger_cap; /* spans */
    int64_t gone_at;            /* when the exit was noticed; 0: not yet */
    int64_t silent_since;
    int settled; /* all sources were empty once after the exit */
    int busy;    /* and bytes have come since */
};

/* It is closed after its poller. */
void job_init(struct job *job, struct poller *p);
void job_close(struct job *job);

/* For these see fdw_pump_source and its like. */
fdw_source *job_add_source(struct job *job, int fd, int64_t head, int64_t tail, int64_t limit, int *error);
fdw_feed *job_add_feed(struct job *job, int fd, const char *data, int64_t size, fdw_source *from, int *error);
void job_started(struct job *job);
int job_watch_child(struct job *job, int pid, double linger, double cap, int required);
void job_finish(struct job *job);

/* In a forked child: an own pipe must end when the parent closes it. */
void job_close_own_descriptors(struct job *job);

/* Register with the poller what has to be waited on, and nothing else. -errno of its set(). */
int job_watch_all(struct job *job);

/* The poller is about to be closed. */
void job_forget_poller(struct job *job);

/* One look at everything that may be ready. FDW_READY: all is done. FDW_DEADLINE: it has come. FDW_AGAIN: at *wake_at at
 * the latest (0: at once), or when the poller has something. */
int job_round(struct job *job, int64_t deadline, int64_t *wake_at);

/* What the poller had. */
void job_take_ready(struct job *job, const struct ready *ready);

/* A descriptor that was closed under us is an error, not a silence. */
void job_check_all(struct job *job);

/* Whether a write has raised SIGPIPE. */
int job_met_epipe(const struct job *job);

/* All sources that are open have this end. */
void job_end_sources(struct job *job, int end);

#endif
