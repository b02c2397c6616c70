/* PacketReader: cuts what comes from one peer into packets.
 *
 * Plain runs of records go straight into the ring of their lane, looked at one by one (record_is_wrong). Everything
 * else, and whatever finds no room there, is Python's: `head` makes a checked header of 32 bytes or raises, `place`
 * says where the payload of a batch is to be read, `deliver` gets header and payload. Python holds a lane
 * (`RingProducer.reserved`) while something waits that has to go first.
 *
 * The buffer grows with what has come, and not with what a header promises. */
#include "link/packet_reader.h"
#include "ring/producer.h"

#include <errno.h>
#include <sys/socket.h>

#define ROOM (1u << 18)
#define LEAST_ROOM (1u << 16)
#define MOST_AT_ONCE (1u << 20)
#define FAST_BYTES (1u << 19)  /* of one receive(): more will come at once */
#define SLOW_BYTES (1u << 18)  /* of one receive(): it will not */
#define FAST_AT_ONCE (3u << 20)
#define PATIENCE_NS 200000
#define MOST_TURNS 8 /* system calls of one receive(), so that no peer keeps the link for itself */

enum { FAILED = READER_FAILED, WAIT = READER_WAIT, GO_ON = READER_GO_ON };

static uint8_t *memory_of(const PacketReader *self) { return self->bytes.buf; }

/* Takes a buffer of `size` bytes with `kept` bytes from the old one at its start. */
static int replace_buffer(PacketReader *self, size_t size, size_t kept) {
    PyObject *larger = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    PyObject *view = larger ? PyMemoryView_FromObject(larger) : NULL;
    Py_buffer bytes;
    if (!view || PyObject_GetBuffer(larger, &bytes, PyBUF_WRITABLE) < 0) {
        Py_XDECREF(larger);
        Py_XDECREF(view);
        return -1;
    }
    if (kept) memcpy(bytes.buf, memory_of(self) + self->start, kept);
    if (self->view) {
        PyBuffer_Release(&self->bytes);
        Py_DECREF(self->view);
    }
    Py_DECREF(larger);
    self->bytes = bytes;
    self->view = view;
    self->start = 0;
    self->end = kept;
    return 0;
}

static int compact(PacketReader *self) {
    size_t kept = self->end - self->start, size = (size_t)self->bytes.len;
    if (self->needed > size && 2 * kept >= size) {
        size_t wanted = (self->needed + ROOM - 1) / ROOM * ROOM;
        return replace_buffer(self, wanted < 2 * size ? wanted : 2 * size, kept);
    }
    if (self->start) memmove(memory_of(self), memory_of(self) + self->start, kept);
    self->start = 0;
    self->end = kept;
    return 0;
}

/* Makes sure that there is room behind what has come; only while no batch is being read into its place. */
static int make_room(PacketReader *self) {
    size_t size = (size_t)self->bytes.len;
    if (self->start == self->end) self->start = self->end = 0;
    if (self->start + self->needed > size || size - self->end < (self->needed < LEAST_ROOM ? self->needed : LEAST_ROOM))
        return compact(self);
    return 0;
}

/* How many bytes to ask for behind what has come. Behind a batch another one is likely: its header alone, so that the
 * rest goes where it belongs. */
static size_t wanted_now(const PacketReader *self) {
    return self->after_batch && self->end == 0 ? PACKET_HEADER_SIZE : (size_t)self->bytes.len - self->end;
}

static PyObject *slice(PyObject *view, size_t start, size_t end) {
    return PySequence_GetSlice(view, (Py_ssize_t)start, (Py_ssize_t)end);
}

/* ---- packets ---- */

PyObject *packet_reader_open(PacketReader *self, const void *raw) {
    self->calls++;
    PyObject *view = PyMemoryView_FromMemory((char *)(uintptr_t)raw, PACKET_HEADER_SIZE, PyBUF_READ);
    PyObject *header = view ? PyObject_CallFunctionObjArgs(self->head, view, NULL) : NULL;
    Py_XDECREF(view);
    return header;
}

int packet_reader_deliver(PacketReader *self, PyObject *header, PyObject *body) {
    PyObject *result = header && body ? PyObject_CallFunctionObjArgs(self->deliver, header, body, NULL) : NULL;
    Py_XDECREF(result);
    return result ? GO_ON : FAILED;
}

/* Puts a run of records into the ring of its lane. What finds no room is left: returns the bytes that did, or
 * FAILED. */
