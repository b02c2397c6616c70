/* Runs of records: what lies in a ring one behind the other, taken undecoded, to be sent to another host. No Python.
 *
 * A run is contiguous and ends before the record with which it would grow beyond a limit; a larger record is a run of
 * its own. The place of a batch in a slab ends a run and is then handed out alone. What was taken is freed by
 * ring_release(). */
#ifndef SHMJET_RING_RUN_H
#define SHMJET_RING_RUN_H

#include "ring/ring.h"

#define RUN_KIND_ITEMS 1u
#define RUN_CODEC_SLOT 5u

enum { RUN_NONE = 0, RUN_RECORDS = 1, RUN_PLACE = 2, RUN_BAD_LENGTH = -1, RUN_BAD_COUNT = -2, RUN_BAD_PLACE = -3 };

/* Where a batch lies: the payload of a record with the codec SLOT. */
typedef struct {
    uint32_t slab, reserved;
    uint64_t offset, length;
} slab_place_t;

typedef struct {
    const uint8_t *start; /* RUN_RECORDS */
    uint64_t length;      /* bytes of the records */
    uint64_t items;
    slab_place_t place; /* RUN_PLACE */
} ring_run_t;

/* Reads the next record and counts its items. Like ring_next(), and RUN_BAD_COUNT for more items than the queue
 * takes. */
static inline int ring_next_counted(ring_consumer_t *c, ring_record_t *record) {
    int status = ring_next(c, record);
    if (status == RING_EMPTY) return RUN_NONE;
    if (status != RING_OK) return RUN_BAD_LENGTH;
    if (record->header.count > c->queue_size) return RUN_BAD_COUNT;
    c->items_seen += record->header.count;
    return RUN_RECORDS;
}

/* Takes the next run of at most `limit` bytes. Damage behind the first record is left for the next call. */
static inline int ring_take_run(ring_consumer_t *c, uint64_t limit, ring_run_t *run) {
    run->length = run->items = 0;
    for (;;) {
        uint64_t position = c->position, seen = c->items_seen;
        ring_record_t record;
        int found = ring_next_counted(c, &record);
        if (found < 0 && !run->length) return found;
        if (found < 0) { /* the next call meets the same record */
            ring_unread(c, position);
            c->items_seen = seen;
        }
        if (found <= 0) break;
        const uint8_t *at = record.payload - RECORD_HEADER_SIZE;
        uint64_t size = record_size(record.header.length);
        int in_slab = record.header.kind == RUN_KIND_ITEMS && record.header.codec == RUN_CODEC_SLOT;
        if (run->length && (in_slab || at != run->start + run->length || run->length + size > limit)) {
            ring_unread(c, position);
            c->items_seen = seen;
            break;
        }
        if (in_slab) {
            if (record.header.length != sizeof run->place) return RUN_BAD_PLACE;
            memcpy(&run->place, record.payload, sizeof run->place);
            run->items = record.header.count;
            return RUN_PLACE;
        }
        if (!run->length) run->start = at;
        run->length += size;
        run->items += record.header.count;
    }
    return run->length ? RUN_RECORDS : RUN_NONE;
}

/* Why a record from another host cannot be the work of a producer, or NULL. Its lengths are for the caller to bound. */
static inline const char *record_is_wrong(const record_header_t *header) {
    enum { ITEMS = RUN_KIND_ITEMS, WATERMARK, BARRIER, DONE, FRAGMENT, MOST_FLAGS = 7 };
    enum { COLUMNS = 1, PICKLE, BYTES, BATCH };
    switch (header->kind) {
    case ITEMS:
        if (header->codec != COLUMNS && header->codec != PICKLE && header->codec != BATCH) return "an unknown codec";
        if (header->flags || (header->codec == BATCH ? header->count > 1 : header->count == 0)) return "a wrong count";
        return NULL;
    case WATERMARK:
    case BARRIER:
    case DONE:
        return header->length == 8 && !header->count && !header->codec && header->flags <= 1 ? NULL : "a wrong mark";
    case FRAGMENT:
        if (header->codec != PICKLE && header->codec != BYTES && header->codec != BATCH) return "an unknown codec";
        return header->count <= 1 && header->flags <= MOST_FLAGS ? NULL : "a wrong fragment";
    default:
        return "an unknown kind";
    }
}

#endif
