/* Stable argsort of rows by one or several columns. No Python in here.
 *
 * A row is one 64-bit word: the top bits of its key above its row number. Words differ, so that any sort of them is
 * stable, and 8 bytes a row are moved instead of 16. What the key holds is chosen by looking: of each piece of the
 * columns' values (order.h) the range is taken first, and only as many bits as the range needs go into the word; of
 * text so each byte by itself. So a date, a flag and a small number fit one word together and are sorted at once.
 * Words are sorted by radix: from the top into 256 parts until a part fits the cache, then from the bottom, 8 bits a
 * pass, without passes for bits that all share. Rows whose words are equal in the key form a run, which is packed and
 * sorted again by the bits that did not fit: the range within a run is smaller, so a second time is rare. Runs of a
 * few rows are sorted by comparing. So the work is O(rows) for keys that differ early, and never more than O(bytes of
 * the keys looked at).
 *
 * Memory: two arrays of one word a row, both the caller's. The recursion is at most 2 * log2(rows) deep.
 */
#ifndef SHMJET_SORT_H
#define SHMJET_SORT_H

#include "columns/order.h"

#define FEW_WORDS 32      /* so many words are sorted by insertion */
#define FEW_ROWS 12       /* so many rows with equal words are sorted by comparing their columns */
#define CACHED_WORDS 8192 /* so many words are sorted from the lowest bits on */
#define COUNTED_BITS 11   /* numbers of a range of so many bits are sorted by counting */
#define SPARSE_WORDS 2048 /* so many are split by their highest bits, after which most parts hold a few */
#define LEAST_CUT 8       /* a piece is cut to fit the word only if that many bits of it fit */

typedef struct {
    const order_key_t *keys;
    int64_t key_count, limit; /* rows behind the limit may stand in any order */
    unsigned index_bits;
} sort_plan_t;

typedef struct {
    int64_t key, piece;
} sort_place_t;

static inline unsigned bits_of(uint64_t value) { return value ? 64 - (unsigned)__builtin_clzll(value) : 0; }

/* -- words --------------------------------------------------------------------------------------------------------- */

static inline void insertion_sort(uint64_t *words, int64_t count) {
    for (int64_t i = 1; i < count; i++) {
        uint64_t word = words[i];
        int64_t j = i;
        for (; j && words[j - 1] > word; j--) words[j] = words[j - 1];
        words[j] = word;
    }
}

/* Turns counts into the places where the parts begin; returns 1 when all are in one part. */
static inline int places_of(uint64_t *counts, int parts, int64_t total) {
    uint64_t sum = 0;
    int alone = 0;
    for (int d = 0; d < parts; d++) {
        uint64_t here = counts[d];
        alone |= here == (uint64_t)total;
        counts[d] = sum;
        sum += here;
    }
    return alone;
}

/* Sorts by `bits` bits from bit `low` on, lowest first; the result is in `to` if `into`, else in `from`. */
static inline void sort_from_below(uint64_t *from, uint64_t *to, int64_t count, unsigned low, unsigned bits, int into) {
    uint64_t counts[8][256];
    unsigned digits = (bits + 7) / 8;
    memset(counts, 0, digits * sizeof *counts);
    for (int64_t i = 0; i < count; i++) {
        uint64_t word = from[i] >> low;
        for (unsigned d = 0; d < digits; d++, word >>= 8) counts[d][word & 255]++;
    }
    uint64_t *source = from, *target = to;
    for (unsigned d = 0; d < digits; d++) {
        if (places_of(counts[d], 256, count)) continue;
        unsigned shift = low + 8 * d;
        for (int64_t i = 0; i < count; i++) target[counts[d][source[i] >> shift & 255]++] = source[i];
        uint64_t *swap = source;
        source = target;
        target = swap;
    }
    if ((source == to) != into) memcpy(target, source, (size_t)count * 8);
}

