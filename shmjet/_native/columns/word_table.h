/* A hash table from words to counts that never stops to grow. No Python in here.
 *
 * Extendible hashing (Fagin, Nievergelt, Pippenger, Strong, 1979): the first bits of a word's hash choose, through a
 * directory, a segment of 2,048 slots; a segment that is seven eighths full is split in two, which takes some 30
 * microseconds however large the table is, and only doubling the directory (16 bytes for about a thousand words)
 * touches everything.
 *
 * Within a segment 16 slots make a group, and a byte for each slot holds 8 bits of its word's hash (0: free), so that
 * one comparison of 16 bytes tells which slot to look at (the Swiss table of Abseil: Kulukundis, CppCon 2017). Probing
 * slot by slot would guess wrong every second time whether the next one is needed, and that costs more than all else.
 *
 * A slot has 32 bytes, half a cache line. Words up to 16 bytes lie in it, padded with zeros, and are compared as
 * two lanes; longer ones lie in blocks of memory that live as long as the table. Words come in batches, whose slots are
 * all fetched from memory before the first is looked at.
 *
 * The hash folds products of 64 by 64 bits, after wyhash (Wang Yi). A seed that is not known outside keeps others from
 * making words collide; two tables with the same seed agree on the share (word_share) of every word.
 */
#ifndef SHMJET_WORD_TABLE_H
#define SHMJET_WORD_TABLE_H

#include "columns/word_memory.h"

#if defined(__SSE2__) && !defined(SHMJET_NO_SIMD)
#include <emmintrin.h>
#endif

#define WORD_SHORT 16         /* bytes that fit a slot */
#define WORD_BATCH 64         /* words looked up together */
#define WORD_GROUP 16         /* slots compared at once */
#define WORD_SEGMENT_BITS 11  /* slots of a fresh segment */
#define WORD_CACHED 16        /* the marks of so many segments are in the L1 cache anyhow */

/* A word as it is looked up, and what is the same in a slot. `tag` is the hash with its last 8 bits replaced by the
 * kind: 1 + size for a short word, WORD_IS_LONG for others; so it is 0 only where there is no word. */
typedef struct {
    uint64_t first, second; /* the bytes of a short word; address and size of a long one */
    uint64_t tag;
} word_t;

#define WORD_IS_LONG 0xff

typedef struct {
    word_t word;
    int64_t count;
} word_slot_t;

/* An entry of the directory: where the words with these first bits of the hash are. */
typedef struct {
    uint8_t *marks; /* a byte a slot */
    word_slot_t *slots;
    uint64_t mask; /* slots - WORD_GROUP: where a group may begin */
    uint32_t segment;
} word_place_t;

typedef struct {
    uint8_t *marks;
    uint32_t used;
    uint8_t depth, bits; /* its words agree in `depth` first bits; it has 2^bits slots */
} word_segment_t;

typedef struct {
    word_place_t *places; /* 2^depth of them; NULL before the first word */
    word_segment_t *segments;
    uint32_t segment_count, segment_room;
    unsigned depth;
    int64_t distinct;
    uint64_t moves; /* how often slots have moved */
    uint64_t seeds[2];
    word_memory_t memory;
} word_table_t;

/* Bytes of a segment: marks, then slots. */
#define WORD_SEGMENT_SIZE(bits) ((1 + sizeof(word_slot_t)) << (bits))

