/* Tests of group.h without Python: growth, collisions, nulls, text, merging, handing over; against plain arrays.
 *
 * Exits 0 when everything held; says what did not otherwise. */
#define _GNU_SOURCE

#include "check.h"
#include "columns/group.h"

static column_t words_column(char kind, const void *data, int64_t rows) {
    return (column_t){kind, 8, rows, data, NULL, NULL};
}

static int64_t read_word(const group_table_t *table, uint64_t field, uint64_t position) {
    group_reading_t reading;
    uint8_t valid, word[8];
    CHECK(group_reading(table, field, &reading) && !reading.is_text);
    group_range_t range = {.position = position, .count = 1};
    group_read_valid(table, &reading, &range, &valid);
    group_read_words(table, &reading, &range, &valid, word);
    return load_i64(word);
}

static const uint8_t SUM_COUNT[] = {SUM, COUNT};

static void open_sums(group_table_t *table) { CHECK(group_open(table, "i", 1, SUM_COUNT, "i-", 2) == GROUP_OK); }

static void add_pairs(group_table_t *table, const column_t *key, const column_t *value) {
    const column_t *keys[] = {key}, *inputs[] = {value, NULL};
    CHECK(group_update(table, keys, inputs, 0, key->rows, NULL, 0) == GROUP_OK);
}

/* Keys 0 .. keys, each `times` times, out of order, in columns that begin at an odd address. */
static void test_sums(int64_t keys, int times) {
    int64_t rows = keys * times;
    uint8_t *memory = malloc(16 * (size_t)rows + 2), *key_data = memory + 1, *value_data = key_data + 8 * rows;
    for (int64_t i = 0; i < rows; i++) store_u64(key_data + 8 * i, (uint64_t)(i % keys));
    for (int64_t i = rows - 1; i > 0; i--) {
        int64_t j = (int64_t)(any() % (uint64_t)(i + 1));
        uint64_t a = load_u64(key_data + 8 * i), b = load_u64(key_data + 8 * j);
        store_u64(key_data + 8 * i, b);
        store_u64(key_data + 8 * j, a);
    }
    for (int64_t i = 0; i < rows; i++) store_u64(value_data + 8 * i, load_u64(key_data + 8 * i) * 3 + 1);
    group_table_t table;
    open_sums(&table);
    column_t key = words_column('i', key_data, rows), value = words_column('i', value_data, rows);
    add_pairs(&table, &key, &value);
    CHECK(table.memory.header->groups == (uint64_t)keys);
    int64_t last_first = -1, at = 0;
    for (int64_t g = 0; g < keys; g++) {
        int64_t found = read_word(&table, 0, (uint64_t)g);
        CHECK(read_word(&table, 1, (uint64_t)g) == times * (3 * found + 1));
        CHECK(read_word(&table, 3, (uint64_t)g) == times);
        while (load_i64(key_data + 8 * at) != found) at++; /* groups are in the order of their first rows */
        CHECK(at > last_first);
        last_first = at;
    }
    group_table_t other;
    CHECK(group_attach(&other, table.memory.fd) == GROUP_OK);
    add_pairs(&other, &key, &value);
    CHECK(other.memory.header->groups == (uint64_t)keys && read_word(&other, 3, 0) == 2 * times);
    group_close(&other);
    group_close(&table);
    free(memory);
}

/* Keys whose hashes all share a directory prefix that only one in 1024 has: the directory grows, the rest does not. */
static void test_a_skewed_directory(void) {
    group_table_t table;
    open_sums(&table);
    int64_t keys[3000], found = 0;
    for (int64_t k = 0; found < 3000; k++)
        if (fold((uint64_t)k ^ table.memory.header->seed[0], table.memory.header->seed[1]) >> 54 == 7)
            keys[found++] = k;
    column_t key = words_column('i', keys, 3000);
    add_pairs(&table, &key, &key);
    add_pairs(&table, &key, &key);
    CHECK(table.memory.header->groups == 3000 && table.memory.header->depth >= 11);
    CHECK(table.memory.header->segments <= 14);
    for (uint64_t g = 0; g < 3000; g++)
        CHECK(read_word(&table, 0, g) == keys[g] && read_word(&table, 1, g) == 2 * keys[g]);
    group_close(&table);
}

