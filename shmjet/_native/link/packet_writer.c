/* PacketWriter: what goes to one peer, from rings and slabs straight to the socket.
 *
 * Whole packets that the link has made itself (messages, limits, heartbeats) go first, at the end of the packet that
 * is under way. Then runs of records are taken from the lanes that have some and may send, in turn; headers are
 * written into an array here, payloads stay where they are (but for lanes that make them smaller), and one sendmsg()
 * gets all of it, with one packet of what has time (copies of files) behind. Only when the socket has taken everything
 * are rings and slots given back and more is taken. Nothing is decoded, and nothing is copied but by the kernel.
 *
 * While anything of a ring is under way its consumer is exported, so that closing it raises BufferError and never
 * leaves the vector pointing nowhere. */
#include "link/packet_writer.h"

#include <errno.h>
#include <sys/socket.h>

#define BUDGET (1u << 19)    /* bytes of data that are taken from rings at once */
#define SHARE (1u << 17)     /* bytes that one lane may add when others have something, too */
#define MOST_BUFFERS 512u    /* that one system call gets */
#define MOST_TURNS 8         /* system calls of one flush, so that no peer keeps the link for itself */

/* ---- what is under way ---- */

static int is_empty(const PacketWriter *self) { return self->at == self->end; }

/* Everything that was taken has left: rings and slots are free again. */
static void let_go(PacketWriter *self) {
    for (uint32_t i = 0; i < self->held_count; i++) PyBuffer_Release(&self->held[i]);
    self->held_count = 0;
    for (uint32_t i = 0; i < self->taken_count; i++) {
        RingConsumer *ring = self->taken[i];
        ring->exports--;
        if (ring->ring.shared) consumer_give_back(ring);
        Py_DECREF((PyObject *)ring);
    }
    self->taken_count = 0;
    self->at = self->end = 0;
    self->headers_used = 0;
}

static void advance(PacketWriter *self, size_t sent) {
    self->bytes_out += sent;
    self->at = vector_advance(self->vector, self->at, self->end, sent);
    if (is_empty(self)) let_go(self);
}

static void append(PacketWriter *self, const void *start, size_t size) {
    self->vector[self->end].iov_base = (void *)(uintptr_t)start;
    self->vector[self->end++].iov_len = size;
}

/* Keeps a buffer's memory until it has left, and appends it. */
static int append_object(PacketWriter *self, PyObject *object) {
    if (PyObject_GetBuffer(object, &self->held[self->held_count], PyBUF_SIMPLE) < 0) return -1;
    Py_buffer *held = &self->held[self->held_count++];
    append(self, held->buf, (size_t)held->len);
    return 0;
}

/* ---- taking ---- */

static int take_urgent(PacketWriter *self) {
    Py_ssize_t count = PyList_Size(self->urgent), taken = 0;
    for (; taken < count && self->held_count < MOST_PACKETS; taken++)
        if (append_object(self, PyList_GetItem(self->urgent, taken)) < 0) return -1;
    if (taken) {
        self->urgent_bytes = 0;
        if (PyList_SetSlice(self->urgent, 0, taken, NULL) < 0) return -1;
    }
    for (Py_ssize_t i = taken; i < count; i++)
        self->urgent_bytes += (uint64_t)PyBytes_Size(PyList_GetItem(self->urgent, i - taken));
    return 0;
}

/* One packet of what may wait: behind the data of the lanes, which it cannot hold up for longer than itself. */
static int take_bulk(PacketWriter *self) {
    if (!PyList_Size(self->bulk) || self->held_count == MOST_PACKETS) return 0;
    if (append_object(self, PyList_GetItem(self->bulk, 0)) < 0) return -1;
    return PyList_SetSlice(self->bulk, 0, 1, NULL);
}

static int may_take(const outlet_t *lane) {
    return lane->ring->enabled && lane->ring->ring.shared && edge_flow_is_open(lane->flow) &&
           ring_has_data(&lane->ring->ring);
}

