/* Records of CSV from columns, byte for byte what Python's str() and repr() and numpy give. No Python in here.
 *
 * The text of a float is the shortest that reads back as the same bits. Most floats in files are decimals of few
 * digits, and for those it is cheap to find: if m / 10^k, with m below 10^15, is the float, then m is its only text of
 * so few digits, since two decimals of up to 15 digits are never the same double. m below 2^53 and 10^k up to 10^22
 * are exact, so one division, which rounds once, decides. All others are the caller's `slow`.
 *
 * Text must be well-formed UTF-8 as a whole. What CSV cannot hold (text that needs quotes where there are none, a
 * value that looks like the null) and what is not worth its while (years beyond four digits) stops the kernel; the
 * caller then finds out slowly what it was.
 */
#ifndef SHMJET_CSV_WRITE_H
#define SHMJET_CSV_WRITE_H

#include "columns/column.h"

/* How a column's values are written. The units of dates are in order: each has all parts of the one before. */
typedef enum {
    PUT_INT, PUT_UINT, PUT_FLOAT, PUT_BOOL, PUT_SPAN, PUT_TEXT,
    PUT_YEAR, PUT_MONTH, PUT_DAY, PUT_HOUR, PUT_MINUTE, PUT_SECOND
} put_form_t;

typedef struct {
    column_t column;
    put_form_t form;
    int64_t steps;  /* of hours and finer units: how many make a day; of days: how many days one is (7 of weeks) */
    int digits;     /* of PUT_SECOND: behind its point */
} put_column_t;

typedef struct {
    const put_column_t *columns;
    int64_t count;
    uint8_t delimiter, quote;
    int has_quote;
    const uint8_t *null;
    int64_t null_length;
    int (*slow)(double value, uint8_t *out); /* writes at most PUT_WIDEST bytes; returns how many, or -1 */
} put_plan_t;

#define PUT_WIDEST 32 /* bytes of any value that is not text */

enum { PUT_REFUSED = -1, PUT_FAILED = -2 };

/* --- integers ----------------------------------------------------------------------------------------------------- */

static inline uint8_t *put_digits(uint8_t *out, uint64_t value) {
    static const char pairs[] =
        "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
        "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
    uint8_t text[20], *p = text + sizeof text;
    while (value >= 100) {
        unsigned pair = (unsigned)(value % 100);
        value /= 100;
        memcpy(p -= 2, pairs + 2 * pair, 2);
    }
    if (value >= 10)
        memcpy(p -= 2, pairs + 2 * value, 2);
    else
        *--p = (uint8_t)('0' + value);
    size_t length = (size_t)(text + sizeof text - p);
    memcpy(out, p, length);
    return out + length;
}

/* Exactly `count` digits. */
static inline uint8_t *put_padded(uint8_t *out, uint64_t value, int count) {
    for (int i = count - 1; i >= 0; i--, value /= 10) out[i] = (uint8_t)('0' + value % 10);
    return out + count;
}