/* Rows that are loaded, then looked for some at a time: segments are made as they are needed, up to the last. With
 * `is_skewed` all go to few of them, which are split while they are filled. */
static void test_loaded_rows(int64_t count, int64_t at_once, int is_skewed) {
    group_table_t table;
    open_sums(&table);
    int64_t *keys = malloc((size_t)count * 8), *ones = malloc((size_t)count * 8), found = 0;
    for (int64_t k = 0; found < count; k++)
        if (!is_skewed || fold((uint64_t)k ^ table.memory.header->seed[0], table.memory.header->seed[1]) >> 54 == 7)
            ones[found] = 1, keys[found++] = k;
    column_t key = words_column('i', keys, count), one = words_column('i', ones, count);
    column_t high = words_column('i', calloc((size_t)count, 8), count);
    const column_t *keys_of[] = {&key}, *states[] = {&one, &high, &one};
    CHECK(group_update(&table, keys_of, states, 1, count, NULL, 1) == GROUP_OK);
    CHECK(table.loaded == (uint64_t)count && !table.waiting.segments);
    uint64_t before = UINT64_MAX;
    for (int64_t at = count; at > 0; at -= at_once) {
        int64_t from = at > at_once ? at - at_once : 0;
        column_t some = words_column('i', keys + from, at - from);
        add_pairs(&table, &some, &some);
        CHECK(!table.loaded && table.waiting.segments <= before);
        int is_one_of_many = at == count && at_once == 1 && count == 20000;
        CHECK(table.waiting.scans <= GROUP_SCANS && (!is_one_of_many || !table.waiting.ends));
        before = table.waiting.segments;
    }
    CHECK(!table.waiting.segments && !table.waiting.rows && !table.tags);
    CHECK(table.memory.header->groups == (uint64_t)count);
    for (int64_t g = 0; g < count; g++)
        CHECK(read_word(&table, 0, (uint64_t)g) == keys[g] && read_word(&table, 1, (uint64_t)g) == keys[g] + 1);
    group_close(&table);
    free((void *)high.data);
    free(ones);
    free(keys);
}

/* A table that is settled or closed while segments wait. */
static void test_settling(void) {
    for (int settles = 0; settles < 2; settles++) {
        group_table_t table, other;
        open_sums(&table);
        int64_t keys[5000], ones[5000], zeros[5000] = {0};
        for (int64_t i = 0; i < 5000; i++) keys[i] = 3 * i, ones[i] = 1;
        column_t key = words_column('i', keys, 5000), one = words_column('i', ones, 5000);
        column_t high = words_column('i', zeros, 5000), few = words_column('i', keys, 1);
        const column_t *keys_of[] = {&key}, *states[] = {&one, &high, &one};
        CHECK(group_update(&table, keys_of, states, 1, 5000, NULL, 1) == GROUP_OK);
        add_pairs(&table, &few, &few);
        CHECK(table.waiting.segments > 1 && table.memory.header->segments == 1); /* the others are not made yet */
        CHECK(!table.waiting.ends); /* nor are the rows listed */
        if (settles) {
            CHECK(group_settle(&table) == GROUP_OK && !table.waiting.segments);
            CHECK(group_attach(&other, table.memory.fd) == GROUP_OK);
            add_pairs(&other, &key, &key);
            CHECK(other.memory.header->groups == 5000);
            group_close(&other);
        }
        group_close(&table);
    }
}

