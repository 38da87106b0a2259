// LD_PRELOAD: reads and writes of segment files of the disk tier fail with EIO while the file $EIO_WHILE exists, and don't
// come back while $HANG_WHILE does.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_there(const char *variable) {
    const char *trigger = getenv(variable);
    return trigger && access(trigger, F_OK) == 0;
}

static int fails(int fd) {
    if (!is_there("EIO_WHILE") && !is_there("HANG_WHILE")) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (!strstr(path, "/segment-")) return 0;
    while (is_there("HANG_WHILE")) usleep(10000);
    return is_there("EIO_WHILE");
}

ssize_t pread64(int fd, void *into, size_t bytes, off64_t at) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pread64");
    if (fails(fd)) { errno = EIO; return -1; }
    return real(fd, into, bytes, at);
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    if (fails(fd)) { errno = EIO; return -1; }
    return real(fd, from, bytes, at);
}
