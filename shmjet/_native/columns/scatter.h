/* Rows of a batch to consumers by the hash of their key: which consumer, and the copy into its builder. No Python in
 * here.
 *
 * assign_rows() is one pass over blocks: hash (column_hash.h), partition = hash modulo the number of partitions,
 * consumer = table[partition]. scatter_rows() walks a block twice: first it gives each row its place, the consumer's
 * next, which is a chain of dependent loads, then it copies column by column, which is not. A block is small enough
 * for its places to stay in the first-level cache.
 *
 * Of many consumers, each has its own place where it is written next, more than the processor follows by itself, and
 * every eighth store of 8 bytes would wait for a cache line. So the line behind the one being written is asked for in
 * advance: measured for 64 consumers with 8 MiB of builders, 4.5 ns a row became 1.1. Write-combining buffers, the
 * usual remedy, took 2.4 to 4.3, more than plain stores for 2 to 32 consumers too.
 */
#ifndef SHMJET_SCATTER_H
#define SHMJET_SCATTER_H

#include "columns/column_hash.h"

/* --- which consumer ----------------------------------------------------------------------------------------------- */

/* Remainders by a divisor that is known only at run time, by multiply and shift, exact for every 32-bit number; after
 * T. D. Robison, N-bit unsigned division via N-bit multiply-add (2005). */
typedef struct {
    uint32_t divisor, multiplier, increment, shift;
} divisor_t;

static inline divisor_t divisor_of(uint32_t divisor) {
    divisor_t by = {divisor, UINT32_MAX, UINT32_MAX, 0};
    while (divisor >> by.shift > 1) by.shift++;
    if (divisor & (divisor - 1)) {
        uint64_t power = UINT64_C(1) << (32 + by.shift), rest = power % divisor;
        by.multiplier = (uint32_t)(power / divisor);
        if (divisor - rest <= UINT64_C(1) << by.shift) { /* rounded up it is near enough */
            by.multiplier++;
            by.increment = 0;
        } else {
            by.increment = by.multiplier;
        }
    }
    return by;
}

static inline uint32_t remainder_by(const divisor_t *by, uint32_t number) {
    uint64_t quotient = ((uint64_t)number * by->multiplier + by->increment) >> 32 >> by->shift;
    return number - (uint32_t)quotient * by->divisor;
}

SIMD_CLONES static void remainders_of(uint32_t *restrict numbers, int count, divisor_t by) {
    for (int i = 0; i < count; i++) numbers[i] = remainder_by(&by, numbers[i]);
}

static inline void count_consumers(const uint16_t *assigned, int64_t rows, int64_t *counts) {
    for (int64_t i = 0; i < rows; i++) counts[assigned[i]]++;
}

/* The consumer of each row. `table` maps a partition to its consumer; `counts`, if there is one, is added to. */
static inline void assign_rows(const row_key_t *key, int64_t rows, const int32_t *table, uint32_t partitions,
                               uint16_t *assigned, int64_t *counts) {
    divisor_t by = divisor_of(partitions);
    uint32_t hashes[KEY_BLOCK];
    for (int64_t start = 0; start < rows; start += KEY_BLOCK) {
        int count = rows - start < KEY_BLOCK ? (int)(rows - start) : KEY_BLOCK;
        hash_block(key, start, count, hashes);
        remainders_of(hashes, count, by);
        for (int i = 0; i < count; i++) assigned[start + i] = (uint16_t)table[hashes[i]]; /* a SIMD gather is slower */
        if (counts) count_consumers(assigned + start, count, counts);
    }
}

/* --- into the builders -------------------------------------------------------------------------------------------- */

enum { SCATTER_BLOCK = 1024 };

/* Where a column goes. Consumer c's builder has room for `capacity` rows, from element c * stride of each memory on. */
typedef struct {
    column_t column;
    uint8_t *values;   /* consumers * stride values; for text consumers * text_room bytes */
    uint8_t *ends; /* for text: consumers * stride int64, of which the first `capacity + 1` of a consumer are offsets */
    int64_t text_room; /* for text */
    uint8_t *valid;    /* consumers * stride bytes, or NULL when no null was ever seen */
} builder_t;

typedef struct {
    builder_t *builders;
    int columns;
    const uint16_t *assigned;
    int64_t *filled; /* rows of each consumer */
    int64_t consumers, capacity, stride;
} scatter_t;

static inline void store_i64(void *p, int64_t value) { memcpy(p, &value, sizeof value); }

/* Whether any `count` rows have room, whatever their consumers are. */
static inline int room_for_any(const scatter_t *scatter, int count) {
    int64_t most = 0;
    for (int64_t i = 0; i < scatter->consumers; i++) most = scatter->filled[i] > most ? scatter->filled[i] : most;
    return scatter->capacity - most >= count;
}