/* A window that has closed: its lanes are not work until the peer's next word. */
static void close_window(PacketWriter *self, const EdgeFlow *flow) {
    for (uint32_t i = 0; i < self->lane_count; i++)
        if (self->lanes[i].flow == flow) self->lanes[i].ring->enabled = 0;
}

static PyObject *open_place(const outlet_t *lane, const slab_place_t *place) {
    return PyObject_CallFunction(lane->open_slot, "IKK", (unsigned int)place->slab, (unsigned long long)place->offset,
                                 (unsigned long long)place->length);
}

static int append_place(PacketWriter *self, const outlet_t *lane, const slab_place_t *place) {
    PyObject *slot = open_place(lane, place);
    int status = slot ? append_object(self, slot) : -1;
    Py_XDECREF(slot);
    return status;
}

/* Asks for a smaller payload. The bytes to send and their length, Py_None when it is to travel as it is, NULL with an
 * exception; a new reference. */
static PyObject *packed_payload(const outlet_t *lane, int is_place, const ring_run_t *run, uint64_t *length) {
    PyObject *payload = is_place
                            ? open_place(lane, &run->place)
                            : PyMemoryView_FromMemory((char *)(uintptr_t)run->start, (Py_ssize_t)*length, PyBUF_READ);
    PyObject *packed = payload ? PyObject_CallFunctionObjArgs(lane->pack, payload, NULL) : NULL;
    Py_XDECREF(payload);
    if (packed && packed != Py_None) {
        if (!PyBytes_Check(packed) || (uint64_t)PyBytes_Size(packed) >= *length) {
            PyErr_SetString(PyExc_TypeError, "a payload is made smaller by fewer bytes");
            Py_DECREF(packed);
            return NULL;
        }
        *length = (uint64_t)PyBytes_Size(packed);
    }
    return packed;
}

/* Takes packets from one lane until there are `most` bytes of them. Returns the bytes, -1 with an exception. */
static int64_t take_from(PacketWriter *self, const outlet_t *lane, uint64_t most) {
    RingConsumer *ring = lane->ring;
    uint64_t total = 0;
    int taken = 0;
    while (total < most && self->headers_used < MOST_PACKETS && self->held_count < MOST_PACKETS) {
        ring_run_t run;
        int status = ring_take_run(&ring->ring, lane->limit, &run);
        if (status < 0) return consumer_damaged(ring, status);
        if (status == RUN_NONE) break;
        if (!taken) {
            taken = 1;
            Py_INCREF((PyObject *)ring);
            ring->exports++;
            ring->is_relaying = 1;
            self->taken[self->taken_count++] = ring;
        }
        uint64_t length = status == RUN_PLACE ? run.place.length : run.length;
        packet_header_t *header = &self->headers[self->headers_used++];
        *header = (packet_header_t){(uint32_t)length,
                                    status == RUN_PLACE ? PACKET_BATCH : PACKET_DATA,
                                    0,
                                    lane->key.edge,
                                    lane->key.execution,
                                    lane->key.producer,
                                    lane->key.consumer,
                                    (uint32_t)run.items,
                                    0};
        append(self, header, sizeof *header);
        PyObject *packed = NULL;
        if (lane->pack) {
            uint64_t smaller = length;
            packed = packed_payload(lane, status == RUN_PLACE, &run, &smaller);
            if (!packed) return -1;
            if (packed != Py_None) {
                header->length = (uint32_t)smaller;
                header->flags = PACKET_PACKED;
            }
        }
        if (packed && packed != Py_None) {
            int appended = append_object(self, packed);
            Py_DECREF(packed);
            if (appended < 0) return -1;
        } else if (status == RUN_RECORDS)
            append(self, run.start, (size_t)length);
        else if (append_place(self, lane, &run.place) < 0)
            return -1;
        if (packed == Py_None) Py_DECREF(packed);
        total += length;
        lane->flow->bytes += length;
        lane->flow->items += run.items;
        edge_flow_note(lane->flow, run.items, length);
        if (!edge_flow_is_open(lane->flow)) {
            close_window(self, lane->flow);
            break;
        }
    }
    return (int64_t)total;
}

