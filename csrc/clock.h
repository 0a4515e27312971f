/* Monotonic nanoseconds and absolute deadlines. */
#ifndef FDW_CLOCK_H
#define FDW_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "fdwait.h"

#define NS_PER_MS 1000000LL
#define NS_PER_S 1000000000LL

int64_t clock_now(void);

/* `at` + `span`, saturating: FDW_FOREVER stays for ever. */
int64_t clock_after(int64_t at, int64_t span);

/* What is left until `deadline`, at least 0. Longer sleeps than a million seconds are cut to that, which every
 * kernel takes (XNU's select refuses more than 1e8 s): callers look at the clock again anyway. */
struct timespec clock_left(int64_t deadline);

static inline int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
