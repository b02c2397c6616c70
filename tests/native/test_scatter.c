/* Tests of column_hash.h and scatter.h without Python: against plain code that goes row by row, in memory of exactly
 * the right size, so that a sanitizer sees any byte beyond it. Exits 0 when everything held; says what did not
 * otherwise. */
#include <math.h>

#include "check.h"
#include "columns/scatter.h"

/* Memory whose end is exactly where the block's is; the start may be odd. */
static uint8_t *exactly(size_t size) {
    uint8_t *memory = malloc(size ? size : 1);
    CHECK(memory);
    for (size_t i = 0; i < size; i += 8) {
        uint64_t bits = any();
        memcpy(memory + i, &bits, size - i < 8 ? size - i : 8);
    }
    return memory;
}

static key_node_t leaf(char kind, uint32_t itemsize, int64_t rows, const uint8_t *data, key_form_t form) {
    key_node_t node = {.column = {kind, itemsize, rows, data, NULL, NULL}, .form = form, .span = 1};
    return node;
}

/* --- hashes ------------------------------------------------------------------------------------------------------- */

/* Appends the tagged form of one row, built the plain way. */
static size_t tagged(uint8_t *out, const key_node_t *node, int64_t row) {
    key_part_t part;
    key_part(node, row, &part);
    memcpy(out, part.head, part.head_length);
    if (part.length) memcpy(out + part.head_length, part.bytes, part.length);
    return part.head_length + part.length;
}

static uint32_t plain_hash(const key_node_t *nodes, int count, int64_t row) {
    uint8_t bytes[1024];
    if (count == 1) {
        size_t length = tagged(bytes, nodes, row), skip = strchr("ifsb", bytes[0]) != NULL;
        return murmur3_32(bytes + skip, length - skip, 0);
    }
    size_t end = 0;
    bytes[end++] = 't';
    for (int i = 0; i < count; i++) {
        uint32_t length = (uint32_t)tagged(bytes + end + 4, &nodes[i], row);
        memcpy(bytes + end, &length, 4);
        end += 4 + length;
    }
    return murmur3_32(bytes, end, 0);
}

static void check_hashes(const key_node_t *nodes, int count, int64_t rows) {
    uint32_t *hashes = malloc(4 * (size_t)rows + 1);
    row_key_t key = row_key(nodes, count);
    CHECK(key.top == count);
    hash_rows(&key, 0, rows, hashes);
    for (int64_t row = 0; row < rows; row++) CHECK(hashes[row] == plain_hash(nodes, count, row));
    free(hashes);
}

static void test_numbers_of_all_widths(void) {
    const int64_t counts[] = {0, 1, 7, 8, 511, 512, 513, 1500};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (uint32_t itemsize = 1; itemsize <= 8; itemsize *= 2)
            for (const char *kind = "iuf"; *kind; kind++) {
                if (*kind == 'f' && itemsize == 1) continue;
                int64_t rows = counts[i];
                uint8_t *memory = exactly((size_t)(rows * itemsize) + 1), *valid = exactly((size_t)rows);
                for (int64_t row = 0; row < rows; row++) valid[row] %= 3;
                key_node_t nodes[3] = {leaf(*kind, itemsize, rows, memory + 1, *kind == 'f' ? KEY_FLOAT : KEY_NUMBER)};
                check_hashes(nodes, 1, rows);
                nodes[1] = nodes[2] = nodes[0];
                check_hashes(nodes, 3, rows);
                nodes[0].column.valid = valid;
                check_hashes(nodes, 1, rows);
                check_hashes(nodes, 2, rows);
                free(memory);
                free(valid);
            }
}

