/* Parses records of CSV text into columns. No Python in here.
 *
 * Two steps a field: csv_marks.h finds its bounds, then its column's reader takes the value from between them straight
 * into the column's memory. A record counts only when it is complete and good: whatever a broken one has written lies
 * behind the last row and is written over. So a caller may stop anywhere, bring more text or more room, and go on at
 * the record's start.
 */
#ifndef SHMJET_CSV_H
#define SHMJET_CSV_H

#include "columns/csv_date.h"
#include "columns/csv_decimal.h"
#include "columns/csv_marks.h"

/* What a field of the text becomes. All memory has room for `row_limit` rows. */
typedef struct {
    char kind;         /* numpy's b i u f M m, d (decimal) Z (date with a Z), t (text) y (bytes), or 0: not wanted */
    int16_t unit;      /* of M and Z: as for csv_date(); of d: its digits * 32 + those after the point */
    uint32_t itemsize; /* of fixed width */
    uint8_t *data;     /* values, or the text */
    int64_t room;      /* bytes of `data`, for text */
    uint8_t *offsets;  /* of text: row_limit + 1 int64, the first rows' already there */
    uint8_t *valid;    /* a byte a row, 0 for null */
} csv_column_t;

typedef struct {
    const uint8_t *bytes;
    int64_t length;
} csv_token_t;

typedef struct {
    csv_column_t *columns; /* one for each field of a record */
    int64_t column_count;
    const csv_token_t *nulls; /* what stands for a null */
    int64_t null_count;
    uint64_t null_lengths;   /* bit n: some null has n bytes; bit 63: or more */
    const uint8_t *allowed;  /* 256 bytes, 0 for each byte that text may not have; NULL: text is UTF-8 */
    int lenient;             /* text that is not UTF-8 is taken as it is, and counted in `odd` */
    csv_slow_t slow;
    int64_t row_limit;
} csv_plan_t;

/* Why a record is not good. The first ones are those of csv_value_t; csv_errors.py knows the numbers. */
enum {
    CSV_BAD_TEXT = 10, /* not in the encoding */
    CSV_BAD_TRAILING,  /* text behind a closing quote */
    CSV_BAD_UNCLOSED,  /* the file ends inside quotes */
    CSV_BAD_COUNT,     /* too few or too many fields */
};

typedef enum {
    CSV_STOPPED = 0, /* the next record begins at or behind `stop`, or the text is at its end */
    CSV_MORE,        /* the next record is not complete */
    CSV_FULL,        /* row_limit rows */
    CSV_ROOM,        /* column `field` needs more room for text */
    CSV_BAD,         /* a record is not good: see the other members */
} csv_status_t;

typedef struct {
    int64_t position;   /* of the first record not yet taken; behind the bad one */
    int64_t rows;       /* in the columns */
    int64_t odd;        /* values that `lenient` let pass, or that are not ASCII where the text is not UTF-8 */
    int64_t record;     /* CSV_BAD: where it begins */
    int64_t field;      /* the first bad field, or the one without room */
    int64_t fields;     /* how many the record has */
    int64_t begin, end; /* of the bad value */
    int reason;
} csv_result_t;

static inline int csv_is_ascii(const uint8_t *p, int64_t length) {
    uint64_t all = 0;
    for (; length >= 8; p += 8, length -= 8) all |= csv_load(p);
    for (; length > 0; length--) all |= *p++;
    return !(all & 0x8080808080808080u);
}

/* Whether the bytes are well-formed UTF-8 (Unicode, table 3-7). */
static inline int csv_is_utf8(const uint8_t *p, int64_t length) {
    const uint8_t *end = p + length;
    while (p < end) {
        uint8_t first = *p++;
        if (first < 0x80) continue;
        int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
        if (first < 0xc2 || first > 0xf4 || end - p < more) return 0;
        uint8_t low = first == 0xe0   ? 0xa0
                      : first == 0xf0 ? 0x90
                                      : 0x80,
                high = first == 0xed   ? 0x9f
                       : first == 0xf4 ? 0x8f
                                       : 0xbf;
        if (*p < low || *p > high) return 0;
        for (int i = 1; i < more; i++)
            if ((p[i] & 0xc0) != 0x80) return 0;
        p += more;
    }
    return 1;
}

static inline int csv_is_null(const csv_plan_t *plan, const uint8_t *p, int64_t length) {
    if (!(plan->null_lengths >> (length < 63 ? length : 63) & 1)) return 0;
    for (int64_t i = 0; i < plan->null_count; i++)
        if (plan->nulls[i].length == length && !memcmp(plan->nulls[i].bytes, p, (size_t)length)) return 1;
    return 0;
}

/* Copies a value to `out`, doubled quotes once; returns its length. */
static inline int64_t csv_copy(uint8_t *out, const uint8_t *p, int64_t length, int doubled, uint8_t quote) {
    if (!doubled) {
        memcpy(out, p, (size_t)length);
        return length;
    }
    int64_t used = 0;
    for (int64_t i = 0; i < length; i++) {
        out[used++] = p[i];
        i += p[i] == quote;
    }
    return used;
}