/* Sorts by the `bits` bits from bit `low` on; what is above them is equal in all. */
static inline void sort_from_above(uint64_t *from, uint64_t *to, int64_t count, unsigned low, unsigned bits, int into,
                                   int64_t limit) {
    for (;;) {
        if (count <= FEW_WORDS || !bits || limit <= 0) {
            if (bits && limit > 0) insertion_sort(from, count);
            if (into) memcpy(to, from, (size_t)count * 8);
            return;
        }
        if (bits <= 8 || (count <= CACHED_WORDS && (count > SPARSE_WORDS || count < SPARSE_WORDS / 4 || bits <= 16))) {
            sort_from_below(from, to, count, low, bits, into);
            return;
        }
        uint64_t starts[256] = {0}, ends[256];
        bits -= 8;
        for (int64_t i = 0; i < count; i++) starts[from[i] >> (low + bits) & 255]++;
        if (places_of(starts, 256, count)) continue;
        memcpy(ends, starts, sizeof ends);
        for (int64_t i = 0; i < count; i++) to[ends[from[i] >> (low + bits) & 255]++] = from[i];
        for (int d = 0; d < 256; d++) {
            int64_t start = (int64_t)starts[d], rows = (int64_t)ends[d] - start;
            if (rows) sort_from_above(to + start, from + start, rows, low, bits, !into, limit - start);
        }
        return;
    }
}

/* -- rows ---------------------------------------------------------------------------------------------------------- */

#define EXTRACT(FORM)                                                                                                  \
    case FORM:                                                                                                         \
        for (int64_t i = 0; i < count; i++) values[i] = order_piece(key, FORM, piece, (int64_t)(words[i] & mask));     \
        break;

/* Reads a piece of the column for the rows in `words`. */
static inline void sort_extract(const order_key_t *key, int64_t piece, const uint64_t *words, uint64_t mask,
                                int64_t count, uint64_t *values) {
    if (!piece) {
        for (int64_t i = 0; i < count; i++) values[i] = order_flag(key, (int64_t)(words[i] & mask));
        return;
    }
    switch (key->form) {
        EXTRACT(ORDER_BOOL)
        EXTRACT(ORDER_I8)
        EXTRACT(ORDER_I16)
        EXTRACT(ORDER_I32)
        EXTRACT(ORDER_I64)
        EXTRACT(ORDER_DATE)
        EXTRACT(ORDER_U8)
        EXTRACT(ORDER_U16)
        EXTRACT(ORDER_U32)
        EXTRACT(ORDER_U64)
        EXTRACT(ORDER_F16)
        EXTRACT(ORDER_F32)
        EXTRACT(ORDER_F64)
        EXTRACT(ORDER_FLONG)
        EXTRACT(ORDER_C64)
        EXTRACT(ORDER_C128)
        EXTRACT(ORDER_CLONG)
        EXTRACT(ORDER_BYTES)
        EXTRACT(ORDER_CODES)
        EXTRACT(ORDER_TEXT)
    case ORDER_NONE: break;
    }
}

typedef struct {
    uint64_t least, most, differing; /* differing: bits in which some values differ */
} sort_range_t;

static inline sort_range_t sort_range(const uint64_t *values, int64_t count) {
    sort_range_t range = {values[0], values[0], 0};
    for (int64_t i = 0; i < count; i++) {
        uint64_t value = values[i];
        range.least = value < range.least ? value : range.least;
        range.most = value > range.most ? value : range.most;
        range.differing |= value ^ values[0];
    }
    return range;
}

/* The range of the rows that have a value; the others get the least of them. */
static inline sort_range_t sort_range_flagged(const order_key_t *key, const uint64_t *words, uint64_t mask,
                                              uint64_t *values, int64_t count) {
    sort_range_t range = {UINT64_MAX, 0, 0};
    uint64_t first = 0;
    int any = 0;
    for (int64_t i = 0; i < count; i++) {
        if (order_has_none(key, (int64_t)(words[i] & mask))) continue;
        if (!any) first = values[i];
        any = 1;
        range.least = values[i] < range.least ? values[i] : range.least;
        range.most = values[i] > range.most ? values[i] : range.most;
        range.differing |= values[i] ^ first;
    }
    if (!any) range.least = range.most = key->flip; /* which is how text ends */
    for (int64_t i = 0; i < count; i++)
        if (order_has_none(key, (int64_t)(words[i] & mask))) values[i] = range.least;
    return range;
}

/* Whether some value of text goes on behind the piece that `values` hold. */
static inline int sort_goes_on(const uint64_t *values, int64_t count, uint64_t flip) {
    uint64_t found = 0;
    for (int64_t i = 0; i < count; i++) found |= (values[i] ^ flip) & 8;
    return found != 0;
}

