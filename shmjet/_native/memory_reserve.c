/* Where memory ends (RLIMIT_AS), any allocation may fail, and not all code is made for that: C libraries dereference
 * NULL, Python's importer returns an error without an exception, and where there is no memory for the number of the
 * instruction that raised, Python 3.11 looks for the handler of that lack for ever. So small allocations do not fail at
 * first. They use a reserve, and the loop of the process finds, at a place of its choice, that the reserve is
 * gone and cannot be had again. */
#define _GNU_SOURCE
#include "memory_reserve.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define PARTS 2

/* An allocation above this fails as ever: that is where users' data are, and code that asks for so much is prepared. */
static const size_t LARGEST = 128 << 10;

/* `PyMemAllocatorEx`, which is not in the stable ABI, but has been the same since Python 3.5. */
typedef struct {
    void *context;
    void *(*malloc)(void *context, size_t size);
    void *(*calloc)(void *context, size_t count, size_t size);
    void *(*realloc)(void *context, void *old, size_t size);
    void (*free)(void *context, void *memory);
} allocator_t;

typedef void (*exchange_t)(int domain, allocator_t *allocator);

enum { DOMAIN_RAW = 0 }; /* to which the other domains come for all that they cannot give themselves */

static allocator_t below;
static _Atomic(void *) parts[PARTS];
static _Atomic(size_t) part_size;

static bool give_up(int part) {
    void *held = atomic_exchange(&parts[part], NULL);
    return held && munmap(held, atomic_load(&part_size)) == 0;
}

static void *reserved_malloc(void *context, size_t size) {
    void *found = below.malloc(context, size);
    if (!found && size <= LARGEST && give_up(0)) found = below.malloc(context, size);
    return found;
}

static void *reserved_calloc(void *context, size_t count, size_t size) {
    void *found = below.calloc(context, count, size);
    if (!found && (!size || count <= LARGEST / size) && give_up(0)) found = below.calloc(context, count, size);
    return found;
}

static void *reserved_realloc(void *context, void *old, size_t size) {
    void *found = below.realloc(context, old, size);
    if (!found && size <= LARGEST && give_up(0)) found = below.realloc(context, old, size);
    return found;
}

/* What was allocated before is freed by the allocator below, as is what this one has allocated. */
static void stand_above_allocator(void) {
    exchange_t get = (exchange_t)dlsym(RTLD_DEFAULT, "PyMem_GetAllocator");
    exchange_t set = (exchange_t)dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
    if (!get || !set) return;
    get(DOMAIN_RAW, &below);
    allocator_t above = {below.context, reserved_malloc, reserved_calloc, reserved_realloc, below.free};
    set(DOMAIN_RAW, &above);
}

bool memory_reserve_hold(size_t size) {
    size_t before = 0;
    if (atomic_compare_exchange_strong(&part_size, &before, size)) stand_above_allocator();
    for (int part = 0; part < PARTS; part++) {
        if (atomic_load_explicit(&parts[part], memory_order_relaxed)) continue;
        void *room = mmap(NULL, atomic_load(&part_size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED) return false;
        void *none = NULL;
        if (!atomic_compare_exchange_strong(&parts[part], &none, room)) munmap(room, atomic_load(&part_size));
    }
    return true;
}

void memory_reserve_release(void) {
    for (int part = 0; part < PARTS; part++) give_up(part);
}
