/* A hash table from keys to rows, of which several may have the same key. No Python in here.
 *
 * A slot is 16 bytes: the key itself where it is a single number, else its hash, with the last row that has that key.
 * Rows of equal keys are linked into a ring, last to first, so that a row is added at the end in one step and all are
 * found in the order of adding; there are no links while each key has one row. Keys that are text or of several columns
 * are copied behind one another into an arena.
 * Rows are handled in blocks: first all hashes, with the memory they point at on its way, then the comparisons.
 *
 * The table grows without a pause: the memory of the next one is prepared while the old still has room, then its slots
 * move over, some with each block of rows (a key is looked for in the new and then in the old one), and at last the old
 * memory is given back in pieces. Memory comes from mmap: zeroed, and in huge pages where the kernel has them.
 *
 * A survey of all keys before the first is added makes the table as large at once as the keys that it has met let
 * expect, because fresh memory costs as much as filling it; it finds keys that need no hashes at all (join_direct.h),
 * and keys of several columns that fit into one number (join_packing.h).
 */
#ifndef SHMJET_JOIN_H
#define SHMJET_JOIN_H

#include <stdlib.h>

#include "columns/join_packing.h"

#define JOIN_BLOCK 64
#define JOIN_AHEAD 256        /* rows of a direct table whose slots are on their way */
#define JOIN_FIRST_BITS 10
#define JOIN_MOVED 512        /* slots moved with a block of rows */
#define JOIN_TOUCHED 16384    /* bytes prepared with a block: all, from half full to five eighths */
#define JOIN_RETURNED 1048576 /* bytes given back with a block */
#define JOIN_MOST_ROWS UINT32_MAX
#define JOIN_GUESS_BITS 16     /* of a table that tells how many keys there will be */

#define JOIN_USED 1
#define JOIN_SEVERAL 2
#define JOIN_CLASS 2        /* shift */
#define JOIN_SAME 0x3d      /* used and class */
#define JOIN_ROW 8          /* shift */

enum { JOIN_OK = 0, JOIN_NO_MEMORY = -1, JOIN_FULL = -2, JOIN_UNSURVEYED = -3 };

/* What keys are: one number (or several that are packed into one), up to JOIN_NUMBERS of them, or anything. */
typedef enum { JOIN_ANY, JOIN_ONE, JOIN_TUPLE } join_mode_t;

/* Of one number: key = payload, state = last row, class, several, used. Else: key = hash, state = place in the arena,
 * used; a record there is the state with the last row, then for a tuple of numbers their classes, a byte each, and
 * their payloads, and for others of each column class and length in one word, and the bytes. */
typedef struct {
    uint64_t key, state;
} join_slot_t;

typedef struct {
    join_slot_t *slots, *old, *next; /* old: those behind `moved` are still to be moved; next: being prepared */
    unsigned bits, old_bits, next_bits;
    int64_t used, moved;
    uint8_t *retired;
    size_t touched, retired_bytes;
    uint8_t *arena;
    size_t arena_used, arena_room;
    uint32_t *links; /* NULL while each key has one row */
    int64_t rows, link_room;
    int64_t columns; /* 0 before the first rows */
    join_mode_t mode;
    join_survey_t survey;               /* of keys of one number, packed ones included */
    join_survey_t parts[JOIN_NUMBERS]; /* of the columns of others */
    join_packing_t packing;
    join_direct_t direct; /* instead of slots where it has some */
} join_table_t;

static inline size_t join_bytes(unsigned bits) { return sizeof(join_slot_t) << bits; }

static inline join_slot_t *join_map(unsigned bits) { return join_zeroed(join_bytes(bits)); }

static inline int join_open(join_table_t *table) {
    memset(table, 0, sizeof *table);
    table->bits = JOIN_FIRST_BITS;
    return (table->slots = join_map(JOIN_FIRST_BITS)) ? JOIN_OK : JOIN_NO_MEMORY;
}

