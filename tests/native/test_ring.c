/* Tests of ring.h and doorbell.h without Python: exact behaviour by hand in one thread, then two threads at full speed.
 *
 * Usage: test_ring [SECONDS]. Exits 0 when everything held; says what did not otherwise. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>

#include "check.h"
#include "ring/doorbell.h"
#include "codec/hash.h"
#include "ring/fence_free.h"
#include "ring/ring.h"

enum { KIND = 1 };

typedef struct {
    void *memory;
    ring_producer_t producer;
    ring_consumer_t consumer;
    doorbell_t *producer_bell, *consumer_bell;
    uint64_t records, published_fence_free;
} pipe_t;

static void pipe_open(pipe_t *pipe, uint64_t capacity, uint64_t queue_size) {
    size_t size = RING_HEADER_SIZE + capacity;
    pipe->memory = aligned_alloc(128, size);
    CHECK(pipe->memory);
    memset(pipe->memory, 0xee, size);
    ring_format(pipe->memory, capacity, queue_size);
    CHECK(ring_open_producer(&pipe->producer, pipe->memory, size) == RING_OK);
    CHECK(ring_open_consumer(&pipe->consumer, pipe->memory, size) == RING_OK);
    pipe->producer_bell = pipe->consumer_bell = NULL;
}

static void pipe_close(pipe_t *pipe) { free(pipe->memory); }

static int put(ring_producer_t *producer, uint64_t value, uint32_t length, int with_bell) {
    ring_claim_t claim;
    int status = ring_claim(producer, record_size(length), &claim);
    CHECK(status != RING_CORRUPT);
    if (status != RING_OK) return 0;
    CHECK(claim.room >= record_size(length));
    uint8_t *payload = claim.record + RECORD_HEADER_SIZE;
    for (uint32_t i = 0; i < length; i++) payload[i] = (uint8_t)(value + i);
    record_header_t header = {length, KIND, 0, 0, 1, 0};
    ring_commit(producer, &claim, &header, 1, with_bell);
    return 1;
}

static int get(ring_consumer_t *consumer, uint64_t value, uint32_t length) {
    ring_record_t record;
    int status = ring_next(consumer, &record);
    CHECK(status >= 0);
    if (status == RING_EMPTY) return 0;
    CHECK(record.header.kind == KIND && record.header.length == length);
    for (uint32_t i = 0; i < length; i++) CHECK(record.payload[i] == (uint8_t)(value + i));
    consumer->items_seen += record.header.count;
    return 1;
}

static void every_offset_and_length_comes_through(void) {
    pipe_t pipe;
    pipe_open(&pipe, 4096, 1000000);
    uint64_t value = 0;
    for (uint32_t length = 0; length <= 2048 - RECORD_HEADER_SIZE; length++) {
        CHECK(put(&pipe.producer, value, length, 0)); /* one record always fits into an empty ring */
        CHECK(get(&pipe.consumer, value++, length));
        CHECK(!get(&pipe.consumer, 0, 0));
        ring_release(&pipe.consumer);
    }
    pipe_close(&pipe);
}

static void a_full_ring_refuses_until_something_is_released(void) {
    pipe_t pipe;
    pipe_open(&pipe, 4096, 1000000);
    uint64_t put_count = 0;
    while (put(&pipe.producer, put_count, 48, 0)) put_count++;
    CHECK(put_count == 4096 / 64);
    CHECK(get(&pipe.consumer, 0, 48));
    CHECK(!put(&pipe.producer, 0, 48, 0)); /* read, but not released */
    ring_release(&pipe.consumer);
    CHECK(put(&pipe.producer, put_count, 48, 0));
    CHECK(!put(&pipe.producer, 0, 48, 0));
    pipe_close(&pipe);
}

