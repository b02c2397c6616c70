/* From ISO 8601 text to numpy's datetime64, exactly: what the unit cannot hold is refused, never cut off. No Python.
 *
 * Read is YYYY-MM-DD, then perhaps T or a space and hh, hh:mm, hh:mm:ss or hh:mm:ss.fraction, then perhaps Z. A year
 * may have a sign and more digits, as numpy writes it; for the units of years and months YYYY and YYYY-MM will do. NaT
 * is NaT. Days are counted with Hinnant's days_from_civil (2014), which has no tables and is right for every year.
 */
#ifndef SHMJET_CSV_DATE_H
#define SHMJET_CSV_DATE_H

#include "columns/csv_decimal.h"

#define CSV_NOT_A_TIME INT64_MIN

/* Reads exactly `count` digits (at most 9). */
static inline int csv_part(const uint8_t **p, const uint8_t *end, int count, int64_t *value) {
    if (end - *p < count) return 0;
    *value = 0;
    for (int i = 0; i < count; i++) {
        unsigned digit = (*p)[i] - '0';
        if (digit > 9) return 0;
        *value = 10 * *value + digit;
    }
    *p += count;
    return 1;
}

static inline int csv_char(const uint8_t **p, const uint8_t *end, uint8_t wanted) {
    if (*p == end || **p != wanted) return 0;
    ++*p;
    return 1;
}

