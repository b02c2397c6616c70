/* Tests of order.h, sort.h and merge.h without Python: random columns against a plain stable sort. All memory of a
 * column is allocated to its exact size and off by one byte, so that sanitizers see every byte too many.
 *
 * Exits 0 when everything held; says what did not otherwise. */
#include <math.h>
#include <string.h>

#include "check.h"
#include "columns/merge.h"
#include "columns/sort.h"

/* Exactly `bytes`, at an odd address. */
static uint8_t *odd(size_t bytes, void **block) {
    uint8_t *memory = malloc(bytes + 1);
    CHECK(memory);
    *block = memory;
    return memory + 1;
}

typedef struct {
    column_t column;
    void *blocks[3];
    int descending;
} test_column_t;

static void test_column_free(test_column_t *made) {
    for (int i = 0; i < 3; i++) free(made->blocks[i]);
}

/* Kinds: 'i' with a range, 'f' with NaN and both zeros, 't' short and long with shared prefixes, 'S'. */
static test_column_t test_column(char kind, int64_t rows, uint64_t range, int nulls) {
    test_column_t made = {.column = {.kind = kind, .rows = rows}};
    if (kind == 't') {
        uint8_t *offsets = odd((size_t)(8 * (rows + 1)), &made.blocks[1]), text[256];
        int64_t at = 3; /* the first offset need not be 0 */
        for (int64_t i = 0; i <= rows; i++) {
            memcpy(offsets + 8 * i, &at, 8);
            at += i < rows ? (int64_t)(any() % range) : 0;
        }
        uint8_t *data = odd((size_t)at, &made.blocks[0]);
        memset(text, 'a', sizeof text);
        for (int64_t i = 0; i < at; i++) data[i] = any() % 8 ? 'a' : (uint8_t)any();
        made.column.data = data;
        made.column.offsets = offsets;
    } else {
        made.column.itemsize = kind == 'S' ? 11 : 8;
        uint8_t *data = odd((size_t)(rows * made.column.itemsize), &made.blocks[0]);
        for (int64_t i = 0; i < rows; i++) {
            int64_t value = (int64_t)(any() % range - range / 2);
            double number = any() % 8   ? (double)value / 4
                            : any() % 2 ? (double)NAN
                            : any() % 2 ? -0.0
                                        : (double)INFINITY;
            if (kind == 'i') memcpy(data + 8 * i, &value, 8);
            if (kind == 'f') memcpy(data + 8 * i, &number, 8);
            for (int b = 0; kind == 'S' && b < 11; b++) data[11 * i + b] = any() % range ? 0 : (uint8_t)any();
        }
        made.column.data = data;
    }
    if (nulls) {
        uint8_t *valid = odd((size_t)rows, &made.blocks[2]);
        for (int64_t i = 0; i < rows; i++) valid[i] = any() % 5 != 0;
        made.column.valid = valid;
    }
    return made;
}

/* The reference, written without order.h. */
static int compare(const test_column_t *columns, int count, int nulls_first, int64_t a, int64_t b) {
    for (int c = 0; c < count; c++) {
        const column_t *column = &columns[c].column;
        int order = 0, sign = columns[c].descending ? -1 : 1;
        int none_a = column_is_null(column, a), none_b = column_is_null(column, b);
        if (none_a != none_b) return none_a != nulls_first ? 1 : -1;
        if (none_a) continue;
        if (column->kind == 'i') {
            int64_t x = load_i64(column->data + 8 * a), y = load_i64(column->data + 8 * b);
            order = (x > y) - (x < y);
        } else if (column->kind == 'f') {
            double x = load_f64(column->data + 8 * a), y = load_f64(column->data + 8 * b);
            if (isnan(x) != isnan(y)) return isnan(x) ? 1 : -1;
            order = (x > y) - (x < y);
        } else if (column->kind == 'S') {
            order = memcmp(column->data + 11 * a, column->data + 11 * b, 11);
        } else {
            int64_t x = column_offset(column, a), y = column_offset(column, b);
            int64_t length_x = column_offset(column, a + 1) - x, length_y = column_offset(column, b + 1) - y;
            order = memcmp(column->data + x, column->data + y, (size_t)(length_x < length_y ? length_x : length_y));
            if (!order) order = (length_x > length_y) - (length_x < length_y);
        }
        if (order) return sign * order;
    }
    return 0;
}

