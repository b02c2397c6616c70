/* The states of aggregates: adding a block of values to the rows of their groups, and merging states. No Python in
 * here.
 *
 * Nulls are taken out of a block first, so that the loops know nothing of them. Whether a state has seen a value is a
 * bit next to the rows that is touched only where the column has ever had nulls: else every group has seen one, and
 * the bit is set when the group is made.
 *
 * Minimum and maximum of all types are those of an int64: unsigned numbers, dates and floats are mapped to one with
 * the same order (order_words). NaN and NaT come last in it, as in Spark and in numpy's sort. A column that has had
 * integers and floats is mixed: its values are the nearest double and what is left of the integer, ordered as pairs.
 *
 * No result depends on the order in which values come, but for the last digits of floats. Sums of integers have 128
 * bits, so that only the result can be too large and never the way to it. Float sums carry their rounding error along
 * (Neumaier, 1974, in Knuth's form without a branch, TAOCP 4.2.2) and go on in units of 2^SUM_UNIT when they leave the
 * range of a double. Variances follow Welford (1962) and are merged after Chan, Golub, LeVeque (1979), on differences
 * from the first value, and squares that leave the range go on in units of 2^(2 * SQUARE_UNIT).
 */
#ifndef SHMJET_GROUP_AGGREGATES_H
#define SHMJET_GROUP_AGGREGATES_H

#include <math.h>

#include "columns/group_single.h"
#include "columns/group_table.h"

enum group_function { NO_FUNCTION, COUNT, SUM, MIN, MAX, MEAN, FIRST, LAST, VAR };

static inline int is_text_class(char class) { return class == 't' || class == 'U' || class == 'x'; }

/* Whether a state needs the bit that tells whether it has seen a value; the others count their values. */
static inline int has_seen_bit(int function) { return function != COUNT && function != MEAN && function != VAR; }

/* The words of a state: the readable words, then the words of text that are one field. Returns 0 when the function
 * does not go with the class. */
static inline int aggregate_shape(int function, char class, int *parts) {
    *parts = 1;
    switch (function) {
    case COUNT: return 1;
    case SUM: return class == 'i' || class == 'f' ? *parts = 2 : 0;
    case MEAN: return class == 'i' || class == 'f' ? *parts = 3 : 0;
    case VAR: return class == 'i' ? *parts = 5 : class == 'f' ? *parts = 4 : 0;
    case MIN:
    case MAX: return class == 'm' ? *parts = 2 : class && strchr("iudftU", class) ? 1 + is_text_class(class) : 0;
    case FIRST:
    case LAST: return class == 'm' ? *parts = 2 : class && strchr("iudftUx", class) ? 1 + is_text_class(class) : 0;
    default: return 0;
    }
}

/* -- order --------------------------------------------------------------------------------------------------------- */

static inline int64_t order_of_float(uint64_t bits) {
    if ((bits & INT64_MAX) > UINT64_C(0x7ff0000000000000)) bits = UINT64_C(0x7ff8000000000000);
    return (int64_t)(bits >> 63 ? bits ^ INT64_MAX : bits);
}

/* What is added to an integer or a date to give an int64 of the same order: NaT, the least int64, becomes the
 * greatest. */
static inline uint64_t order_shift(char class) {
    return class == 'u' ? UINT64_C(1) << 63 : class == 'd' ? UINT64_MAX : 0;
}

static inline uint64_t unordered(char class, uint64_t state) {
    if (class != 'f' && class != 'm') return state - order_shift(class);
    return state >> 63 ? state ^ INT64_MAX : state;
}

static inline const uint8_t *order_words(char class, const uint8_t *words, int count, uint64_t *room) {
    uint64_t shift = order_shift(class);
    if (class == 'i') return words;
    if (class == 'f' || class == 'm')
        for (int i = 0; i < count; i++) room[i] = (uint64_t)order_of_float(load_u64(words + 8 * i));
    else
        for (int i = 0; i < count; i++) room[i] = load_u64(words + 8 * i) + shift;
    return (const uint8_t *)room;
}

/* -- the values of a block ----------------------------------------------------------------------------------------- */

/* `count` values that are not null: the rows of their groups, the groups, and where in the block they stand. */
typedef struct {
    uint8_t *const *rows;
    const uint32_t *groups;
    const uint16_t *places; /* NULL: 0, 1, 2, ... */
    int count;
} chosen_t;

