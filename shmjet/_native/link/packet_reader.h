/* The layout of a PacketReader. */
#ifndef SHMJET_PACKET_READER_H
#define SHMJET_PACKET_READER_H

#include "link/slab_target.h"
#include "link/inlets.h"
#include "ring/ring_run.h"

enum { READER_FAILED = -1, READER_WAIT = 0, READER_GO_ON = 1 };

typedef struct {
    PyObject_HEAD
    PyObject *head, *deliver, *place; /* NULL once closed */
    PyObject *view;                   /* a memoryview of the buffer */
    Py_buffer bytes;                  /* the buffer: [start .. end) has come and is not taken yet */
    size_t start, end, needed;
    Py_buffer placed; /* where a batch is being read, while placed_object is set; the buffer is empty then */
    PyObject *placed_header, *placed_object; /* the header as Python has it, NULL while Python has not been asked */
    packet_header_t placed_raw;
    slab_place_t slot; /* that the batch is read into, or that Python is told of, while has_slot is set */
    int has_slot;
    size_t filled;
    uint64_t bytes_in;
    uint64_t calls; /* of head and deliver: how often Python has been asked */
    int after_batch, busy;
    int least;   /* bytes that have to be there before the system wakes us: SO_RCVLOWAT */
    int is_fast; /* much has come at once */
    int64_t patience_ns; /* after which we look ourselves what has come; 0 when the system wakes us for it */
    inlets_t lanes;
    slab_targets_t targets;
} PacketReader;

/* The header in 32 bytes as Python has it, and checked; NULL with an exception. */
HIDDEN PyObject *packet_reader_open(PacketReader *self, const void *raw);
/* Hands a packet to Python. GO_ON, or FAILED with an exception. */
HIDDEN int packet_reader_deliver(PacketReader *self, PyObject *header, PyObject *body);

/* Begins to read a batch into its place: `here` bytes of it have come. GO_ON, or FAILED with an exception. */
HIDDEN int packet_batch_begin(PacketReader *self, const packet_header_t *header, const uint8_t *body, size_t here);
/* Hands the batch on that is complete. GO_ON, or FAILED with an exception. */
HIDDEN int packet_batch_complete(PacketReader *self);
/* Reads the rest of a batch of this execution into memory of its own: what it was read into goes away. 0, or -1 with an
 * exception. */
HIDDEN int packet_batch_detach(PacketReader *self, uint64_t execution);
/* Forgets the batch that is being read, if there is one. */
HIDDEN void packet_batch_clear(PacketReader *self);

/* Reads what has come. 1, 0 at the end of the stream, or -1 with an exception. */
HIDDEN int packet_reader_receive(PacketReader *self, int fd);

#endif