static int64_t put_run(PacketReader *self, const packet_header_t *header, const uint8_t *body) {
    const inlet_t *lane = inlets_find(&self->lanes, header);
    if (!lane) return 0;
    edge_flow_note(lane->flow, header->items, header->length);
    if (lane->ring->reserved) return 0;
    uint64_t items = 0;
    int64_t put = producer_put_records(lane->ring, body, header->length, &items);
    if (put < 0) return FAILED;
    lane->flow->bytes += (uint64_t)put;
    int due = edge_flow_took(lane->flow, items, (uint64_t)put);
    if (due) self->calls++;
    return due < 0 ? FAILED : put;
}

/* Takes the packet at the start of what has come. WAIT when it is not complete. */
static int take_packet(PacketReader *self) {
    size_t at = self->start, available = self->end - at;
    packet_header_t header;
    if (available < sizeof header) {
        self->needed = sizeof header;
        return WAIT;
    }
    memcpy(&header, memory_of(self) + at, sizeof header);
    size_t whole = sizeof header + header.length;
    int is_plain = packet_is_plain_run(&header);
    int64_t put = 0;
    if (is_plain && available >= whole) {
        put = put_run(self, &header, memory_of(self) + at + sizeof header);
        if (put < 0) return FAILED;
        self->after_batch = 0;
    }
    if (is_plain && ((uint64_t)put == header.length || available < whole)) {
        self->needed = whole;
        if (available < whole) return WAIT;
        self->start += whole;
        return GO_ON;
    }
    if (header.kind == PACKET_BATCH) {
        size_t rest = available - sizeof header, here = rest < header.length ? rest : header.length;
        if (packet_batch_begin(self, &header, memory_of(self) + at + sizeof header, here) < 0) return FAILED;
        self->start = at + sizeof header + here;
        self->needed = sizeof header;
        return self->filled == header.length ? packet_batch_complete(self) : WAIT;
    }
    PyObject *opened = packet_reader_open(self, memory_of(self) + at);
    if (!opened) return FAILED;
    int status = WAIT;
    self->after_batch = 0;
    self->needed = whole;
    if (available >= whole) {
        self->start += whole;
        PyObject *body = slice(self->view, at + sizeof header + (size_t)put, at + whole);
        status = packet_reader_deliver(self, opened, body);
        Py_XDECREF(body);
    }
    Py_DECREF(opened);
    return status;
}

/* Takes `count` bytes that have been read. */
static int take_bytes(PacketReader *self, size_t count) {
    self->bytes_in += count;
    if (self->placed_object) {
        size_t rest = (size_t)self->placed.len - self->filled, here = count < rest ? count : rest;
        self->filled += here;
        if (here < rest) return WAIT;
        self->end += count - here; /* read at the start of the buffer, which is empty while a batch is read */
        if (packet_batch_complete(self) < 0) return FAILED;
    } else {
        self->end += count;
    }
    int status;
    while ((status = take_packet(self)) == GO_ON) continue;
    return status;
}

/* Where to read to: the place of a batch and the header behind it, or else the buffer. Returns the number of pieces. */
static int vector_now(PacketReader *self, struct iovec vector[2]) {
    if (!self->placed_object) {
        if (make_room(self) < 0) return FAILED;
        vector[0] = (struct iovec){memory_of(self) + self->end, wanted_now(self)};
        return 1;
    }
    self->start = self->end = 0;
    vector[0] = (struct iovec){(uint8_t *)self->placed.buf + self->filled, (size_t)self->placed.len - self->filled};
    vector[1] = (struct iovec){memory_of(self), PACKET_HEADER_SIZE};
    return 2;
}

/* ---- methods ---- */

static int enter(PacketReader *self) {
    if (self->busy || !self->head) {
        PyErr_SetString(self->head ? PyExc_RuntimeError : PyExc_ValueError,
                        self->head ? "the packet reader is in use" : "the packet reader is closed");
        return -1;
    }
    self->busy = 1;
    return 0;
}

/* While a large batch is under way no one needs to be woken for a part of it. The system cuts the number to what it can
 * hold, and wakes at the end of the stream in any case.
 *
 * Each wake costs both ends more than the copy of 128 KiB. So after a wake that brought much we ask for some batches
 * at once, and look ourselves after a while, in case that the sender has stopped: what network cards do with their
 * interrupts. */
static void ask_for(PacketReader *self, int fd, uint64_t took) {
    size_t rest = self->placed_object ? (size_t)self->placed.len - self->filled : 1;
    int is_large = rest >= LEAST_ROOM;
    if (took >= FAST_BYTES) self->is_fast = 1;
    if (took < SLOW_BYTES) self->is_fast = 0;
    self->patience_ns = is_large && self->is_fast ? PATIENCE_NS : 0;
    int least = !is_large ? 1 : self->is_fast ? (int)FAST_AT_ONCE : rest < MOST_AT_ONCE ? (int)rest : (int)MOST_AT_ONCE;
    if (least == self->least) return;
    self->least = least;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least); /* where it cannot be set one is woken more often */
}

