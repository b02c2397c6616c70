/* Tests of join.h, join_build.h and join_probe.h without Python: random keys against
 * comparing every row with every other.
 *
 * Exits 0 when everything held; says what did not otherwise. */
#define _GNU_SOURCE
#include <math.h>

#include "check.h"
#include "columns/join_build.h"
#include "columns/join_probe.h"

enum { MOST_ROWS = 1000 };

typedef struct {
    column_t column;
    uint8_t *data, *offsets, *valid; /* each begins at an odd address, one byte into its block */
} test_column_t;

static uint8_t *odd(size_t bytes) {
    uint8_t *memory = malloc(bytes + 1);
    CHECK(memory);
    return memory + 1;
}

static void test_column_free(test_column_t *made) {
    if (made->data) free(made->data - 1);
    if (made->offsets) free(made->offsets - 1);
    if (made->valid) free(made->valid - 1);
}

/* Kinds: 'i' int64, 'd' int16, 'f' float64 with halves and NaN, 't' text, 's' fixed bytes, 'c' complex. */
static test_column_t test_column(char kind, int64_t rows, uint64_t range, int nulls) {
    test_column_t made = {.column = {.kind = kind == 'd' ? 'i' : kind == 's' ? 'S' : kind, .rows = rows}};
    made.column.itemsize = kind == 't' ? 0 : kind == 'd' ? 2 : kind == 's' ? 3 : kind == 'c' ? 16 : 8;
    if (kind == 't') {
        made.offsets = odd((size_t)(8 * (rows + 1)));
        int64_t at = 5;
        for (int64_t i = 0; i <= rows; i++) {
            memcpy(made.offsets + 8 * i, &at, 8);
            at += i < rows ? (int64_t)(any() % 2 ? any() % 3 : any() % 20) : 0;
        }
        made.data = odd((size_t)at);
        for (int64_t i = 0; i < at; i++) made.data[i] = (uint8_t)('a' + any() % 2);
    } else {
        made.data = odd((size_t)(rows * made.column.itemsize));
        for (int64_t i = 0; i < rows; i++) {
            int64_t value = (int64_t)(any() % range);
            double number = any() % 9 ? (double)value / (any() % 2 ? 1 : 2) : (double)NAN,
                   imaginary = (double)(any() % 2);
            uint8_t *at = made.data + i * made.column.itemsize;
            if (kind == 's')
                for (int b = 0; b < 3; b++) at[b] = any() % 2 ? 0 : (uint8_t)('a' + any() % 2);
            else
                memcpy(at, kind == 'f' || kind == 'c' ? (void *)&number : (void *)&value,
                       made.column.itemsize < 8 ? 2 : 8);
            if (kind == 'c') memcpy(at + 8, &imaginary, 8);
        }
    }
    if (nulls) {
        made.valid = odd((size_t)rows);
        for (int64_t i = 0; i < rows; i++) made.valid[i] = any() % 5 != 0;
    }
    made.column.data = made.data;
    made.column.offsets = made.offsets;
    made.column.valid = made.valid;
    return made;
}

static double real_of(const column_t *column, int64_t row, double *imaginary) {
    const uint8_t *p = column->data + row * column->itemsize;
    int16_t small;
    *imaginary = column->kind == 'c' ? load_f64(p + 8) : 0;
    memcpy(&small, p, 2);
    return column->kind == 'i' ? column->itemsize == 2 ? small : (double)load_i64(p) : load_f64(p);
}

static int64_t bytes_of(const column_t *column, int64_t row, const uint8_t **p) {
    if (column->kind == 't') {
        *p = column->data + column_offset(column, row);
        return column_offset(column, row + 1) - column_offset(column, row);
    }
    int64_t length = 3;
    *p = column->data + 3 * row;
    while (length && !(*p)[length - 1]) length--;
    return length;
}