enum { FEW = 8 }; /* consumers whose places the processor's own prefetching keeps up with */

ALWAYS_INLINE void prefetch_behind(const uint8_t *written) { __builtin_prefetch(written + 64, 1); }

SIMD_CLONES static uint16_t highest_of(const uint16_t *numbers, int count) {
    uint16_t highest = 0;
    for (int i = 0; i < count; i++) highest = numbers[i] > highest ? numbers[i] : highest;
    return highest;
}

/* Two columns of 8-byte values, which are copied in the pass that finds the places: a quarter less time for them. */
typedef struct {
    const uint8_t *from[2];
    uint8_t *to[2];
} pair_of_columns_t;

ALWAYS_INLINE void copy_pair(const pair_of_columns_t *pair, size_t row, size_t place) {
    uint64_t values[2];
    memcpy(&values[0], pair->from[0] + 8 * row, 8);
    memcpy(&values[1], pair->from[1] + 8 * row, 8);
    memcpy(pair->to[0] + 8 * place, &values[0], 8);
    memcpy(pair->to[1] + 8 * place, &values[1], 8);
}

/* Gives rows their places, counted in elements from the start of the memory. There must be room for all. */
ALWAYS_INLINE void place_all(const uint16_t *restrict assigned, int count, int64_t *restrict filled, int64_t stride,
                             uint32_t *restrict place, pair_of_columns_t pair, int paired, int placed) {
    for (int i = 0; i < count; i++) {
        int64_t consumer = assigned[i], at = filled[consumer]++;
        uint32_t to = (uint32_t)(consumer * stride + at);
        if (placed) place[i] = to;
        if (paired) {
            copy_pair(&pair, (size_t)i, to);
            prefetch_behind(pair.to[0] + 8 * (size_t)to);
            prefetch_behind(pair.to[1] + 8 * (size_t)to);
        }
    }
}

/* The same for at most FEW consumers. Of few consumers the next row's is often the same, and then place_all() waits
 * for the counter that it has just stored. Here eight counters of 8 bits share a register. */
ALWAYS_INLINE void place_few(const uint16_t *restrict assigned, int count, int64_t *restrict filled, int64_t consumers,
                             int64_t stride, uint32_t *restrict place, pair_of_columns_t pair, int paired, int placed) {
    uint32_t next[FEW] = {0};
    for (int done = 0, some; done < count; done += some) {
        uint64_t counters = 0;
        some = count - done < UINT8_MAX ? count - done : UINT8_MAX;
        for (int64_t c = 0; c < consumers; c++) next[c] = (uint32_t)(c * stride + filled[c]);
        for (int i = done; i < done + some; i++) {
            uint32_t consumer = assigned[i] & (FEW - 1), to = next[consumer] + (uint8_t)(counters >> 8 * consumer);
            counters += UINT64_C(1) << 8 * consumer;
            if (placed) place[i] = to;
            if (paired) copy_pair(&pair, (size_t)i, to);
        }
        for (int64_t c = 0; c < consumers; c++) filled[c] += (uint8_t)(counters >> 8 * c);
    }
}

/* Until a builder is full. Returns the number of rows that got a place. */
static inline int place_some(const scatter_t *scatter, int64_t start, int count, uint32_t *restrict place) {
    const uint16_t *assigned = scatter->assigned + start;
    int64_t *filled = scatter->filled;
    for (int i = 0; i < count; i++) {
        int64_t consumer = assigned[i];
        if (consumer >= scatter->consumers || filled[consumer] >= scatter->capacity) return i;
        place[i] = (uint32_t)(consumer * scatter->stride + filled[consumer]++);
    }
    return count;
}

/* Returns the number of rows that got a place. `pair`, if not NULL, is copied too if all did, which `*paired` then
 * says, and `place` is not needed afterwards unless `placed`. */
static inline int place_rows(const scatter_t *scatter, int64_t start, int count, uint32_t *place,
                             const pair_of_columns_t *pair, int placed, int *paired) {
    const uint16_t *assigned = scatter->assigned + start;
    int64_t *filled = scatter->filled, consumers = scatter->consumers, stride = scatter->stride;
    const pair_of_columns_t none = {{NULL, NULL}, {NULL, NULL}};
    *paired = 0;
    if (!room_for_any(scatter, count) || highest_of(assigned, count) >= consumers)
        return place_some(scatter, start, count, place);
    *paired = pair != NULL;
    if (consumers <= FEW) {
        if (!pair) place_few(assigned, count, filled, consumers, stride, place, none, 0, 1);
        else if (placed) place_few(assigned, count, filled, consumers, stride, place, *pair, 1, 1);
        else place_few(assigned, count, filled, consumers, stride, place, *pair, 1, 0);
    } else {
        if (!pair) place_all(assigned, count, filled, stride, place, none, 0, 1);
        else if (placed) place_all(assigned, count, filled, stride, place, *pair, 1, 1);
        else place_all(assigned, count, filled, stride, place, *pair, 1, 0);
    }
    return count;
}

