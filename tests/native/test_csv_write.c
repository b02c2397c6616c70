/* Tests of csv_write.h without Python: values by hand, decimals whose text is known, and text against a plain quoter;
 * all in memory of just the size that the kernel asks for. Exits 0 when everything held; says what did not
 * otherwise. */

#include "check.h"
#include "columns/csv_write.h"

static int slow_calls;

static int slow(double value, uint8_t *out) {
    slow_calls++;
    return snprintf((char *)out, PUT_WIDEST, "%.17g", value);
}

static int failing(double value, uint8_t *out) {
    (void)value;
    (void)out;
    return -1;
}

static put_plan_t plan_of(const put_column_t *columns, int64_t count, int has_quote, const char *null) {
    return (put_plan_t){columns, count, ',', '"', has_quote, (const uint8_t *)null, (int64_t)strlen(null), slow};
}

/* Writes the rows and compares; NULL: they must be refused. */
static void expect(const put_plan_t *plan, int64_t rows, const char *expected) {
    uint8_t *memory = malloc((size_t)put_most_bytes(plan, rows) + 1);
    CHECK(memory);
    int64_t length = csv_write(plan, rows, memory);
    if (!expected) CHECK(length == PUT_REFUSED);
    if (expected && (length != (int64_t)strlen(expected) || memcmp(memory, expected, (size_t)length))) {
        fprintf(stderr, "expected %s got %.*s\n", expected, (int)(length < 0 ? 0 : length), (const char *)memory);
        exit(1);
    }
    free(memory);
}

static put_column_t numbers(put_form_t form, char kind, uint32_t itemsize, const void *data) {
    return (put_column_t){.column = {.kind = kind, .itemsize = itemsize, .data = data}, .form = form, .steps = 1};
}

static void test_integers_and_bools(void) {
    const int64_t wide[] = {INT64_MIN, INT64_MAX, 0, -1, 100};
    const uint64_t high[] = {UINT64_MAX, 0, 9, 10, 1000000007};
    const int8_t narrow[] = {-128, 127, 0, -1, 5};
    const uint8_t truth[] = {1, 0, 1, 0, 2}, valid[] = {1, 1, 0, 1, 1};
    put_column_t columns[] = {numbers(PUT_INT, 'i', 8, wide), numbers(PUT_UINT, 'u', 8, high),
                              numbers(PUT_INT, 'i', 1, narrow), numbers(PUT_BOOL, 'b', 1, truth),
                              numbers(PUT_SPAN, 'm', 8, wide)};
    columns[2].column.valid = valid;
    put_plan_t plan = plan_of(columns, 5, 1, "NA");
    expect(&plan, 5,
           "-9223372036854775808,18446744073709551615,-128,true,NaT\n"
           "9223372036854775807,0,127,false,9223372036854775807\n0,9,NA,true,0\n-1,10,-1,false,-1\n"
           "100,1000000007,5,true,100\n");
    plan = plan_of(columns, 1, 1, "-1");
    expect(&plan, 3, "-9223372036854775808\n9223372036854775807\n0\n");
    expect(&plan, 5, NULL); /* it looks like the null */
    expect(&plan, 0, "");
}

static void test_floats(void) {
    const double values[] = {0.0, -0.0, 1.0, -2.5, 0.1, 100.0, 123456.789, 0.0001, 999999999999999.0, 0.00012345};
    put_column_t column = numbers(PUT_FLOAT, 'f', 8, values);
    put_plan_t plan = plan_of(&column, 1, 0, "");
    expect(&plan, 10, "0.0\n-0.0\n1.0\n-2.5\n0.1\n100.0\n123456.789\n0.0001\n999999999999999.0\n0.00012345\n");
    CHECK(slow_calls == 0);
    plan.slow = failing;
    const double others[] = {1e15, 9e-5, 0.1 + 0.2};
    for (int i = 0; i < 3; i++) {
        uint8_t memory[64];
        column = numbers(PUT_FLOAT, 'f', 8, &others[i]);
        CHECK(csv_write(&plan, 1, memory) == PUT_FAILED);
    }
    const float singles[] = {0.5f, 3.25f};
    const uint16_t halves[] = {0x3c00, 0xc100};
    put_column_t both[] = {numbers(PUT_FLOAT, 'f', 4, singles), numbers(PUT_FLOAT, 'f', 2, halves)};
    plan = plan_of(both, 2, 0, "");
    expect(&plan, 2, "0.5,1.0\n3.25,-2.5\n");
}

