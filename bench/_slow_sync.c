// Preloaded into a bench and its children: each sync of a file takes longer by what SHMJET_BENCH_SYNC_MS says, as on a
// disk that is slower than the one of this machine.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static void pause_before(void) {
    const char *text = getenv("SHMJET_BENCH_SYNC_MS");
    double ms = text == NULL ? 0 : atof(text);
    struct timespec left = {(time_t)(ms / 1e3), 0};
    left.tv_nsec = (long)((ms / 1e3 - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static int after_pause(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    pause_before();
    return real(fd);
}

int fsync(int fd) { return after_pause("fsync", fd); }

int fdatasync(int fd) { return after_pause("fdatasync", fd); }