static int receive_some(PacketReader *self, int fd) {
    for (int turn = 0; turn < MOST_TURNS; turn++) {
        struct iovec vector[2];
        int pieces = vector_now(self, vector);
        if (pieces < 0) return -1;
        size_t room = vector[0].iov_len + (pieces == 2 ? vector[1].iov_len : 0);
        struct msghdr message = {.msg_iov = vector, .msg_iovlen = (size_t)pieces};
        ssize_t count = recvmsg(fd, &message, MSG_DONTWAIT);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 1;
        if (count < 0) return PyErr_SetFromErrno(PyExc_OSError), -1;
        if (count == 0) return 0;
        if (take_bytes(self, (size_t)count) < 0) return -1;
        if ((size_t)count < room) return 1;
    }
    return 1;
}

int packet_reader_receive(PacketReader *self, int fd) {
    if (enter(self) < 0) return -1;
    uint64_t before = self->bytes_in;
    int status = receive_some(self, fd);
    if (status > 0) ask_for(self, fd, self->bytes_in - before);
    self->busy = 0;
    return status;
}

static PyObject *reader_receive(PacketReader *self, PyObject *descriptor) {
    long fd = PyLong_AsLong(descriptor);
    if (fd == -1 && PyErr_Occurred()) return NULL;
    int status = packet_reader_receive(self, (int)fd);
    return status < 0 ? NULL : PyBool_FromLong(status);
}

static PyObject *reader_room(PacketReader *self, PyObject *none) {
    (void)none;
    if (enter(self) < 0) return NULL;
    self->busy = 0;
    if (self->placed_object) {
        PyObject *view = PyMemoryView_FromObject(self->placed_object);
        PyObject *rest = view ? slice(view, self->filled, (size_t)self->placed.len) : NULL;
        Py_XDECREF(view);
        return rest;
    }
    if (make_room(self) < 0) return NULL;
    return slice(self->view, self->end, self->end + wanted_now(self));
}