static void check_sort(const char *kinds, int64_t rows, uint64_t range, int nulls) {
    test_column_t columns[4];
    order_key_t keys[4];
    int count = (int)strlen(kinds), nulls_first = (int)(any() % 2);
    for (int c = 0; c < count; c++) {
        columns[c] = test_column(kinds[c], rows, range, nulls);
        columns[c].descending = (int)(any() % 2);
        CHECK(order_key(&keys[c], &columns[c].column, columns[c].descending, nulls_first) == 0);
    }
    uint64_t *out = malloc((size_t)rows * 8 + 1), *spare = malloc((size_t)rows * 8 + 1);
    argsort(keys, count, rows, rows, out, spare);
    for (int64_t i = 1; i < rows; i++) {
        int order = compare(columns, count, nulls_first, (int64_t)out[i - 1], (int64_t)out[i]);
        CHECK(order < 0 || (order == 0 && out[i - 1] < out[i]));
    }
    int64_t limit = rows / 3;
    uint64_t *top = malloc((size_t)rows * 8 + 1);
    argsort(keys, count, rows, limit, top, spare);
    CHECK(!memcmp(top, out, (size_t)limit * 8));
    for (int64_t i = 0; i < rows; i++) spare[i] = 0;
    for (int64_t i = 0; i < rows; i++) spare[top[i]]++;
    for (int64_t i = 0; i < rows; i++) CHECK(spare[i] == 1);
    free(top);
    free(out);
    free(spare);
    for (int c = 0; c < count; c++) test_column_free(&columns[c]);
}

/* Texts that are all one another's prefixes: every level of the sort splits a few off, which must not deepen the
 * recursion. */
static void check_prefixes(int64_t rows) {
    uint8_t *offsets = malloc((size_t)(8 * (rows + 1)));
    int64_t at = 0;
    for (int64_t i = 0; i <= rows; i++, at += i % rows) memcpy(offsets + 8 * i, &at, 8);
    uint8_t *data = malloc((size_t)at);
    memset(data, 'x', (size_t)at);
    column_t column = {.kind = 'y', .rows = rows, .data = data, .offsets = offsets};
    order_key_t key;
    CHECK(order_key(&key, &column, 1, 0) == 0);
    uint64_t *out = malloc((size_t)rows * 8), *spare = malloc((size_t)rows * 8);
    argsort(&key, 1, rows, rows, out, spare);
    for (int64_t i = 1; i < rows; i++) {
        int64_t a = (int64_t)out[i - 1], b = (int64_t)out[i];
        CHECK(column_offset(&column, a + 1) - column_offset(&column, a) >=
              column_offset(&column, b + 1) - column_offset(&column, b));
    }
    free(out);
    free(spare);
    free(data);
    free(offsets);
}

static void check_merge(int64_t run_count, int64_t step, uint64_t range) {
    test_column_t columns[8];
    order_key_t keys[8];
    merge_run_t runs[8];
    int64_t ends[8], starts[8] = {0}, last_run = 0, last_row = -1, total = 0;
    for (int64_t r = 0; r < run_count; r++) {
        int64_t rows = (int64_t)(any() % 50);
        columns[r] = test_column('i', rows, range, 0);
        int64_t *values = malloc((size_t)rows * 8 + 8);
        for (int64_t i = 0; i < rows; i++) values[i] = (int64_t)(range * (uint64_t)i) / 50;
        memcpy((uint8_t *)columns[r].blocks[0] + 1, values, (size_t)rows * 8);
        free(values);
        order_key(&keys[r], &columns[r].column, 0, 0);
        runs[r] = (merge_run_t){&keys[r], rows, 0};
        total += rows;
    }
    for (;;) {
        int64_t rows = merge_cut(runs, run_count, 1, step, ends);
        CHECK(rows <= step * run_count && rows <= total);
        if (!rows) break;
        total -= rows;
        /* all in this slice comes after the last row of the slice before */
        for (int64_t r = 0; r < run_count; r++) {
            if (ends[r] == starts[r]) continue;
            if (last_row >= 0) {
                int order = order_compare(&keys[last_run], last_row, &keys[r], starts[r], 1, 0);
                CHECK(order < 0 || (order == 0 && last_run <= r));
            }
            starts[r] = ends[r];
        }
        for (int64_t r = 0; r < run_count; r++)
            if (ends[r] &&
                (last_row < 0 || order_compare(&keys[last_run], last_row, &keys[r], ends[r] - 1, 1, 0) <= 0)) {
                last_run = r;
                last_row = ends[r] - 1;
            }
    }
    CHECK(total == 0);
    for (int64_t r = 0; r < run_count; r++) test_column_free(&columns[r]);
}

int main(void) {
    const char *const kinds[] = {"i", "f", "t", "S", "ii", "it", "ti", "ft", "tt", "ifSt"};
    const int64_t sizes[] = {0, 1, 2, 3, 12, 13, 40, 300, 3000, 20000};
    const uint64_t ranges[] = {2, 10, 1000};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t r = 0; r < 3; r++)
                check_sort(kinds[k], sizes[s], ranges[r] == 1000 && strchr(kinds[k], 't') ? 60 : ranges[r],
                           (int)(any() % 2));
    for (int64_t rows = 2; rows < 70000; rows *= 31) {
        check_sort("i", rows, UINT64_MAX, 0);
        check_sort("ii", rows, UINT64_MAX, 1);
        check_sort("f", rows, UINT64_MAX, 0);
    }
    check_prefixes(3000);
    for (int64_t runs = 1; runs <= 8; runs++)
        for (int64_t step = 1; step < 60; step += 7) {
            check_merge(runs, step, 10);
            check_merge(runs, step, 1000);
        }
    puts("ok");
    return 0;
}