static void test_null_keys_and_values(void) {
    int64_t keys[] = {0, 0, 1, 0}, values[] = {5, 6, 7, 8};
    uint8_t key_valid[] = {1, 0, 1, 0}, value_valid[] = {0, 1, 0, 1};
    group_table_t table;
    open_sums(&table);
    column_t key = words_column('i', keys, 4), value = words_column('i', values, 4);
    key.valid = key_valid;
    value.valid = value_valid;
    add_pairs(&table, &key, &value);
    CHECK(table.memory.header->groups == 3);
    group_reading_t reading;
    uint8_t valid[3];
    CHECK(group_reading(&table, 0, &reading) &&
          group_read_valid(&table, &reading, &(group_range_t){.count = 3}, valid));
    CHECK(valid[0] == 1 && valid[1] == 0 && valid[2] == 1);
    CHECK(group_reading(&table, 1, &reading) &&
          group_read_valid(&table, &reading, &(group_range_t){.count = 3}, valid));
    CHECK(valid[0] == 0 && valid[1] == 1 && valid[2] == 0);
    CHECK(read_word(&table, 1, 1) == 14 && read_word(&table, 3, 1) == 2);
    group_close(&table);
}

/* Sums of integers have 128 bits: what the way to them is does not matter. */
static void test_large_sums(void) {
    int64_t keys[] = {1, 1, 1, 2}, values[] = {INT64_MAX, INT64_MAX, INT64_MIN, -1};
    column_t key = words_column('i', keys, 4), value = words_column('i', values, 4);
    group_table_t table;
    open_sums(&table);
    add_pairs(&table, &key, &value);
    CHECK(read_word(&table, 1, 0) == INT64_MAX - 1 && read_word(&table, 2, 0) == 0);
    CHECK(read_word(&table, 1, 1) == -1 && read_word(&table, 2, 1) == -1 && read_word(&table, 3, 1) == 1);
    group_close(&table);
}

/* Texts of 0 to 40 bytes in a buffer of exactly their length, so that a sanitizer sees every read beyond them. */
static void test_text(void) {
    enum { ROWS = 4000, KINDS = 41 };
    static const uint8_t functions[] = {COUNT, MAX, LAST};
    int64_t offsets[ROWS + 1];
    offsets[0] = 0;
    for (int i = 0; i < ROWS; i++) offsets[i + 1] = offsets[i] + i % KINDS;
    uint8_t *data = malloc((size_t)offsets[ROWS]);
    for (int i = 0; i < ROWS; i++)
        for (int64_t at = offsets[i]; at < offsets[i + 1]; at++) data[at] = (uint8_t)('a' + i % KINDS % 2);
    column_t text = {'t', 0, ROWS, data, (const uint8_t *)offsets, NULL};
    const column_t *keys[] = {&text}, *inputs[] = {NULL, &text, &text};
    group_table_t table;
    CHECK(group_open(&table, "t", 1, functions, "-tt", 3) == GROUP_OK);
    CHECK(group_update(&table, keys, inputs, 0, ROWS, NULL, 0) == GROUP_OK);
    CHECK(table.memory.header->groups == KINDS);
    int64_t total = 0;
    for (uint64_t g = 0; g < KINDS; g++) total += read_word(&table, 1, g);
    CHECK(total == ROWS);
    for (uint64_t field = 0; field < 4; field += field ? 1 : 2) {
        group_reading_t reading;
        uint8_t out[KINDS * KINDS];
        uint8_t ends[8 * (KINDS + 1)];
        group_range_t all = {.count = KINDS};
        CHECK(group_reading(&table, field, &reading) && reading.is_text);
        group_read_offsets(&table, &reading, &all, ends);
        CHECK(group_read_data(&table, &reading, &all, 0, out, sizeof out) == 0);
        CHECK(group_read_data(&table, &reading, &all, 0, out, load_u64(ends + 8 * KINDS) - 1) == -1);
        CHECK(load_u64(ends + 8 * KINDS) == KINDS * (KINDS - 1) / 2 && !memcmp(out, data, load_u64(ends + 8 * KINDS)));
        CHECK(group_read_data(&table, &reading, &all, KINDS, out, sizeof out) == 0 && out[KINDS * KINDS - 1] == 0);
    }
    group_close(&table);
    free(data);
}

