/* The memory of a group table: a memfd that is handed from process to process. No Python in here.
 *
 * A table is a few arrays that grow: the directory, the slots, the rows, and so on. Each is a *region*: region r lies
 * in the file from r << 40 on, and is mapped by itself. The file is sparse, so the gaps cost nothing, and an array
 * grows in place: pages are allocated at its end (fallocate, so that lack of memory is an error here and no SIGBUS
 * later) and mapped at once (MADV_POPULATE_WRITE; page by page it would cost three times as much). The mapping is
 * larger than what is allocated and only now and then has to be extended, by mremap, which moves page tables and
 * copies nothing. So no step of growth takes longer than it takes to clear STEP_MOST bytes.
 *
 * All that the arrays and the header hold is numbers and offsets. The descriptor alone gives the table, for a fixed
 * price of six mmap() calls. Nothing here is synchronised: a table has one process that uses it at a time.
 */
#ifndef SHMJET_GROUP_MEMORY_H
#define SHMJET_GROUP_MEMORY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP_MAGIC UINT64_C(0x31707267746a6d68) /* "hmjtgrp1" */
#define GROUP_REGION_SHIFT 40
#define GROUP_MAX_KEYS 1024
#define GROUP_MAX_AGGREGATES 1024
#define GROUP_DIRECTORY_OFFSET 20480 /* in its region, behind the header */

#define STEP_LEAST ((size_t)16 << 10)
#define STEP_MOST ((size_t)256 << 10)
#define FIRST_MAPPING ((size_t)64 << 20)
#define FIRST_BYTES ((size_t)32 << 10) /* allocated at once: the header and a directory */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older kernels refuse it, and pages are mapped when touched */
#endif

enum {
    REGION_DIRECTORY, /* the header, then where the segment of a hash prefix is */
    REGION_SLOTS,     /* segments of hash slots */
    REGION_FILLS,     /* used slots of each segment, 4 bytes each */
    REGION_ROWS,      /* keys and states, `stride` bytes a group */
    REGION_MARKS,     /* which keys are null and which states have seen a value, `mark_bytes` a group */
    REGION_HEAP,      /* text that does not fit into its row */
    GROUP_REGIONS
};

typedef struct {
    uint8_t class;    /* i u d f t U x - */
    uint8_t function; /* enum group_function; 0 for a key */
    uint8_t parts;    /* words of the state that can be read */
    uint8_t unused;
    uint16_t offset;  /* in the row */
    uint16_t seen;    /* bit among the marks, from mark `null_bytes` on; only for states that have one */
} group_field_t;

/* At the start of REGION_DIRECTORY; docs/formats/groups.md has the offsets. */
typedef struct {
    uint64_t magic;
    uint64_t seed[2];
    uint64_t groups;   /* rows in use are 1 to groups; row 0 stands for "none" */
    uint64_t heap;     /* bytes of the heap in use */
    uint64_t segments; /* in use */
    uint32_t depth;    /* the directory has 2^depth entries */
    uint32_t stride, mark_bytes, null_bytes;
    uint32_t keys, aggregates;
    uint32_t has_null_keys; /* a key of some group is null */
    uint32_t unused;
    uint64_t allocated[GROUP_REGIONS];            /* bytes */
    uint8_t may_be_unseen[GROUP_MAX_AGGREGATES];  /* the aggregate's column has had nulls */
    group_field_t key_fields[GROUP_MAX_KEYS];
    group_field_t aggregate_fields[GROUP_MAX_AGGREGATES];
} group_header_t;

_Static_assert(sizeof(group_header_t) <= GROUP_DIRECTORY_OFFSET, "the directory overlaps the header");

typedef struct {
    int fd;
    uint8_t *base[GROUP_REGIONS];
    size_t mapped[GROUP_REGIONS];
    group_header_t *header;
} group_memory_t;

static inline int group_map(group_memory_t *memory, int region, size_t bytes) {
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, (off_t)region << GROUP_REGION_SHIFT);
    if (base == MAP_FAILED) return -1;
    memory->base[region] = base;
    memory->mapped[region] = bytes;
    return 0;
}

static inline int group_extend_mapping(group_memory_t *memory, int region, size_t bytes) {
    size_t mapped = memory->mapped[region];
    while (mapped < bytes) mapped *= 16;
    if (mapped > (size_t)1 << GROUP_REGION_SHIFT) mapped = (size_t)1 << GROUP_REGION_SHIFT;
    if (mapped < bytes) return errno = EFBIG, -1;
    void *base = mremap(memory->base[region], memory->mapped[region], mapped, MREMAP_MAYMOVE);
    if (base == MAP_FAILED) return -1;
    memory->base[region] = base;
    memory->mapped[region] = mapped;
    if (region == REGION_DIRECTORY) memory->header = base;
    return 0;
}

