/*
 * reader discard|keep: reads standard input to its end, then prints "BYTES NANOSECONDS".
 *
 * The floor for drain(): the same read(2) calls with no Python about. `discard` reads into one 64 KiB buffer
 * again and again; `keep` holds everything in one buffer that doubles.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 16 };

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* 0 at the end, -1 on an error. */
static ssize_t read_some(char *to, size_t size)
{
    ssize_t n;
    do
        n = read(STDIN_FILENO, to, size);
    while (n < 0 && errno == EINTR);
    return n;
}

static int64_t discard(void)
{
    static char buffer[CHUNK];
    int64_t total = 0;
    ssize_t n;
    while ((n = read_some(buffer, sizeof buffer)) > 0)
        total += n;
    return n < 0 ? -1 : total;
}

static int64_t keep(void)
{
    size_t room = CHUNK, used = 0;
    char *buffer = malloc(room);
    ssize_t n = buffer ? 0 : -1;
    while (buffer && (n = read_some(buffer + used, room - used)) > 0) {
        used += (size_t)n;
        if (used == room) {
            char *larger = realloc(buffer, room * 2);
            if (!larger) {
                n = -1;
                break;
            }
            buffer = larger;
            room *= 2;
        }
    }
    free(buffer);
    return n < 0 ? -1 : (int64_t)used;
}

int main(int argc, char **argv)
{
    if (argc != 2 || (strcmp(argv[1], "discard") && strcmp(argv[1], "keep")))
        return 2;
    int64_t start = now();
    int64_t total = strcmp(argv[1], "keep") ? discard() : keep();
    int64_t end = now();
    if (total < 0)
        return 1;
    printf("%" PRId64 " %" PRId64 "\n", total, end - start);
    return 0;
}