/* What the bytes at one place of text are: digits, say, of which each needs 4 bits and not 8. */
typedef struct {
    uint8_t least, least_not_0, most;
} sort_bytes_t;

/* Looks at the 8 bytes of each value, the highest first; four values at a time, which compilers do in one go. */
static inline void sort_byte_ranges(const uint64_t *values, int64_t count, uint64_t flip, sort_bytes_t *ranges) {
    uint8_t least[32], below[32], most[32], bytes[32]; /* below: 1 less than the least that is not 0 */
    memset(least, 255, sizeof least);
    memset(below, 255, sizeof below);
    memset(most, 0, sizeof most);
    for (int64_t i = 0; i < count; i += 4) {
        uint64_t some[4];
        for (int64_t k = 0; k < 4; k++) some[k] = values[i + k < count ? i + k : i] ^ flip;
        memcpy(bytes, some, sizeof bytes);
        for (int b = 0; b < 32; b++) {
            uint8_t byte = bytes[b], before = (uint8_t)(byte - 1);
            least[b] = byte < least[b] ? byte : least[b];
            below[b] = before < below[b] ? before : below[b];
            most[b] = byte > most[b] ? byte : most[b];
        }
    }
    for (int place = 0; place < 8; place++) {
        sort_bytes_t *range = &ranges[place];
        *range = (sort_bytes_t){255, 255, 0};
        for (int b = 7 - place; b < 32; b += 8) {
            if (least[b] < range->least) range->least = least[b];
            if (below[b] < range->least_not_0) range->least_not_0 = below[b];
            if (most[b] > range->most) range->most = most[b];
        }
        range->least_not_0++;
    }
}

/* Puts the 8 bytes of each value into the words, each in as few bits as its place needs; 0, which fills text up, is
 * told apart. Returns 1 when the words are full. */
static inline int sort_pack_bytes(uint64_t *words, const uint64_t *values, int64_t count, unsigned room, uint64_t flip,
                                  unsigned *used) {
    sort_bytes_t ranges[8];
    sort_byte_ranges(values, count, flip, ranges);
    for (int place = 0; place < 8; place++) {
        const sort_bytes_t range = ranges[place];
        if (range.least == range.most) continue;
        const uint64_t zero = range.least == 0, base = (uint64_t)range.least_not_0 - zero;
        const unsigned width = bits_of(range.most - base), cut = width > room - *used ? width - (room - *used) : 0;
        const unsigned from = (unsigned)(56 - 8 * place), shift = 64 - *used - (width - cut);
        const uint64_t turn = flip & ((UINT64_C(1) << width) - 1);
        if (width > cut)
            for (int64_t i = 0; i < count; i++) {
                uint64_t byte = (values[i] ^ flip) >> from & 255, code = zero && !byte ? 0 : byte - base;
                words[i] |= (code ^ turn) >> cut << shift;
            }
        *used += width - cut;
        if (cut) return 1;
    }
    return 0;
}

/* Puts as much of the rows' keys above their numbers as fits, from `place` on, which moves on. Returns the bits
 * used. */
static inline unsigned sort_pack(const sort_plan_t *plan, uint64_t *words, uint64_t *values, int64_t count,
                                 sort_place_t *place) {
    const unsigned room = 64 - plan->index_bits;
    const uint64_t mask = (UINT64_C(1) << plan->index_bits) - 1;
    unsigned used = 0;
    for (int64_t i = 0; i < count; i++) words[i] &= mask;
    while (used < room && place->key < plan->key_count) {
        const order_key_t *key = &plan->keys[place->key];
        if (!place->piece && !key->flagged) place->piece = 1;
        sort_extract(key, place->piece, words, mask, count, values);
        sort_range_t range = place->piece && key->flagged ? sort_range_flagged(key, words, mask, values, count)
                                                          : sort_range(values, count);
        if (range.least != range.most && key->form >= ORDER_BYTES) {
            if (used && room - used < LEAST_CUT) return used;
            if (sort_pack_bytes(words, values, count, room, key->flip, &used)) return used;
        } else if (range.least != range.most) {
            unsigned spare = (unsigned)__builtin_ctzll(range.differing),
                     width = bits_of((range.most - range.least) >> spare);
            unsigned cut = width > room - used ? width - (room - used) : 0;
            if (cut && used && width - cut < LEAST_CUT) return used;
            unsigned shift = 64 - used - (width - cut);
            for (int64_t i = 0; i < count; i++) words[i] |= (values[i] - range.least) >> spare >> cut << shift;
            used += width - cut;
            if (cut) return used;
        }
        int ends = key->form == ORDER_TEXT ? place->piece && !sort_goes_on(values, count, key->flip)
                                           : place->piece + 1 == key->pieces;
        place->key += ends;
        place->piece = ends ? 0 : place->piece + 1;
    }
    return used;
}

