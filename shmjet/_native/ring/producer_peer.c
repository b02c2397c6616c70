/* What links put into rings: records and places of batches that come from other hosts. */
#include "ring/producer.h"

#define SLOT_RECORD record_size(sizeof(slab_place_t))

/* Each record is looked at, as it comes from another host. */
int64_t producer_put_records(RingProducer *self, const uint8_t *data, uint64_t size, uint64_t *items) {
    uint64_t at = 0;
    if (producer_check(self) < 0) return -1;
    while (at < size) {
        record_header_t header;
        uint64_t rest = size - at;
        if (rest >= sizeof header) memcpy(&header, data + at, sizeof header);
        if (rest < sizeof header || record_size(header.length) > rest) {
            PyErr_SetString(self->corrupt_error, "a record from a peer is cut off");
            return -1;
        }
        const char *wrong = record_is_wrong(&header);
        if (!wrong && record_size(header.length) > self->ring.max_record) wrong = "more bytes than the ring takes";
        if (!wrong && header.count > self->ring.queue_size) wrong = "more items than the queue takes";
        if (wrong) {
            PyErr_Format(self->corrupt_error,
                         "a peer has sent a record with %s (kind %d, codec %d, %u items, %u bytes)", wrong,
                         (int)header.kind, (int)header.codec, header.count, header.length);
            return -1;
        }
        ring_claim_t claim;
        int written = producer_claim(self, header.length, header.count, &claim);
        if (written < 0) return -1;
        if (!written) break;
        header.reserved = 0;
        memcpy(claim.record + RECORD_HEADER_SIZE, data + at + RECORD_HEADER_SIZE, header.length);
        producer_publish(self, &claim, &header, header.count);
        *items += header.count;
        at += record_size(header.length);
    }
    return (int64_t)at;
}

int producer_put_place(RingProducer *self, const slab_place_t *place, uint32_t items, uint64_t most) {
    if (producer_check(self) < 0) return -1;
    if (ring_refresh(&self->ring) != RING_OK) {
        PyErr_SetString(self->corrupt_error, "the consumer's position in the ring is damaged");
        return -1;
    }
    uint64_t queued = (self->ring.capacity - ring_free_bytes(&self->ring)) / SLOT_RECORD;
    if (queued >= 2 && queued * place->length > most) return 0;
    ring_claim_t claim;
    int written = producer_claim(self, sizeof *place, items, &claim);
    if (written <= 0) return written;
    record_header_t header = {sizeof *place, KIND_ITEMS, CODEC_SLOT, 0, items, 0};
    memcpy(claim.record + RECORD_HEADER_SIZE, place, sizeof *place);
    producer_publish(self, &claim, &header, items);
    return 1;
}