enum { CSV_NO_ROOM = -1 };

/* Puts a text value behind the earlier ones. Returns 0, CSV_BAD_TEXT or CSV_NO_ROOM. */
static inline int csv_put_text(const csv_plan_t *plan, const csv_column_t *column, int64_t row, const csv_text_t *text,
                               const csv_span_t *span, int null, int64_t *odd) {
    int64_t used, length = null ? 0 : span->end - span->begin;
    memcpy(&used, column->offsets + 8 * row, 8);
    if (column->room - used < length) return CSV_NO_ROOM;
    if (length) {
        uint8_t *out = column->data + used;
        length = csv_copy(out, text->data + span->begin, length, span->doubled, text->quote);
        if (column->kind == 't' && !csv_is_ascii(out, length)) {
            if (plan->allowed) {
                for (int64_t i = 0; i < length; i++)
                    if (!plan->allowed[out[i]]) return CSV_BAD_TEXT;
                ++*odd;
            } else if (!csv_is_utf8(out, length)) {
                if (!plan->lenient) return CSV_BAD_TEXT;
                ++*odd;
            }
        }
    }
    used += length;
    memcpy(column->offsets + 8 * row + 8, &used, 8);
    return 0;
}

static inline csv_value_t csv_bool(const uint8_t *p, const uint8_t *end, uint8_t *value) {
    *value = csv_word_is(p, end, "true") || (end - p == 1 && *p == '1');
    return *value || csv_word_is(p, end, "false") || (end - p == 1 && *p == '0') ? CSV_VALUE_GOOD
                                                                                 : CSV_VALUE_UNREADABLE;
}

static inline csv_value_t csv_put_integer(const csv_column_t *column, uint8_t *out, const uint8_t *p,
                                          const uint8_t *end, const uint8_t *floor) {
    int negative, bits = 8 * (int)column->itemsize;
    uint64_t magnitude, most;
    csv_value_t result = csv_integer(p, end, floor, &negative, &magnitude);
    if (result != CSV_VALUE_GOOD) return result;
    if (column->kind == 'u') {
        most = negative ? 0 : ~(uint64_t)0 >> (64 - bits);
    } else {
        most = (~(uint64_t)0 >> (65 - bits)) + (uint64_t)negative;
    }
    if (magnitude > most) return CSV_VALUE_TOO_LARGE;
    magnitude = negative ? 0 - magnitude : magnitude;
    memcpy(out, &magnitude, column->itemsize); /* little-endian: the low bytes */
    return CSV_VALUE_GOOD;
}

/* What is wrong with a decimal of more than 18 digits: whether the rest is digits, too. */
static inline csv_value_t csv_fixed_point_rest(const uint8_t *p, const uint8_t *end, int point) {
    for (; p < end; p++) {
        if (*p == '.' && !point)
            point = 1;
        else if ((unsigned)(*p - '0') > 9)
            return CSV_VALUE_UNREADABLE;
    }
    return CSV_VALUE_TOO_LARGE;
}

/* A decimal as units of its last digit: digits with or without a sign and a point. Digits that the type has no place
 * for must be 0. */
static inline csv_value_t csv_fixed_point(const uint8_t *p, const uint8_t *end, int precision, int scale,
                                          int64_t *value) {
    static const int64_t powers[] = {
        1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000, 10000000000,
        100000000000, 1000000000000, 10000000000000, 100000000000000, 1000000000000000, 10000000000000000,
        100000000000000000, 1000000000000000000
    };
    int negative = p < end && *p == '-', digits = 0, after = 0, point = 0;
    int64_t sum = 0;
    p += p < end && (*p == '-' || *p == '+');
    for (; p < end; p++) {
        unsigned digit = *p - '0';
        if (digit > 9) {
            if (*p != '.' || point) return CSV_VALUE_UNREADABLE;
            point = 1;
            continue;
        }
        digits++;
        if (point && after == scale) {
            if (digit) return CSV_VALUE_TOO_FINE;
            continue;
        }
        after += point;
        if (sum >= powers[17]) return csv_fixed_point_rest(p, end, point);
        sum = sum * 10 + (int64_t)digit;
    }
    if (!digits) return CSV_VALUE_UNREADABLE;
    if (sum >= powers[precision - (scale - after)]) return CSV_VALUE_TOO_LARGE;
    sum *= powers[scale - after];
    *value = negative ? -sum : sum;
    return CSV_VALUE_GOOD;
}

