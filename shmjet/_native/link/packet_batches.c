/* Batches of columns on their way from a socket into a slab.
 *
 * A batch is read to where it will stay: into a slot of the link's own slab, whose place then goes into the ring of
 * its lane. That is done here as long as there is a slot and room in the ring; else Python is asked for another place,
 * or has the batch wait. */
#include "link/packet_reader.h"
#include "ring/producer.h"

/* Takes a slot for a batch, if its lane keeps nothing back and what waits on its edge leaves others some. */
static const slab_target_t *claim(const PacketReader *self, const packet_header_t *header, uint32_t *unit) {
    const inlet_t *lane = packet_is_plain_batch(header) ? inlets_find(&self->lanes, header) : NULL;
    const slab_target_t *target = lane && !lane->ring->reserved
                                      ? slab_targets_find(&self->targets, header->execution) : NULL;
    if (!target) return NULL;
    uint64_t size = (uint64_t)target->slab->slab.units * SLAB_UNIT, waiting = lane->flow->bytes - lane->flow->acked;
    if (header->length > size / 4 || waiting + header->length > size / 2) return NULL;
    *unit = slab_writer_claim(target->slab, header->length, 1);
    return *unit == UINT32_MAX ? NULL : target;
}

/* The memory of a slot that is free, or NULL: with an exception when something has failed. */
static PyObject *open_slot(PacketReader *self, const packet_header_t *header) {
    uint32_t unit;
    const slab_target_t *target = claim(self, header, &unit);
    if (!target) return NULL;
    const slab_t *slab = &target->slab->slab;
    uint64_t offset = (uint64_t)unit * SLAB_UNIT;
    Py_ssize_t at = slab->data + offset - (const uint8_t *)target->slab->view.buf;
    PyObject *memory = PySequence_GetSlice(target->arena, at, at + (Py_ssize_t)header->length);
    if (memory) {
        self->slot = (slab_place_t){target->number, 0, offset, header->length};
        self->has_slot = 1;
    } else {
        slab_drop(slab, unit);
    }
    return memory;
}

/* Asks Python for the place of a batch. */
static PyObject *ask_for_place(PacketReader *self, const packet_header_t *header) {
    self->placed_header = packet_reader_open(self, header);
    return self->placed_header ? PyObject_CallFunctionObjArgs(self->place, self->placed_header, NULL) : NULL;
}

int packet_batch_begin(PacketReader *self, const packet_header_t *header, const uint8_t *body, size_t here) {
    PyObject *memory = open_slot(self, header);
    if (!memory && !PyErr_Occurred()) memory = ask_for_place(self, header);
    if (!memory || PyObject_GetBuffer(memory, &self->placed, PyBUF_WRITABLE) < 0) goto failed;
    if ((size_t)self->placed.len != header->length) {
        PyErr_SetString(PyExc_ValueError, "the place has another size than the batch");
        PyBuffer_Release(&self->placed);
        goto failed;
    }
    memcpy(self->placed.buf, body, here);
    self->placed_object = memory;
    self->placed_raw = *header;
    self->filled = here;
    return READER_GO_ON;
failed:
    Py_XDECREF(memory);
    Py_CLEAR(self->placed_header);
    self->has_slot = 0;
    return READER_FAILED;
}

void packet_batch_clear(PacketReader *self) {
    if (self->placed_object) PyBuffer_Release(&self->placed);
    Py_CLEAR(self->placed_object);
    Py_CLEAR(self->placed_header);
    self->has_slot = 0;
}

/* Puts the place of the batch that is complete into the ring of its lane. GO_ON, WAIT when there is no room, or
 * FAILED. */
static int put_slot(PacketReader *self) {
    const packet_header_t *header = &self->placed_raw;
    const inlet_t *lane = inlets_find(&self->lanes, header);
    const slab_target_t *target = slab_targets_find(&self->targets, header->execution);
    if (!lane || !target || lane->ring->reserved) return READER_WAIT;
    edge_flow_note(lane->flow, header->items, header->length);
    int put = producer_put_place(lane->ring, &self->slot, header->items, target->lane_bytes);
    if (put < 0) return READER_FAILED;
    if (put == 0) { /* Python notes it */
        edge_flow_note(lane->flow, -(uint64_t)header->items, -(uint64_t)header->length);
        return READER_WAIT;
    }
    lane->flow->bytes += header->length;
    int due = edge_flow_took(lane->flow, header->items, header->length);
    if (due) self->calls++;
    return due < 0 ? READER_FAILED : READER_GO_ON;
}

int packet_batch_complete(PacketReader *self) {
    int status = self->has_slot ? put_slot(self) : READER_WAIT;
    if (status == READER_WAIT) {
        PyObject *header = self->placed_header ? self->placed_header : packet_reader_open(self, &self->placed_raw);
        PyObject *body = self->placed_object;
        self->placed_header = self->placed_object = NULL;
        PyBuffer_Release(&self->placed);
        self->calls++;
        status = packet_reader_deliver(self, header, body);
        Py_XDECREF(header);
        Py_DECREF(body);
    }
    self->after_batch = 1;
    packet_batch_clear(self);
    return status;
}

int packet_batch_detach(PacketReader *self, uint64_t execution) {
    if (!self->placed_object || self->placed_raw.execution != execution) return 0;
    PyObject *own = PyByteArray_FromStringAndSize(NULL, self->placed.len);
    PyObject *view = own ? PyMemoryView_FromObject(own) : NULL;
    Py_XDECREF(own);
    Py_buffer bytes;
    if (!view || PyObject_GetBuffer(view, &bytes, PyBUF_WRITABLE) < 0) {
        Py_XDECREF(view);
        return -1;
    }
    PyBuffer_Release(&self->placed);
    Py_DECREF(self->placed_object);
    self->placed = bytes;
    self->placed_object = view;
    self->has_slot = 0;
    return 0;
}