static inline void join_close(join_table_t *table) {
    if (table->slots) munmap(table->slots, join_bytes(table->bits));
    if (table->old) munmap(table->old, join_bytes(table->old_bits));
    if (table->next) munmap(table->next, join_bytes(table->next_bits));
    if (table->retired) munmap(table->retired, table->retired_bytes);
    join_direct_close(&table->direct);
    free(table->arena);
    free(table->links);
    memset(table, 0, sizeof *table);
}

/* Bytes of memory, those being given back included. */
static inline size_t join_memory(const join_table_t *table) {
    return join_bytes(table->bits) + (table->old ? join_bytes(table->old_bits) : 0) +
           (table->next ? join_bytes(table->next_bits) : 0) + table->retired_bytes + table->arena_room +
           sizeof *table->links * (size_t)table->link_room + join_direct_bytes(&table->direct);
}

/* -- growth -------------------------------------------------------------------------------------------------------- */

static inline uint64_t join_slot_hash(const join_table_t *table, const join_slot_t *slot) {
    return table->mode == JOIN_ONE ? key_hash_word(slot->key, (key_class_t)((slot->state & JOIN_SAME) >> JOIN_CLASS))
                                   : slot->key;
}

static inline void join_move(join_table_t *table, int64_t count) {
    const int64_t total = INT64_C(1) << table->old_bits;
    const uint64_t mask = (UINT64_C(1) << table->bits) - 1;
    while (count > 0 && table->moved < total) {
        join_slot_t *from = table->old + table->moved;
        uint64_t homes[JOIN_BLOCK];
        int64_t some = total - table->moved < JOIN_BLOCK ? total - table->moved : JOIN_BLOCK;
        for (int64_t i = 0; i < some; i++) {
            homes[i] = join_slot_hash(table, &from[i]) >> (64 - table->bits);
            if (from[i].state) __builtin_prefetch(&table->slots[homes[i]], 1);
        }
        for (int64_t i = 0; i < some; i++) {
            if (!from[i].state) continue;
            uint64_t at = homes[i];
            while (table->slots[at].state) at = (at + 1) & mask;
            table->slots[at] = from[i];
        }
        table->moved += some;
        count -= some;
    }
    if (table->moved < total) return;
    table->retired = (uint8_t *)table->old;
    table->retired_bytes = join_bytes(table->old_bits);
    table->old = NULL;
}

static inline void join_return(join_table_t *table, size_t bytes) {
    if (bytes > table->retired_bytes) bytes = table->retired_bytes;
    munmap(table->retired, bytes);
    table->retired += bytes;
    table->retired_bytes -= bytes;
    if (!table->retired_bytes) table->retired = NULL;
}

static inline void join_touch(join_table_t *table, size_t bytes) {
    size_t total = join_bytes(table->next_bits), stop = total - table->touched < bytes ? total : table->touched + bytes;
    for (; table->touched < stop; table->touched += 4096) ((volatile uint8_t *)table->next)[table->touched] = 0;
}

/* Does a block's share of what growing left to do. */
static inline void join_settle(join_table_t *table) {
    if (table->old) join_move(table, JOIN_MOVED);
    else if (table->retired) join_return(table, JOIN_RETURNED);
}

/* The bits of a table with room for all keys, as far as the rows so far tell. Of n rows with as many different keys of
 * D equally frequent ones, n * n / 2D have the key of an earlier row. */
static inline unsigned join_wanted_bits(const join_table_t *table) {
    unsigned bits = table->bits + 1;
    const int64_t rows = table->rows, repeated = rows - table->used;
    if (table->bits < JOIN_GUESS_BITS || repeated > rows / 4) return bits;
    double keys = repeated ? (double)rows * (double)rows / (double)(2 * repeated) : (double)table->survey.rows;
    if (keys > (double)table->survey.rows) keys = (double)table->survey.rows;
    while (keys > (double)(INT64_C(1) << bits) / 2) bits++;
    return bits;
}