/* Integer keys close together that wander off, in calls of any number of rows; some keys of a block are new. */
static void test_keys_that_wander(int64_t start, int64_t step) {
    enum { CALLS = 300, REACH = 500, ROOM = 2 * BLOCK + 5 };
    group_table_t table;
    CHECK(group_open(&table, "i", 1, SUM_COUNT, "f-", 2) == GROUP_OK);
    double *sums = calloc(CALLS + REACH, sizeof *sums), sum;
    int64_t *counts = calloc(CALLS + REACH, sizeof *counts), keys[ROOM], total = 0;
    double values[ROOM];
    for (int64_t call = 0; call < CALLS; call++) {
        int64_t rows = 1 + (int64_t)(any() % ROOM);
        for (int64_t i = 0; i < rows; i++) {
            int64_t place = call + (int64_t)(any() % REACH);
            keys[i] = start + step * place;
            values[i] = (double)(any() % 4096) - 2048;
            sums[place] += values[i];
            counts[place]++;
        }
        column_t key = words_column('i', keys, rows), value = words_column('f', values, rows);
        add_pairs(&table, &key, &value);
        total += rows;
    }
    for (uint64_t g = 0; g < table.memory.header->groups; g++) {
        int64_t place = (read_word(&table, 0, g) - start) / step, word = read_word(&table, 1, g);
        memcpy(&sum, &word, sizeof sum);
        CHECK(sum == sums[place] && read_word(&table, 2, g) == 0 && read_word(&table, 3, g) == counts[place]);
        total -= counts[place];
    }
    CHECK(total == 0);
    group_close(&table);
    free(sums);
    free(counts);
}

static void test_halves(void) {
    CHECK(half_to_double(0x0000) == 0.0 && half_to_double(0x3c00) == 1.0 && half_to_double(0xc000) == -2.0);
    CHECK(half_to_double(0x0001) == 0x1p-24 && half_to_double(0x7bff) == 65504.0 && half_to_double(0x8400) == -0x1p-14);
    CHECK(half_to_double(0x7c00) == 1.0 / 0.0 && half_to_double(0x7e00) != half_to_double(0x7e00));
}

static void test_what_is_no_table_is_refused(void) {
    group_table_t table, other;
    int empty = memfd_create("empty", MFD_CLOEXEC);
    CHECK(group_attach(&other, empty) == GROUP_ERRNO && errno == EINVAL);
    CHECK(group_attach(&other, -1) == GROUP_ERRNO && errno == EBADF);
    close(empty);
    open_sums(&table);
    table.memory.header->groups = UINT64_C(1) << 31; /* more than there is memory for */
    CHECK(group_attach(&other, table.memory.fd) == GROUP_ERRNO && errno == EINVAL);
    table.memory.header->groups = 0;
    CHECK(group_attach(&other, table.memory.fd) == GROUP_OK);
    group_close(&other);
    group_close(&table);
}

/* Rows with a few thousand keys, a value and a text that is replaced in its room, in the order of `any()`. */
#define CAPTURED_ROWS 4000

static void add_random(group_table_t *table, uint64_t keys) {
    static const uint8_t *const LETTERS = (const uint8_t *)"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
    uint8_t *key_data = malloc(24 * CAPTURED_ROWS + 8), *value_data = key_data + 8 * CAPTURED_ROWS;
    uint8_t *offsets = value_data + 8 * CAPTURED_ROWS, *text = malloc(32 * CAPTURED_ROWS);
    uint64_t end = 0;
    for (int64_t i = 0; i < CAPTURED_ROWS; i++) {
        uint64_t length = draw(32);
        store_u64(key_data + 8 * i, draw(keys));
        store_u64(value_data + 8 * i, any());
        store_u64(offsets + 8 * i, end);
        memcpy(text + end, LETTERS + draw(20), length);
        end += length;
    }
    store_u64(offsets + 8 * CAPTURED_ROWS, end);
    column_t key = words_column('i', key_data, CAPTURED_ROWS), value = words_column('i', value_data, CAPTURED_ROWS);
    column_t last = {'t', 0, CAPTURED_ROWS, text, offsets, NULL};
    const column_t *keys_of[] = {&key}, *inputs[] = {&value, &last};
    CHECK(group_update(table, keys_of, inputs, 0, CAPTURED_ROWS, NULL, 0) == GROUP_OK);
    free(text);
    free(key_data);
}

