/* The states of aggregates: adding a block of values to the rows of their groups, and merging states. No Python in here.
 *
 * Nulls are taken out of a block first, so that the loops know nothing of them. Whether a state has seen a value is a
 * bit beside the rows that is touched only where the column has ever had nulls: else every group has seen one, and the
 * bit is set when the group is made.
 *
 * Minimum and maximum of all types are those of an int64: unsigned numbers, dates and floats are mapped to one with
 * the same order (order_words). NaN and NaT come last in it, as in Spark and in numpy's sort. Float sums carry their
 * rounding error along (Neumaier, 1974, in Knuth's form without a branch, TAOCP 4.2.2), variances follow Welford (1962)
 * and are merged after Chan, Golub, LeVeque (1979).
 */
#ifndef SHMJET_GROUP_AGGREGATES_H
#define SHMJET_GROUP_AGGREGATES_H

#include "group_table.h"

enum group_function { NO_FUNCTION, COUNT, SUM, MIN, MAX, MEAN, FIRST, LAST, VAR };

static inline int is_text_class(char class) { return class == 't' || class == 'U' || class == 'x'; }

/* Whether a state needs the bit that tells whether it has seen a value; the others count their values. */
static inline int has_seen_bit(int function) { return function != COUNT && function != MEAN && function != VAR; }

/* The words of a state: those that can be read, then those of text that are one field. Returns 0 when the function
 * does not go with the class. */
static inline int aggregate_shape(int function, char class, int *parts) {
    *parts = 1;
    switch (function) {
    case COUNT: return 1;
    case SUM: return class == 'i' ? 1 : class == 'f' ? *parts = 2 : 0;
    case MEAN:
    case VAR: return class == 'n' ? *parts = 3 : 0;
    case MIN:
    case MAX: return class && strchr("iudftU", class) ? 1 + is_text_class(class) : 0;
    case FIRST:
    case LAST: return class && strchr("iudftUx", class) ? 1 + is_text_class(class) : 0;
    default: return 0;
    }
}

/* -- order --------------------------------------------------------------------------------------------------------- */

static inline int64_t order_of_float(uint64_t bits) {
    if ((bits & INT64_MAX) > UINT64_C(0x7ff0000000000000)) bits = UINT64_C(0x7ff8000000000000);
    return (int64_t)(bits >> 63 ? bits ^ INT64_MAX : bits);
}

/* What is added to an integer or a date to give an int64 of the same order: NaT, the least int64, becomes the greatest. */
static inline uint64_t order_shift(char class) { return class == 'u' ? UINT64_C(1) << 63 : class == 'd' ? UINT64_MAX : 0; }

static inline uint64_t unordered(char class, uint64_t state) {
    if (class != 'f') return state - order_shift(class);
    return state >> 63 ? state ^ INT64_MAX : state;
}