static void an_unpublished_record_is_never_seen(void) {
    pipe_t pipe;
    pipe_open(&pipe, 4096, 1000000);
    ring_claim_t claim;
    CHECK(ring_claim(&pipe.producer, record_size(100), &claim) == RING_OK);
    memset(claim.record, 0xff, claim.room);
    CHECK(!get(&pipe.consumer, 0, 0) && !ring_has_data(&pipe.consumer));
    ring_producer_t successor; /* as after the producer's death: a new one goes on from what was published */
    CHECK(ring_open_producer(&successor, pipe.memory, RING_HEADER_SIZE + 4096) == RING_OK);
    CHECK(put(&successor, 7, 10, 0));
    CHECK(get(&pipe.consumer, 7, 10));
    pipe_close(&pipe);
}

static void a_wake_mark_is_answered_once(void) {
    pipe_t pipe;
    pipe_open(&pipe, 4096, 1000000);
    while (put(&pipe.producer, 0, 48, 0)) {}
    CHECK(ring_leave_wake_mark(&pipe.producer, record_size(48)) == RING_OK);
    CHECK(!ring_wake_mark_reached(&pipe.producer));
    int wakes = 0;
    for (int i = 0; i < 64; i++) {
        CHECK(get(&pipe.consumer, 0, 48));
        int wake = ring_release(&pipe.consumer);
        wakes += wake;
        CHECK(!wake || i == 31); /* half of what was queued */
    }
    CHECK(wakes == 1 && ring_wake_mark_reached(&pipe.producer));
    /* The mark leaves room for the record that was refused, however large. */
    while (put(&pipe.producer, 0, 48, 0)) {}
    CHECK(ring_leave_wake_mark(&pipe.producer, 2048) == RING_OK);
    do CHECK(get(&pipe.consumer, 0, 48));
    while (!ring_release(&pipe.consumer));
    CHECK(put(&pipe.producer, 0, 2048 - RECORD_HEADER_SIZE, 0));
    pipe_close(&pipe);
}

static void damaged_words_are_noticed(void) {
    pipe_t pipe;
    ring_record_t record;
    pipe_open(&pipe, 4096, 10);
    CHECK(put(&pipe.producer, 0, 40, 0));
    ring_shared_t *shared = pipe.memory;
    uint32_t length = 5000;
    memcpy(pipe.producer.data, &length, sizeof length);
    CHECK(ring_next(&pipe.consumer, &record) == RING_CORRUPT);
    shared->tail = 4096 * 3;
    ring_consumer_t consumer;
    CHECK(ring_open_consumer(&consumer, pipe.memory, RING_HEADER_SIZE + 4096) == RING_CORRUPT);
    shared->head = 12345;
    CHECK(ring_refresh(&pipe.producer) == RING_CORRUPT);
    shared->capacity = 4097;
    CHECK(ring_open_consumer(&consumer, pipe.memory, RING_HEADER_SIZE + 4096) == RING_CORRUPT);
    shared->magic = 0;
    CHECK(ring_open_producer(&pipe.producer, pipe.memory, RING_HEADER_SIZE + 4096) == RING_NOT_FORMATTED);
    CHECK(ring_open_producer(&pipe.producer, pipe.memory, 100) == RING_TOO_SHORT);
    pipe_close(&pipe);
}

static uint32_t length_of(uint64_t n) { return (uint32_t)((n * 2654435761u) >> 7) % 200 + ((n % 97) == 0 ? 1500 : 0); }

static void *produce(void *argument) {
    pipe_t *pipe = argument;
    for (uint64_t n = 0; n < pipe->records; n++) {
        while (!put(&pipe->producer, n, length_of(n), pipe->consumer_bell != NULL)) {
            if (!pipe->producer_bell) {
                spin_pause();
                continue;
            }
            if (ring_leave_wake_mark(&pipe->producer, record_size(length_of(n))) != RING_OK) continue;
            uint32_t seen = bell_prepare(pipe->producer_bell);
            if (ring_wake_mark_reached(&pipe->producer))
                bell_stay(pipe->producer_bell);
            else
                CHECK(bell_sleep(pipe->producer_bell, seen, 10000000000) != ETIMEDOUT); /* a lost wake-up */
        }
        if (pipe->consumer_bell) fence_free_learn(&pipe->producer, length_of(n), bell_signal(pipe->consumer_bell));
        pipe->published_fence_free += pipe->producer.fence_free;
    }
    return NULL;
}