/* Puts a value of fixed width. Spaces and tabs around it do not count. */
static inline csv_value_t csv_put_fixed(const csv_plan_t *plan, const csv_column_t *column, uint8_t *out,
                                        const uint8_t *p, const uint8_t *end, const uint8_t *floor) {
    csv_value_t result;
    int64_t whole;
    double value;
    while (p < end && (*p == ' ' || *p == '\t')) p++;
    while (p < end && (end[-1] == ' ' || end[-1] == '\t')) end--;
    switch (column->kind) {
    case 'i':
    case 'u':
        return csv_put_integer(column, out, p, end, floor);
    case 'f':
        if ((result = csv_float(p, end, floor, plan->slow, &value)) != CSV_VALUE_GOOD) return result;
        if (column->itemsize == 8) {
            memcpy(out, &value, 8);
        } else {
            float narrow = (float)value;
            memcpy(out, &narrow, 4);
        }
        return CSV_VALUE_GOOD;
    case 'b':
        return csv_bool(p, end, out);
    case 'd':
        result = csv_fixed_point(p, end, column->unit >> 5, column->unit & 31, &whole);
        break;
    case 'Z':
        if (p == end || end[-1] != 'Z') return CSV_VALUE_UNREADABLE;
        result = csv_date(p, end, (char)column->unit, &whole);
        break;
    case 'M':
        result = csv_date(p, end, (char)column->unit, &whole);
        break;
    default:
        if (!csv_word_is(p, end, "nat")) return csv_put_integer(column, out, p, end, floor);
        result = CSV_VALUE_GOOD;
        whole = CSV_NOT_A_TIME;
    }
    if (result == CSV_VALUE_GOOD) memcpy(out, &whole, 8);
    return result;
}

/* Puts a field's value. Returns 0, the reason why it is bad, or CSV_NO_ROOM. */
static inline int csv_put(const csv_plan_t *plan, const csv_column_t *column, int64_t row, const csv_text_t *text,
                          const csv_span_t *span, int64_t *odd) {
    if (span->trailing) return CSV_BAD_TRAILING;
    if (!column->kind) return 0;
    const uint8_t *p = text->data + span->begin, *end = text->data + span->end;
    int variable = column->offsets != NULL;
    int null = !(variable && span->quoted) && csv_is_null(plan, p, end - p);
    column->valid[row] = !null;
    if (variable) return csv_put_text(plan, column, row, text, span, null, odd);
    uint8_t *out = column->data + row * column->itemsize;
    if (null) {
        memset(out, 0, column->itemsize);
        return 0;
    }
    return (int)csv_put_fixed(plan, column, out, p, end, text->data);
}

/* Parses records from `result->position` on, as long as they begin before `stop`, behind row `result->rows`. An empty
 * line is not a record, except where a record has one field. */
static inline csv_status_t csv_parse(const csv_plan_t *plan, const csv_text_t *text, int64_t stop,
                                     csv_result_t *result) {
    int64_t position = result->position, row = result->rows;
    csv_cursor_t cursor = csv_cursor(text, position);
    csv_status_t status = CSV_STOPPED;
    while (position < stop && position < text->size) {
        int64_t begin = position, fields = 0, odd = 0;
        int reason = 0;
        csv_span_t span;
        csv_ending_t ending;
        if (row == plan->row_limit) {
            status = CSV_FULL;
            break;
        }
        do {
            ending = csv_field(&cursor, begin, 0, &span);
            if (ending >= CSV_CUT) break;
            if (fields < plan->column_count && !reason) {
                reason = csv_put(plan, &plan->columns[fields], row, text, &span, &odd);
                if (reason) {
                    result->field = fields;
                    result->begin = span.begin;
                    result->end = span.end;
                }
            }
            fields++;
            begin = span.next;
        } while (ending == CSV_BETWEEN);
        if (ending == CSV_CUT) {
            status = CSV_MORE;
            break;
        }
        if (ending == CSV_UNCLOSED) {
            reason = CSV_BAD_UNCLOSED;
            result->field = fields++;
            result->begin = span.begin;
            result->end = span.next = text->size;
        } else if (fields == 1 && plan->column_count > 1 && !span.quoted && span.end == span.begin) {
            position = span.next; /* an empty line */
            continue;
        } else if (fields != plan->column_count && reason != CSV_BAD_TRAILING && reason != CSV_NO_ROOM) {
            reason = CSV_BAD_COUNT;
            result->begin = position;
            result->end = span.end;
        }
        if (reason) {
            status = reason == CSV_NO_ROOM ? CSV_ROOM : CSV_BAD;
            result->record = position;
            result->fields = fields;
            result->reason = reason;
            if (status == CSV_BAD) position = span.next;
            break;
        }
        result->odd += odd;
        position = span.next;
        row++;
    }
    result->position = position;
    result->rows = row;
    return status;
}

/* Where the record ends inside one of whose quoted fields `at` lies; -1 when the text ends before. */
static inline int64_t csv_skip(const csv_text_t *text, int64_t at) {
    csv_cursor_t cursor = csv_cursor(text, at);
    csv_span_t span;
    csv_ending_t ending = csv_field(&cursor, at, 1, &span);
    while (ending == CSV_BETWEEN) ending = csv_field(&cursor, span.next, 0, &span);
    return ending == CSV_CUT ? -1 : ending == CSV_UNCLOSED ? text->size : span.next;
}

#endif