static inline const uint8_t *order_words(char class, const uint8_t *words, int count, uint64_t *room) {
    uint64_t shift = order_shift(class);
    if (class == 'i') return words;
    if (class == 'f')
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

/* Integers to float64, for mean and variance. */
static inline const uint8_t *float_words(const column_t *column, const uint8_t *words, int count, uint64_t *room) {
    if (column->kind == 'f') return words;
    for (int i = 0; i < count; i++) {
        uint64_t word = load_u64(words + 8 * i);
        double value = is_uint64(column) ? (double)word : (double)(int64_t)word;
        memcpy(&room[i], &value, sizeof value);
    }
    return (const uint8_t *)room;
}

static inline void mark_seen(const group_table_t *table, const group_field_t *field, const chosen_t *chosen) {
    uint8_t *marks = group_marks(table, 0) + table->memory.header->null_bytes + field->seen / 8;
    size_t stride = table->memory.header->mark_bytes;
    for (int i = 0; i < chosen->count; i++) marks[chosen->groups[i] * stride] |= (uint8_t)(1 << field->seen % 8);
}

static inline int was_seen(const group_table_t *table, const group_field_t *field, uint64_t group) {
    return group_marks(table, group)[table->memory.header->null_bytes + field->seen / 8] >> field->seen % 8 & 1;
}

/* -- the loops ----------------------------------------------------------------------------------------------------- */

#define EACH(chosen, state) \
    for (int i = 0; i < (chosen)->count; i++) \
        for (uint8_t *state = (chosen)->rows[i] + offset, *once = state; once; once = NULL)

static inline void add_float(uint8_t *state, double value) {
    double sum = load_f64(state), total = sum + value, part = total - sum;
    double error = load_f64(state + 8) + ((sum - (total - part)) + (value - part));
    memcpy(state, &total, sizeof total);
    memcpy(state + 8, &error, sizeof error);
}

static inline void loop_count(const chosen_t *chosen, uint32_t offset) {
    EACH(chosen, state) store_u64(state, load_u64(state) + 1);
}

static inline void loop_count_merge(const chosen_t *chosen, uint32_t offset, const uint8_t *words) {
    EACH(chosen, state) store_u64(state, load_u64(state) + load_u64(words + 8 * i));
}

static inline int loop_sum_int(const chosen_t *chosen, uint32_t offset, const uint8_t *words, int is_unsigned) {
    int wrapped = 0;
    EACH(chosen, state) {
        int64_t sum = load_i64(state);
        if (is_unsigned)
            wrapped |= __builtin_add_overflow(sum, load_u64(words + 8 * i), &sum);
        else
            wrapped |= __builtin_add_overflow(sum, load_i64(words + 8 * i), &sum);
        store_u64(state, (uint64_t)sum);
    }
    return wrapped;
}

static inline void loop_sum_float(const chosen_t *chosen, uint32_t offset, const uint8_t *words) {
    EACH(chosen, state) add_float(state, load_f64(words + 8 * i));
}

static inline void loop_sum_float_merge(const chosen_t *chosen, uint32_t offset, const uint8_t *words, const uint8_t *errors) {
    EACH(chosen, state) {
        double error = load_f64(state + 8) + load_f64(errors + 8 * i);
        memcpy(state + 8, &error, sizeof error);
        add_float(state, load_f64(words + 8 * i));
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

static inline void loop_first(const group_table_t *table, const group_field_t *field, const chosen_t *chosen, const uint8_t *words) {
    uint32_t offset = field->offset;
    uint8_t *marks = group_marks(table, 0) + table->memory.header->null_bytes + field->seen / 8;
    size_t stride = table->memory.header->mark_bytes;
    uint8_t bit = (uint8_t)(1 << field->seen % 8);
    EACH(chosen, state) {
        uint8_t *mark = marks + chosen->groups[i] * stride;
        if (*mark & bit) continue;
        *mark |= bit;
        store_u64(state, load_u64(words + 8 * i));
    }
}

static inline void loop_mean(const chosen_t *chosen, uint32_t offset, const uint8_t *words) {
    EACH(chosen, state) {
        add_float(state, load_f64(words + 8 * i));
        store_u64(state + 16, load_u64(state + 16) + 1);
    }
}

static inline void loop_variance(const chosen_t *chosen, uint32_t offset, const uint8_t *words) {
    EACH(chosen, state) {
        double value = load_f64(words + 8 * i), mean = load_f64(state + 8), squares = load_f64(state + 16);
        uint64_t n = load_u64(state) + 1;
        double delta = value - mean;
        mean += delta / (double)n;
        squares += delta * (value - mean);
        store_u64(state, n);
        memcpy(state + 8, &mean, sizeof mean);
        memcpy(state + 16, &squares, sizeof squares);
    }
}

static inline void loop_variance_merge(const chosen_t *chosen, uint32_t offset, const uint8_t *const words[3]) {
    EACH(chosen, state) {
        uint64_t n = load_u64(state), more = load_u64(words[0] + 8 * i), all = n + more;
        if (!more) continue;
        double mean = load_f64(state + 8), squares = load_f64(state + 16), other = load_f64(words[1] + 8 * i);
        double delta = other - mean, share = (double)more / (double)all;
        mean = n ? mean + delta * share : other;
        squares += load_f64(words[2] + 8 * i) + (n ? delta * delta * share * (double)n : 0.0);
        store_u64(state, all);
        memcpy(state + 8, &mean, sizeof mean);
        memcpy(state + 16, &squares, sizeof squares);
    }
}

/* -- text ---------------------------------------------------------------------------------------------------------- */

/* The text of a state: its length and the room that it has in the heap, 4 bytes each, then up to 8 bytes of text while
 * there is no room, else where that is. */
static inline bytes_t state_text(const group_table_t *table, const uint8_t *place) {
    return (bytes_t){load_u32(place + 4) ? table->memory.base[REGION_HEAP] + load_u64(place + 8) : place + 8, load_u32(place)};
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
    store_u32(place, text.length);
    memcpy(room ? table->memory.base[REGION_HEAP] + load_u64(place + 8) : place + 8, text.data, text.length);
    return GROUP_OK;
}

static inline int loop_text(group_table_t *table, const group_field_t *field, const chosen_t *chosen, const column_t *column,
                            int64_t start) {
    for (int i = 0; i < chosen->count; i++) {
        bytes_t text;
        uint64_t group = chosen->groups[i];
        if (column_bytes(column, start + (chosen->places ? chosen->places[i] : i), &text) < 0) return GROUP_LONG_TEXT;
        const uint8_t *place = group_row(table, group) + field->offset;
        if (field->function != LAST && was_seen(table, field, group)) {
            if (field->function == FIRST) continue;
            bytes_t old = state_text(table, place);
            if (field->function == MIN ? !text_less(text, old, field->class == 'U') : !text_less(old, text, field->class == 'U'))
                continue;
        }
        group_marks(table, group)[table->memory.header->null_bytes + field->seen / 8] |= (uint8_t)(1 << field->seen % 8);
        if (text_replace(table, group, field->offset, text) != GROUP_OK) return GROUP_ERRNO;
    }
    return GROUP_OK;
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
    if (field->function == COUNT && !is_merge) return loop_count(&chosen, offset), GROUP_OK;
    const uint8_t *words[3] = {0};
    for (int part = 0; part < (is_merge ? field->parts : 1); part++)
        words[part] = choose_words(&chosen, number_words(columns[part], start, count, block->words[part]), block->words[part]);
    switch (field->function) {
    case COUNT: loop_count_merge(&chosen, offset, words[0]); break;
    case SUM:
        if (class != 'f')
            return loop_sum_int(&chosen, offset, words[0], is_uint64(column)) ? GROUP_OVERFLOW : GROUP_OK;
        if (is_merge)
            loop_sum_float_merge(&chosen, offset, words[0], words[1]);
        else
            loop_sum_float(&chosen, offset, words[0]);
        break;
    case MIN: loop_least(&chosen, offset, order_words(class, words[0], chosen.count, block->words[3])); break;
    case MAX: loop_greatest(&chosen, offset, order_words(class, words[0], chosen.count, block->words[3])); break;
    case FIRST: loop_first(table, field, &chosen, words[0]); break;
    case LAST: loop_last(&chosen, offset, words[0]); break;
    case MEAN:
        if (is_merge) {
            loop_sum_float_merge(&chosen, offset, words[0], words[1]);
            loop_count_merge(&chosen, offset + 16, words[2]);
        } else
            loop_mean(&chosen, offset, float_words(column, words[0], chosen.count, block->words[3]));
        break;
    case VAR:
        if (is_merge)
            loop_variance_merge(&chosen, offset, words);
        else
            loop_variance(&chosen, offset, float_words(column, words[0], chosen.count, block->words[3]));
        break;
    }
    return GROUP_OK;
}

#endif
