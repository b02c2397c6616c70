/* Tests of packet.h and ring_run.h without Python. Usage: test_packet. Exits 0 when everything held. */
#include <string.h>

#include "check.h"
#include "link/packet.h"
#include "ring/ring_run.h"

static void only_plain_runs_are_plain(void) {
    const packet_header_t right = {32, PACKET_DATA, 0, 3, 9, 1, 2, 4, 0};
    CHECK(packet_is_plain_run(&right));
    packet_header_t wrong[] = {right, right, right, right, right, right};
    wrong[0].kind = PACKET_BATCH;
    wrong[1].flags = 1;
    wrong[2].reserved = 1;
    wrong[3].length = 0;
    wrong[4].length = 33;
    wrong[5].length = PACKET_LONGEST_DATA + 16;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK(!packet_is_plain_run(&wrong[i]));
}

static void windows_wrap_around(void) {
    CHECK(packet_window_is_open(0, 0));
    CHECK(packet_window_is_open(65535, 0) && !packet_window_is_open(65536, 0));
    const uint64_t before = (uint64_t)INT32_MAX << PACKET_BLOCK_BITS;
    CHECK(packet_window_is_open(before, INT32_MIN));
    CHECK(packet_window_is_open(before + 65536, INT32_MIN) && !packet_window_is_open(before + 2 * 65536, INT32_MIN));
    CHECK(packet_window_is_open((1ull << 48) + 65535, 0));
}

static void keys_are_ordered(void) {
    const lane_key_t keys[] = {{1, 0, 0, 0}, {1, 0, 1, 0}, {1, 1, 0, 0}, {1, 0, 0, 1}, {2, 0, 0, 0}};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 5; k++) {
            int order = lane_key_compare(&keys[i], &keys[k]);
            CHECK(i < k ? order < 0 : i > k ? order > 0 : order == 0);
        }
}

/* Whatever part of a vector has gone, what is left is the rest of the same bytes. */
static void a_vector_keeps_what_is_left(void) {
    uint8_t bytes[300], seen[300];
    for (int i = 0; i < 300; i++) bytes[i] = (uint8_t)i;
    for (int story = 0; story < 200; story++) {
        struct iovec vector[10];
        size_t end = 1 + draw(10), total = 0, at = 0, gone = 0;
        for (size_t i = 0; i < end; i++) {
            vector[i] = (struct iovec){bytes + total, draw(31)};
            total += vector[i].iov_len;
        }
        while (at < end) {
            size_t left = 0;
            for (size_t i = at; i < end; i++) {
                memcpy(seen + left, vector[i].iov_base, vector[i].iov_len);
                left += vector[i].iov_len;
            }
            CHECK(left == total - gone && memcmp(seen, bytes + gone, left) == 0);
            size_t sent = left ? 1 + draw(left) : 0;
            gone += sent;
            at = vector_advance(vector, at, end, sent);
        }
        CHECK(gone == total);
    }
}

typedef struct {
    void *memory;
    ring_producer_t producer;
    ring_consumer_t consumer;
} pair_t;

static void pair_open(pair_t *pair, uint64_t capacity) {
    size_t size = RING_HEADER_SIZE + capacity;
    pair->memory = aligned_alloc(128, size);
    CHECK(pair->memory);
    ring_format(pair->memory, capacity, 1000);
    CHECK(ring_open_producer(&pair->producer, pair->memory, size) == RING_OK);
    CHECK(ring_open_consumer(&pair->consumer, pair->memory, size) == RING_OK);
}

static int put(pair_t *pair, const record_header_t *header, const void *payload) {
    ring_claim_t claim;
    if (ring_claim(&pair->producer, record_size(header->length), &claim) != RING_OK) return 0;
    memcpy(claim.record + RECORD_HEADER_SIZE, payload, header->length);
    ring_commit(&pair->producer, &claim, header, header->count, 0);
    return 1;
}