static inline chosen_t choose(group_block_t *block, const uint8_t *valid, int count) {
    if (!valid) return (chosen_t){block->rows, block->groups, NULL, count};
    int chosen = 0;
    for (int i = 0; i < count; i++) {
        block->chosen[chosen] = (uint16_t)i;
        block->chosen_rows[chosen] = block->rows[i];
        block->chosen_groups[chosen] = block->groups[i];
        chosen += valid[i] != 0;
    }
    return (chosen_t){block->chosen_rows, block->chosen_groups, block->chosen, chosen};
}

static inline const uint8_t *choose_words(const chosen_t *chosen, const uint8_t *words, uint64_t *room) {
    if (!chosen->places) return words;
    for (int i = 0; i < chosen->count; i++) {
        uint64_t word = load_u64(words + 8 * (size_t)chosen->places[i]);
        room[i] = word; /* places[i] >= i, so that `room` may be where the words are */
    }
    return (const uint8_t *)room;
}

static inline int is_uint64(const column_t *column) { return column->kind == 'u' && column->itemsize == 8; }

static inline void mark_seen(const group_table_t *table, const group_field_t *field, const chosen_t *chosen) {
    uint8_t *marks = group_marks(table, 0) + table->memory.header->null_bytes + field->seen / 8;
    size_t stride = table->memory.header->mark_bytes;
    for (int i = 0; i < chosen->count; i++) marks[chosen->groups[i] * stride] |= (uint8_t)(1 << field->seen % 8);
}

static inline int was_seen(const group_table_t *table, const group_field_t *field, uint64_t group) {
    return group_marks(table, group)[table->memory.header->null_bytes + field->seen / 8] >> field->seen % 8 & 1;
}

/* -- the loops ----------------------------------------------------------------------------------------------------- */

#define EACH(chosen, state)                                                                                      \
    for (size_t i = 0, end = (size_t)(chosen)->count; i < end; i++) /* an int would be widened for each address */ \
        for (uint8_t *state = (chosen)->rows[i] + offset, *once = state; once; once = NULL)

__extension__ typedef __int128 int128_t;

#define SUM_UNIT 64
#define SQUARE_UNIT 600
#define IN_UNITS (UINT64_C(1) << 62) /* next to the count of a variance: its squares are in units */

static inline int128_t load_i128(const uint8_t *at) {
    return (int128_t)((unsigned __int128)load_u64(at) | (unsigned __int128)load_u64(at + 8) << 64);
}

static inline void store_i128(uint8_t *at, int128_t value) {
    store_u64(at, (uint64_t)value);
    store_u64(at + 8, (uint64_t)(value >> 64));
}

static inline void store_f64(uint8_t *at, double value) { memcpy(at, &value, sizeof value); }

static inline int128_t wide(uint64_t word, int is_unsigned) {
    return is_unsigned ? (int128_t)word : (int128_t)(int64_t)word;
}

static inline int is_finite(double value) { return value - value == 0; }

/* The error of a sum, whose lowest bit is not its own: it says that sum and error are in units of 2^SUM_UNIT. */
static inline double sum_error(uint64_t word) {
    word &= ~UINT64_C(1);
    double error;
    memcpy(&error, &word, sizeof error);
    return error;
}

static inline void store_sum(uint8_t *state, double sum, double error, uint64_t in_units) {
    uint64_t word;
    memcpy(&word, &error, sizeof word);
    store_f64(state, sum);
    store_u64(state + 8, (word & ~UINT64_C(1)) | in_units);
}

/* Adds a sum and its error where a sum is in units already, or leaves the range of a double. */
static __attribute__((noinline)) void add_far(uint8_t *state, double value, double error, uint64_t in_units) {
    double sum = load_f64(state), mine = sum_error(load_u64(state + 8));
    uint64_t am_in_units = load_u64(state + 8) & 1;
    if (!is_finite(sum) || !is_finite(value)) {
        store_sum(state, sum + value, 0.0, 0);
        return;
    }
    if (!am_in_units) sum = ldexp(sum, -SUM_UNIT), mine = ldexp(mine, -SUM_UNIT);
    if (!in_units) value = ldexp(value, -SUM_UNIT), error = ldexp(error, -SUM_UNIT);
    double total = sum + value, part = total - sum;
    store_sum(state, total, mine + error + ((sum - (total - part)) + (value - part)), 1);
}