/* Decimals of up to 15 digits come out as they went in, without the slow way. */
static void test_decimals(void) {
    slow_calls = 0;
    for (int round = 0; round < 200000; round++) {
        uint64_t top = 1;
        for (uint64_t digits = 1 + draw(15); digits; digits--) top *= 10;
        uint64_t mantissa = 1 + draw(top - 1);
        int scale = (int)draw(19);
        while (scale && mantissa % 10 == 0) mantissa /= 10, scale--;
        double value = (double)mantissa / put_powers[scale];
        if (value < PUT_LEAST) continue;
        char text[64], expected[64];
        uint64_t power = (uint64_t)put_powers[scale];
        if (scale)
            snprintf(expected, sizeof expected, "%llu.%0*llu\n", (unsigned long long)(mantissa / power), scale,
                     (unsigned long long)(mantissa % power));
        else
            snprintf(expected, sizeof expected, "%llu.0\n", (unsigned long long)mantissa);
        put_column_t column = numbers(PUT_FLOAT, 'f', 8, &value);
        put_plan_t plan = plan_of(&column, 1, 0, "");
        expect(&plan, 1, expected);
        snprintf(text, sizeof text, "%.17g", value);
        CHECK(strtod(text, NULL) == strtod(expected, NULL));
    }
    CHECK(slow_calls == 0);
}

static void test_dates(void) {
    const int64_t seconds[] = {0, -1, 951782400, INT64_MIN, 253402300799, -62167219200};
    put_column_t column = numbers(PUT_SECOND, 'M', 8, seconds);
    column.steps = 86400;
    put_plan_t plan = plan_of(&column, 1, 1, "");
    expect(&plan, 6,
           "1970-01-01T00:00:00\n1969-12-31T23:59:59\n2000-02-29T00:00:00\nNaT\n9999-12-31T23:59:59\n0000-01-01T00:00:"
           "00\n");
    const int64_t beyond[] = {253402300800, -62167219201, INT64_MAX, INT64_MIN + 1};
    for (int i = 0; i < 4; i++) {
        column.column.data = (const uint8_t *)&beyond[i];
        expect(&plan, 1, NULL);
        column.form = i % 2 ? PUT_DAY : PUT_YEAR;
        expect(&plan, 1, NULL);
        column.form = PUT_SECOND;
    }
}

/* What a plain quoter makes of text. */
static char *quoted(char *out, const uint8_t *text, size_t length) {
    int needed =
        length == 0 || (length == 2 && memcmp(text, "NA", 2) == 0) || (length >= 3 && !memcmp(text, "\xef\xbb\xbf", 3));
    for (size_t i = 0; i < length; i++) needed |= strchr(",\"\r\n", text[i]) != NULL;
    if (needed) *out++ = '"';
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '"') *out++ = '"';
        *out++ = (char)text[i];
    }
    if (needed) *out++ = '"';
    return out;
}

static void test_text(void) {
    static const char alphabet[] = "abNA,\"\r\n \xef\xbb\xbf\xc3\xa4";
    for (int round = 0; round < 50000; round++) {
        size_t lengths[3], size = 0;
        int64_t offsets[4] = {0};
        for (int i = 0; i < 3; i++) offsets[i + 1] = (int64_t)(size += lengths[i] = draw(draw(2) ? 4 : 30));
        uint8_t *data = malloc(size + 1);
        CHECK(data);
        for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(draw(3) ? 'a' : alphabet[draw(sizeof alphabet - 1)]);
        if (draw(4) == 0 && lengths[1] >= 3) memcpy(data + offsets[1], "\xef\xbb\xbf", 3);
        char expected[512], *end = expected;
        for (int i = 0; i < 3; i++) {
            end = quoted(end, data + offsets[i], lengths[i]);
            *end++ = '\n';
        }
        *end = 0;
        uint8_t *exact = realloc(data, size + !size);
        CHECK(exact);
        put_column_t column = {.column = {.kind = 'y', .data = exact, .offsets = (const uint8_t *)offsets},
                               .form = PUT_TEXT};
        put_plan_t plan = plan_of(&column, 1, 1, "NA");
        expect(&plan, 3, expected);
        plan = plan_of(&column, 1, 0, "NA");
        if (strchr(expected, '"') && !memchr(exact, '"', size)) expect(&plan, 3, NULL);
        free(exact);
    }
    const int64_t cut[] = {0, 1, 2};
    put_column_t column = {
        .column = {.kind = 't', .data = (const uint8_t *)"\xc3\xa4", .offsets = (const uint8_t *)cut},
        .form = PUT_TEXT};
    put_plan_t plan = plan_of(&column, 1, 1, "");
    expect(&plan, 2, NULL);
}

int main(void) {
    test_integers_and_bools();
    test_floats();
    test_decimals();
    test_dates();
    test_text();
    puts("ok");
    return 0;
}