/* Gathers the next packets; what was gathered before has left. 0, or -1 with an exception. */
static int collect(PacketWriter *self) {
    if (take_urgent(self) < 0) return -1;
    if (PyList_Size(self->urgent)) return 0;
    uint32_t count = self->lane_count, ready = 0;
    for (uint32_t i = 0; i < count && ready < 2; i++) ready += (uint32_t)may_take(&self->lanes[i]);
    uint64_t share = ready > 1 ? SHARE : BUDGET, budget = BUDGET;
    uint32_t first = self->cursor < count ? self->cursor : 0;
    for (uint32_t k = 0; ready && k < count && budget; k++) {
        uint32_t i = first + k < count ? first + k : first + k - count;
        if (self->headers_used == MOST_PACKETS || self->held_count == MOST_PACKETS) break;
        if (!may_take(&self->lanes[i])) continue;
        int64_t taken = take_from(self, &self->lanes[i], share < budget ? share : budget);
        if (taken < 0) return -1;
        budget -= (uint64_t)taken < budget ? (uint64_t)taken : budget;
        self->cursor = i + 1;
    }
    return take_bulk(self);
}

/* ---- sending ---- */

/* Not inside the callback that opens a slot, and not in two threads. */
static int enter(PacketWriter *self) {
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "the packet writer is in use");
        return -1;
    }
    self->busy = 1;
    return 0;
}

int packet_writer_is_ready(const PacketWriter *self) {
    if (!is_empty(self) || PyList_Size(self->urgent) || PyList_Size(self->bulk)) return 1;
    for (uint32_t i = 0; i < self->lane_count; i++)
        if (may_take(&self->lanes[i])) return 1;
    return 0;
}

int packet_writer_is_fence_free(const PacketWriter *self) {
    for (uint32_t i = 0; i < self->lane_count; i++) {
        const RingConsumer *ring = self->lanes[i].ring;
        if (ring->enabled && ring->ring.shared && ring_is_fence_free(&ring->ring)) return 1;
    }
    return 0;
}

static int send_some(PacketWriter *self, int fd) {
    for (int turn = 0; turn < MOST_TURNS; turn++) {
        if (is_empty(self) && collect(self) < 0) return -1;
        if (is_empty(self)) return WRITER_DONE;
        size_t count = self->end - self->at;
        struct msghdr message = {.msg_iov = self->vector + self->at,
                                 .msg_iovlen = count < MOST_BUFFERS ? count : MOST_BUFFERS};
        size_t wanted = 0;
        for (size_t i = 0; i < message.msg_iovlen; i++) wanted += message.msg_iov[i].iov_len;
        ssize_t sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return WRITER_BLOCKED;
        if (sent < 0) return PyErr_SetFromErrno(PyExc_OSError), -1;
        advance(self, (size_t)sent);
        if ((size_t)sent < wanted) return WRITER_BLOCKED;
    }
    return WRITER_MORE;
}

int packet_writer_flush(PacketWriter *self, int fd) {
    if (enter(self) < 0) return -1;
    int status = send_some(self, fd);
    self->busy = 0;
    return status;
}

static PyObject *writer_flush(PacketWriter *self, PyObject *descriptor) {
    long fd = PyLong_AsLong(descriptor);
    if (fd == -1 && PyErr_Occurred()) return NULL;
    int status = packet_writer_flush(self, (int)fd);
    return status < 0 ? NULL : PyLong_FromLong(status);
}

/* copy(view): the next bytes into memory, for a connection that the system cannot write to; they count as sent. */
static PyObject *writer_copy(PacketWriter *self, PyObject *target) {
    Py_buffer room;
    if (PyObject_GetBuffer(target, &room, PyBUF_WRITABLE) < 0) return NULL;
    size_t done = 0, size = (size_t)room.len;
    int failed = enter(self) < 0;
    while (!failed && done < size) {
        if (is_empty(self) && collect(self) < 0) failed = 1;
        if (failed || is_empty(self)) break;
        struct iovec *piece = &self->vector[self->at];
        size_t count = piece->iov_len < size - done ? piece->iov_len : size - done;
        memcpy((uint8_t *)room.buf + done, piece->iov_base, count);
        done += count;
        advance(self, count);
    }
    self->busy = 0;
    PyBuffer_Release(&room);
    return failed ? NULL : PyLong_FromSize_t(done);
}