static void test_floats_that_are_whole(void) {
    const double values[] = {0.0, -0.0, 1.0, -1.0, 0.5, 0x1p51, -0x1p51, 0x1p51 + 0.5, 0x1p52, 0x1p53, 0x1p62, 0x1p63,
                             -0x1p63, -0x1p64, 1e300, NAN, -NAN, INFINITY, -INFINITY, 5e-324, 4503599627370495.5};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        double value = values[i];
        int fits = value >= -0x1p63 && value < 0x1p63 && (double)(int64_t)value == value;
        uint64_t expected, payload;
        uint32_t tag, whole;
        double own = value == value ? value : NAN;
        int64_t integer = fits ? (int64_t)value : 0;
        memcpy(&expected, fits ? (void *)&integer : (void *)&own, 8);
        if (value != value) expected = UINT64_C(0x7ff8000000000000);
        CHECK(float_payload(value, &whole) == expected && (int)whole == fits);
        floats_of_block((const uint8_t *)&value, 8, 1, &payload, &tag);
        CHECK(payload == expected && tag == (fits ? 'i' : 'f'));
    }
    const uint16_t halves[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x3c00, 0xc000, 0x7bff, 0x7c00, 0xfc00};
    const double meant[] = {0.0, -0.0, 0x1p-24, -1023 * 0x1p-24, 1.0, -2.0, 65504.0, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        double value = load_f16((const uint8_t *)&halves[i]);
        CHECK(memcmp(&value, &meant[i], 8) == 0);
    }
}

static void test_text_and_streams(void) {
    enum { ROWS = 600 };
    uint8_t *data = exactly(ROWS * 20), *offsets = exactly(8 * (ROWS + 1));
    uint8_t *padded = exactly(ROWS * 7), *odd = exactly(8 * ROWS);
    int64_t end = 3;
    for (int64_t row = 0; row <= ROWS; row++) {
        memcpy(offsets + 8 * row, &end, 8);
        end += (int64_t)(any() % 20);
    }
    for (size_t i = 0; i < ROWS * 7; i += 1 + any() % 3) padded[i] = 0;
    key_node_t nodes[4] = {leaf('t', 0, ROWS, data, KEY_TEXT), leaf('S', 7, ROWS, padded, KEY_PADDED),
                           leaf('V', 7, ROWS, padded, KEY_RAW), leaf('i', 8, ROWS, odd, KEY_NUMBER)};
    nodes[0].column.offsets = offsets;
    for (int i = 0; i < 4; i++) check_hashes(&nodes[i], 1, ROWS);
    check_hashes(nodes, 4, ROWS);
    free(data);
    free(offsets);
    free(padded);
    free(odd);
}