/* A sum that is not in units has a 0 as the lowest bit of its error, which so can be used as it is. */
static inline void add_float(uint8_t *state, double value) {
    double sum = load_f64(state), error = load_f64(state + 8), total = sum + value, part = total - sum;
    if (__builtin_expect(state[8] & 1, 0) || __builtin_expect(!is_finite(total), 0)) {
        add_far(state, value, 0.0, 0);
        return;
    }
    store_sum(state, total, error + ((sum - (total - part)) + (value - part)), 0);
}

static inline void loop_count(const chosen_t *chosen, uint32_t offset) {
    EACH(chosen, state) store_u64(state, load_u64(state) + 1);
}

static inline void loop_count_merge(const chosen_t *chosen, uint32_t offset, const uint8_t *words) {
    EACH(chosen, state) store_u64(state, load_u64(state) + load_u64(words + 8 * i));
}

static inline void loop_sum_int(const chosen_t *chosen, uint32_t offset, const uint8_t *words, int is_unsigned) {
    EACH(chosen, state) store_i128(state, load_i128(state) + wide(load_u64(words + 8 * i), is_unsigned));
}

static inline void loop_sum_int_merge(const chosen_t *chosen, uint32_t offset, const uint8_t *low,
                                      const uint8_t *high) {
    EACH(chosen, state) {
        int128_t more =
            (int128_t)((unsigned __int128)load_u64(low + 8 * i) | (unsigned __int128)load_u64(high + 8 * i) << 64);
        store_i128(state, load_i128(state) + more);
    }
}

static inline void loop_sum_float(const chosen_t *chosen, uint32_t offset, const uint8_t *words) {
    EACH(chosen, state) add_float(state, load_f64(words + 8 * i));
}

static inline void loop_sum_float_merge(const chosen_t *chosen, uint32_t offset, const uint8_t *words,
                                        const uint8_t *errors) {
    EACH(chosen, state) {
        double value = load_f64(words + 8 * i), sum = load_f64(state);
        uint64_t word = load_u64(errors + 8 * i);
        if (((word | load_u64(state + 8)) & 1) || !is_finite(sum + value)) {
            add_far(state, value, sum_error(word), word & 1);
            continue;
        }
        store_sum(state, sum, sum_error(load_u64(state + 8)) + sum_error(word), 0);
        add_float(state, value);
    }
}

static inline void loop_least(const chosen_t *chosen, uint32_t offset, const uint8_t *words) {
    EACH(chosen, state) {
        int64_t least = load_i64(state), value = load_i64(words + 8 * i);
        store_u64(state, (uint64_t)(value < least ? value : least));
    }
}

static inline void loop_greatest(const chosen_t *chosen, uint32_t offset, const uint8_t *words) {
    EACH(chosen, state) {
        int64_t greatest = load_i64(state), value = load_i64(words + 8 * i);
        store_u64(state, (uint64_t)(value > greatest ? value : greatest));
    }
}

static inline void loop_last(const chosen_t *chosen, uint32_t offset, const uint8_t *words) {
    EACH(chosen, state) store_u64(state, load_u64(words + 8 * i));
}

static inline void loop_first(const group_table_t *table, const group_field_t *field, const chosen_t *chosen,
                              const uint8_t *const words[]) {
    uint32_t offset = field->offset;
    uint8_t *marks = group_marks(table, 0) + table->memory.header->null_bytes + field->seen / 8;
    size_t stride = table->memory.header->mark_bytes;
    uint8_t bit = (uint8_t)(1 << field->seen % 8);
    EACH(chosen, state) {
        uint8_t *mark = marks + chosen->groups[i] * stride;
        if (*mark & bit) continue;
        *mark |= bit;
        for (int part = 0; part < field->parts; part++) store_u64(state + 8 * part, load_u64(words[part] + 8 * i));
    }
}

static inline void loop_mean_int(const chosen_t *chosen, uint32_t offset, const uint8_t *words, int is_unsigned) {
    loop_sum_int(chosen, offset, words, is_unsigned);
    loop_count(chosen, offset + 16);
}

static inline void loop_mean_float(const chosen_t *chosen, uint32_t offset, const uint8_t *words) {
    loop_sum_float(chosen, offset, words);
    loop_count(chosen, offset + 16);
}