static inline uint64_t word_lane(const void *p) {
    uint64_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static inline uint64_t word_mix(uint64_t a, uint64_t b) {
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline void word_table_init(word_table_t *table, uint64_t seed) {
    memset(table, 0, sizeof *table);
    word_memory_init(&table->memory, WORD_SEGMENT_SIZE(WORD_SEGMENT_BITS));
    table->seeds[0] = word_mix(seed ^ UINT64_C(0xa0761d6478bd642f), UINT64_C(0xe7037ed1a0b428db)) | 1;
    table->seeds[1] = word_mix(seed ^ UINT64_C(0x8ebc6af09c88c6e3), UINT64_C(0x589965cc75374cc3)) | 1;
}

/* Segments of the usual size come from slabs, wide ones do not. */
static inline uint8_t *word_marks_new(word_table_t *table, unsigned bits) {
    uint8_t *marks = bits == WORD_SEGMENT_BITS ? word_segment_new(&table->memory)
                                               : (uint8_t *)aligned_alloc(64, WORD_SEGMENT_SIZE(bits));
    if (marks) memset(marks, 0, (size_t)1 << bits); /* what lies in slots without a mark does not matter */
    return marks;
}

static inline void word_marks_free(word_table_t *table, uint8_t *marks, unsigned bits) {
    if (bits != WORD_SEGMENT_BITS) free(marks);
    else if (marks) word_segment_free(&table->memory, marks);
}

static inline void word_table_free(word_table_t *table) {
    for (uint32_t i = 0; i < table->segment_count; i++)
        word_marks_free(table, table->segments[i].marks, table->segments[i].bits);
    word_memory_free(&table->memory);
    free(table->segments);
    free(table->places);
    table->segments = NULL;
    table->places = NULL;
    table->segment_count = 0;
}

/* The word of at most WORD_SHORT bytes that is in these lanes, zeros behind it. */
static inline word_t word_of_lanes(const word_table_t *table, uint64_t first, uint64_t second, size_t size) {
    uint64_t hash = word_mix(first ^ table->seeds[0], second ^ table->seeds[1]);
    return (word_t){first, second, (hash & ~UINT64_C(0xff)) | (1 + size)};
}

/* Any word. It refers to a long one's bytes. `*met` gets the bits of all its bytes added. Reads only the word. */
static inline word_t word_of_bytes(const word_table_t *table, const uint8_t *bytes, size_t size, uint64_t *met) {
    if (size <= WORD_SHORT) {
        uint64_t lanes[2] = {0, 0};
        memcpy(lanes, bytes, size);
        *met |= lanes[0] | lanes[1];
        return word_of_lanes(table, lanes[0], lanes[1], size);
    }
    uint64_t hash = size, all = 0;
    for (size_t at = 0; at < size; at += 16) {
        const uint8_t *p = bytes + (at + 16 <= size ? at : size - 16); /* the last lanes may overlap those before */
        uint64_t first = word_lane(p), second = word_lane(p + 8);
        all |= first | second;
        hash = word_mix(first ^ table->seeds[0], second ^ table->seeds[1] ^ hash);
    }
    hash = word_mix(hash ^ table->seeds[0], table->seeds[1]);
    *met |= all;
    return (word_t){(uint64_t)(uintptr_t)bytes, size, (hash & ~UINT64_C(0xff)) | WORD_IS_LONG};
}

static inline const uint8_t *word_bytes(const word_t *word, size_t *size) {
    unsigned kind = word->tag & 0xff;
    *size = kind == WORD_IS_LONG ? (size_t)word->second : kind - 1;
    return kind == WORD_IS_LONG ? (const uint8_t *)(uintptr_t)word->first : (const uint8_t *)&word->first;
}

static inline int word_equal(const word_t *a, const word_t *b) {
    if (a->tag != b->tag || a->second != b->second) return 0;
    if (a->first == b->first) return 1;
    return (a->tag & 0xff) == WORD_IS_LONG &&
           !memcmp((const void *)(uintptr_t)a->first, (const void *)(uintptr_t)b->first, (size_t)a->second);
}

/* Which of `shares` equal ranges of hashes a word is in. */
static inline uint32_t word_share(uint64_t tag, uint32_t shares) {
    return (uint32_t)(((tag >> 32) * (uint64_t)shares) >> 32);
}

static inline word_place_t *word_place(const word_table_t *table, uint64_t tag) {
    return &table->places[tag >> (64 - table->depth)];
}

/* The mark of a word, and the first slot of the group where the search for it begins. */
static inline uint8_t word_mark(uint64_t tag) {
    uint8_t mark = (uint8_t)(tag >> 32);
    return (uint8_t)(mark + !mark);
}

static inline uint64_t word_home(uint64_t tag, uint64_t mask) { return (tag >> 4) & mask; }

/* Which of 16 marks are equal to `mark`: a bit each. */
static inline uint32_t word_match(const uint8_t *marks, uint8_t mark) {
#if defined(__SSE2__) && !defined(SHMJET_NO_SIMD)
    __m128i group = _mm_load_si128((const void *)marks);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(group, _mm_set1_epi8((char)mark)));
#else
    uint32_t found = 0;
    for (int half = 0; half < 2; half++) {
        const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
        uint64_t lanes = word_lane(marks + 8 * half) ^ (UINT64_C(0x0101010101010101) * mark);
        uint64_t zero = ~(((lanes & low) + low) | lanes | low); /* bit 7 of each byte that is zero */
        found |= (uint32_t)(((zero >> 7) * UINT64_C(0x0102040810204080)) >> 56) << (8 * half);
    }
    return found;
#endif
}

/* The slot of a word, NULL when it has none. */
static inline word_slot_t *word_find(const word_place_t *place, const word_t *word) {
    uint8_t mark = word_mark(word->tag);
    for (uint64_t group = word_home(word->tag, place->mask);; group = (group + WORD_GROUP) & place->mask) {
        for (uint32_t found = word_match(place->marks + group, mark); found; found &= found - 1) {
            word_slot_t *slot = place->slots + group + __builtin_ctz(found);
            if (word_equal(&slot->word, word)) return slot;
        }
        if (word_match(place->marks + group, 0)) return NULL; /* it would have been put here */
    }
}

/* A slot for a word that has none, in a segment that is not full. */
static inline word_slot_t *word_claim(const word_place_t *place, uint64_t tag) {
    uint64_t group = word_home(tag, place->mask);
    uint32_t room;
    while (!(room = word_match(place->marks + group, 0))) group = (group + WORD_GROUP) & place->mask;
    group += (uint64_t)__builtin_ctz(room);
    place->marks[group] = word_mark(tag);
    return place->slots + group;
}

/* What the directory says of a segment: the slots are behind the marks. */
static inline word_place_t word_place_of(const word_segment_t *segment, uint32_t index) {
    uint64_t slots = UINT64_C(1) << segment->bits;
    return (word_place_t){segment->marks, (word_slot_t *)(void *)(segment->marks + slots), slots - WORD_GROUP, index};
}

/* Points the entries of the directory at a segment; `tag` is one of its words'. */
static inline void word_enter(word_table_t *table, uint32_t index, uint64_t tag) {
    const word_segment_t *segment = &table->segments[index];
    uint64_t entries = UINT64_C(1) << (table->depth - segment->depth);
    uint64_t first = (tag >> (64 - table->depth)) & ~(entries - 1);
    word_place_t place = word_place_of(segment, index);
    for (uint64_t i = 0; i < entries; i++) table->places[first + i] = place;
}

/* Doubles a segment whose words cannot be told apart by the first bits of their hashes: only hashes made on purpose. */
static inline int word_widen(word_table_t *table, uint32_t index, uint64_t tag) {
    word_segment_t *segment = &table->segments[index];
    word_segment_t wide = {NULL, segment->used, segment->depth, (uint8_t)(segment->bits + 1)};
    if (wide.bits > 30 || !(wide.marks = word_marks_new(table, wide.bits))) return -1;
    word_place_t from = word_place_of(segment, index), to = word_place_of(&wide, index);
    for (uint64_t i = 0; i < UINT64_C(1) << segment->bits; i++)
        if (from.marks[i]) *word_claim(&to, from.slots[i].word.tag) = from.slots[i];
    word_marks_free(table, segment->marks, segment->bits);
    table->moves++;
    *segment = wide;
    word_enter(table, index, tag);
    return 0;
}

static inline int word_double_directory(word_table_t *table) {
    size_t count = (size_t)1 << table->depth;
    word_place_t *places = (word_place_t *)malloc(2 * count * sizeof *places);
    if (!places) return -1;
    for (size_t i = 0; i < 2 * count; i++) places[i] = table->places[i / 2];
    free(table->places);
    table->places = places;
    table->depth++;
    return 0;
}

/* Makes a full segment two half-full ones; -1 when there is no memory, and nothing has changed. */
static inline int word_split(word_table_t *table, uint64_t tag) {
    uint32_t index = word_place(table, tag)->segment;
    word_segment_t *full = &table->segments[index];
    if (full->depth == table->depth) {
        if (table->depth > 30 || (UINT64_C(1) << table->depth) > 64 * ((uint64_t)table->segment_count + 1))
            return word_widen(table, index, tag);
        if (word_double_directory(table) < 0) return -1;
    }
    if (table->segment_count == table->segment_room) {
        uint32_t room = table->segment_room * 2;
        word_segment_t *segments = (word_segment_t *)realloc(table->segments, room * sizeof *segments);
        if (!segments) return -1;
        table->segments = segments;
        table->segment_room = room;
        full = &segments[index];
    }
    uint8_t depth = (uint8_t)(full->depth + 1);
    word_segment_t halves[2] = {{word_marks_new(table, full->bits), 0, depth, full->bits},
                                {word_marks_new(table, full->bits), 0, depth, full->bits}};
    if (!halves[0].marks || !halves[1].marks) {
        word_marks_free(table, halves[0].marks, full->bits);
        word_marks_free(table, halves[1].marks, full->bits);
        return -1;
    }
    word_place_t from = word_place_of(full, 0), to[2] = {word_place_of(&halves[0], 0), word_place_of(&halves[1], 0)};
    uint64_t bit = UINT64_C(1) << (64 - depth);
    for (uint64_t i = 0; i < UINT64_C(1) << full->bits; i++) {
        if (!from.marks[i]) continue;
        const word_slot_t *slot = from.slots + i;
        int half = (slot->word.tag & bit) != 0;
        *word_claim(&to[half], slot->word.tag) = *slot;
        halves[half].used++;
    }
    word_marks_free(table, full->marks, full->bits);
    table->moves++;
    *full = halves[0];
    table->segments[table->segment_count] = halves[1];
    word_enter(table, index, tag & ~bit);
    word_enter(table, table->segment_count++, tag | bit);
    return 0;
}

/* Makes the first segment. */
static inline int word_begin(word_table_t *table) {
    word_place_t *places = (word_place_t *)malloc(2 * sizeof *places);
    word_segment_t *segments = (word_segment_t *)malloc(4 * sizeof *segments);
    uint8_t *marks = word_marks_new(table, WORD_SEGMENT_BITS);
    if (!places || !segments || !marks) {
        free(places);
        free(segments);
        word_marks_free(table, marks, WORD_SEGMENT_BITS);
        return -1;
    }
    table->places = places;
    table->segments = segments;
    table->segment_count = 1;
    table->segment_room = 4;
    table->depth = 1; /* a shift by 64 bits would have no meaning */
    segments[0] = (word_segment_t){marks, 0, 0, WORD_SEGMENT_BITS};
    word_enter(table, 0, 0);
    return 0;
}

/* Makes a slot for a word that has none. NULL when there is no memory. */
static __attribute__((noinline, unused)) word_slot_t *word_insert(word_table_t *table, const word_t *word) {
    word_place_t *place = word_place(table, word->tag);
    while ((uint64_t)table->segments[place->segment].used * 8 >= (place->mask + WORD_GROUP) * 7) {
        if (word_split(table, word->tag) < 0) return NULL;
        place = word_place(table, word->tag);
    }
    word_t kept = *word;
    if ((word->tag & 0xff) == WORD_IS_LONG) {
        const uint8_t *bytes = word_keep(&table->memory, (const uint8_t *)(uintptr_t)word->first, (size_t)word->second);
        if (!bytes) return NULL;
        kept.first = (uint64_t)(uintptr_t)bytes;
    }
    word_slot_t *slot = word_claim(place, word->tag);
    *slot = (word_slot_t){kept, 0};
    table->segments[place->segment].used++;
    table->distinct++;
    return slot;
}

/* The slot that a word is probably in, on its way from memory; `none` when it is in none or in another group. */
static inline word_slot_t *word_guess(const word_table_t *table, uint64_t tag, word_slot_t *none) {
    const word_place_t *place = word_place(table, tag);
    uint64_t group = word_home(tag, place->mask);
    uint32_t found = word_match(place->marks + group, word_mark(tag));
    word_slot_t *slot = found ? place->slots + group + __builtin_ctz(found) : none;
    __builtin_prefetch(slot, 1);
    return slot;
}

static inline int word_add_count(word_slot_t *slot, int64_t count) {
    int64_t sum;
    if (__builtin_add_overflow(slot->count, count, &sum)) return -1;
    slot->count = sum;
    return 0;
}

/* Adds `counts[i]` (1 where `counts` is NULL) for each of `size` words, at most WORD_BATCH. Returns 0, -1 without
 * memory, -2 when a count does not fit 64 bits; the words before have then been counted. */
static inline int word_table_add(word_table_t *table, const word_t *words, const int64_t *counts, uint32_t size) {
    word_slot_t *guesses[WORD_BATCH], none = {{0, 0, 0}, 0};
    if (!table->places && size && word_begin(table) < 0) return -1;
    if (table->segment_count > WORD_CACHED)
        for (uint32_t i = 0; i < size; i++) {
            const word_place_t *place = word_place(table, words[i].tag);
            __builtin_prefetch(place->marks + WORD_GROUP * word_home(words[i].tag, place->mask));
        }
    for (uint32_t i = 0; i < size; i++) guesses[i] = word_guess(table, words[i].tag, &none);
    for (uint32_t i = 0; i < size; i++) {
        word_slot_t *slot = guesses[i];
        if (__builtin_expect(!word_equal(&slot->word, &words[i]), 0)) {
            uint64_t moves = table->moves;
            slot = word_find(word_place(table, words[i].tag), &words[i]);
            if (!slot && !(slot = word_insert(table, &words[i]))) return -1;
            if (moves != table->moves)
                for (uint32_t k = i + 1; k < size; k++) guesses[k] = word_guess(table, words[k].tag, &none);
        }
        if (!counts) slot->count++; /* so often, no word will ever occur */
        else if (word_add_count(slot, counts[i]) < 0) return -2;
    }
    return 0;
}

#endif