static inline int group_allocate(group_memory_t *memory, int region, size_t bytes) {
    size_t have = memory->header->allocated[region], step = have;
    if (step < STEP_LEAST) step = STEP_LEAST;
    if (step > STEP_MOST) step = STEP_MOST;
    size_t wanted = have + step > bytes ? have + step : (bytes + STEP_LEAST - 1) / STEP_LEAST * STEP_LEAST;
    if (wanted > memory->mapped[region] && group_extend_mapping(memory, region, wanted) < 0) return -1;
    off_t start = (off_t)region << GROUP_REGION_SHIFT;
    while (fallocate(memory->fd, 0, start + (off_t)have, (off_t)(wanted - have)) < 0)
        if (errno != EINTR) return -1;
    (void)madvise(memory->base[region] + have, wanted - have, MADV_POPULATE_WRITE);
    memory->header->allocated[region] = wanted;
    return 0;
}

/* Makes sure that the first `bytes` bytes of a region can be written. May move the region's mapping. Returns 0, or -1
 * with errno. */
static inline int group_reserve(group_memory_t *memory, int region, size_t bytes) {
    return bytes <= memory->header->allocated[region] ? 0 : group_allocate(memory, region, bytes);
}

static inline void group_unmap(group_memory_t *memory) {
    for (int region = 0; region < GROUP_REGIONS; region++)
        if (memory->base[region]) munmap(memory->base[region], memory->mapped[region]);
    if (memory->fd >= 0) close(memory->fd);
    memset(memory, 0, sizeof *memory);
    memory->fd = -1;
}

/* Makes a new, empty memory. Returns 0, or -1 with errno and nothing held. */
static inline int group_create(group_memory_t *memory) {
    memset(memory, 0, sizeof *memory);
    memory->fd = memfd_create("shmjet-groups", MFD_CLOEXEC);
    if (memory->fd < 0) return -1;
    while (fallocate(memory->fd, 0, 0, FIRST_BYTES) < 0)
        if (errno != EINTR) goto fail;
    for (int region = 0; region < GROUP_REGIONS; region++)
        if (group_map(memory, region, FIRST_MAPPING) < 0) goto fail;
    memory->header = (void *)memory->base[REGION_DIRECTORY];
    memory->header->allocated[REGION_DIRECTORY] = FIRST_BYTES;
    memory->header->magic = GROUP_MAGIC;
    if (getrandom(memory->header->seed, sizeof memory->header->seed, GRND_NONBLOCK) < 0)
        memory->header->seed[0] = (uintptr_t)memory;
    memory->header->seed[1] |= 1;
    return 0;
fail:;
    int error = errno;
    group_unmap(memory);
    errno = error;
    return -1;
}

/* Maps the memory behind `fd`, which is duplicated. Checks only that it is long enough for what its header says
 * (group_check() does the rest). Returns 0, or -1 with errno (EINVAL: that is not a table). */
static inline int group_attach_memory(group_memory_t *memory, int fd) {
    memset(memory, 0, sizeof *memory);
    memory->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (memory->fd < 0) return -1;
    struct stat status;
    if (fstat(memory->fd, &status) < 0) goto fail;
    errno = EINVAL;
    if (!S_ISREG(status.st_mode) || status.st_size < (off_t)FIRST_BYTES) goto fail;
    if (group_map(memory, REGION_DIRECTORY, FIRST_MAPPING) < 0) goto fail;
    memory->header = (void *)memory->base[REGION_DIRECTORY];
    errno = EINVAL;
    if (memory->header->magic != GROUP_MAGIC) goto fail;
    for (int region = 0; region < GROUP_REGIONS; region++) {
        uint64_t bytes = memory->header->allocated[region];
        if (bytes > UINT64_C(1) << GROUP_REGION_SHIFT ||
            (bytes && ((uint64_t)region << GROUP_REGION_SHIFT) + bytes > (uint64_t)status.st_size))
            goto fail;
        size_t length = FIRST_MAPPING;
        while (length < bytes) length *= 16;
        if (region != REGION_DIRECTORY && group_map(memory, region, length) < 0) goto fail;
    }
    return 0;
fail:;
    int error = errno;
    group_unmap(memory);
    errno = error;
    return -1;
}

#endif