static void test_months_begin_where_days_say(void) {
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t ordinal = 1; /* of 1 January of year 1 */
    for (int64_t year = 1; year < 10000; year++)
        for (int month = 0; month < 12; month++) {
            CHECK(ordinal_of_month((year - 1970) * 12 + month) == ordinal);
            ordinal += lengths[month] + (month == 1 && year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
        }
}

/* --- remainders --------------------------------------------------------------------------------------------------- */

static void test_remainders_are_exact(void) {
    for (uint32_t divisor = 1; divisor <= 70000; divisor = divisor < 3000 ? divisor + 1 : divisor + 1009) {
        divisor_t by = divisor_of(divisor);
        const uint32_t multiple = UINT32_MAX / divisor * divisor;
        const uint32_t edges[] = {0,           1,        divisor - 1,    divisor,   divisor + 1,
                                  multiple - 1, multiple, UINT32_MAX - 1, UINT32_MAX};
        for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
            CHECK(remainder_by(&by, edges[i]) == edges[i] % divisor);
        for (int i = 0; i < 200; i++) {
            uint32_t number = (uint32_t)any(), near = number / divisor * divisor;
            CHECK(remainder_by(&by, number) == number % divisor);
            CHECK(remainder_by(&by, near) == 0 && remainder_by(&by, near - 1) == (near - 1) % divisor);
        }
    }
}

/* --- scatter ------------------------------------------------------------------------------------------------------ */

enum { WIDTHS = 7 };
static const uint32_t widths[WIDTHS] = {8, 8, 1, 2, 4, 16, 13};

/* Scatters `rows` rows of `columns` columns, the last of which may be text, and compares with what was put. */
static void check_scatter(int consumers, int columns, int64_t rows, int64_t capacity, int masked, int text) {
    const int64_t stride = capacity + 1 + (int64_t)(any() % 5), room = 100;
    builder_t builders[WIDTHS + 1] = {0};
    uint16_t *assigned = malloc(2 * (size_t)rows + 1);
    int64_t *filled = calloc((size_t)consumers, 8), *seen = calloc((size_t)consumers, 8);
    int64_t *counts = calloc((size_t)consumers, 8);
    int32_t table[271];
    for (int i = 0; i < 271; i++) table[i] = (int32_t)(any() % (uint64_t)consumers);
    size_t places = (size_t)(consumers * stride);
    for (int k = 0; k < columns; k++) {
        column_t column = {'V', widths[k], rows, exactly((size_t)rows * widths[k]), NULL, NULL};
        builders[k].column = column;
        builders[k].values = exactly(places * widths[k]);
    }
    if (text) {
        uint8_t *offsets = exactly(8 * (size_t)(rows + 1));
        int64_t end = 0;
        for (int64_t row = 0; row <= rows; row++) {
            memcpy(offsets + 8 * row, &end, 8);
            if (row < rows) end += (int64_t)(any() % 60);
        }
        builder_t *to = &builders[columns++];
        to->column = (column_t){'t', 0, rows, exactly((size_t)end), offsets, NULL};
        to->values = exactly((size_t)(consumers * room));
        to->ends = exactly(8 * places);
        to->text_room = room;
    }
    if (masked) {
        builders[0].column.valid = exactly((size_t)rows);
        builders[0].valid = exactly(places);
        builders[columns - 1].valid = columns > 1 ? exactly(places) : builders[0].valid;
    }
    key_node_t node = leaf('i', 8, rows, builders[0].column.data, KEY_NUMBER);
    row_key_t key = row_key(&node, 1);
    assign_rows(&key, rows, table, 271, assigned, counts);
    for (int64_t row = 0; row < rows; row++) {
        CHECK(assigned[row] == table[plain_hash(&node, 1, row) % 271]);
        counts[assigned[row]]--;
    }
    for (int c = 0; c < consumers; c++) CHECK(counts[c] == 0);

    scatter_t scatter = {builders, columns, assigned, filled, consumers, capacity, stride};
    for (int64_t start = 0, next; start < rows; start = next) {
        next = scatter_rows(&scatter, start, rows);
        memset(seen, 0, 8 * (size_t)consumers);
        for (int64_t row = start; row < next; row++) {
            int64_t consumer = assigned[row], at = consumer * stride + seen[consumer]++;
            for (int k = 0; k < columns; k++) {
                const builder_t *to = &builders[k];
                const column_t *from = &to->column;
                if (to->ends) {
                    int64_t begin = load_i64(to->ends + 8 * at), end = load_i64(to->ends + 8 * (at + 1));
                    int64_t length = column_offset(from, row + 1) - column_offset(from, row);
                    CHECK(end - begin == length && begin >= 0 && end <= room);
                    const uint8_t *value = from->data + column_offset(from, row);
                    CHECK(!memcmp(to->values + consumer * room + begin, value, (size_t)length));
                } else {
                    CHECK(!memcmp(to->values + at * from->itemsize, from->data + row * from->itemsize, from->itemsize));
                }
                if (to->valid) CHECK(to->valid[at] == (from->valid ? from->valid[row] : 1));
            }
        }
        for (int c = 0; c < consumers; c++) CHECK(filled[c] == seen[c]);
        if (next < rows) CHECK(filled[assigned[next]] == capacity || (text && filled[assigned[next]] > 0));
        memset(filled, 0, 8 * (size_t)consumers);
    }
    for (int k = 0; k < columns; k++) {
        free((void *)builders[k].column.data);
        free((void *)builders[k].column.offsets);
        free((void *)builders[k].column.valid);
        free(builders[k].values);
        free(builders[k].ends);
        if (k == 0 || builders[k].valid != builders[0].valid) free(builders[k].valid);
    }
    free(assigned);
    free(filled);
    free(seen);
    free(counts);
}

static void test_rows_reach_their_consumers_in_order(int most_places) {
    const int consumers[] = {1, 2, 8, 9, 100};
    const int64_t rows[] = {0, 1, 1023, 5000}, capacities[] = {1, 300, 6000};
    for (size_t c = 0; c < 5; c++)
        for (size_t r = 0; r < 4; r++)
            for (size_t k = 0; k < 3 && consumers[c] * capacities[k] <= most_places; k++)
                for (int columns = 1; columns <= WIDTHS; columns += columns < 3 ? 1 : 4)
                    for (int masked = 0; masked < 2; masked++)
                        for (int text = 0; text < 2; text++)
                            check_scatter(consumers[c], columns, rows[r], capacities[k], masked, text);
}

static void test_a_row_without_a_consumer_stops(void) {
    uint16_t assigned[] = {0, 1, 7, 0};
    int64_t filled[2] = {0, 0};
    uint8_t from[32] = {0}, to[2 * 9 * 8];
    builder_t builder = {.column = {'i', 8, 4, from, NULL, NULL}, .values = to};
    scatter_t scatter = {&builder, 1, assigned, filled, 2, 8, 9};
    CHECK(scatter_rows(&scatter, 0, 4) == 2 && filled[0] == 1 && filled[1] == 1);
}

/* --- take --------------------------------------------------------------------------------------------------------- */

static void test_take_of_text(void) {
    enum { ROWS = 300, TAKEN = 500 };
    uint8_t *offsets = exactly(8 * (ROWS + 1)), *indices = exactly(8 * TAKEN), *ends = exactly(8 * (TAKEN + 1));
    int64_t end = 5, row;
    for (row = 0; row <= ROWS; row++) {
        memcpy(offsets + 8 * row, &end, 8);
        if (row < ROWS) end += (int64_t)(any() % 50);
    }
    uint8_t *data = exactly((size_t)end);
    column_t column = {'t', 0, ROWS, data, offsets, NULL};
    for (int64_t i = 0; i < TAKEN; i++) {
        row = (int64_t)(any() % (2 * ROWS)) - ROWS;
        memcpy(indices + 8 * i, &row, 8);
    }
    CHECK(take_text_ends(&column, end, indices, TAKEN, ends) == -1);
    uint8_t *out = exactly((size_t)load_i64(ends + 8 * TAKEN));
    CHECK(take_text(&column, end, indices, TAKEN, ends, out));
    for (int64_t i = 0; i < TAKEN; i++) {
        row = load_i64(indices + 8 * i);
        row += row < 0 ? ROWS : 0;
        int64_t begin = load_i64(ends + 8 * i), length = load_i64(ends + 8 * (i + 1)) - begin;
        CHECK(length == column_offset(&column, row + 1) - column_offset(&column, row));
        CHECK(!memcmp(out + begin, data + column_offset(&column, row), (size_t)length));
    }
    int64_t total = load_i64(ends + 8 * TAKEN) + 1;
    memcpy(ends + 8 * TAKEN, &total, 8);
    out = realloc(out, (size_t)total);
    CHECK(!take_text(&column, end, indices, TAKEN, ends, out));
    CHECK(take_text_ends(&column, end - 1, offsets + 8 * ROWS, 1, ends) == 0);
    row = ROWS;
    CHECK(take_text_ends(&column, end, (uint8_t *)&row, 1, ends) == 0);
    row = -ROWS - 1;
    CHECK(take_text_ends(&column, end, (uint8_t *)&row, 1, ends) == 0);
    free(out);
    free(data);
    free(offsets);
    free(indices);
    free(ends);
}

/* The argument is the most places that a column has for all consumers together, 0 for any number. */
int main(int argc, char **argv) {
    int most_places = argc > 1 ? atoi(argv[1]) : 0;
    test_numbers_of_all_widths();
    test_floats_that_are_whole();
    test_text_and_streams();
    test_months_begin_where_days_say();
    test_remainders_are_exact();
    test_rows_reach_their_consumers_in_order(most_places ? most_places : INT32_MAX);
    test_a_row_without_a_consumer_stops();
    test_take_of_text();
    puts("ok");
    return 0;
}
