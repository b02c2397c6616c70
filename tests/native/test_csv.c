/* Tests of csv.h, its values and lines.h without Python: edges by hand, then random text that is parsed in every way in
 * which it can be cut. Exits 0 when everything held; says what did not otherwise. */
#include <math.h>

#include "check.h"
#include "columns/column.h"
#include "columns/csv.h"
#include "columns/lines.h"

enum { ROWS = 64, TEXT = 4096 };

static int slow(const uint8_t *text, size_t length, double *value) {
    char copy[512];
    CHECK(length < sizeof copy);
    memcpy(copy, text, length);
    copy[length] = 0;
    *value = strtod(copy, NULL);
    return 0;
}

/* A copy of a string with nothing around it, so that the sanitizer sees what is read outside it. */
static uint8_t *exactly(const char *string, size_t length) {
    uint8_t *copy = malloc(length + !length);
    CHECK(copy);
    memcpy(copy, string, length);
    return copy;
}

static void test_integers(void) {
    static const struct {
        const char *text;
        int result, negative;
        uint64_t magnitude;
    } cases[] = {
        {"0", 0, 0, 0},
        {"-0", 0, 1, 0},
        {"+7", 0, 0, 7},
        {"12345678", 0, 0, 12345678},
        {"123456789", 0, 0, 123456789},
        {"1234567890123456789", 0, 0, 1234567890123456789u},
        {"18446744073709551615", 0, 0, 18446744073709551615u},
        {"18446744073709551616", CSV_VALUE_TOO_LARGE, 0, 0},
        {"00000000000000000000000000042", 0, 0, 42},
        {"-9223372036854775808", 0, 1, 9223372036854775808u},
        {"", CSV_VALUE_UNREADABLE, 0, 0},
        {"-", CSV_VALUE_UNREADABLE, 0, 0},
        {"1 2", CSV_VALUE_UNREADABLE, 0, 0},
        {"12345678a", CSV_VALUE_UNREADABLE, 0, 0},
        {"a2345678", CSV_VALUE_UNREADABLE, 0, 0},
        {"1.0", CSV_VALUE_UNREADABLE, 0, 0},
        {"--1", CSV_VALUE_UNREADABLE, 0, 0},
        {"1234567890123456789x", CSV_VALUE_UNREADABLE, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t before = 0; before < 40; before += 13) { /* with and without room to read words before it */
            char padded[128] = {0};
            memset(padded, '5', before);
            strcpy(padded + before, cases[i].text);
            size_t length = strlen(padded);
            uint8_t *text = exactly(padded, length);
            int negative;
            uint64_t magnitude = 0;
            csv_value_t result = csv_integer(text + before, text + length, text, &negative, &magnitude);
            CHECK((int)result == cases[i].result);
            if (!result) CHECK(negative == cases[i].negative && magnitude == cases[i].magnitude);
            free(text);
        }
}

static void check_float(const char *string) {
    for (size_t before = 0; before < 40; before += 13) {
        char padded[600];
        memset(padded, '5', before);
        strcpy(padded + before, string);
        size_t length = strlen(padded);
        uint8_t *text = exactly(padded, length);
        double value = 0, wanted = strtod(string, NULL);
        CHECK(csv_float(text + before, text + length, text, slow, &value) == CSV_VALUE_GOOD);
        if (memcmp(&value, &wanted, 8)) fprintf(stderr, "%s became %.17g, not %.17g\n", string, value, wanted);
        CHECK(!memcmp(&value, &wanted, 8));
        free(text);
    }
}

static void test_floats(void) {
    static const char *const good[] = {
        "0",
        "-0",
        "1",
        "1.",
        ".5",
        "-.5",
        "0.1",
        "12345.678",
        "1e5",
        "1E-5",
        "1e+22",
        "1e23",
        "1e400",
        "-1e400",
        "1e-400",
        "4.9e-324",
        "2.2250738585072011e-308",
        "1.7976931348623157e308",
        "9007199254740993",
        "9007199254740992.5",
        "0.000000000000000000000000001",
        "123456789012345678901234567890",
        "0.30000000000000004",
        "1e-60",
        "18446744073709551615e60",
        "9999999999999999999e-60",
        "00000000000000000000000000000000001.5",
        "0.00000000000000000000000000000000000000000000000000000000000012345",
        "5e-324",
        "1.00000000000000011102230246251565404",
        "7.2057594037927933e16",
        "8.5",
        "4503599627370496.5",
        "4503599627370497.5",
        "1.5e0000000000001",
        "0e99999999999999999999",
    };
    static const char *const bad[] = {"",   "-",  ".",   "e5",  "1e",   "1e+", ".e5",   "1..2", "1.2.3",
                                      "1 ", " 1", "0x1", "1_0", "nan0", "in",  "1e5.0", "--1",  "+-1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) check_float(good[i]);
    double value;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t length = strlen(bad[i]);
        uint8_t *text = exactly(bad[i], length);
        CHECK(csv_float(text, text + length, text, slow, &value) == CSV_VALUE_UNREADABLE);
        free(text);
    }
    static const char *const named[] = {"NaN", "inf", "-Infinity"};
    for (size_t i = 0; i < 3; i++) {
        size_t length = strlen(named[i]);
        uint8_t *text = exactly(named[i], length);
        CHECK(csv_float(text, text + length, text, slow, &value) == CSV_VALUE_GOOD);
        CHECK(i == 0 ? isnan(value) : i == 1 ? value == INFINITY : value == -INFINITY);
        free(text);
    }
    /* random digits, points and exponents; then random doubles, as precise as can be */
    for (int i = 0; i < 200000; i++) {
        char text[64];
        uint64_t whole = (uint64_t)draw(1u << 31) << 33 ^ (uint64_t)draw(1u << 31) << 11 ^ draw(1u << 31);
        if (i % 2) {
            whole >>= draw(63);
            snprintf(text, sizeof text, "%s%llu.%0*ue%d", draw(2) ? "-" : "", (unsigned long long)whole,
                     1 + (int)draw(9), (unsigned)draw(1000), (int)draw(160) - 80);
        } else {
            double drawn;
            memcpy(&drawn, &whole, 8);
            if (!isfinite(drawn)) continue;
            snprintf(text, sizeof text, "%.*g", 1 + (int)draw(19), drawn);
        }
        check_float(text);
    }
}

static csv_value_t date(const char *string, char unit, int64_t *value) {
    size_t length = strlen(string);
    uint8_t *text = exactly(string, length);
    csv_value_t result = csv_date(text, text + length, unit, value);
    free(text);
    return result;
}

static void test_dates(void) {
    int64_t value;
    CHECK(!date("1970-01-01", 'D', &value) && value == 0);
    CHECK(!date("1969-12-31", 'D', &value) && value == -1);
    CHECK(!date("2000-02-29", 'D', &value) && value == 11016);
    CHECK(!date("0000-01-01", 'D', &value) && value == -719528);
    CHECK(!date("-0001-12-31", 'D', &value) && value == -719529);
    CHECK(date("1900-02-29", 'D', &value) == CSV_VALUE_UNREADABLE);
    CHECK(date("2013-13-01", 'D', &value) == CSV_VALUE_UNREADABLE);
    CHECK(date("2013-00-01", 'D', &value) == CSV_VALUE_UNREADABLE);
    CHECK(date("2013-1-1", 'D', &value) == CSV_VALUE_UNREADABLE);
    CHECK(date("2013-01-01x", 'D', &value) == CSV_VALUE_UNREADABLE);
    CHECK(date("2013-01", 'D', &value) == CSV_VALUE_UNREADABLE);
    CHECK(date("", 'D', &value) == CSV_VALUE_UNREADABLE);
    CHECK(!date("2013-01", 'M', &value) && value == 12 * 43);
    CHECK(!date("2013", 'Y', &value) && value == 43);
    CHECK(!date("1969-12-25", 'W', &value) && value == -1);
    CHECK(date("1969-12-26", 'W', &value) == CSV_VALUE_TOO_FINE);
    CHECK(!date("2013-01-01T00:00:00.000Z", 'D', &value) && value == 15706);
    CHECK(date("2013-01-01T00:01", 'D', &value) == CSV_VALUE_TOO_FINE);
    CHECK(!date("1969-12-31 23:59:59.999999999", 'n', &value) && value == -1);
    CHECK(date("1969-12-31 23:59:59.9999999991", 'n', &value) == CSV_VALUE_TOO_FINE);
    CHECK(!date("1969-12-31 23:59:59.999", 'i', &value) && value == -1);
    CHECK(date("2013-01-01T24:00", 's', &value) == CSV_VALUE_UNREADABLE);
    CHECK(date("2013-01-01T10:00:00+02:00", 's', &value) == CSV_VALUE_UNREADABLE);
    CHECK(!date("1677-09-21T00:12:43.145224193", 'n', &value) && value == -INT64_MAX);
    CHECK(date("1677-09-21T00:12:43.145224192", 'n', &value) == CSV_VALUE_TOO_LARGE);
    CHECK(!date("2262-04-11T23:47:16.854775807", 'n', &value) && value == INT64_MAX);
    CHECK(date("2262-04-11T23:47:16.854775808", 'n', &value) == CSV_VALUE_TOO_LARGE);
    CHECK(!date("NaT", 's', &value) && value == CSV_NOT_A_TIME);
}

/* A table of an int64, a float32, a text and an unwanted column, and the plan for it. */
typedef struct {
    csv_plan_t plan;
    csv_column_t columns[4];
    csv_token_t nulls[2];
    uint8_t integers[8 * ROWS], floats[4 * ROWS], text[TEXT], offsets[8 * (ROWS + 1)], valid[3][ROWS];
} table_t;

static void table_open(table_t *table) {
    memset(table, 0, sizeof *table);
    table->columns[0] = (csv_column_t){'i', 0, 8, table->integers, 0, NULL, table->valid[0]};
    table->columns[1] = (csv_column_t){'f', 0, 4, table->floats, 0, NULL, table->valid[1]};
    table->columns[2] = (csv_column_t){'t', 0, 0, table->text, TEXT, table->offsets, table->valid[2]};
    table->nulls[0] = (csv_token_t){(const uint8_t *)"", 0};
    table->nulls[1] = (csv_token_t){(const uint8_t *)"NA", 2};
    table->plan = (csv_plan_t){table->columns, 4, table->nulls, 2, 1 | 1 << 2, NULL, 0, slow, ROWS};
}

static csv_text_t text_of(const uint8_t *data, size_t size, int at_end) {
    return (csv_text_t){data, (int64_t)size, at_end, ',', '"', 1};
}

static void test_records(void) {
    static const char file[] = "1,.5,\"a\"\"b\r\n,c\",x\r\n\n,NA,\"NA\",\"\"\r-9223372036854775808,1e39,NA,";
    table_t table;
    table_open(&table);
    uint8_t *data = exactly(file, sizeof file - 1);
    csv_text_t text = text_of(data, sizeof file - 1, 1);
    csv_result_t result = {0};
    CHECK(csv_parse(&table.plan, &text, text.size, &result) == CSV_STOPPED);
    CHECK(result.rows == 3 && result.position == text.size);
    CHECK(load_i64(table.integers) == 1 && table.valid[0][0] && !table.valid[0][1] && table.valid[0][2]);
    CHECK(load_i64(table.integers + 16) == INT64_MIN);
    CHECK(!memcmp(table.text, "a\"b\r\n,cNA", 9) && load_i64(table.offsets + 8) == 7 &&
          load_i64(table.offsets + 24) == 9);
    CHECK(table.valid[2][1] && !table.valid[2][2]);
    float narrow;
    memcpy(&narrow, table.floats + 8, 4);
    CHECK(narrow == INFINITY && !table.valid[1][1]);
    free(data);
}

static void check_bad(const char *record, int reason, int64_t field, int64_t fields) {
    char file[256];
    snprintf(file, sizeof file, "1,2,x,y\n%s", record);
    table_t table;
    table_open(&table);
    size_t length = strlen(file);
    uint8_t *data = exactly(file, length);
    csv_text_t text = text_of(data, length, 1);
    csv_result_t result = {0};
    CHECK(csv_parse(&table.plan, &text, text.size, &result) == CSV_BAD);
    CHECK(result.rows == 1 && result.record == 8 && result.reason == reason && result.fields == fields);
    CHECK(reason == CSV_BAD_COUNT || result.field == field);
    CHECK(result.begin >= 8 && result.begin <= result.end && result.end <= text.size);
    if (reason != CSV_BAD_UNCLOSED) {
        CHECK(csv_parse(&table.plan, &text, text.size, &result) == CSV_STOPPED);
        CHECK(result.rows == 2);
    }
    CHECK(result.position == text.size);
    free(data);
}

static void test_bad_records(void) {
    check_bad("x,2,x,y\n3,4,z,z", CSV_VALUE_UNREADABLE, 0, 4);
    check_bad("9223372036854775808,2,x,y\n3,4,z,z", CSV_VALUE_TOO_LARGE, 0, 4);
    check_bad("1,2,\xff,y\n3,4,z,z", CSV_BAD_TEXT, 2, 4);
    check_bad("1,2,\xed\xa0\x80,y\n3,4,z,z", CSV_BAD_TEXT, 2, 4);
    check_bad("1,2,\xe2\x82,y\n3,4,z,z", CSV_BAD_TEXT, 2, 4);
    check_bad("1,2,\"a\"b,y\n3,4,z,z", CSV_BAD_TRAILING, 2, 4);
    check_bad("1,2,3\n3,4,z,z", CSV_BAD_COUNT, 0, 3);
    check_bad("1,2,3,4,5\n3,4,z,z", CSV_BAD_COUNT, 0, 5);
    check_bad("1,2,\"a,y\n3,4,z,z", CSV_BAD_UNCLOSED, 2, 3);
}

static void test_room_for_text_is_asked_for(void) {
    static const char file[] = "1,2,abcdef,y\n1,2,ghijkl,y\n";
    table_t table;
    table_open(&table);
    table.columns[2].room = 8;
    uint8_t *data = exactly(file, sizeof file - 1);
    csv_text_t text = text_of(data, sizeof file - 1, 1);
    csv_result_t result = {0};
    CHECK(csv_parse(&table.plan, &text, text.size, &result) == CSV_ROOM);
    CHECK(result.rows == 1 && result.position == 13 && result.field == 2 && result.end - result.begin == 6);
    table.columns[2].room = TEXT;
    CHECK(csv_parse(&table.plan, &text, text.size, &result) == CSV_STOPPED && result.rows == 2);
    free(data);
}

/* Parses all of a file that comes in pieces of `piece` bytes; bad records are left out. */
static int64_t parse_in_pieces(table_t *table, const uint8_t *file, int64_t size, int64_t piece, int64_t *bad) {
    csv_result_t result = {0};
    int64_t at = 0, length = piece;
    *bad = 0;
    while (at < size) {
        int64_t have = size - at < length ? size - at : length;
        uint8_t *copy = exactly((const char *)file + at, (size_t)have);
        csv_text_t text = text_of(copy, (size_t)have, at + have == size);
        result.position = 0;
        csv_status_t status;
        while ((status = csv_parse(&table->plan, &text, text.size, &result)) == CSV_BAD) ++*bad;
        CHECK(status == CSV_MORE || status == CSV_STOPPED);
        length = status == CSV_MORE && result.position == 0 ? 2 * length : piece;
        at += result.position;
        free(copy);
    }
    return result.rows;
}

/* Reads a file in two blocks with what csv_follow() says about the cut; `cut` lies behind a newline. */
static int64_t parse_in_blocks(table_t *table, const uint8_t *file, int64_t size, int64_t cut, int64_t *bad) {
    csv_text_t whole = text_of(file, (size_t)size, 1), before = text_of(file, (size_t)cut, 0);
    csv_parity_t parity = csv_parity_at_start();
    for (int64_t at = 0; at < cut;) { /* in pieces, as it is read */
        before.size = at + 1 + (int64_t)draw(7) < cut ? at + 1 + (int64_t)draw(7) : cut;
        if (before.size > cut) before.size = cut;
        csv_follow(&parity, &before, at);
        at = before.size;
    }
    csv_result_t result = {0};
    *bad = 0;
    while (csv_parse(&table->plan, &whole, cut, &result) == CSV_BAD) ++*bad;
    int64_t reached = result.position;
    result.position = parity.inside[0] ? csv_skip(&whole, cut) : cut;
    CHECK(reached >= cut ? reached == result.position || !parity.inside[0] : 1);
    while (csv_parse(&table->plan, &whole, size, &result) == CSV_BAD) ++*bad;
    return result.rows;
}

static void test_every_cut_gives_the_same_table(void) {
    static const char *const pieces[] = {"1",
                                         "23",
                                         ".5",
                                         ",",
                                         ",",
                                         ",",
                                         ",",
                                         "\"",
                                         "\"\"",
                                         "\"a\"",
                                         "\n",
                                         "\n",
                                         "\r\n",
                                         "\r",
                                         "NA",
                                         "abc",
                                         "-",
                                         "1,2,x,y\n",
                                         "5,6,\"q\n\"\"r\",z\n",
                                         "\xc3\xa9",
                                         "\"\n\""};
    for (int turn = 0; turn < 3000; turn++) {
        uint8_t file[512];
        int64_t size = 0, bad, bad_here;
        for (int count = (int)draw(40); count > 0; count--) {
            const char *piece = pieces[draw(sizeof pieces / sizeof *pieces)];
            memcpy(file + size, piece, strlen(piece));
            size += (int64_t)strlen(piece);
        }
        table_t one, other;
        table_open(&one);
        int64_t rows = parse_in_pieces(&one, file, size, size + 1, &bad);
        CHECK(rows < ROWS);
        for (int64_t piece = 1; piece <= size; piece += 1 + draw(9)) {
            table_open(&other);
            CHECK(parse_in_pieces(&other, file, size, piece, &bad_here) == rows && bad_here == bad);
            CHECK(!memcmp(one.integers, other.integers, (size_t)rows * 8) &&
                  !memcmp(one.floats, other.floats, (size_t)rows * 4));
            CHECK(!memcmp(one.offsets, other.offsets, (size_t)rows * 8 + 8));
            CHECK(!memcmp(one.text, other.text, (size_t)load_i64(one.offsets + 8 * rows)));
        }
        for (int64_t cut = 1; cut < size; cut++) {
            if (file[cut - 1] != '\n') continue;
            table_open(&other);
            CHECK(parse_in_blocks(&other, file, size, cut, &bad_here) == rows && bad_here == bad);
            CHECK(!memcmp(one.offsets, other.offsets, (size_t)rows * 8 + 8));
        }
    }
}

static void test_lines(void) {
    static const char file[] = "a\nbc\r\n\rd\n\n";
    uint8_t *data = exactly(file, sizeof file - 1), out[16], offsets[8 * 8] = {0};
    csv_text_t text = {data, sizeof file - 1, 1, '\n', '\r', 1};
    lines_t state = {0, 0};
    lines_split(&text, out, offsets, 2, &state);
    CHECK(state.rows == 2 && state.position == 6);
    lines_split(&text, out, offsets, 7, &state);
    CHECK(state.rows == 5 && state.position == text.size && !memcmp(out, "abcd", 4));
    static const int64_t wanted[] = {0, 1, 3, 3, 4, 4};
    CHECK(!memcmp(offsets, wanted, sizeof wanted));
    free(data);
}

int main(void) {
    test_integers();
    test_floats();
    test_dates();
    test_records();
    test_bad_records();
    test_room_for_text_is_asked_for();
    test_every_cut_gives_the_same_table();
    test_lines();
    puts("ok");
    return 0;
}
