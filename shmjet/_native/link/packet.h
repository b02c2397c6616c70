/* Packets of the link and the arithmetic on them. No Python, no allocation, no system call.
 *
 * A packet is a header of 32 bytes and a payload; docs/formats/packet.md has the page. What is sent is a vector of
 * pieces of memory, headers and payloads in turn; the system takes as much of it as it likes, so `vector_advance`
 * keeps what is left. A window says how far an edge may go (shmjet/net/window.py, after Jet). */
#ifndef SHMJET_PACKET_H
#define SHMJET_PACKET_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#define PACKET_HEADER_SIZE 32u
#define PACKET_LONGEST_DATA (2u << 20)
#define PACKET_LONGEST_BATCH (8u << 20)
#define PACKET_BLOCK_BITS 16 /* windows count in blocks of 64 KiB */

enum { PACKET_DATA = 1, PACKET_BATCH = 2 };
enum { PACKET_PACKED = 2 }; /* the flag of a payload that was made smaller */

typedef struct {
    uint32_t length;
    uint8_t kind;
    uint8_t flags;
    uint16_t edge;
    uint64_t execution;
    uint32_t producer;
    uint32_t consumer;
    uint32_t items;
    uint32_t reserved;
} packet_header_t;

_Static_assert(sizeof(packet_header_t) == PACKET_HEADER_SIZE, "the header is part of the format");

/* Whether a header is that of plain records and nothing is wrong with it. What this refuses may still be a packet. */
static inline int packet_is_plain_run(const packet_header_t *h) {
    return h->kind == PACKET_DATA && h->flags == 0 && h->reserved == 0 && h->length != 0 && h->length % 16 == 0 &&
           h->length <= PACKET_LONGEST_DATA;
}

/* The same of a batch as it lies in a slab. */
static inline int packet_is_plain_batch(const packet_header_t *h) {
    return h->kind == PACKET_BATCH && h->flags == 0 && h->reserved == 0 && h->length != 0 && h->items <= 1 &&
           h->length <= PACKET_LONGEST_BATCH;
}

/* Whether a sender may send another packet: its position, in blocks and in 32 bits with sign, is not above the
 * limit. */
static inline int packet_window_is_open(uint64_t sent, int32_t limit) {
    return (int32_t)((uint32_t)(sent >> PACKET_BLOCK_BITS) - (uint32_t)limit) <= 0;
}

/* The end of a lane as a packet names it. */
typedef struct {
    uint64_t execution;
    uint32_t producer, consumer;
    uint16_t edge;
} lane_key_t;

static inline lane_key_t packet_lane(const packet_header_t *h) {
    lane_key_t key = {h->execution, h->producer, h->consumer, h->edge};
    return key;
}

static inline int lane_key_compare(const lane_key_t *a, const lane_key_t *b) {
    if (a->execution != b->execution) return a->execution < b->execution ? -1 : 1;
    if (a->edge != b->edge) return a->edge < b->edge ? -1 : 1;
    if (a->producer != b->producer) return a->producer < b->producer ? -1 : 1;
    if (a->consumer != b->consumer) return a->consumer < b->consumer ? -1 : 1;
    return 0;
}

/* Drops the first `sent` bytes of vector[at .. end); returns where it begins now. */
static inline size_t vector_advance(struct iovec *vector, size_t at, size_t end, size_t sent) {
    while (at < end && sent >= vector[at].iov_len) sent -= vector[at++].iov_len;
    if (at < end && sent) {
        vector[at].iov_base = (uint8_t *)vector[at].iov_base + sent;
        vector[at].iov_len -= sent;
    }
    return at;
}

#endif
