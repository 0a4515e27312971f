/* The least that a C test needs: CHECK counts, and report() prints the line that the runner looks for. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int checks_passed, checks_failed;

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (condition) {                                                                                     \
            checks_passed++;                                                                                 \
        } else {                                                                                             \
            checks_failed++;                                                                                 \
            fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #condition);            \
        }                                                                                                    \
    } while (0)

static int report(void)
{
    printf("%d passed, %d failed\n", checks_passed, checks_failed);
    return checks_failed != 0;
}

#endif