static inline void sort_few(const sort_plan_t *plan, uint64_t *words, int64_t count, sort_place_t place) {
    const uint64_t mask = (UINT64_C(1) << plan->index_bits) - 1;
    const order_key_t *keys = plan->keys + place.key;
    for (int64_t i = 1; i < count; i++) {
        uint64_t row = words[i] & mask;
        int64_t j = i;
        for (; j; j--) {
            uint64_t before = words[j - 1] & mask;
            if (order_compare(keys, (int64_t)before, keys, (int64_t)row, plan->key_count - place.key, place.piece) <= 0)
                break;
            words[j] = before;
        }
        words[j] = row;
    }
}

static inline int sort_all_equal(const uint64_t *values, int64_t count) {
    uint64_t differing = 0;
    for (int64_t i = 1; i < count; i++) differing |= values[i] ^ values[0];
    return !differing;
}

/* Numbers that are too wide for the word and often equal (prices in floats, say): fetching all of them here, side by
 * side, is a fraction of fetching them run by run. Returns 1 when `values` has them, and nothing but them decides. */
static inline int sort_look_up(const sort_plan_t *plan, const uint64_t *words, uint64_t *values, int64_t count,
                               unsigned used, sort_place_t place) {
    const order_key_t *key = &plan->keys[place.key];
    if (place.key + 1 < plan->key_count || key->flagged || key->form == ORDER_TEXT || place.piece + 1 < key->pieces)
        return 0;
    int64_t ties = 0;
    for (int64_t i = 1; i < count; i++) ties += (words[i] ^ words[i - 1]) >> (64 - used) == 0;
    if (ties < count / 16) return 0;
    sort_extract(key, place.piece, words, (UINT64_C(1) << plan->index_bits) - 1, count, values);
    return 1;
}

/* Sorts rows that are equal before `place`; their numbers ascend. `limit` counts from the first of them. With `used`
 * they are sorted already by so many bits, and `place` is behind these. */
static inline void sort_rows(const sort_plan_t *plan, uint64_t *words, uint64_t *spare, int64_t count, unsigned used,
                             sort_place_t place, int64_t limit) {
    for (;;) {
        if (!used) {
            if (count < 2 || place.key == plan->key_count || limit <= 0) return;
            if (count <= FEW_ROWS) {
                sort_few(plan, words, count, place);
                return;
            }
            used = sort_pack(plan, words, spare, count, &place);
            if (!used) return;
            sort_from_above(words, spare, count, 64 - used, used, 0, limit);
        }
        if (place.key == plan->key_count) return;
        const int looked_up = sort_look_up(plan, words, spare, count, used, place);
        int64_t longest = 0, longest_at = 0; /* that run comes last, in this loop, which bounds the recursion */
        for (int64_t at = 0, end; at < count && at < limit; at = end) {
            for (end = at + 1; end < count && words[end] >> (64 - used) == words[at] >> (64 - used);) end++;
            if (end - at < 2 || (looked_up && sort_all_equal(spare + at, end - at))) continue;
            int64_t start = at, rows = end - at;
            if (rows > longest) {
                start = longest_at;
                rows = longest;
                longest = end - at;
                longest_at = at;
            }
            sort_rows(plan, words + start, spare + start, rows, 0, place, limit - start);
        }
        words += longest_at;
        spare += longest_at;
        limit -= longest_at;
        count = longest;
        used = 0;
    }
}

/* -- a single column of numbers ------------------------------------------------------------------------------------ */