static void runs_end_at_the_limit_and_at_places(void) {
    pair_t pair;
    pair_open(&pair, 4096);
    const uint8_t payload[64] = {0};
    const record_header_t record = {48, RUN_KIND_ITEMS, 1, 0, 3, 0};
    const slab_place_t place = {7, 0, 4096, 1 << 20};
    const record_header_t slot = {sizeof place, RUN_KIND_ITEMS, RUN_CODEC_SLOT, 0, 1, 0};
    ring_run_t run;
    CHECK(ring_take_run(&pair.consumer, 1000, &run) == RUN_NONE);
    for (int i = 0; i < 5; i++) CHECK(put(&pair, &record, payload));
    CHECK(put(&pair, &slot, &place) && put(&pair, &record, payload));
    CHECK(ring_take_run(&pair.consumer, 2 * 64, &run) == RUN_RECORDS && run.length == 128 && run.items == 6);
    CHECK(ring_take_run(&pair.consumer, 1, &run) == RUN_RECORDS && run.length == 64 && run.items == 3);
    CHECK(ring_take_run(&pair.consumer, 1000, &run) == RUN_RECORDS && run.length == 128 && run.items == 6);
    CHECK(ring_take_run(&pair.consumer, 1000, &run) == RUN_PLACE && run.place.slab == 7 && run.items == 1);
    CHECK(run.place.offset == 4096 && run.place.length == 1 << 20);
    CHECK(ring_take_run(&pair.consumer, 1000, &run) == RUN_RECORDS && run.items == 3);
    CHECK(ring_take_run(&pair.consumer, 1000, &run) == RUN_NONE && pair.consumer.items_seen == 19);
    ring_release(&pair.consumer);
    free(pair.memory);
}

/* A record that cannot be is met where a run begins, as often as one looks. */
static void damage_is_found_again(void) {
    pair_t pair;
    pair_open(&pair, 4096);
    const uint8_t payload[16] = {0};
    const record_header_t right = {16, RUN_KIND_ITEMS, 1, 0, 1, 0}, many = {16, RUN_KIND_ITEMS, 1, 0, 1001, 0};
    const record_header_t place = {8, RUN_KIND_ITEMS, RUN_CODEC_SLOT, 0, 1, 0};
    ring_run_t run;
    CHECK(put(&pair, &right, payload) && put(&pair, &many, payload));
    CHECK(ring_take_run(&pair.consumer, 1000, &run) == RUN_RECORDS && run.items == 1 && pair.consumer.items_seen == 1);
    CHECK(ring_take_run(&pair.consumer, 1000, &run) == RUN_BAD_COUNT);
    CHECK(put(&pair, &place, payload));
    CHECK(ring_take_run(&pair.consumer, 1000, &run) == RUN_BAD_PLACE);
    free(pair.memory);
}

static void runs_do_not_wrap(void) {
    pair_t pair;
    pair_open(&pair, 4096);
    uint8_t payload[1024] = {0};
    uint64_t put_items = 0, got_items = 0;
    for (int turn = 0; turn < 2000; turn++) {
        const record_header_t record = {(uint32_t)draw(sizeof payload), RUN_KIND_ITEMS, 1, 0, 2, 0};
        if (put(&pair, &record, payload)) put_items += 2;
        if (draw(3) == 0) {
            ring_run_t run;
            const uint8_t *data = pair.consumer.data;
            while (ring_take_run(&pair.consumer, draw(3000), &run) == RUN_RECORDS) {
                CHECK(run.start >= data && run.start + run.length <= data + 4096);
                got_items += run.items;
            }
            ring_release(&pair.consumer);
            CHECK(got_items == put_items);
        }
    }
    free(pair.memory);
}

int main(void) {
    only_plain_runs_are_plain();
    windows_wrap_around();
    keys_are_ordered();
    a_vector_keeps_what_is_left();
    runs_end_at_the_limit_and_at_places();
    damage_is_found_again();
    runs_do_not_wrap();
    puts("ok");
    return 0;
}