/* Pairs of a double and what is left of an integer, for MIN and MAX with the double as the word of its order. */
static inline void loop_extreme_mixed(const chosen_t *chosen, uint32_t offset, const uint8_t *words,
                                      const uint8_t *rest, int is_max) {
    EACH(chosen, state) {
        int64_t value = load_i64(words + 8 * i), left = load_i64(rest + 8 * i), have = load_i64(state),
                kept = load_i64(state + 8);
        int is_less = value < have || (value == have && left < kept), is_same = value == have && left == kept;
        if (is_same || is_less == is_max) continue;
        store_u64(state, (uint64_t)value);
        store_u64(state + 8, (uint64_t)left);
    }
}

/* -- variance: count, first value, mean of what the values differ from it, and squares ----------------------------- */

/* Adds `more` values to a state at `state` (count) and `at` (mean, squares): their mean differs by `delta`, `squares`
 * is theirs. Nothing leaves the range of a double on the way unless the result does. */
static inline void add_squares(uint8_t *state, uint8_t *at, uint64_t more, double delta, double squares,
                               uint64_t in_units) {
    uint64_t word = load_u64(state), n = word & ~IN_UNITS, all = n + more, am_in_units = word & IN_UNITS;
    double share = (double)more / (double)all, mean = load_f64(at), mine = load_f64(at + 8);
    double between = delta * ((double)n * share) * delta, sum = mine + squares + between;
    if (__builtin_expect(!is_finite(sum) || (am_in_units | in_units), 0) && is_finite(delta) && is_finite(mine) &&
        is_finite(squares)) {
        double small = ldexp(delta, -SQUARE_UNIT);
        if (!am_in_units) mine = ldexp(mine, -2 * SQUARE_UNIT);
        if (!in_units) squares = ldexp(squares, -2 * SQUARE_UNIT);
        sum = mine + squares + small * ((double)n * share) * small;
        am_in_units = IN_UNITS;
    }
    store_u64(state, all | am_in_units);
    store_f64(at, mean + delta * share);
    store_f64(at + 8, sum);
}

/* Adds values whose mean is `first` + `mean` to a state of floats: count, first value, mean and squares. */
static inline void add_variance(uint8_t *state, uint64_t more, double first, double mean, double squares,
                                uint64_t in_units) {
    uint64_t n = load_u64(state) & ~IN_UNITS;
    if (!n) {
        store_u64(state, more | in_units);
        store_f64(state + 8, first);
        store_f64(state + 16, mean);
        store_f64(state + 24, is_finite(first) ? squares : NAN);
        return;
    }
    double delta = (first - load_f64(state + 8)) + (mean - load_f64(state + 16));
    if (is_finite(delta)) {
        add_squares(state, state + 16, more, delta, squares, in_units);
        return;
    }
    store_u64(state, n + more); /* no numbers, or so far from each other that no double is */
    store_f64(state + 24, is_finite(first) ? load_f64(state + 24) + HUGE_VAL : NAN);
}

static inline void loop_variance_float(const chosen_t *chosen, uint32_t offset, const uint8_t *words) {
    EACH(chosen, state) add_variance(state, 1, load_f64(words + 8 * i), 0.0, 0.0, 0);
}

static inline void loop_variance_float_merge(const chosen_t *chosen, uint32_t offset, const uint8_t *const words[]) {
    EACH(chosen, state) {
        uint64_t more = load_u64(words[0] + 8 * i);
        if (!(more & ~IN_UNITS)) continue;
        double parts[3] = {load_f64(words[1] + 8 * i), load_f64(words[2] + 8 * i), load_f64(words[3] + 8 * i)};
        add_variance(state, more & ~IN_UNITS, parts[0], parts[1], parts[2], more & IN_UNITS);
    }
}

static inline void loop_variance_int(const chosen_t *chosen, uint32_t offset, const uint8_t *words, int is_unsigned) {
    EACH(chosen, state) {
        int128_t value = wide(load_u64(words + 8 * i), is_unsigned);
        if (!load_u64(state)) store_i128(state + 8, value);
        double delta = (double)(value - load_i128(state + 8)) - load_f64(state + 24);
        add_squares(state, state + 24, 1, delta, 0.0, 0);
    }
}