/* Sorts by one number that is never missing where that is simple: in order already, in reverse, or of a narrow range,
 * which is counted. Reads the column itself and needs no other memory. Returns 0 where it is not simple. */
ALWAYS int sort_simply_by(const order_key_t *key, order_form_t form, int64_t count, uint64_t *rows_out) {
    int64_t up = 1, down = 1;
    while (up < count && order_piece(key, form, 1, up - 1) <= order_piece(key, form, 1, up)) up++;
    while (down < count && order_piece(key, form, 1, down - 1) > order_piece(key, form, 1, down)) down++;
    if (up == count || down == count) {
        for (int64_t i = 0; i < count; i++) rows_out[i] = (uint64_t)(up == count ? i : count - 1 - i);
        return 1;
    }
    uint64_t least = UINT64_MAX, most = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t value = order_piece(key, form, 1, i);
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    if ((most - least) >> COUNTED_BITS || most - least > (uint64_t)count) return 0;
    uint64_t places[1 << COUNTED_BITS];
    int parts = (int)(most - least) + 1;
    memset(places, 0, (size_t)parts * sizeof *places);
    for (int64_t i = 0; i < count; i++) places[order_piece(key, form, 1, i) - least]++;
    places_of(places, parts, count);
    for (int64_t i = 0; i < count; i++) rows_out[places[order_piece(key, form, 1, i) - least]++] = (uint64_t)i;
    return 1;
}

static inline int sort_simply(const order_key_t *key, int64_t count, uint64_t *rows_out) {
    if (key->flagged) return 0;
    switch (key->form) {
    case ORDER_BOOL: return sort_simply_by(key, ORDER_BOOL, count, rows_out);
    case ORDER_I8: return sort_simply_by(key, ORDER_I8, count, rows_out);
    case ORDER_I16: return sort_simply_by(key, ORDER_I16, count, rows_out);
    case ORDER_I32: return sort_simply_by(key, ORDER_I32, count, rows_out);
    case ORDER_I64: return sort_simply_by(key, ORDER_I64, count, rows_out);
    case ORDER_U8: return sort_simply_by(key, ORDER_U8, count, rows_out);
    case ORDER_U16: return sort_simply_by(key, ORDER_U16, count, rows_out);
    case ORDER_U32: return sort_simply_by(key, ORDER_U32, count, rows_out);
    case ORDER_U64: return sort_simply_by(key, ORDER_U64, count, rows_out);
    case ORDER_F32: return sort_simply_by(key, ORDER_F32, count, rows_out);
    case ORDER_F64: return sort_simply_by(key, ORDER_F64, count, rows_out);
    default: return 0;
    }
}

/* -- all ----------------------------------------------------------------------------------------------------------- */

/* Writes to `rows_out` the numbers of `count` rows in the order of the keys, stably. `spare` has `count` words too; the
 * rows from `limit` on may stand in any order. */
static inline void argsort(const order_key_t *keys, int64_t key_count, int64_t count, int64_t limit, uint64_t *rows_out,
                           uint64_t *spare) {
    sort_plan_t plan = {keys, key_count, limit, count > 1 ? bits_of((uint64_t)count - 1) : 1};
    const uint64_t mask = (UINT64_C(1) << plan.index_bits) - 1;
    sort_place_t place = {0, 0};
    if (count <= FEW_ROWS) {
        for (int64_t i = 0; i < count; i++) rows_out[i] = (uint64_t)i;
        sort_few(&plan, rows_out, count, place);
        return;
    }
    if (key_count == 1 && sort_simply(keys, count, rows_out)) return;
    for (int64_t i = 0; i < count; i++) rows_out[i] = (uint64_t)i;
    unsigned used = sort_pack(&plan, rows_out, spare, count, &place);
    if (!used) return;
    uint64_t *words = rows_out, *other = spare;
    int64_t in_order = 1;
    while (in_order < count && words[in_order - 1] < words[in_order]) in_order++;
    if (in_order < count) {
        int into = used <= 8; /* a single pass: the result is where it ends */
        sort_from_above(words, other, count, 64 - used, used, into, limit);
        if (into) {
            words = spare;
            other = rows_out;
        }
    }
    sort_rows(&plan, words, other, count, used, place, limit);
    for (int64_t i = 0; i < count; i++) rows_out[i] = words[i] & mask;
}

#endif
