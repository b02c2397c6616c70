/* The layout of a PacketReader. */
#ifndef SHMJET_PACKET_READER_H
#define SHMJET_PACKET_READER_H

#include "inlets.h"

typedef struct {
    PyObject_HEAD
    PyObject *head, *deliver, *place; /* NULL once closed */
    PyObject *view;                   /* a memoryview of the buffer */
    Py_buffer bytes;                  /* the buffer: [start .. end) has come and is not taken yet */
    size_t start, end, needed;
    Py_buffer placed; /* where a batch is being read, while placed_object is set; the buffer is empty then */
    PyObject *placed_header, *placed_object;
    size_t filled;
    uint64_t bytes_in;
    uint64_t calls; /* of head and deliver: how often Python has been asked */
    int after_batch, busy;
    int least; /* bytes that have to be there before the system wakes us: SO_RCVLOWAT */
    inlets_t lanes;
} PacketReader;

/* Reads what has come. 1, 0 at the end of the stream, or -1 with an exception. */
HIDDEN int packet_reader_receive(PacketReader *self, int fd);

#endif
