#include "clock.h"

#include <errno.h>
#include <math.h>

#define LONGEST_SLEEP (1000000 * NS_PER_S)

int64_t clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail: the clock exists and the pointer is good */
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

int64_t clock_after(int64_t at, int64_t span)
{
    return span > FDW_FOREVER - at ? FDW_FOREVER : at + span;
}

int64_t fdw_deadline(double seconds)
{
    if (isnan(seconds))
        return -EINVAL;
    if (seconds <= 0)
        return 0;
    double ns = ceil(seconds * 1e9);
    return ns >= 9.2e18 ? FDW_FOREVER : clock_after(clock_now(), (int64_t)ns);
}

struct timespec clock_left(int64_t deadline)
{
    int64_t left = deadline == FDW_FOREVER ? LONGEST_SLEEP : deadline - clock_now();
    if (left < 0)
        left = 0;
    left = min64(left, LONGEST_SLEEP);
    return (struct timespec){.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
}

int fdw_is_past(int64_t deadline)
{
    return deadline <= 0 || clock_now() >= deadline;
}