/* The reference, written without join_keys.h. */
static int equal(const column_t *a, int64_t i, const column_t *b, int64_t j) {
    if (column_is_null(a, i) || column_is_null(b, j)) return 0;
    int bytes_a = strchr("tS", a->kind) != NULL, bytes_b = strchr("tS", b->kind) != NULL;
    if (bytes_a != bytes_b || (bytes_a && a->kind != b->kind)) return 0;
    if (!bytes_a) {
        double x, y;
        return real_of(a, i, &x) == real_of(b, j, &y) && x == y;
    }
    const uint8_t *p, *q;
    int64_t length = bytes_of(a, i, &p);
    return length == bytes_of(b, j, &q) && !memcmp(p, q, (size_t)length);
}

/* Some rows of a key column. */
static key_column_t part(const key_column_t *key, int64_t first, int64_t rows) {
    key_column_t made = *key;
    made.column.rows = rows;
    if (made.column.offsets) made.column.offsets += 8 * first;
    else made.column.data += made.column.itemsize * first;
    if (made.column.valid) made.column.valid += first;
    return made;
}

/* Adds all rows in two calls, for some tables after a survey in two. */
static void add(join_table_t *table, const key_column_t *keys, int count, int64_t rows) {
    key_column_t some[3];
    const int64_t half = rows ? (int64_t)(any() % (uint64_t)rows) : 0;
    for (int survey = (int)(any() % 2); survey >= 0; survey--)
        for (int second = 0; second < 2; second++) {
            const int64_t first = second ? half : 0, some_rows = second ? rows - half : half;
            for (int c = 0; c < count; c++) some[c] = part(&keys[c], first, some_rows);
            if (survey) join_survey(table, some, count, some_rows);
            else CHECK(join_add(table, some, count, some_rows) == JOIN_OK);
        }
}

static void check_join(const char *build_kinds, const char *probe_kinds, int64_t build_rows, int64_t probe_rows,
                       uint64_t range, int64_t room) {
    test_column_t build[3], probe[3];
    key_column_t build_keys[3], probe_keys[3];
    int count = (int)strlen(build_kinds), outer = (int)(any() % 2);
    join_table_t table;
    CHECK(join_open(&table) == JOIN_OK);
    for (int c = 0; c < count; c++) {
        build[c] = test_column(build_kinds[c], build_rows, range, any() % 2);
        probe[c] = test_column(probe_kinds[c], probe_rows, range, any() % 2);
        CHECK(key_column(&build_keys[c], &build[c].column) == 0 && key_column(&probe_keys[c], &probe[c].column) == 0);
    }
    add(&table, build_keys, count, build_rows);
    CHECK(table.rows == build_rows);
    uint8_t *probe_out = odd((size_t)room * 8), *build_out = odd((size_t)room * 8), *there = odd((size_t)probe_rows);
    join_contains(&table, probe_keys, probe_rows, there);
    join_place_t place = {0, -1};
    join_pairs_t pairs = {probe_out, build_out, 0, room, 1};
    int64_t next = 0;
    for (int64_t i = 0; i < probe_rows; i++) {
        int found = 0;
        for (int64_t j = 0; j <= build_rows; j++) {
            int64_t wanted = j;
            if (j < build_rows) {
                int same = 1;
                for (int c = 0; c < count; c++) same = same && equal(&build[c].column, j, &probe[c].column, i);
                if (!same) continue;
                found = 1;
            } else {
                if (found || !outer) continue;
                wanted = -1;
            }
            if (next == pairs.count) {
                const int64_t first = place.row;
                next = pairs.count = 0;
                pairs.is_run = 1;
                join_probe(&table, probe_keys, probe_rows, outer, &pairs, &place);
                CHECK(pairs.count > 0 && pairs.count <= room);
                CHECK(!pairs.is_run || place.row == first + pairs.count);
                for (int64_t p = 0; pairs.is_run && p < pairs.count; p++)
                    CHECK(load_i64(probe_out + 8 * p) == first + p);
            }
            CHECK(load_i64(probe_out + 8 * next) == i && load_i64(build_out + 8 * next) == wanted);
            next++;
        }
        CHECK(there[i] == found);
    }
    CHECK(next == pairs.count);
    pairs.count = 0;
    join_probe(&table, probe_keys, probe_rows, outer, &pairs, &place);
    CHECK(pairs.count == 0 && place.row == probe_rows);
    free(probe_out - 1);
    free(build_out - 1);
    free(there - 1);
    for (int c = 0; c < count; c++) {
        test_column_free(&build[c]);
        test_column_free(&probe[c]);
    }
    join_close(&table);
}

