// Preloaded into a member: notes what has reached the disk, so that `power_loss.py` can forget the rest.
//
// A sync of a file notes its length, a sync of a folder what is in it. The notes go to the file that
// SHMJET_SYNCS names, one line each, by one write, so that a kill leaves whole lines.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void tell(const char *line, size_t size) {
    const char *path = getenv("SHMJET_SYNCS");
    int fd = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        if (write(fd, line, size) < 0) {
            abort();
        }
        close(fd);
    }
}

static void note(int fd) {
    struct stat found;
    char link[64], path[4096], line[65536];
    if (fstat(fd, &found) != 0) {
        return;
    }
    if (S_ISREG(found.st_mode)) {
        int size = snprintf(line, sizeof line, "F %lu %ld\n", (unsigned long)found.st_ino, (long)found.st_size);
        tell(line, (size_t)size);
        return;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    DIR *folder = length < 0 ? NULL : opendir(link);
    if (folder == NULL) {
        return;
    }
    path[length] = 0;
    int at = snprintf(line, sizeof line, "D %s", path);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL && at < 60000;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            at += snprintf(line + at, sizeof line - at, "\t%s %lu", entry->d_name, (unsigned long)entry->d_ino);
        }
    }
    line[at] = '\n';
    tell(line, (size_t)at + 1);
    closedir(folder);
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    int result = real(fd);
    if (result == 0) {
        note(fd);
    }
    return result;
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    int result = real(fd);
    if (result == 0) {
        note(fd);
    }
    return result;
}