/* All that can be read of a table, in words. */
static uint64_t digest(const group_table_t *table) {
    uint64_t count = table->memory.header->groups, found = count, room = 128 * count + 1;
    uint8_t *words = malloc(8 * (count + 1)), *valid = malloc(count + 1), *data = malloc(room);
    group_range_t range = {.position = 0, .count = count};
    group_reading_t reading;
    for (uint64_t field = 0; group_reading(table, field, &reading); field++) {
        group_read_valid(table, &reading, &range, valid);
        if (!reading.is_text) {
            group_read_words(table, &reading, &range, valid, words);
            for (uint64_t i = 0; i < count; i++) found = found * 31 + load_u64(words + 8 * i);
            continue;
        }
        group_read_offsets(table, &reading, &range, words);
        CHECK(group_read_data(table, &reading, &range, 0, data, room) == 0);
        for (uint64_t i = 0; i < load_u64(words + 8 * count); i++) found = found * 31 + data[i];
    }
    free(data);
    free(valid);
    free(words);
    return found;
}

/* What is captured stays as it was, however adding and copying alternate. */
static void test_captures(uint64_t keys, uint64_t blocks) {
    static const uint8_t FUNCTIONS[] = {SUM, LAST};
    group_table_t table, captured;
    CHECK(group_open(&table, "i", 1, FUNCTIONS, "it", 2) == GROUP_OK);
    for (int round = 0; round < 4; round++) {
        uint64_t before = digest(&table);
        memset(&captured, 0, sizeof captured);
        CHECK((table.capture = group_capture_open(&table.memory)) != NULL);
        captured.memory = table.capture->copy;
        int more = group_capture_waits(table.capture);
        CHECK(more == (round > 0));
        while (more) {
            add_random(&table, keys);
            more = group_copy_on(&table.memory, table.capture, 1 + draw(blocks));
        }
        CHECK(digest(&captured) == before);
        group_capture_t *over = table.capture;
        table.capture = NULL;
        add_random(&table, keys);
        CHECK(digest(&captured) == before);
        CHECK(digest(&table) != before);
        group_capture_close(over);
    }
    group_close(&table);
}

/* Rows are noted from group_note() on, also those of groups that the table grows by. */
static void test_notes(uint64_t keys) {
    static const uint8_t FUNCTIONS[] = {SUM, LAST};
    group_table_t table;
    CHECK(group_open(&table, "i", 1, FUNCTIONS, "it", 2) == GROUP_OK);
    for (int round = 0; round < 4; round++) {
        uint64_t before = table.memory.header->groups;
        CHECK(group_note(&table, UINT64_MAX) == 0);
        for (uint64_t row = 1; row <= before; row++) CHECK(!table.updated[row]);
        add_random(&table, keys);
        uint64_t after = table.memory.header->groups, noted = 0;
        CHECK(table.updated_room > after);
        for (uint64_t row = 1; row <= after; row++) noted += table.updated[row];
        CHECK(noted <= CAPTURED_ROWS && noted >= after - before);
        for (uint64_t row = before + 1; row <= after; row++) CHECK(table.updated[row]);
    }
    group_close(&table);
}

int main(void) {
    test_notes(1);
    test_notes(6000);
    test_notes(1000000);
    test_captures(1, 1);
    test_captures(50, 2);
    test_captures(6000, 60);
    test_captures(1000000, 300);
    test_sums(1, 1000);
    test_sums(BLOCK + 1, 3);
    test_sums(1000, 7);
    test_sums(200000, 2);
    test_keys_that_wander(-250, 1);
    test_keys_that_wander(INT64_MIN, 1);
    test_keys_that_wander(INT64_MAX - 400 * 800, 400); /* the near keys become others repeatedly */
    test_a_skewed_directory();
    test_loaded_rows(1, 1, 0);
    test_loaded_rows(1000, 7, 0);
    test_loaded_rows(50000, 1000, 0);
    test_loaded_rows(4000, 100, 1);
    test_loaded_rows(20000, 1, 0);
    test_loaded_rows(4000, 1, 1);
    test_settling();
    test_null_keys_and_values();
    test_large_sums();
    test_text();
    test_halves();
    test_what_is_no_table_is_refused();
    puts("ok");
    return 0;
}