/* Makes sure that a block of rows has room, and does its share of growing. */
static inline int join_step(join_table_t *table) {
    const int64_t slots = INT64_C(1) << table->bits, expected = table->used + JOIN_BLOCK;
    join_settle(table);
    if (expected <= slots / 2) return JOIN_OK;
    if (!table->next) {
        table->touched = 0;
        table->next_bits = join_wanted_bits(table);
        if (!(table->next = join_map(table->next_bits))) return JOIN_NO_MEMORY;
    }
    join_touch(table, JOIN_TOUCHED);
    if (expected <= slots / 8 * 5) return JOIN_OK;
    if (table->old) join_move(table, INT64_MAX);
    if (table->retired) join_return(table, SIZE_MAX);
    table->old = table->slots;
    table->old_bits = table->bits;
    table->bits = table->next_bits;
    table->slots = table->next;
    table->next = NULL;
    table->moved = 0;
    return JOIN_OK;
}

/* Makes room for the links of `count` more rows; rows without links so far become rings of one. */
static inline int join_reserve_links(join_table_t *table, int64_t count) {
    if (table->rows + count <= table->link_room) return JOIN_OK;
    int64_t room = table->link_room ? 2 * table->link_room : 1024;
    if (room < table->survey.rows) room = table->survey.rows;
    while (room < table->rows + count) room *= 2;
    uint32_t *links = realloc(table->links, (size_t)room * sizeof *links); /* glibc moves pages, not bytes */
    if (!links) return JOIN_NO_MEMORY;
    for (int64_t i = 0; !table->links && i < table->rows; i++) links[i] = (uint32_t)i;
    table->links = links;
    table->link_room = room;
    return JOIN_OK;
}

/* Puts the next row, for which there is room, at the end of the ring of row `last`. */
static inline void join_link(join_table_t *table, uint64_t last) {
    table->links[table->rows] = table->links[last];
    table->links[last] = (uint32_t)table->rows;
}

/* -- keys in the arena --------------------------------------------------------------------------------------------- */

static inline size_t round_up_8(size_t bytes) { return (bytes + 7) & ~(size_t)7; }

/* Returns where a record of so many bytes begins, or -1 without memory. */
static inline int64_t join_allot(join_table_t *table, size_t bytes) {
    if (table->arena_used + bytes > table->arena_room) {
        size_t room = table->arena_room ? 2 * table->arena_room : 65536;
        while (room < table->arena_used + bytes) room *= 2;
        uint8_t *arena = realloc(table->arena, room);
        if (!arena) return -1;
        table->arena = arena;
        table->arena_room = room;
    }
    table->arena_used += bytes;
    return (int64_t)(table->arena_used - bytes);
}

static inline int64_t join_store_any(join_table_t *table, const key_column_t *keys, int64_t row) {
    key_value_t value;
    size_t needed = 8;
    for (int64_t k = 0; k < table->columns; k++) {
        key_value(&keys[k], row, &value);
        needed += 8 + round_up_8(value.length);
    }
    int64_t place = join_allot(table, needed);
    if (place < 0) return place;
    uint8_t *at = table->arena + place + 8;
    for (int64_t k = 0; k < table->columns; k++) {
        key_value(&keys[k], row, &value);
        uint64_t head = value.length << 8 | (uint64_t)value.class;
        memcpy(at, &head, 8);
        memcpy(at + 8, key_bytes(&value), value.length);
        at += 8 + round_up_8(value.length);
    }
    return place;
}

static inline int join_is_any(const join_table_t *table, uint64_t place, const key_column_t *keys, int64_t row) {
    const uint8_t *at = table->arena + place + 8;
    for (int64_t k = 0; k < table->columns; k++) {
        key_value_t value;
        key_value(&keys[k], row, &value);
        if (order_load(at, 8) != (value.length << 8 | (uint64_t)value.class)) return 0;
        if (memcmp(at + 8, key_bytes(&value), value.length)) return 0;
        at += 8 + round_up_8(value.length);
    }
    return 1;
}