static inline void loop_variance_int_merge(const chosen_t *chosen, uint32_t offset, const uint8_t *const words[]) {
    EACH(chosen, state) {
        uint64_t more = load_u64(words[0] + 8 * i);
        if (!more) continue;
        int128_t first = (int128_t)((unsigned __int128)load_u64(words[1] + 8 * i) |
                                    (unsigned __int128)load_u64(words[2] + 8 * i) << 64);
        if (!load_u64(state)) store_i128(state + 8, first);
        double delta = (double)(first - load_i128(state + 8)) + (load_f64(words[3] + 8 * i) - load_f64(state + 24));
        add_squares(state, state + 24, more, delta, load_f64(words[4] + 8 * i), 0);
    }
}

/* -- text ---------------------------------------------------------------------------------------------------------- */

/* The text of a state: its length and the room that it has in the heap, 4 bytes each, then up to 8 bytes of text while
 * there is no room, else where that is. */
static inline bytes_t state_text(const group_table_t *table, const uint8_t *place) {
    return (bytes_t){load_u32(place + 4) ? table->memory.base[REGION_HEAP] + load_u64(place + 8) : place + 8,
                     load_u32(place)};
}

/* Replaces the text of a state. Room is used again, and new room is at least twice as large: what is lost by it is less
 * than what is in use. */
static inline int text_replace(group_table_t *table, uint64_t group, uint32_t offset, bytes_t text) {
    uint8_t *place = group_row(table, group) + offset;
    uint64_t room = load_u32(place + 4), at;
    if (room < text.length && (room || text.length > 8)) {
        room = 2 * room > text.length ? 2 * room : text.length;
        if (room > UINT32_MAX) room = UINT32_MAX;
        if (group_heap_take(table, room, &at) < 0) return GROUP_ERRNO;
        store_u32(place + 4, (uint32_t)room);
        store_u64(place + 8, at);
    }
    if (room && table->capture) group_preserve_heap(&table->memory, table->capture, load_u64(place + 8), text.length);
    store_u32(place, text.length);
    memcpy(room ? table->memory.base[REGION_HEAP] + load_u64(place + 8) : place + 8, text.data, text.length);
    return GROUP_OK;
}

static inline int loop_text(group_table_t *table, const group_field_t *field, const chosen_t *chosen,
                            const column_t *column, int64_t start) {
    for (int i = 0; i < chosen->count; i++) {
        bytes_t text;
        uint64_t group = chosen->groups[i];
        if (column_bytes(column, start + (chosen->places ? chosen->places[i] : i), &text) < 0) return GROUP_LONG_TEXT;
        const uint8_t *place = group_row(table, group) + field->offset;
        if (field->function != LAST && was_seen(table, field, group)) {
            if (field->function == FIRST) continue;
            bytes_t old = state_text(table, place);
            if (field->function == MIN ? !text_less(text, old, field->class == 'U')
                                       : !text_less(old, text, field->class == 'U'))
                continue;
        }
        group_marks(table, group)[table->memory.header->null_bytes + field->seen / 8] |=
            (uint8_t)(1 << field->seen % 8);
        if (text_replace(table, group, field->offset, text) != GROUP_OK) return GROUP_ERRNO;
    }
    return GROUP_OK;
}

/* -- rows of one group --------------------------------------------------------------------------------------------- */

static inline int add_single_floats(uint8_t *state, const uint8_t *words, int count) {
    double sum, error;
    if (!single_sum_floats(words, count, &sum, &error)) return 0;
    add_float(state, sum);
    add_float(state, error);
    return 1;
}

static inline int add_single_variance(uint8_t *state, const uint8_t *words, int count) {
    uint64_t n = load_u64(state) & ~IN_UNITS;
    double first = load_f64(n ? state + 8 : words), mean, squares;
    if (!single_squares(words, count, first, &mean, &squares)) return 0;
    add_variance(state, (uint64_t)count, first, mean, squares, 0);
    return 1;
}