static inline int64_t csv_days(int64_t year, int64_t month, int64_t day) {
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400, of_era = year - era * 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static inline int64_t csv_days_of_month(int64_t year, int64_t month) {
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return days[month - 1] + (month == 2 && year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
}

/* A point in time in its parts; nanoseconds in parts too, so that no unit overflows another. */
typedef struct {
    int64_t year, month, day, seconds; /* seconds of the day */
    int64_t nanoseconds;               /* of the second */
    int given;                         /* how many of year, month, day were written */
    int finer;                         /* there is a part below a nanosecond */
} csv_moment_t;

static inline int csv_year(const uint8_t **p, const uint8_t *end, int64_t *year) {
    int negative = csv_char(p, end, '-');
    if (!negative) csv_char(p, end, '+');
    const uint8_t *start = *p;
    int64_t sum = 0;
    for (; *p < end && (unsigned)(**p - '0') < 10; ++*p)
        if (sum <= INT64_MAX / 100) sum = 10 * sum + (**p - '0');
    *year = negative ? -sum : sum;
    return *p - start >= 4 - negative && *p - start <= 18; /* numpy writes -001 */
}

static inline int csv_time(const uint8_t **p, const uint8_t *end, csv_moment_t *moment) {
    int64_t hours, minutes = 0, seconds = 0;
    if (!csv_part(p, end, 2, &hours)) return 0;
    if (csv_char(p, end, ':') && !csv_part(p, end, 2, &minutes)) return 0;
    if (end - *p > 1 && csv_char(p, end, ':')) {
        if (!csv_part(p, end, 2, &seconds)) return 0;
        if (csv_char(p, end, '.')) {
            int count = 0;
            for (; *p < end && (unsigned)(**p - '0') < 10; ++*p, count++) {
                if (count < 9) moment->nanoseconds = 10 * moment->nanoseconds + (**p - '0');
                else moment->finer |= **p != '0';
            }
            if (!count) return 0;
            for (; count < 9; count++) moment->nanoseconds *= 10;
        }
    }
    moment->seconds = 3600 * hours + 60 * minutes + seconds;
    csv_char(p, end, 'Z');
    return hours < 24 && minutes < 60 && seconds < 60;
}

static inline int csv_moment(const uint8_t *p, const uint8_t *end, csv_moment_t *moment) {
    memset(moment, 0, sizeof *moment);
    moment->month = moment->day = moment->given = 1;
    if (!csv_year(&p, end, &moment->year)) return 0;
    if (p < end && csv_char(&p, end, '-')) {
        if (!csv_part(&p, end, 2, &moment->month) || moment->month < 1 || moment->month > 12) return 0;
        moment->given = 2;
        if (p < end && csv_char(&p, end, '-')) {
            if (!csv_part(&p, end, 2, &moment->day) || moment->day < 1) return 0;
            if (moment->day > csv_days_of_month(moment->year, moment->month)) return 0;
            moment->given = 3;
            if (p < end && (csv_char(&p, end, 'T') || csv_char(&p, end, ' ')) && !csv_time(&p, end, moment)) return 0;
        }
    }
    return p == end;
}

/* days * scale + rest, where rest is from 0 to scale - 1; returns whether it fits. Goes by way of the day above for
 * days before 1970, so that the lowest value of a unit does not overflow half way. */
static inline int csv_scaled(int64_t days, int64_t scale, int64_t rest, int64_t *value) {
    if (days < 0) {
        days++;
        rest -= scale;
    }
    return !__builtin_mul_overflow(days, scale, value) && !__builtin_add_overflow(*value, rest, value);
}

/* Reads a date in the unit Y, M, W, D, h, m, s, i (milliseconds), u (microseconds) or n (nanoseconds). */
static inline csv_value_t csv_date(const uint8_t *p, const uint8_t *end, char unit, int64_t *value) {
    csv_moment_t moment;
    if (csv_word_is(p, end, "nat")) {
        *value = CSV_NOT_A_TIME;
        return CSV_VALUE_GOOD;
    }
    if (!csv_moment(p, end, &moment)) return CSV_VALUE_UNREADABLE;
    if (moment.given < (unit == 'Y' ? 1 : unit == 'M' ? 2 : 3)) return CSV_VALUE_UNREADABLE;
    if (moment.year > 400000000000000 || moment.year < -400000000000000) return CSV_VALUE_TOO_LARGE;
    int64_t seconds = moment.seconds, nanoseconds = moment.nanoseconds;
    int64_t below_day = seconds | nanoseconds | moment.finer;
    int64_t days = csv_days(moment.year, moment.month, moment.day);
    int fits = 1, exact = 1;
    switch (unit) {
    case 'Y':
        exact = !below_day && moment.month == 1 && moment.day == 1;
        *value = moment.year - 1970;
        break;
    case 'M':
        exact = !below_day && moment.day == 1;
        *value = 12 * (moment.year - 1970) + moment.month - 1;
        break;
    case 'W':
        exact = !below_day && days % 7 == 0;
        *value = days / 7;
        break;
    case 'D':
        exact = !below_day;
        *value = days;
        break;
    case 'h':
        exact = seconds % 3600 == 0 && !nanoseconds && !moment.finer;
        fits = csv_scaled(days, 24, seconds / 3600, value);
        break;
    case 'm':
        exact = seconds % 60 == 0 && !nanoseconds && !moment.finer;
        fits = csv_scaled(days, 1440, seconds / 60, value);
        break;
    case 's':
        exact = !nanoseconds && !moment.finer;
        fits = csv_scaled(days, 86400, seconds, value);
        break;
    case 'i':
        exact = nanoseconds % 1000000 == 0 && !moment.finer;
        fits = csv_scaled(days, 86400000, seconds * 1000 + nanoseconds / 1000000, value);
        break;
    case 'u':
        exact = nanoseconds % 1000 == 0 && !moment.finer;
        fits = csv_scaled(days, 86400000000, seconds * 1000000 + nanoseconds / 1000, value);
        break;
    default:
        exact = !moment.finer;
        fits = csv_scaled(days, 86400000000000, seconds * 1000000000 + nanoseconds, value);
    }
    if (!exact) return CSV_VALUE_TOO_FINE;
    return fits && *value != CSV_NOT_A_TIME ? CSV_VALUE_GOOD : CSV_VALUE_TOO_LARGE;
}

#endif