/* -- a block of rows ----------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t hashes[JOIN_BLOCK], keys[JOIN_BLOCK]; /* keys: as in slots */
    uint8_t classes[JOIN_BLOCK];                   /* KEY_NONE where the key equals nothing */
    uint64_t numbers[JOIN_NUMBERS][JOIN_BLOCK];    /* of a tuple */
    uint32_t tuples[JOIN_BLOCK];                   /* its classes, a byte each */
} join_block_t;

/* A block of rows whose key is one number. */
typedef struct {
    uint64_t payloads[JOIN_AHEAD];
    uint8_t classes[JOIN_AHEAD];
    int64_t count;
} join_numbers_t;

static inline int64_t join_store_tuple(join_table_t *table, const join_block_t *block, int64_t i) {
    int64_t place = join_allot(table, 16 + 8 * (size_t)table->columns);
    if (place < 0) return place;
    uint64_t classes = block->tuples[i];
    memcpy(table->arena + place + 8, &classes, 8);
    for (int64_t k = 0; k < table->columns; k++) memcpy(table->arena + place + 16 + 8 * k, &block->numbers[k][i], 8);
    return place;
}

static inline int join_is_tuple(const join_table_t *table, uint64_t place, const join_block_t *block, int64_t i) {
    const uint8_t *at = table->arena + place + 8;
    uint64_t differing = order_load(at, 8) ^ block->tuples[i];
    for (int64_t k = 0; k < table->columns; k++) differing |= order_load(at + 8 + 8 * k, 8) ^ block->numbers[k][i];
    return !differing;
}

#define JOIN_READ(FORM)                                                                                               \
    case FORM:                                                                                                        \
        for (int64_t i = 0; i < count; i++) classes[i] = (uint8_t)key_number(key, FORM, start + i, &payloads[i]);     \
        break;

/* Reads the numbers of a column. */
static inline void join_read_numbers(const key_column_t *key, int64_t start, int64_t count, uint64_t *payloads,
                                     uint8_t *classes) {
    memset(payloads, 0, (size_t)count * sizeof *payloads);
    switch (key->form) {
        JOIN_READ(ORDER_BOOL)
        JOIN_READ(ORDER_I8)
        JOIN_READ(ORDER_I16)
        JOIN_READ(ORDER_I32)
    case ORDER_I64: /* what it is already */
        memcpy(payloads, key->column.data + 8 * start, 8 * (size_t)count);
        memset(classes, KEY_INTEGER, (size_t)count);
        break;
        JOIN_READ(ORDER_U8)
        JOIN_READ(ORDER_U16)
        JOIN_READ(ORDER_U32)
        JOIN_READ(ORDER_U64)
        JOIN_READ(ORDER_F32)
        JOIN_READ(ORDER_F64)
        JOIN_READ(ORDER_DATE)
    default: /* complex numbers may equal those of one word; text does not */
        for (int64_t i = 0; i < count; i++) {
            key_value_t value;
            key_value(key, start + i, &value);
            classes[i] = (uint8_t)(value.class < KEY_COMPLEX ? value.class : KEY_NONE);
            payloads[i] = value.words[0];
        }
    }
    for (int64_t i = 0; key->column.valid && i < count; i++)
        if (!key->column.valid[start + i]) classes[i] = KEY_NONE;
}