/* Adds values to the state of their common group. Returns 0 for what the plain loops have to do. */
static inline int aggregate_single(const group_field_t *field, uint8_t *state, const uint8_t *words, int count,
                                   int is_unsigned) {
    int is_int = field->class == 'i';
    switch (field->function) {
    case SUM:
    case MEAN:
        if (is_int)
            store_i128(state, load_i128(state) + single_sum_int(words, count, is_unsigned));
        else if (!add_single_floats(state, words, count))
            return 0;
        if (field->function == MEAN) store_u64(state + 16, load_u64(state + 16) + (uint64_t)count);
        return 1;
    case MIN:
    case MAX: {
        int64_t have = load_i64(state);
        if (field->class == 'm') return 0;
        int64_t found = field->function == MIN ? single_least(words, count) : single_greatest(words, count);
        if (field->function == MIN ? found < have : found > have) store_u64(state, (uint64_t)found);
        return 1;
    }
    case VAR: return !is_int && add_single_variance(state, words, count);
    default: return 0;
    }
}

/* -- one aggregate, one block -------------------------------------------------------------------------------------- */

/* Adds rows start .. start + count of `columns` (one, none for a count of rows; the parts of a state when merging) to
 * the groups of the block. */
static inline int aggregate_block(group_table_t *table, const group_field_t *field, int may_be_unseen,
                                  const column_t *const *columns, int is_merge, int64_t start, int count) {
    group_block_t *block = table->block;
    const column_t *column = columns[0];
    chosen_t chosen = choose(block, column && column->valid ? column->valid + start : NULL, count);
    char class = (char)field->class;
    uint32_t offset = field->offset;
    if (is_text_class(class) && has_seen_bit(field->function)) return loop_text(table, field, &chosen, column, start);
    if (has_seen_bit(field->function) && may_be_unseen && field->function != FIRST) mark_seen(table, field, &chosen);
    int is_single = block->is_single && chosen.count >= SINGLE_LEAST && !is_merge;
    if (field->function == COUNT && is_single) {
        uint8_t *state = chosen.rows[0] + offset;
        return store_u64(state, load_u64(state) + (uint64_t)chosen.count), GROUP_OK;
    }
    if (field->function == COUNT && !is_merge) return loop_count(&chosen, offset), GROUP_OK;
    const uint8_t *words[STATE_PARTS] = {0};
    for (int part = 0; part < (is_merge ? field->parts : 1); part++)
        words[part] =
            choose_words(&chosen, number_words(columns[part], start, count, block->words[part]), block->words[part]);
    if (field->function == MIN || field->function == MAX)
        words[0] = order_words(class, words[0], chosen.count, block->words[STATE_PARTS]);
    if (is_single && aggregate_single(field, chosen.rows[0] + offset, words[0], chosen.count, is_uint64(column)))
        return GROUP_OK;
    switch (field->function) {
    case COUNT: loop_count_merge(&chosen, offset, words[0]); break;
    case SUM:
        if (class == 'i')
            is_merge ? loop_sum_int_merge(&chosen, offset, words[0], words[1])
                     : loop_sum_int(&chosen, offset, words[0], is_uint64(column));
        else
            is_merge ? loop_sum_float_merge(&chosen, offset, words[0], words[1])
                     : loop_sum_float(&chosen, offset, words[0]);
        break;
    case MEAN:
        if (!is_merge) {
            class == 'i' ? loop_mean_int(&chosen, offset, words[0], is_uint64(column))
                         : loop_mean_float(&chosen, offset, words[0]);
            break;
        }
        class == 'i' ? loop_sum_int_merge(&chosen, offset, words[0], words[1])
                     : loop_sum_float_merge(&chosen, offset, words[0], words[1]);
        loop_count_merge(&chosen, offset + 16, words[2]);
        break;
    case VAR:
        if (class == 'i')
            is_merge ? loop_variance_int_merge(&chosen, offset, words)
                     : loop_variance_int(&chosen, offset, words[0], is_uint64(column));
        else
            is_merge ? loop_variance_float_merge(&chosen, offset, words)
                     : loop_variance_float(&chosen, offset, words[0]);
        break;
    case MIN:
    case MAX:
        if (class == 'm')
            loop_extreme_mixed(&chosen, offset, words[0], words[1], field->function == MAX);
        else
            field->function == MIN ? loop_least(&chosen, offset, words[0]) : loop_greatest(&chosen, offset, words[0]);
        break;
    case FIRST: loop_first(table, field, &chosen, words); break;
    case LAST:
        for (int part = 0; part < field->parts; part++) loop_last(&chosen, offset + 8 * (uint32_t)part, words[part]);
        break;
    }
    return GROUP_OK;
}

#endif
