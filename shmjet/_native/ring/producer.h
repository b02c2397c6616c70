/* What other kernels do with a RingProducer. */
#ifndef SHMJET_PRODUCER_H
#define SHMJET_PRODUCER_H

#include "ring/native.h"
#include "ring/ring_run.h"

/* 0, or -1 with an exception when the ring is closed. */
HIDDEN int producer_check(const RingProducer *self);
/* Finds room for a record of `payload` bytes and so many items, or leaves a wake mark. 1 found, 0 refused, -1
 * exception. */
HIDDEN int producer_claim(RingProducer *self, uint64_t payload, uint64_t items, ring_claim_t *claim);
/* Publishes the record whose payload has been written behind the claim's header, and wakes the consumer. */
HIDDEN void producer_publish(RingProducer *self, const ring_claim_t *claim, const record_header_t *header,
                             uint64_t items);
/* Puts whole records from another host into a ring. Returns the bytes that found room, -1 with an exception. */
HIDDEN int64_t producer_put_records(RingProducer *self, const uint8_t *data, uint64_t size, uint64_t *items);
/* Puts the place of a batch into a ring, unless `most` bytes of batches, if they are more than two, lie before its
 * consumer. 1 put, 0 no room, -1 exception. */
HIDDEN int producer_put_place(RingProducer *self, const slab_place_t *place, uint32_t items, uint64_t most);

#endif
