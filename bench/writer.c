/*
 * writer BYTES: puts BYTES bytes into the pipe on standard output as fast as it takes them.
 *
 * The writer must be faster than any reader, or else all readers look alike. So there is one buffer, and on Linux
 * its pages are lent to the pipe (vmsplice) rather than copied into it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static char buffer[1 << 18] __attribute__((aligned(1 << 16)));

static ssize_t put(size_t size)
{
#ifdef __linux__
    struct iovec pages = {buffer, size};
    return vmsplice(STDOUT_FILENO, &pages, 1, 0);
#else
    return write(STDOUT_FILENO, buffer, size);
#endif
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    long long left = strtoll(argv[1], NULL, 10);
    memset(buffer, 'x', sizeof buffer);
    while (left > 0) {
        ssize_t n = put(left < (long long)sizeof buffer ? (size_t)left : sizeof buffer);
        if (n < 0 && errno != EINTR)
            return 1;
        if (n > 0)
            left -= n;
    }
    return 0;
}