static PyObject *writer_queue(PacketWriter *self, PyObject *packet) {
    if (!PyBytes_Check(packet)) return PyErr_SetString(PyExc_TypeError, "queue() takes bytes"), NULL;
    if (PyBytes_Size(packet)) {
        if (PyList_Append(self->urgent, packet) < 0) return NULL;
        self->urgent_bytes += (uint64_t)PyBytes_Size(packet);
    }
    Py_RETURN_NONE;
}

static PyObject *writer_queue_bulk(PacketWriter *self, PyObject *packet) {
    if (!PyBytes_Check(packet)) return PyErr_SetString(PyExc_TypeError, "queue_bulk() takes bytes"), NULL;
    if (PyBytes_Size(packet) && PyList_Append(self->bulk, packet) < 0) return NULL;
    Py_RETURN_NONE;
}

/* ---- lanes ---- */

static PyObject *writer_add(PacketWriter *self, PyObject *args) {
    unsigned long long execution;
    unsigned int edge, producer, consumer;
    PyObject *ring, *flow, *open_slot, *pack = Py_None;
    unsigned long limit;
    if (!PyArg_ParseTuple(args, "KIIIOOkO|O:add", &execution, &edge, &producer, &consumer, &ring, &flow, &limit,
                          &open_slot, &pack))
        return NULL;
    native_state_t *state = native_state(Py_TYPE((PyObject *)self));
    if (Py_TYPE(ring) != state->consumer || Py_TYPE(flow) != state->edge_flow || edge > UINT16_MAX || self->busy) {
        PyErr_SetString(PyExc_TypeError,
                        "add(execution, edge, producer, consumer, RingConsumer, EdgeFlow, limit, open_slot)");
        return NULL;
    }
    if (self->lane_count == self->lane_room) {
        uint32_t room = self->lane_room ? 2 * self->lane_room : 16;
        outlet_t *larger = PyMem_Realloc(self->lanes, room * sizeof *larger);
        if (!larger) return PyErr_NoMemory();
        self->lanes = larger;
        self->lane_room = room;
    }
    Py_INCREF(ring);
    Py_INCREF(flow);
    Py_INCREF(open_slot);
    if (pack == Py_None) pack = NULL;
    Py_XINCREF(pack);
    self->lanes[self->lane_count++] = (outlet_t){{execution, producer, consumer, (uint16_t)edge},
                                                 (RingConsumer *)ring,
                                                 (EdgeFlow *)flow,
                                                 open_slot,
                                                 pack,
                                                 limit};
    Py_RETURN_NONE;
}

/* Copies what is under way, so that nothing points into rings and slots any more. */
static int detach(PacketWriter *self) {
    size_t size = 0, done = 0;
    for (size_t i = self->at; i < self->end; i++) size += self->vector[i].iov_len;
    PyObject *rest = size ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size) : NULL;
    if (size && !rest) return -1;
    for (size_t i = self->at; i < self->end; i++) {
        memcpy(PyBytes_AsString(rest) + done, self->vector[i].iov_base, self->vector[i].iov_len);
        done += self->vector[i].iov_len;
    }
    let_go(self);
    int status = rest ? append_object(self, rest) : 0;
    Py_XDECREF(rest);
    return status;
}

static void forget(outlet_t *lane) {
    Py_DECREF((PyObject *)lane->ring);
    Py_DECREF((PyObject *)lane->flow);
    Py_DECREF(lane->open_slot);
    Py_XDECREF(lane->pack);
}