/* Where there is text: a row also needs room for its bytes in all columns of text. Writes the offsets. */
static inline int place_rows_with_text(const scatter_t *scatter, int64_t start, int count, uint32_t *place) {
    for (int i = 0; i < count; i++) {
        int64_t consumer = scatter->assigned[start + i], row = start + i;
        if (consumer >= scatter->consumers || scatter->filled[consumer] >= scatter->capacity) return i;
        int64_t at = consumer * scatter->stride + scatter->filled[consumer];
        for (int k = 0; k < scatter->columns; k++) {
            const builder_t *to = &scatter->builders[k];
            if (!to->ends) continue;
            int64_t used = scatter->filled[consumer] ? load_i64(to->ends + 8 * at) : 0;
            int64_t length = column_offset(&to->column, row + 1) - column_offset(&to->column, row);
            if (used < 0 || used > to->text_room || length > to->text_room - used) return i;
            store_i64(to->ends + 8 * at, used);
            store_i64(to->ends + 8 * (at + 1), used + length);
        }
        scatter->filled[consumer]++;
        place[i] = (uint32_t)at;
    }
    return count;
}

#define SCATTER_VALUES(type)                                                \
    for (int i = 0; i < count; i++) {                                       \
        type value;                                                         \
        memcpy(&value, from + sizeof value * (size_t)i, sizeof value);      \
        memcpy(to + sizeof value * (size_t)place[i], &value, sizeof value); \
        if (many) prefetch_behind(to + sizeof value * (size_t)place[i]);    \
    }

ALWAYS_INLINE void scatter_values_to(uint8_t *restrict to, const uint8_t *restrict from, uint32_t itemsize, int count,
                                     const uint32_t *restrict place, int many) {
    typedef struct {
        uint64_t halves[2];
    } pair_t;
    switch (itemsize) {
    case 1: SCATTER_VALUES(uint8_t) break;
    case 2: SCATTER_VALUES(uint16_t) break;
    case 4: SCATTER_VALUES(uint32_t) break;
    case 8: SCATTER_VALUES(uint64_t) break;
    case 16: SCATTER_VALUES(pair_t) break;
    default:
        for (int i = 0; i < count; i++)
            memcpy(to + (size_t)itemsize * place[i], from + (size_t)itemsize * (size_t)i, itemsize);
    }
}

static inline void scatter_values(uint8_t *to, const uint8_t *from, uint32_t itemsize, int count, const uint32_t *place,
                                  int many) {
    if (many)
        scatter_values_to(to, from, itemsize, count, place, 1);
    else
        scatter_values_to(to, from, itemsize, count, place, 0);
}

/* Copies a short value in pieces of 16 bytes where that stays within the memory on both sides: most text is short, and
 * calling memcpy for each value costs more than the copy. `readable` and `writable` are bytes that may be touched. */
static inline void copy_text(uint8_t *to, const uint8_t *from, int64_t length, int64_t readable, int64_t writable) {
    if (length <= 32 && readable >= 32 && writable >= 32) {
        memcpy(to, from, 16);
        if (length > 16) memcpy(to + 16, from + 16, 16);
    } else {
        memcpy(to, from, (size_t)length);
    }
}

static inline void scatter_text(const scatter_t *scatter, const builder_t *builder, int64_t start, int count,
                                const uint32_t *place) {
    const column_t *column = &builder->column;
    const int64_t bytes = column_offset(column, column->rows), room = builder->text_room;
    for (int i = 0; i < count; i++) {
        int64_t begin = column_offset(column, start + i), end = column_offset(column, start + i + 1);
        int64_t used = load_i64(builder->ends + 8 * (size_t)place[i]);
        /* Rows come in order, so what a wide copy writes behind the value is overwritten by the next one. */
        copy_text(builder->values + scatter->assigned[start + i] * room + used, column->data + begin, end - begin,
                  bytes - begin, room - used);
    }
}

static inline void scatter_valid(const builder_t *builder, int64_t start, int count, const uint32_t *place, int many) {
    const uint8_t *valid = builder->column.valid;
    if (valid)
        scatter_values(builder->valid, valid + start, 1, count, place, many);
    else
        for (int i = 0; i < count; i++) builder->valid[place[i]] = 1;
}