static void *consume(void *argument) {
    pipe_t *pipe = argument;
    for (uint64_t n = 0; n < pipe->records; n++) {
        while (!get(&pipe->consumer, n, length_of(n))) {
            if (!pipe->consumer_bell) {
                spin_pause();
                continue;
            }
            uint32_t seen = bell_prepare(pipe->consumer_bell);
            if (ring_is_fence_free(&pipe->consumer)) sleeper_fence(0);
            if (ring_has_data(&pipe->consumer))
                bell_stay(pipe->consumer_bell);
            else
                CHECK(bell_sleep(pipe->consumer_bell, seen, 10000000000) != ETIMEDOUT);
        }
        if (ring_release(&pipe->consumer) && pipe->producer_bell) bell_signal(pipe->producer_bell);
    }
    CHECK(pipe->consumer.items_seen == pipe->records);
    return NULL;
}

static void two_threads(uint64_t records, uint64_t capacity, int with_bells) {
    static _Alignas(128) doorbell_t bells[2];
    pipe_t pipe;
    pthread_t writer, reader;
    memset(bells, 0, sizeof bells);
    pipe_open(&pipe, capacity, 1000000);
    pipe.records = records;
    pipe.published_fence_free = 0;
    if (with_bells) {
        pipe.producer_bell = &bells[0];
        pipe.consumer_bell = &bells[1];
    }
    CHECK(pthread_create(&writer, NULL, produce, &pipe) == 0 && pthread_create(&reader, NULL, consume, &pipe) == 0);
    CHECK(pthread_join(writer, NULL) == 0 && pthread_join(reader, NULL) == 0);
    CHECK(with_bells || pipe.published_fence_free == 0);
    pipe_close(&pipe);
}

/* Puts a record where the reader's bell says whether it sleeps, and reads it. */
static void exchange(pipe_t *pipe, uint32_t length) {
    CHECK(put(&pipe->producer, 7, length, 1));
    fence_free_learn(&pipe->producer, length, bell_signal(pipe->consumer_bell));
    CHECK(get(&pipe->consumer, 7, length));
    ring_release(&pipe->consumer);
}

static void small_records_to_a_reader_awake_need_no_fence(void) {
    static _Alignas(128) doorbell_t bell;
    pipe_t pipe;
    memset(&bell, 0, sizeof bell);
    int possible = membarrier_call(MEMBARRIER_REGISTER) == 0;
    pipe_open(&pipe, 65536, 1000000);
    pipe.consumer_bell = &bell;
    for (uint32_t n = 0; n < 2 * FENCE_FREE_AFTER; n++) exchange(&pipe, FENCE_FREE_RECORD + 1);
    CHECK(!pipe.producer.fence_free && !ring_is_fence_free(&pipe.consumer)); /* large ones do not count */
    for (uint32_t n = 1; n < FENCE_FREE_AFTER; n++) exchange(&pipe, FENCE_FREE_RECORD);
    CHECK(!pipe.producer.fence_free);
    exchange(&pipe, FENCE_FREE_RECORD);
    CHECK((int)pipe.producer.fence_free == possible && ring_is_fence_free(&pipe.consumer) == possible);
    exchange(&pipe, FENCE_FREE_RECORD + 1);
    CHECK((int)pipe.producer.fence_free == possible);
    bell_prepare(&bell); /* asleep: it has to begin anew */
    exchange(&pipe, 1);
    CHECK(!pipe.producer.fence_free && !ring_is_fence_free(&pipe.consumer) && !bell.sleeping);
    for (uint32_t n = 1; n < FENCE_FREE_AFTER; n++) exchange(&pipe, 1);
    CHECK(!pipe.producer.fence_free);
    exchange(&pipe, 1);
    CHECK((int)pipe.producer.fence_free == possible);
    ring_producer_t successor; /* after a move, or a death */
    CHECK(ring_open_producer(&successor, pipe.memory, RING_HEADER_SIZE + 65536) == RING_OK);
    CHECK(!successor.fence_free && !ring_is_fence_free(&pipe.consumer));
    pipe.producer = successor;
    pipe.producer.awake = FENCE_FREE_NEVER; /* as where membarrier is missing */
    for (uint32_t n = 0; n < 2 * FENCE_FREE_AFTER; n++) exchange(&pipe, 1);
    CHECK(!pipe.producer.fence_free);
    CHECK(sleeper_fence(1000) == 1000 && sleeper_fence(10000000000) == (possible ? 10000000000 : UNFENCED_NS));
    pipe_close(&pipe);
}