static PyObject *reader_received(PacketReader *self, PyObject *number) {
    Py_ssize_t count = PyLong_AsSsize_t(number);
    if ((count == -1 && PyErr_Occurred()) || enter(self) < 0) return NULL;
    Py_ssize_t room =
        self->placed_object ? self->placed.len - (Py_ssize_t)self->filled : self->bytes.len - (Py_ssize_t)self->end;
    int status = FAILED;
    if (count < 0 || count > room)
        PyErr_SetString(PyExc_ValueError, "more bytes than there was room for");
    else
        status = take_bytes(self, (size_t)count);
    self->busy = 0;
    if (status < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *reader_add(PacketReader *self, PyObject *args) {
    unsigned long long execution;
    unsigned int edge, producer, consumer;
    PyObject *ring, *flow;
    if (!PyArg_ParseTuple(args, "KIIIOO:add", &execution, &edge, &producer, &consumer, &ring, &flow)) return NULL;
    native_state_t *state = native_state(Py_TYPE((PyObject *)self));
    if (Py_TYPE(ring) != state->producer || Py_TYPE(flow) != state->edge_flow || edge > UINT16_MAX) {
        PyErr_SetString(PyExc_TypeError, "add(execution, edge, producer, consumer, RingProducer, EdgeFlow)");
        return NULL;
    }
    if (enter(self) < 0) return NULL;
    self->busy = 0;
    lane_key_t key = {execution, producer, consumer, (uint16_t)edge};
    if (inlets_add(&self->lanes, &key, (RingProducer *)ring, (EdgeFlow *)flow) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *reader_drop(PacketReader *self, PyObject *which) {
    unsigned long long execution = PyLong_AsUnsignedLongLong(which);
    if (PyErr_Occurred()) return NULL;
    if (packet_batch_detach(self, execution) < 0) return NULL;
    inlets_remove(&self->lanes, 0, execution);
    slab_targets_remove(&self->targets, 0, execution);
    Py_RETURN_NONE;
}

/* add_slab_target(execution, slab, arena, number, lane_bytes): where batches of an execution are put. */
static PyObject *reader_add_slab_target(PacketReader *self, PyObject *args) {
    unsigned long long execution, lane_bytes;
    unsigned int number;
    PyObject *slab, *arena;
    if (!PyArg_ParseTuple(args, "KOOIK:add_slab_target", &execution, &slab, &arena, &number, &lane_bytes)) return NULL;
    if (Py_TYPE(slab) != native_state(Py_TYPE((PyObject *)self))->slab_writer || !PyMemoryView_Check(arena)) {
        PyErr_SetString(PyExc_TypeError, "add_slab_target(execution, SlabWriter, memoryview, number, lane_bytes)");
        return NULL;
    }
    slab_target_t target = {execution, (SlabWriter *)slab, arena, lane_bytes, number};
    if (slab_targets_add(&self->targets, &target) < 0) return NULL;
    Py_RETURN_NONE;
}

/* ---- the type ---- */

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"head", "deliver", "place", NULL};
    PyObject *head, *deliver_to, *place;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:PacketReader", names, &head, &deliver_to, &place)) return NULL;
    PacketReader *self = PyObject_GC_New(PacketReader, type);
    if (!self) return NULL;
    memset((char *)self + offsetof(PacketReader, head), 0, sizeof *self - offsetof(PacketReader, head));
    self->needed = PACKET_HEADER_SIZE;
    self->least = 1;
    Py_INCREF(head);
    Py_INCREF(deliver_to);
    Py_INCREF(place);
    self->head = head;
    self->deliver = deliver_to;
    self->place = place;
    if (replace_buffer(self, ROOM, 0) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

static int reader_traverse(PacketReader *self, visitproc visit, void *arg) {
    Py_VISIT((PyObject *)Py_TYPE((PyObject *)self));
    Py_VISIT(self->head);
    Py_VISIT(self->deliver);
    Py_VISIT(self->place);
    Py_VISIT(self->placed_header);
    Py_VISIT(self->placed_object);
    return 0;
}

static int reader_clear(PacketReader *self) {
    packet_batch_clear(self);
    inlets_remove(&self->lanes, 1, 0);
    slab_targets_remove(&self->targets, 1, 0);
    Py_CLEAR(self->head);
    Py_CLEAR(self->deliver);
    Py_CLEAR(self->place);
    return 0;
}

static void reader_dealloc(PacketReader *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack((PyObject *)self);
    reader_clear(self);
    if (self->view) {
        PyBuffer_Release(&self->bytes);
        Py_DECREF(self->view);
    }
    PyMem_Free(self->lanes.all);
    PyMem_Free(self->targets.all);
    PyObject_GC_Del(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *reader_close(PacketReader *self, PyObject *none) {
    (void)none;
    if (self->busy) return PyErr_SetString(PyExc_RuntimeError, "the packet reader is in use"), NULL;
    reader_clear(self);
    Py_RETURN_NONE;
}

static PyObject *reader_get(PacketReader *self, void *closure) {
    switch (*(const char *)closure) {
    case 'p':
        return PyLong_FromSize_t(self->placed_object ? self->filled : self->end - self->start);
    case 'c':
        return PyLong_FromSsize_t(self->bytes.len);
    case 'n':
        return PyLong_FromSize_t(self->needed);
    case 's':
        if (!self->has_slot) Py_RETURN_NONE;
        return PyLong_FromUnsignedLongLong(self->slot.offset);
    default:
        return PyLong_FromUnsignedLongLong(self->bytes_in);
    }
}

static PyMethodDef reader_methods[] = {
    {"receive", (PyCFunction)reader_receive, METH_O, "receive(fd) -> bool: False at the end of the stream"},
    {"room", (PyCFunction)reader_room, METH_NOARGS, "room() -> memoryview for the next bytes"},
    {"received", (PyCFunction)reader_received, METH_O, "received(count) -> None: so many bytes were put into room()"},
    {"add", (PyCFunction)reader_add, METH_VARARGS, "add(execution, edge, producer, consumer, ring, flow) -> None"},
    {"drop", (PyCFunction)reader_drop, METH_O, "drop(execution) -> None: forget its lanes"},
    {"add_slab_target", (PyCFunction)reader_add_slab_target, METH_VARARGS,
     "add_slab_target(execution, slab, arena, number, lane_bytes) -> None"},
    {"close", (PyCFunction)reader_close, METH_NOARGS, "close() -> None: forget everything"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef reader_getset[] = {
    {"pending", (getter)reader_get, NULL, "bytes that have come of packets that are not complete", "p"},
    {"capacity", (getter)reader_get, NULL, "bytes of the buffer", "c"},
    {"needed", (getter)reader_get, NULL, "bytes that the next packet needs in it", "n"},
    {"slot", (getter)reader_get, NULL,
     "offset of the slot that a batch given to deliver() lies in, None when Python placed it", "s"},
    {"bytes_in", (getter)reader_get, NULL, "bytes that have come", "b"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_new, reader_new},         {Py_tp_dealloc, reader_dealloc}, {Py_tp_traverse, reader_traverse},
    {Py_tp_clear, reader_clear},     {Py_tp_methods, reader_methods}, {Py_tp_getset, reader_getset},
    {Py_tp_doc, "PacketReader(head, deliver, place): cuts what comes from one peer into packets."},
    {0, NULL},
};

PyType_Spec packet_reader_spec = {"shmjet._native._core.PacketReader", sizeof(PacketReader), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, reader_slots};