/* Many different keys, so that the table grows repeatedly, and every key is found at every moment of it. */
static void check_growth(int64_t rows, int columns, int64_t apart, int surveyed) {
    int64_t *values = malloc((size_t)rows * 8);
    for (int64_t i = 0; i < rows; i++) values[i] = i * apart;
    column_t column = {.kind = 'i', .itemsize = 8, .rows = 0, .data = (uint8_t *)values};
    join_table_t table;
    CHECK(join_open(&table) == JOIN_OK);
    uint8_t *there = malloc((size_t)rows);
    if (surveyed) {
        key_column_t keys[5];
        column.rows = rows;
        CHECK(key_column(&keys[0], &column) == 0);
        for (int k = 1; k < 5; k++) keys[k] = keys[0];
        join_survey(&table, keys, columns, rows);
    }
    for (int64_t at = 0, step = 1; at < rows; at += step, step = 1 + (int64_t)(any() % 3000)) {
        if (step > rows - at) step = rows - at;
        key_column_t keys[5];
        column.data = (uint8_t *)(values + at);
        column.rows = step;
        CHECK(key_column(&keys[0], &column) == 0);
        for (int k = 1; k < 5; k++) keys[k] = keys[0];
        CHECK(join_add(&table, keys, columns, step) == JOIN_OK);
        column.rows = at + step < 500 ? at + step : 500;
        column.data = (uint8_t *)(values + (at + step - column.rows) * (int64_t)(any() % 2));
        CHECK(key_column(&keys[0], &column) == 0);
        for (int k = 1; k < 5; k++) keys[k] = keys[0];
        join_contains(&table, keys, column.rows, there);
        for (int64_t i = 0; i < column.rows; i++) CHECK(there[i]);
    }
    const int packed = surveyed && columns == 2; /* three columns span too much */
    CHECK(table.used == rows &&
          table.mode == (columns == 1 || packed    ? JOIN_ONE
                         : columns <= JOIN_NUMBERS ? JOIN_TUPLE
                                                   : JOIN_ANY) &&
          (table.direct.slots != NULL) == (surveyed && columns == 1 && apart < JOIN_DIRECT_SLOTS) &&
          join_memory(&table) > (size_t)rows * (table.direct.slots ? 4 * (size_t)apart - 1 : 16));
    CHECK(!surveyed || table.mode != JOIN_ONE || join_memory(&table) < (size_t)rows * 100);
    free(there);
    free(values);
    join_close(&table);
}

int main(void) {
    const char *const kinds[][2] = {{"i", "i"},   {"i", "d"},   {"i", "f"},   {"f", "i"},    {"f", "c"}, {"c", "i"},
                                    {"t", "t"},   {"s", "s"},   {"i", "t"},   {"t", "i"},    {"s", "t"}, {"ii", "id"},
                                    {"if", "fi"}, {"if", "tc"}, {"ii", "fc"}, {"di", "it"}, {"iid", "idi"},
                                    {"it", "ft"}, {"sit", "sit"}};
    const int64_t sizes[] = {0, 1, 63, 65, MOST_ROWS};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t b = 0; b < 5; b++)
            for (size_t p = 0; p < 5; p++) {
                check_join(kinds[k][0], kinds[k][1], sizes[b], sizes[p] / 4, 30, 1 + (int64_t)(any() % 700));
                check_join(kinds[k][0], kinds[k][1], sizes[b], sizes[p] / 4, 3, 1 + (int64_t)(any() % 700));
            }
    for (int surveyed = 0; surveyed < 2; surveyed++) {
        check_growth(700000, 1, 7, surveyed);
        check_growth(200000, 1, 5, surveyed);
        check_growth(200000, 2, 7, surveyed);
        check_growth(700000, 3, 7, surveyed);
        check_growth(100000, 5, 7, surveyed);
    }
    puts("ok");
    return 0;
}
