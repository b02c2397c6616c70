/* The rows of keys that are integers, dates or spans close to one another: a slot for each value between the least and
 * the most. No Python in here.
 *
 * Keys of tables are often numbers from 1 to n. A slot of 4 bytes for each is less memory than a hash table has,
 * nothing is compared, and a value beyond the ends costs nothing at all. Which keys there will be has to be known
 * before the first row is added, so they are surveyed. Where the rows of a key are linked is the business of join.h.
 */
#ifndef SHMJET_JOIN_DIRECT_H
#define SHMJET_JOIN_DIRECT_H

#include <sys/mman.h>

#include "columns/join_keys.h"

#define JOIN_DIRECT_SLOTS 6 /* for a row, at most: about the memory of a hash table */
#define JOIN_DIRECT_ROWS (INT64_C(1) << 31)

/* Keys that will be added. */
typedef struct {
    int64_t rows, least, most;
    uint8_t class; /* of all but nulls; KEY_NONE while there are nulls alone */
    int is_mixed;  /* they are not of one class of 64-bit integers, so `least` and `most` mean nothing */
} join_survey_t;

/* A slot is 0, or a row + 1 shifted by one, the last of its key, and whether there are several. */
typedef struct {
    uint32_t *slots; /* NULL where the keys are not like that */
    uint64_t least, span;
    uint8_t class;
} join_direct_t;

/* Returns zeroed memory, in huge pages where it is large and the kernel has them; NULL if there is none. */
static inline void *join_zeroed(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= (size_t)4 << 20) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

static inline void join_survey_numbers(join_survey_t *survey, const uint64_t *payloads, const uint8_t *classes,
                                       int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t value = (int64_t)payloads[i];
        if (classes[i] == KEY_NONE) continue;
        if (survey->class == KEY_NONE) {
            survey->class = classes[i];
            survey->least = survey->most = value;
        }
        if (classes[i] != survey->class || classes[i] == KEY_FLOAT || classes[i] == KEY_LARGE) {
            survey->is_mixed = 1;
            return;
        }
        if (value < survey->least) survey->least = value;
        if (value > survey->most) survey->most = value;
    }
}

static inline int join_direct_fits(const join_survey_t *survey) {
    if (survey->is_mixed || survey->class == KEY_NONE || survey->rows >= JOIN_DIRECT_ROWS) return 0;
    return (uint64_t)survey->most - (uint64_t)survey->least < JOIN_DIRECT_SLOTS * (uint64_t)survey->rows;
}

/* Returns 0, or -1 without memory. */
static inline int join_direct_open(join_direct_t *direct, const join_survey_t *survey) {
    direct->least = (uint64_t)survey->least;
    direct->span = (uint64_t)survey->most - (uint64_t)survey->least + 1;
    direct->class = survey->class;
    direct->slots = join_zeroed(direct->span * sizeof *direct->slots);
    return direct->slots ? 0 : -1;
}

static inline size_t join_direct_bytes(const join_direct_t *direct) {
    return direct->slots ? direct->span * sizeof *direct->slots : 0;
}

static inline void join_direct_close(join_direct_t *direct) {
    if (direct->slots) munmap(direct->slots, join_direct_bytes(direct));
}

/* The place of a key's slot, if it is below the span. */
static inline uint64_t join_direct_place(const join_direct_t *direct, uint64_t payload) {
    return payload - direct->least;
}

static inline uint32_t join_direct_slot(uint64_t row, int several) {
    return (uint32_t)(row + 1) << 1 | (uint32_t)several;
}

static inline uint64_t join_direct_row(uint32_t slot) { return (uint64_t)(slot >> 1) - 1; }

static inline void join_direct_ask(const join_direct_t *direct, uint64_t payload) {
    const uint64_t place = join_direct_place(direct, payload);
    if (place < direct->span) __builtin_prefetch(&direct->slots[place], 1);
}

/* Returns the slot of a key, 0 if it has no row. */
static inline uint32_t join_direct_find(const join_direct_t *direct, uint64_t payload, uint8_t class) {
    const uint64_t place = join_direct_place(direct, payload);
    return place < direct->span && class == direct->class ? direct->slots[place] : 0;
}

#endif