typedef struct {
    doorbell_t bell;
    _Atomic uint64_t published, seen, finished;
    uint64_t count;
} bell_test_t;

static void *ring_all_the_time(void *argument) {
    bell_test_t *test = argument;
    while (!atomic_load(&test->finished)) {
        bell_ring(&test->bell);
        for (int i = 0; i < 20; i++) spin_pause();
    }
    return NULL;
}

static void *sleep_for_each(void *argument) {
    bell_test_t *test = argument;
    for (uint64_t n = 1; n <= test->count; n++) {
        while (atomic_load(&test->published) < n) {
            uint32_t word = bell_prepare(&test->bell);
            if (atomic_load(&test->published) >= n)
                bell_stay(&test->bell);
            else
                CHECK(bell_sleep(&test->bell, word, 10000000000) != ETIMEDOUT); /* a lost wake-up */
        }
        atomic_store(&test->seen, n);
    }
    return NULL;
}

static void whoever_clears_sleeping_changes_the_word_after_it(void) {
    static _Alignas(128) doorbell_t bell;
    uint32_t seen;
    bell_ring(&bell);
    CHECK(bell.word == 1);
    seen = bell_prepare(&bell);
    bell_signal(&bell);
    CHECK(bell.word == seen + 1 && !bell.sleeping);
    seen = bell_prepare(&bell);
    bell_ring(&bell);
    CHECK(bell.word == seen + 2 && !bell.sleeping); /* before the look at `sleeping`, and after clearing it */
    CHECK(bell_sleep(&bell, seen + 1, 10000000000) == EAGAIN);
}

/* A bare ring, which may come between the sleeper's look and its sleep, must not swallow the wake-up of a
 * publication. */
static void a_ring_never_takes_the_place_of_a_signal(uint64_t count) {
    static _Alignas(128) bell_test_t test;
    pthread_t sleeper, ringer;
    memset(&test, 0, sizeof test);
    test.count = count;
    CHECK(pthread_create(&sleeper, NULL, sleep_for_each, &test) == 0);
    CHECK(pthread_create(&ringer, NULL, ring_all_the_time, &test) == 0);
    for (uint64_t n = 1; n <= count; n++) {
        atomic_store(&test.published, n);
        bell_signal(&test.bell);
        while (atomic_load(&test.seen) < n) spin_pause();
    }
    atomic_store(&test.finished, 1);
    CHECK(pthread_join(sleeper, NULL) == 0 && pthread_join(ringer, NULL) == 0);
}

int main(int count, char **arguments) {
    int64_t end = monotonic_ns() + (count > 1 ? atoll(arguments[1]) * 1000000000 : 0);
    every_offset_and_length_comes_through();
    a_full_ring_refuses_until_something_is_released();
    an_unpublished_record_is_never_seen();
    a_wake_mark_is_answered_once();
    damaged_words_are_noticed();
    whoever_clears_sleeping_changes_the_word_after_it();
    small_records_to_a_reader_awake_need_no_fence();
    CHECK(murmur3_32("hello", 5, 0) == 0x248bfa47u && murmur3_32("", 0, 0) == 0);
    do {
        two_threads(20000, 4096, 0);
        two_threads(20000, 4096, 1);
        two_threads(20000, 65536, 1);
        a_ring_never_takes_the_place_of_a_signal(4000);
    } while (monotonic_ns() < end);
    puts("ok");
    return 0;
}