static inline uint8_t *put_signed(uint8_t *out, int64_t value) {
    if (value < 0) *out++ = '-';
    return put_digits(out, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

static inline int64_t put_load(const column_t *column, int64_t row) {
    const uint8_t *p = column->data + row * column->itemsize;
    int16_t two;
    int32_t four;
    switch (column->itemsize) {
    case 1: return column->kind == 'i' ? (int8_t)*p : *p;
    case 2: memcpy(&two, p, 2); return column->kind == 'i' ? two : (uint16_t)two;
    case 4: memcpy(&four, p, 4); return column->kind == 'i' ? four : (int64_t)(uint32_t)four;
    default: return load_i64(p);
    }
}

/* --- floats ------------------------------------------------------------------------------------------------------- */

static const double put_powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                    1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
#define PUT_MOST_MANTISSA UINT64_C(999999999999999)
#define PUT_LEAST 1e-4 /* below it, and from 1e16 on, repr() writes an exponent */
#define PUT_END 1e15

/* Finds m and k, as small as possible, with value = m / 10^k and m of at most 15 digits; PUT_LEAST <= value <
 * PUT_END. */
static inline int put_decimal(double value, uint64_t *mantissa, int *scale) {
    uint64_t m = (uint64_t)(value * 100 + 0.5);
    int k = 2;
    if (m > PUT_MOST_MANTISSA || (double)m / 100 != value) {
        k = value < 1 ? value < 1e-2 ? value < 1e-3 ? 18 : 17 : value < 1e-1 ? 16 : 15 : 14;
        while (value >= 1 && value >= put_powers[15 - k]) k--;
        m = (uint64_t)(value * put_powers[k] + 0.5);
        if (m > PUT_MOST_MANTISSA || (double)m / put_powers[k] != value) return 0;
        if (k >= 8 && m % 100000000 == 0) m /= 100000000, k -= 8;
        if (k >= 4 && m % 10000 == 0) m /= 10000, k -= 4;
    }
    for (; k > 0 && m % 10 == 0; k--) m /= 10;
    *mantissa = m;
    *scale = k;
    return 1;
}

/* Returns the end, or NULL when `slow` has failed. */
static inline uint8_t *put_float(uint8_t *out, double value, int (*slow)(double, uint8_t *)) {
    double size = value < 0 ? -value : value;
    uint64_t m = 0, bits;
    int k = 0;
    memcpy(&bits, &value, sizeof bits);
    if (size != 0 && !(size >= PUT_LEAST && size < PUT_END && put_decimal(size, &m, &k))) {
        int length = slow(value, out);
        return length < 0 ? NULL : out + length;
    }
    if (bits >> 63) *out++ = '-';
    uint64_t power = 1;
    for (int i = 0; i < k; i++) power *= 10;
    out = put_digits(out, m / power);
    *out++ = '.';
    return put_padded(out, m % power, k + !k);
}

/* --- dates, as numpy's datetime_as_string() ----------------------------------------------------------------------- */

static inline uint8_t *put_not_a_time(uint8_t *out) {
    memcpy(out, "NaT", 3);
    return out + 3;
}

static inline uint8_t *put_month(uint8_t *out, int64_t year, int64_t month) {
    out = put_padded(out, (uint64_t)year, 4);
    *out++ = '-';
    return put_padded(out, (uint64_t)month, 2);
}

/* The day that comes `day` days after 1 January 1970; after Howard Hinnant's civil_from_days(). */
static inline uint8_t *put_day(uint8_t *out, int64_t day) {
    int64_t shifted = day + 719468, era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    int64_t of_era = shifted - era * 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100), since_march = (5 * of_year + 2) / 153;
    int64_t month = since_march < 10 ? since_march + 3 : since_march - 9;
    out = put_month(out, year + era * 400 + (month <= 2), month);
    *out++ = '-';
    return put_padded(out, (uint64_t)(of_year - (153 * since_march + 2) / 5 + 1), 2);
}

#define PUT_FIRST_DAY (-719528) /* 0000-01-01 */
#define PUT_LAST_DAY 2932896    /* 9999-12-31 */

/* The quotient, rounded down, and the rest. */
static inline int64_t put_divide(int64_t value, int64_t by, int64_t *rest) {
    int64_t quotient = value / by;
    *rest = value % by;
    if (*rest >= 0) return quotient;
    *rest += by;
    return quotient - 1;
}

static inline uint8_t *put_time(uint8_t *out, const put_column_t *source, int64_t rest) {
    *out++ = 'T';
    if (source->form == PUT_HOUR) return put_padded(out, (uint64_t)rest, 2);
    int64_t part = 0;
    int64_t seconds = source->form == PUT_MINUTE ? rest * 60 : put_divide(rest, source->steps / 86400, &part);
    out = put_padded(out, (uint64_t)seconds / 3600, 2);
    *out++ = ':';
    out = put_padded(out, (uint64_t)seconds / 60 % 60, 2);
    if (source->form == PUT_MINUTE) return out;
    *out++ = ':';
    out = put_padded(out, (uint64_t)seconds % 60, 2);
    if (!source->digits) return out;
    *out++ = '.';
    return put_padded(out, (uint64_t)part, source->digits);
}

/* Returns the end, or NULL for a year beyond 0000 to 9999. */
static inline uint8_t *put_date(uint8_t *out, const put_column_t *source, int64_t value) {
    if (value == INT64_MIN) return put_not_a_time(out);
    int64_t rest = 0, day;
    switch (source->form) {
    case PUT_YEAR:
    case PUT_MONTH:
        if (source->form == PUT_YEAR && value >= -1970 && value < 8030)
            return put_padded(out, (uint64_t)(value + 1970), 4);
        if (source->form == PUT_YEAR || value < -1970 * 12 || value >= 8030 * 12) return NULL;
        value += 1970 * 12;
        return put_month(out, value / 12, value % 12 + 1);
    case PUT_DAY:
        if (value < PUT_FIRST_DAY || value > PUT_LAST_DAY) return NULL; /* before it is multiplied */
        day = value * source->steps;
        break;
    default: day = put_divide(value, source->steps, &rest);
    }
    if (day < PUT_FIRST_DAY || day > PUT_LAST_DAY) return NULL;
    out = put_day(out, day);
    return source->form == PUT_DAY ? out : put_time(out, source, rest);
}

/* --- text --------------------------------------------------------------------------------------------------------- */

/* The top bit of some byte, when one of the eight is `byte`, and not otherwise. */
static inline uint64_t put_find(uint64_t word, uint8_t byte) {
    word ^= byte * UINT64_C(0x0101010101010101);
    return (word - UINT64_C(0x0101010101010101)) & ~word & UINT64_C(0x8080808080808080);
}

static inline int put_is_special(const put_plan_t *plan, uint8_t byte) {
    return byte == plan->delimiter || byte == '\n' || byte == '\r' || (plan->has_quote && byte == plan->quote);
}

/* Whether text would be read as something else without quotes: it is empty or the null, begins with a byte order mark,
 * or has a delimiter, a quote or the end of a line in it. */
static inline int put_needs_quotes(const put_plan_t *plan, const uint8_t *text, int64_t length) {
    uint8_t quote = plan->has_quote ? plan->quote : plan->delimiter;
    int64_t i = 0;
    if (length == plan->null_length && memcmp(text, plan->null, (size_t)length) == 0) return 1;
    if (length == 0 || (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)) return 1;
    for (; i + 8 <= length; i += 8) {
        uint64_t word = (uint64_t)load_i64(text + i);
        if (put_find(word, plan->delimiter) | put_find(word, quote) | put_find(word, '\n') | put_find(word, '\r'))
            return 1;
    }
    for (; i < length; i++)
        if (put_is_special(plan, text[i])) return 1;
    return 0;
}

/* Returns the end, or NULL when text needs quotes and there are none. It takes up to twice its length, and 2. */
static inline uint8_t *put_text(uint8_t *out, const put_plan_t *plan, const uint8_t *text, int64_t length) {
    if (!put_needs_quotes(plan, text, length)) {
        memcpy(out, text, (size_t)length);
        return out + length;
    }
    if (!plan->has_quote) return NULL;
    *out++ = plan->quote;
    for (int64_t i = 0; i < length; i++) {
        if (text[i] == plan->quote) *out++ = plan->quote;
        *out++ = text[i];
    }
    *out++ = plan->quote;
    return out;
}

/* --- records ------------------------------------------------------------------------------------------------------ */

/* Bytes that the records take at most. */
static inline int64_t put_most_bytes(const put_plan_t *plan, int64_t rows) {
    int64_t most = 0;
    for (int64_t i = 0; i < plan->count; i++) {
        const column_t *column = &plan->columns[i].column;
        most += rows * (1 + plan->null_length + (plan->columns[i].form == PUT_TEXT ? 2 : PUT_WIDEST));
        if (plan->columns[i].form == PUT_TEXT) most += 2 * (column_offset(column, rows) - column_offset(column, 0));
    }
    return most;
}

/* Returns the end; NULL when the value is refused, or, with `failed`, when `slow` has failed. */
static inline uint8_t *put_value(uint8_t *out, const put_plan_t *plan, const put_column_t *source, int64_t row,
                                 int *failed) {
    const column_t *column = &source->column;
    uint8_t *start = out;
    switch (source->form) {
    case PUT_TEXT: {
        int64_t from = column_offset(column, row), length = column_offset(column, row + 1) - from;
        const uint8_t *text = column->data + from;
        if (column->kind == 't' && length && (*text & 0xc0) == 0x80) return NULL; /* it begins within a character */
        return put_text(out, plan, text, length);
    }
    case PUT_INT: out = put_signed(out, put_load(column, row)); break;
    case PUT_UINT: out = put_digits(out, (uint64_t)put_load(column, row)); break;
    case PUT_FLOAT:
        out = put_float(out, load_float(column->data + row * column->itemsize, column->itemsize), plan->slow);
        *failed = !out;
        break;
    case PUT_BOOL: {
        int length = column->data[row * column->itemsize] ? 4 : 5;
        memcpy(out, length == 4 ? "true" : "false", (size_t)length);
        out += length;
        break;
    }
    case PUT_SPAN: {
        int64_t value = put_load(column, row);
        out = value == INT64_MIN ? put_not_a_time(out) : put_signed(out, value);
        break;
    }
    default: out = put_date(out, source, put_load(column, row));
    }
    if (out && out - start == plan->null_length && memcmp(start, plan->null, (size_t)plan->null_length) == 0)
        return NULL;
    return out;
}

/* Writes `rows` records, into put_most_bytes() of memory. Returns their length, or why not: PUT_REFUSED, PUT_FAILED. */
static inline int64_t csv_write(const put_plan_t *plan, int64_t rows, uint8_t *memory) {
    uint8_t *out = memory;
    int failed = 0;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < plan->count; i++) {
            const put_column_t *source = &plan->columns[i];
            if (column_is_null(&source->column, row)) {
                memcpy(out, plan->null, (size_t)plan->null_length);
                out += plan->null_length;
            } else if (!(out = put_value(out, plan, source, row, &failed))) {
                return failed ? PUT_FAILED : PUT_REFUSED;
            }
            *out++ = plan->delimiter;
        }
        out[-1] = '\n';
    }
    return out - memory;
}

#endif