static PyObject *writer_drop(PacketWriter *self, PyObject *which) {
    unsigned long long execution = PyLong_AsUnsignedLongLong(which);
    if (PyErr_Occurred() || enter(self) < 0) return NULL;
    int status = self->taken_count || self->held_count ? detach(self) : 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < self->lane_count; i++) {
        if (self->lanes[i].key.execution == execution)
            forget(&self->lanes[i]);
        else
            self->lanes[kept++] = self->lanes[i];
    }
    self->lane_count = kept;
    self->busy = 0;
    if (status < 0) return NULL;
    Py_RETURN_NONE;
}

static void clear(PacketWriter *self) {
    let_go(self);
    for (uint32_t i = 0; i < self->lane_count; i++) forget(&self->lanes[i]);
    self->lane_count = 0;
    if (self->urgent) PyList_SetSlice(self->urgent, 0, PyList_Size(self->urgent), NULL);
    if (self->bulk) PyList_SetSlice(self->bulk, 0, PyList_Size(self->bulk), NULL);
    self->urgent_bytes = 0;
}

static PyObject *writer_clear(PacketWriter *self, PyObject *none) {
    (void)none;
    if (enter(self) < 0) return NULL;
    clear(self);
    self->busy = 0;
    Py_RETURN_NONE;
}

/* ---- the type ---- */

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":PacketWriter", names)) return NULL;
    PacketWriter *self = PyObject_New(PacketWriter, type);
    if (!self) return NULL;
    memset((char *)self + offsetof(PacketWriter, urgent), 0, sizeof *self - offsetof(PacketWriter, urgent));
    self->urgent = PyList_New(0);
    self->bulk = PyList_New(0);
    if (!self->urgent || !self->bulk) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static void writer_dealloc(PacketWriter *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    clear(self);
    Py_XDECREF(self->urgent);
    Py_XDECREF(self->bulk);
    PyMem_Free(self->lanes);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *writer_get(PacketWriter *self, void *closure) {
    switch (*(const char *)closure) {
    case 'h':
        return PyBool_FromLong(!is_empty(self) || PyList_Size(self->urgent) > 0 || PyList_Size(self->bulk) > 0);
    case 'q':
        return PyLong_FromUnsignedLongLong(self->urgent_bytes);
    default:
        return PyLong_FromUnsignedLongLong(self->bytes_out);
    }
}

static PyMethodDef writer_methods[] = {
    {"queue", (PyCFunction)writer_queue, METH_O, "queue(packet: bytes) -> None"},
    {"queue_bulk", (PyCFunction)writer_queue_bulk, METH_O, "queue_bulk(packet: bytes) -> None"},
    {"add", (PyCFunction)writer_add, METH_VARARGS,
     "add(execution, edge, producer, consumer, ring, flow, limit, open_slot, pack=None)"},
    {"drop", (PyCFunction)writer_drop, METH_O, "drop(execution) -> None"},
    {"flush", (PyCFunction)writer_flush, METH_O,
     "flush(fd) -> int: 0 nothing is left, 1 call again, 2 the socket is full"},
    {"copy", (PyCFunction)writer_copy, METH_O, "copy(view) -> int: bytes that were put there"},
    {"clear", (PyCFunction)writer_clear, METH_NOARGS, "clear() -> None: forget everything"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef writer_getset[] = {
    {"has_output", (getter)writer_get, NULL, "whether there is something to send that is not in rings", "h"},
    {"queued", (getter)writer_get, NULL, "bytes given to queue() that have not been begun", "q"},
    {"bytes_out", (getter)writer_get, NULL, "bytes that have left", "b"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_new, writer_new},         {Py_tp_dealloc, writer_dealloc},
    {Py_tp_methods, writer_methods}, {Py_tp_getset, writer_getset},
    {Py_tp_doc, "PacketWriter(): what goes to one peer, from rings straight to the socket."},
    {0, NULL},
};

PyType_Spec packet_writer_spec = {"shmjet._native._core.PacketWriter", sizeof(PacketWriter), 0, Py_TPFLAGS_DEFAULT,
                                  writer_slots};
