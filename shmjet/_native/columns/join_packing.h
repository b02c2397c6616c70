/* Keys of several columns as one number. No Python in here.
 *
 * Columns of integers, dates or spans that lie within bounds are the digits of a number: each less its least value,
 * with as many values as there are between its bounds. Where all numbers fit into 62 bits a table of single numbers
 * does: it keeps no copies of keys, compares one word, and may even be direct (join_direct.h). Which bounds there are
 * has to be known before the first row is added, so they are surveyed.
 */
#ifndef SHMJET_JOIN_PACKING_H
#define SHMJET_JOIN_PACKING_H

#include "columns/join_direct.h"

#define JOIN_NUMBERS 4
#define JOIN_PACKED_BITS 62

typedef struct {
    int64_t columns; /* 0: keys are not packed */
    uint64_t least[JOIN_NUMBERS], span[JOIN_NUMBERS];
    uint8_t class[JOIN_NUMBERS];
} join_packing_t;

/* Makes `packing` and the survey of the packed keys from those of the columns. Returns 0 if they do not fit. */
static inline int join_pack(join_packing_t *packing, const join_survey_t *columns, int64_t count,
                            join_survey_t *packed) {
    uint64_t total = 1;
    for (int64_t k = 0; k < count; k++) {
        const join_survey_t *survey = &columns[k];
        if (survey->is_mixed || survey->class == KEY_NONE) return 0;
        const uint64_t most = (uint64_t)survey->most - (uint64_t)survey->least;
        if (most >= (UINT64_C(1) << JOIN_PACKED_BITS) / total) return 0;
        packing->least[k] = (uint64_t)survey->least;
        packing->span[k] = most + 1;
        packing->class[k] = survey->class;
        total *= most + 1;
    }
    packing->columns = count;
    packed->class = KEY_INTEGER;
    packed->least = 0;
    packed->most = (int64_t)(total - 1);
    packed->is_mixed = 0;
    return 1;
}

/* Appends the digits of column `k` to numbers: their classes become KEY_NONE where one is, and KEY_FLOAT, which none of
 * the packed keys has, where it is beyond the bounds. */
static inline void join_pack_column(const join_packing_t *packing, int64_t k, const uint64_t *digits,
                                    const uint8_t *digit_classes, int64_t count, uint64_t *payloads,
                                    uint8_t *classes) {
    const uint64_t least = packing->least[k], span = packing->span[k];
    const uint8_t class = packing->class[k];
    for (int64_t i = 0; i < count; i++) {
        const uint64_t digit = digits[i] - least;
        const int is_within = digit_classes[i] == class && digit < span;
        payloads[i] = payloads[i] * span + digit;
        if (digit_classes[i] == KEY_NONE) classes[i] = KEY_NONE;
        else if (!is_within && classes[i] != KEY_NONE) classes[i] = KEY_FLOAT;
    }
}

#endif