/* Finds the first two columns of 8-byte values. Returns whether there are two. */
static inline int find_pair(const scatter_t *scatter, int found[2]) {
    int count = 0;
    for (int k = 0; k < scatter->columns && count < 2; k++)
        if (!scatter->builders[k].ends && scatter->builders[k].column.itemsize == 8) found[count++] = k;
    return count == 2;
}

/* Copies the rows from `start` into the builders of their consumers, in order, until a builder has no room for the next
 * row. Returns that row, or the number of rows when all are in. */
static inline int64_t scatter_rows(const scatter_t *scatter, int64_t start, int64_t rows) {
    uint32_t place[SCATTER_BLOCK];
    int text = 0, masks = 0, first_two[2] = {-1, -1}, has_pair = find_pair(scatter, first_two);
    const int many = scatter->consumers > FEW;
    for (int k = 0; k < scatter->columns; k++) {
        text |= scatter->builders[k].ends != NULL;
        masks |= scatter->builders[k].valid != NULL;
    }
    for (int count, wanted, paired = 0; start < rows; start += count) {
        wanted = rows - start < SCATTER_BLOCK ? (int)(rows - start) : SCATTER_BLOCK;
        if (text) {
            count = place_rows_with_text(scatter, start, wanted, place);
        } else {
            pair_of_columns_t pair;
            for (int i = 0; has_pair && i < 2; i++) {
                const builder_t *to = &scatter->builders[first_two[i]];
                pair.from[i] = to->column.data + 8 * start;
                pair.to[i] = to->values;
            }
            int placed = scatter->columns > 2 || masks;
            count = place_rows(scatter, start, wanted, place, has_pair ? &pair : NULL, placed, &paired);
        }
        for (int k = 0; k < scatter->columns; k++) {
            const builder_t *to = &scatter->builders[k];
            if (to->ends)
                scatter_text(scatter, to, start, count, place);
            else if (!paired || (k != first_two[0] && k != first_two[1]))
                scatter_values(to->values, to->column.data + start * to->column.itemsize, to->column.itemsize, count,
                               place, many);
            if (to->valid) scatter_valid(to, start, count, place, many);
        }
        if (count < wanted) return start + count;
    }
    return rows;
}

/* --- take --------------------------------------------------------------------------------------------------------- */

/* Writes the offsets of the values at `indices`. Returns -1, or the first place in `indices` that is out of range, or
 * whose value does not lie in the column's `bytes` of data. */
static inline int64_t take_text_ends(const column_t *column, int64_t bytes, const uint8_t *indices, int64_t count,
                                     uint8_t *ends) {
    int64_t end = 0;
    store_i64(ends, 0);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = load_i64(indices + 8 * i);
        if (row < 0) row += column->rows;
        if (row < 0 || row >= column->rows) return i;
        int64_t first = column_offset(column, row), last = column_offset(column, row + 1);
        if (first < 0 || last < first || last > bytes) return i;
        end += last - first;
        store_i64(ends + 8 * (i + 1), end);
    }
    return -1;
}

/* Copies these values one behind the other to where `ends`, made by take_text_ends() of the same, says. Returns 1, or 0
 * when `ends` are of something else. */
static inline int take_text(const column_t *column, int64_t bytes, const uint8_t *indices, int64_t count,
                            const uint8_t *ends, uint8_t *data) {
    int64_t total = load_i64(ends + 8 * count), to = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = load_i64(indices + 8 * i);
        if (row < 0) row += column->rows;
        if (row < 0 || row >= column->rows) return 0;
        int64_t begin = column_offset(column, row), length = column_offset(column, row + 1) - begin;
        if (begin < 0 || length < 0 || length > bytes - begin || length > total - to) return 0;
        copy_text(data + to, column->data + begin, length, bytes - begin, total - to);
        to += length;
    }
    return to == total;
}

/* One step of a counting sort: writes the numbers start .. start + count into `out`, each at the next place of its
 * bucket. Returns -1 when a bucket or a place does not exist. */
static inline int bucket_rows(const uint32_t *buckets, uint64_t start, uint64_t count, uint32_t *next,
                              uint64_t bucket_count, uint32_t *out, uint64_t room) {
    for (uint64_t i = start; i < start + count; i++) {
        if (buckets[i] >= bucket_count || next[buckets[i]] >= room) return -1;
        out[next[buckets[i]]++] = (uint32_t)i;
    }
    return 0;
}

/* Writes the numbers from `first` on into `out`, each at its place. Returns -1 when a place does not exist. */
static inline int number_places(const uint32_t *places, uint64_t count, uint32_t first, uint32_t *out, uint64_t room) {
    for (uint64_t i = 0; i < count; i++) {
        if (places[i] >= room) return -1;
        out[places[i]] = first + (uint32_t)i;
    }
    return 0;
}

#endif