/* Reads keys of one number, at most JOIN_AHEAD of them. */
static inline void join_read_keys(const join_table_t *table, const key_column_t *keys, int64_t start, int64_t count,
                                  uint64_t *payloads, uint8_t *classes) {
    const join_packing_t *packing = &table->packing;
    if (!packing->columns) {
        join_read_numbers(keys, start, count, payloads, classes);
        return;
    }
    uint64_t digits[JOIN_AHEAD];
    uint8_t digit_classes[JOIN_AHEAD];
    memset(payloads, 0, (size_t)count * sizeof *payloads);
    memset(classes, KEY_INTEGER, (size_t)count);
    for (int64_t k = 0; k < packing->columns; k++) {
        join_read_numbers(&keys[k], start, count, digits, digit_classes);
        join_pack_column(packing, k, digits, digit_classes, count, payloads, classes);
    }
}

static inline void join_read_one(const join_table_t *table, const key_column_t *keys, int64_t start, int64_t count,
                                 join_block_t *block) {
    join_read_keys(table, keys, start, count, block->keys, block->classes);
    for (int64_t i = 0; i < count; i++)
        block->hashes[i] = key_hash_word(block->keys[i], (key_class_t)block->classes[i]);
}

static inline void join_read_tuple(const join_table_t *table, const key_column_t *keys, int64_t start, int64_t count,
                                   join_block_t *block) {
    uint8_t classes[JOIN_BLOCK];
    memset(block->classes, KEY_INTEGER, sizeof block->classes);
    memset(block->tuples, 0, sizeof block->tuples);
    memset(block->keys, 0, sizeof block->keys);
    for (int64_t k = 0; k < table->columns; k++) {
        join_read_numbers(&keys[k], start, count, block->numbers[k], classes);
        for (int64_t i = 0; i < count; i++) {
            if (classes[i] == KEY_NONE) block->classes[i] = KEY_NONE;
            block->tuples[i] = block->tuples[i] << 8 | classes[i];
            block->keys[i] = key_hash_word(block->numbers[k][i] ^ block->keys[i], (key_class_t)classes[i]);
        }
    }
    memcpy(block->hashes, block->keys, sizeof block->hashes);
}

static inline void join_read_any(const join_table_t *table, const key_column_t *keys, int64_t start, int64_t count,
                                 join_block_t *block) {
    for (int64_t i = 0; i < count; i++) {
        uint64_t hash = 0;
        block->classes[i] = KEY_TEXT;
        for (int64_t k = 0; k < table->columns; k++) {
            key_value_t value;
            key_value(&keys[k], start + i, &value);
            if (value.class == KEY_NONE) block->classes[i] = KEY_NONE;
            else hash = key_hash_value(&value, hash);
        }
        block->hashes[i] = block->keys[i] = hash;
    }
}

/* Reads the keys of up to JOIN_BLOCK rows and asks for the memory that they need; not for a direct table. */
static inline void join_read(const join_table_t *table, const key_column_t *keys, int64_t start, int64_t count,
                             join_block_t *block) {
    if (table->mode == JOIN_ONE) join_read_one(table, keys, start, count, block);
    else if (table->mode == JOIN_TUPLE) join_read_tuple(table, keys, start, count, block);
    else join_read_any(table, keys, start, count, block);
    for (int64_t i = 0; i < count; i++) {
        __builtin_prefetch(&table->slots[block->hashes[i] >> (64 - table->bits)], 1);
        if (table->old) __builtin_prefetch(&table->old[block->hashes[i] >> (64 - table->old_bits)], 1);
    }
    if (table->mode == JOIN_ONE) return;
    for (int64_t i = 0; i < count; i++) {
        uint64_t state = table->slots[block->hashes[i] >> (64 - table->bits)].state;
        if (state) __builtin_prefetch(table->arena + (state >> JOIN_ROW));
    }
}

