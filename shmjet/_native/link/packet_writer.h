/* The layout of a PacketWriter. */
#ifndef SHMJET_PACKET_WRITER_H
#define SHMJET_PACKET_WRITER_H

#include "link/edge_flow.h"
#include "link/packet.h"
#include "ring/ring_run.h"

#define MOST_PACKETS 256u /* gathered at once */

enum { WRITER_DONE = 0, WRITER_MORE = 1, WRITER_BLOCKED = 2 };

/* A lane that leads to the peer. `open_slot` gives the memory of a batch in a slab: a function of slab, offset, length.
 * `pack`, where it is not NULL, gives a smaller payload in place of another one, or None. */
typedef struct {
    lane_key_t key;
    RingConsumer *ring;
    EdgeFlow *flow;
    PyObject *open_slot, *pack;
    uint64_t limit; /* bytes of a packet */
} outlet_t;

typedef struct {
    PyObject_HEAD
    PyObject *urgent, *bulk; /* lists of bytes: whole packets */
    uint64_t urgent_bytes, bytes_out;
    outlet_t *lanes;
    uint32_t lane_count, lane_room, cursor;
    uint32_t headers_used, held_count, taken_count;
    size_t at, end; /* vector[at .. end) is under way */
    int busy;
    RingConsumer *taken[MOST_PACKETS];
    packet_header_t headers[MOST_PACKETS];
    Py_buffer held[MOST_PACKETS];
    struct iovec vector[3 * MOST_PACKETS];
} PacketWriter;

/* Sends what the socket takes. WRITER_*, or -1 with an exception. */
HIDDEN int packet_writer_flush(PacketWriter *self, int fd);
/* Whether there is anything to be sent now. Only sequentially consistent loads of rings. */
HIDDEN int packet_writer_is_ready(const PacketWriter *self);
/* Whether one of its rings may have been published to without a fence. */
HIDDEN int packet_writer_is_fence_free(const PacketWriter *self);

#endif
