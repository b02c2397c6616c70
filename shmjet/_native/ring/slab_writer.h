/* The layout of a SlabWriter, for kernels that put batches into its slots themselves. */
#ifndef SHMJET_SLAB_WRITER_H
#define SHMJET_SLAB_WRITER_H

#include "ring/native.h"
#include "ring/slab.h"

typedef struct {
    PyObject_HEAD
    Py_buffer view;
    int is_open;
    slab_t slab;
    uint32_t *lengths;
    uint32_t usable;
} SlabWriter;

/* Takes a slot for so many readers, whose content the caller writes. Its first unit, or UINT32_MAX when no run is
 * free. */
HIDDEN uint32_t slab_writer_claim(SlabWriter *self, uint64_t size, uint32_t readers);

#endif