ALWAYS join_slot_t *join_search(const join_table_t *table, join_slot_t *slots, unsigned bits, const join_block_t *block,
                                int64_t i, const key_column_t *keys, int64_t row, join_mode_t mode) {
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    const uint64_t wanted = JOIN_USED | (uint64_t)block->classes[i] << JOIN_CLASS;
    for (uint64_t at = block->hashes[i] >> (64 - bits);; at = (at + 1) & mask) {
        join_slot_t *slot = &slots[at];
        if (!slot->state) return NULL;
        if (slot->key != block->keys[i]) continue;
        if (mode == JOIN_ONE ? ((slot->state ^ wanted) & JOIN_SAME) == 0
            : mode == JOIN_TUPLE ? join_is_tuple(table, slot->state >> JOIN_ROW, block, i)
                                 : join_is_any(table, slot->state >> JOIN_ROW, keys, row))
            return slot;
    }
}

ALWAYS join_slot_t *join_find_as(const join_table_t *table, const join_block_t *block, int64_t i,
                                 const key_column_t *keys, int64_t row, join_mode_t mode) {
    join_slot_t *slot = join_search(table, table->slots, table->bits, block, i, keys, row, mode);
    return slot || !table->old ? slot : join_search(table, table->old, table->old_bits, block, i, keys, row, mode);
}

/* The slot with the key in row `row`, which is the i-th of the block; NULL if there is none. */
ALWAYS join_slot_t *join_find(const join_table_t *table, const join_block_t *block, int64_t i, const key_column_t *keys,
                              int64_t row) {
    if (block->classes[i] == KEY_NONE) return NULL;
    if (table->mode == JOIN_ONE) return join_find_as(table, block, i, keys, row, JOIN_ONE);
    if (table->mode == JOIN_TUPLE) return join_find_as(table, block, i, keys, row, JOIN_TUPLE);
    return join_find_as(table, block, i, keys, row, JOIN_ANY);
}

static inline uint64_t join_state(const join_table_t *table, const join_slot_t *slot) {
    return table->mode == JOIN_ONE ? slot->state : order_load(table->arena + (slot->state >> JOIN_ROW), 8);
}

static inline void join_set_state(join_table_t *table, join_slot_t *slot, uint64_t state) {
    if (table->mode == JOIN_ONE) slot->state = state;
    else memcpy(table->arena + (slot->state >> JOIN_ROW), &state, 8);
}

/* -- rows of a direct table ---------------------------------------------------------------------------------------- */

/* Rows in order, whose keys are read a block ahead, so that who handles one row can ask for the slot of a later one. */
typedef struct {
    const join_table_t *table;
    const key_column_t *keys;
    int64_t at, rows; /* what is to be read yet */
    join_numbers_t blocks[2], *now, *next;
} join_walk_t;

static inline void join_walk_read(join_walk_t *walk) {
    const int64_t left = walk->rows - walk->at, count = left < JOIN_AHEAD ? left : JOIN_AHEAD;
    walk->next->count = count;
    join_read_keys(walk->table, walk->keys, walk->at, count, walk->next->payloads, walk->next->classes);
    walk->at += count;
}

/* Begins at row `start`. A step is to follow. */
static inline void join_walk_begin(join_walk_t *walk, const join_table_t *table, const key_column_t *keys,
                                   int64_t start, int64_t rows) {
    walk->table = table;
    walk->keys = keys;
    walk->at = start;
    walk->rows = rows;
    walk->now = &walk->blocks[0];
    walk->next = &walk->blocks[1];
    join_walk_read(walk);
    for (int64_t i = 0; i < walk->next->count; i++) join_direct_ask(&table->direct, walk->next->payloads[i]);
}

/* Goes on to the next block, which becomes `now`; returns how many rows it has, 0 at the end. */
static inline int64_t join_walk_step(join_walk_t *walk) {
    join_numbers_t *before = walk->now;
    walk->now = walk->next;
    walk->next = before;
    join_walk_read(walk);
    return walk->now->count;
}

/* Asks for the slot of a row of the next block. */
static inline void join_walk_ask(const join_walk_t *walk, int64_t i) {
    if (i < walk->next->count) join_direct_ask(&walk->table->direct, walk->next->payloads[i]);
}

#endif
