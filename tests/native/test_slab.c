/* Tests of slab.h without Python: a writer and several readers that give slots back in any order, and what happens at
 * the limits. Prints "ok"; the argument is the number of seconds to race. */
#include <pthread.h>
#include <time.h>

#include "check.h"
#include "ring/slab.h"

#define SIZE (64u * SLAB_UNIT)
#define READERS 3
#define WAITING 16

typedef struct {
    _Atomic uint64_t place[WAITING]; /* 1 + unit of a slot that is there to be read, 0 when the reader has taken it */
} mailbox_t;

typedef struct {
    slab_t slab;
    mailbox_t boxes[READERS];
    _Atomic int stopped;
    _Atomic uint64_t checked;
} test_t;

typedef struct {
    test_t *test;
    int number;
} reader_t;

static uint32_t length_of(uint64_t n) { return 1 + (uint32_t)(n * 7 % 5); }

static void fill(uint8_t *data, uint32_t units, uint64_t n) {
    for (uint32_t i = 0; i < units; i++) memset(data + (size_t)i * SLAB_UNIT, (int)(n % 251), SLAB_UNIT);
    memcpy(data, &n, sizeof n);
}

static void check(const uint8_t *data, uint64_t n, uint32_t units) {
    CHECK(data[sizeof n] == n % 251 && data[(size_t)units * SLAB_UNIT - 1] == n % 251);
}

static void *read_slots(void *argument) {
    reader_t *reader = argument;
    test_t *test = reader->test;
    mailbox_t *box = &test->boxes[reader->number];
    uint32_t kept[8], count = 0, state = 12345u + (uint32_t)reader->number;
    uint64_t numbers[8];
    while (!atomic_load(&test->stopped)) {
        for (int i = 0; i < WAITING; i++) {
            uint64_t place = atomic_load_explicit(&box->place[i], memory_order_acquire);
            if (!place) continue;
            atomic_store_explicit(&box->place[i], 0, memory_order_release);
            uint32_t unit = (uint32_t)place - 1;
            const uint8_t *data = test->slab.data + (size_t)unit * SLAB_UNIT;
            uint64_t n;
            memcpy(&n, data, sizeof n);
            check(data, n, length_of(n));
            kept[count] = unit;
            numbers[count++] = n;
            state = state * 1664525u + 1013904223u;
            while (count == 8 || (count && state % 3 == 0)) { /* gives back any of those it has, having looked again */
                uint32_t at = state / 7 % count;
                check(test->slab.data + (size_t)kept[at] * SLAB_UNIT, numbers[at], length_of(numbers[at]));
                slab_drop(&test->slab, kept[at]);
                kept[at] = kept[--count];
                numbers[at] = numbers[count];
                atomic_fetch_add(&test->checked, 1);
                state = state * 1664525u + 1013904223u;
            }
        }
    }
    while (count) slab_drop(&test->slab, kept[--count]);
    return NULL;
}

static void slots_are_whole_as_long_as_somebody_reads_them(double seconds) {
    static test_t test;
    static _Alignas(4096) uint8_t memory[SIZE];
    static uint32_t lengths[64];
    pthread_t threads[READERS];
    reader_t readers[READERS];
    memset(&test, 0, sizeof test);
    memset(lengths, 0, sizeof lengths);
    slab_format(&test.slab, memory, SIZE);
    for (int i = 0; i < READERS; i++) {
        readers[i] = (reader_t){&test, i};
        CHECK(pthread_create(&threads[i], NULL, read_slots, &readers[i]) == 0);
    }
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    uint64_t n = 0, refused = 0;
    do {
        for (int burst = 0; burst < 1000; burst++) {
            uint32_t units = length_of(n), unit = slab_allocate(&test.slab, lengths, test.slab.units, units);
            if (unit == UINT32_MAX) {
                refused++;
                continue;
            }
            fill(test.slab.data + (size_t)unit * SLAB_UNIT, units, n);
            uint32_t sent = 0;
            atomic_store_explicit(&test.slab.counts[unit], READERS, memory_order_relaxed);
            for (int r = 0; r < READERS; r++)
                for (int i = 0; i < WAITING && !(sent >> r & 1); i++)
                    if (!atomic_load_explicit(&test.boxes[r].place[i], memory_order_acquire)) {
                        atomic_store_explicit(&test.boxes[r].place[i], 1 + unit, memory_order_release);
                        sent |= 1u << r;
                    }
            for (int r = 0; r < READERS; r++)
                if (!(sent >> r & 1)) slab_drop(&test.slab, unit);
            n++;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - begun.tv_sec) + 1e-9 * (double)(now.tv_nsec - begun.tv_nsec) < seconds ||
             !atomic_load(&test.checked));
    atomic_store(&test.stopped, 1);
    for (int i = 0; i < READERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int r = 0; r < READERS; r++)
        for (int i = 0; i < WAITING; i++)
            if (test.boxes[r].place[i]) slab_drop(&test.slab, (uint32_t)test.boxes[r].place[i] - 1);
    CHECK(slab_allocate(&test.slab, lengths, test.slab.units, test.slab.units) == 0);
}

static void the_whole_slab_can_be_one_slot(void) {
    static _Alignas(4096) uint8_t memory[SIZE];
    static uint32_t lengths[64];
    slab_t slab, again;
    CHECK(slab_open(&again, memory, SIZE) == -1);
    slab_format(&slab, memory, SIZE);
    CHECK(slab.units == 63 && slab_data_offset(slab.units) + (uint64_t)slab.units * SLAB_UNIT <= SIZE);
    CHECK(slab_open(&again, memory, SIZE) == 0 && again.data == slab.data);
    CHECK(slab_open(&again, memory, SIZE - SLAB_UNIT) == -1);
    CHECK(slab_allocate(&slab, lengths, slab.units, 64) == UINT32_MAX);
    CHECK(slab_allocate(&slab, lengths, slab.units, 63) == 0);
    atomic_store(&slab.counts[0], 1);
    CHECK(slab_allocate(&slab, lengths, slab.units, 1) == UINT32_MAX);
    slab_drop(&slab, 0);
    CHECK(slab_allocate(&slab, lengths, 10, 4) == 0);
    atomic_store(&slab.counts[0], 1);
    CHECK(slab_allocate(&slab, lengths, 10, 6) == 4);
    CHECK(slab_allocate(&slab, lengths, 10, 7) == UINT32_MAX); /* 4..9 had no count yet and is free again: 6 units */
    CHECK(slab_units(0) == 0 && slab_units(SLAB_UNIT) == 0 && slab_units(SLAB_UNIT + 4096) == 1);
}

static void views_are_counted(void) {
    static _Alignas(4096) uint8_t memory[SIZE];
    slab_t slab;
    slab_format(&slab, memory, SIZE);
    CHECK(slab_may_hold(&slab, 31 * SLAB_UNIT));
    CHECK(!slab_may_hold(&slab, SLAB_UNIT));
    slab_let_go(&slab, 31 * SLAB_UNIT);
    CHECK(slab_may_hold(&slab, SLAB_UNIT));
}

int main(int count, char **arguments) {
    the_whole_slab_can_be_one_slot();
    views_are_counted();
    slots_are_whole_as_long_as_somebody_reads_them(count > 1 ? atof(arguments[1]) : 0);
    puts("ok");
    return 0;
}
