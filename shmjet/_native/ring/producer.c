/* RingProducer: the writing end of a ring as a Python object. The protocol is in ring.h; here are only policies: how
 * many items go into one frame, and when a push is refused rather than cut small. */
#include "ring/native.h"

#include "codec/codec.h"
#include "ring/producer.h"

#define NOT_COLUMNS (-1)
#define NO_ITEM_FITS (-2)
#define PUSH_ERROR (-3)

static int raise_corrupt(PyObject *error, const char *side) {
    PyErr_Format(error, "the %s's position in the ring is damaged", side);
    return -1;
}

int producer_check(const RingProducer *self) {
    if (LIKELY(self->ring.shared != NULL)) return 0;
    PyErr_SetString(PyExc_ValueError, "the ring is closed");
    return -1;
}

static PyObject *producer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"buffer", "offset", "consumer_bell", NULL};
    PyObject *buffer, *bell = Py_None;
    Py_ssize_t offset;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "On|O:RingProducer", names, &buffer, &offset, &bell)) return NULL;
    native_state_t *state = native_state(type);
    if (!state) return NULL;
    if (bell != Py_None && Py_TYPE(bell) != state->doorbell) {
        PyErr_SetString(PyExc_TypeError, "consumer_bell must be a Doorbell or None");
        return NULL;
    }
    RingProducer *self = PyObject_New(RingProducer, type);
    if (!self) return NULL;
    memset(&self->ring, 0, sizeof self->ring);
    self->is_open = self->blocked = self->reserved = 0;
    self->bell = NULL;
    self->codec_type = state->codec;
    self->corrupt_error = state->corrupt_error;
    self->item_bytes = 16.0;
    Py_INCREF((PyObject *)self->codec_type);
    Py_INCREF(self->corrupt_error);
    uint8_t *memory;
    if (native_map(buffer, offset, RING_HEADER_SIZE, &self->view, &memory) < 0) goto failed;
    self->is_open = 1;
    int status = ring_open_producer(&self->ring, memory, (uint64_t)(self->view.len - offset));
    if (status != RING_OK) {
        if (status == RING_CORRUPT)
            raise_corrupt(self->corrupt_error, "other side");
        else
            PyErr_SetString(PyExc_ValueError, status == RING_TOO_SHORT
                                                  ? "the ring does not lie in the buffer"
                                                  : "there is no ring of this version at the offset");
        goto failed;
    }
    if (bell != Py_None) {
        Py_INCREF(bell);
        self->bell = (Doorbell *)bell;
    }
    return (PyObject *)self;
failed:
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void producer_release(RingProducer *self) {
    self->ring.shared = NULL;
    self->blocked = 0;
    if (self->is_open) PyBuffer_Release(&self->view);
    self->is_open = 0;
}

static void producer_dealloc(RingProducer *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    producer_release(self);
    Py_XDECREF((PyObject *)self->bell);
    Py_DECREF((PyObject *)self->codec_type);
    Py_DECREF(self->corrupt_error);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *producer_close(RingProducer *self, PyObject *none) {
    (void)none;
    producer_release(self);
    Py_RETURN_NONE;
}

void producer_publish(RingProducer *self, const ring_claim_t *claim, const record_header_t *header, uint64_t items) {
    ring_commit(&self->ring, claim, header, items, self->bell != NULL);
    self->blocked = 0;
    const Doorbell *now = bell_now(self->bell);
    if (now) fence_free_learn(&self->ring, header->length, bell_signal_by(now->bell, now->eventfd));
}

/* Leaves a wake mark. 1 = refused, 0 = the consumer has moved on meanwhile: try again, -1 = exception. */
static int refuse(RingProducer *self, uint64_t size) {
    int status = ring_leave_wake_mark(&self->ring, size);
    if (status == RING_CORRUPT) return raise_corrupt(self->corrupt_error, "consumer");
    self->blocked = 1;
    return status == RING_OK;
}

/* How many of `wanted` items may go into a frame now; 0 when so few places are free that waiting is better. */
static uint64_t admitted_items(RingProducer *self, uint64_t wanted, uint64_t *least) {
    ring_producer_t *ring = &self->ring;
    uint64_t frame = ring->queue_size / 4, eighth = ring->queue_size / 8;
    if (frame == 0) frame = 1;
    if (eighth == 0) eighth = 1;
    *least = wanted < eighth ? wanted : eighth;
    if (wanted > frame) wanted = frame;
    uint64_t free_items = ring_free_items(ring);
    if (free_items < wanted) {
        if (ring_refresh(ring) != RING_OK) return UINT64_MAX;
        free_items = ring_free_items(ring);
    }
    if (free_items >= wanted) return wanted;
    return free_items >= *least ? free_items : 0;
}

/* Encodes into the larger free stretch, fewer items if they do not fit. Returns the number of items, 0 for "no room
 * now" (with *missing set), NOT_COLUMNS, NO_ITEM_FITS, or PUSH_ERROR with an exception. */
static int64_t encode_frame(RingProducer *self, Codec *codec, PyObject *items, Py_ssize_t start, uint64_t count,
                            uint64_t least, uint64_t *missing) {
    ring_producer_t *ring = &self->ring;
    ring_claim_t here, wrapped, *claim;
    uint64_t expected = record_size((uint64_t)(self->item_bytes * (double)count) + COLUMN_HEADER_SIZE);
    ring_claim_here(ring, &here);
    if (here.room < expected && here.room < ring->max_record) {
        if (ring_refresh(ring) != RING_OK) return raise_corrupt(self->corrupt_error, "consumer"), PUSH_ERROR;
        ring_claim_here(ring, &here);
    }
    ring_claim_start(ring, &wrapped);
    claim = here.room >= expected || here.room >= wrapped.room ? &here : &wrapped;
    if (claim->room >= ring->max_record / 2) least = 1; /* a good part of the ring: never too little to accept */
    if (claim->room < expected && self->item_bytes > 0) {
        uint64_t fitting = (uint64_t)((double)claim->room * 0.9 / self->item_bytes);
        if (fitting < count) count = fitting > least ? fitting : least;
    }
    for (;;) {
        if (claim->room > RECORD_HEADER_SIZE) {
            int64_t size = columns_encode(codec, items, start, (Py_ssize_t)count, claim->record + RECORD_HEADER_SIZE,
                                          claim->room - RECORD_HEADER_SIZE);
            if (size >= 0) {
                double mean = (double)size / (double)count;
                self->item_bytes = mean > self->item_bytes ? mean : 0.75 * self->item_bytes + 0.25 * mean;
                record_header_t header = {(uint32_t)size, KIND_ITEMS, CODEC_COLUMNS, 0, (uint32_t)count, 0};
                producer_publish(self, claim, &header, count);
                return (int64_t)count;
            }
            if (size == COLUMNS_REFUSED) return NOT_COLUMNS;
            if (size == COLUMNS_ERROR) return PUSH_ERROR;
        }
        if (claim == &here && wrapped.room > here.room) {
            claim = &wrapped;
            if (claim->room >= ring->max_record / 2) least = 1;
        } else if (count == 1 && claim->room == ring->max_record) {
            return NO_ITEM_FITS;
        } else if (count / 2 >= least) {
            count /= 2;
        } else {
            *missing = expected < ring->max_record ? expected : ring->max_record;
            if (*missing <= claim->room) *missing = ring->max_record; /* the estimate was too low */
            return 0;
        }
    }
}

static PyObject *producer_push(RingProducer *self, PyObject *const *args, Py_ssize_t count) {
    if (producer_check(self) < 0) return NULL;
    if (count != 4 || Py_TYPE(args[0]) != self->codec_type || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "push(codec: Codec, items: list, start: int, stop: int)");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[2]), stop = PyLong_AsSsize_t(args[3]), size = PyList_Size(args[1]);
    if ((start == -1 || stop == -1) && PyErr_Occurred()) return NULL;
    if (stop > size) stop = size;
    if (start < 0 || start >= stop) return PyLong_FromLong(0);
    for (;;) {
        uint64_t least, missing = record_size(0), admitted = admitted_items(self, (uint64_t)(stop - start), &least);
        if (UNLIKELY(admitted == UINT64_MAX)) return raise_corrupt(self->corrupt_error, "consumer"), NULL;
        if (admitted) {
            int64_t taken = encode_frame(self, (Codec *)args[0], args[1], start, admitted, least, &missing);
            if (taken == PUSH_ERROR) return NULL;
            if (taken != 0) return PyLong_FromLongLong(taken);
        }
        int refused = refuse(self, missing);
        if (refused < 0) return NULL;
        if (refused) return PyLong_FromLong(0);
        if (ring_refresh(&self->ring) != RING_OK) return raise_corrupt(self->corrupt_error, "consumer"), NULL;
    }
}

int producer_claim(RingProducer *self, uint64_t payload, uint64_t items, ring_claim_t *claim) {
    ring_producer_t *ring = &self->ring;
    uint64_t size = record_size(payload);
    for (;;) {
        int status = RING_OK;
        if (ring_free_items(ring) < items) {
            status = ring_refresh(ring);
            if (status == RING_OK && ring_free_items(ring) < items) status = RING_EMPTY;
        }
        if (status == RING_OK) status = ring_claim(ring, size, claim);
        if (status == RING_OK) return 1;
        if (status == RING_CORRUPT) return raise_corrupt(self->corrupt_error, "consumer");
        int refused = refuse(self, size);
        if (refused) return refused < 0 ? -1 : 0;
        if (ring_refresh(ring) != RING_OK) return raise_corrupt(self->corrupt_error, "consumer");
    }
}

static PyObject *push_gathered(RingProducer *self, record_header_t *header, PyObject *buffers) {
    Py_ssize_t count = PyTuple_Size(buffers), acquired = 0;
    Py_buffer few[8], *views = few;
    PyObject *result = NULL;
    uint64_t total = 0;
    if (count < 0) return NULL;
    if (count > 8 && !(views = PyMem_Malloc((size_t)count * sizeof *views))) return PyErr_NoMemory();
    for (; acquired < count; acquired++) {
        if (PyObject_GetBuffer(PyTuple_GetItem(buffers, acquired), &views[acquired], PyBUF_SIMPLE) < 0) goto done;
        total += (uint64_t)views[acquired].len;
    }
    if (producer_check(self) < 0) goto done; /* a buffer's own code may have closed the ring */
    if (total > self->ring.max_record - RECORD_HEADER_SIZE) {
        PyErr_Format(PyExc_ValueError, "a record of %llu bytes is larger than the %llu that this ring takes",
                     (unsigned long long)total, (unsigned long long)(self->ring.max_record - RECORD_HEADER_SIZE));
        goto done;
    }
    if (header->count > self->ring.queue_size) {
        PyErr_Format(PyExc_ValueError, "a record of %u items can never enter a ring of %llu items", header->count,
                     (unsigned long long)self->ring.queue_size);
        goto done;
    }
    ring_claim_t claim;
    int written = producer_claim(self, total, header->count, &claim);
    if (written < 0) goto done;
    if (written) {
        uint8_t *target = claim.record + RECORD_HEADER_SIZE;
        for (Py_ssize_t i = 0; i < count; i++) {
            memcpy(target, views[i].buf, (size_t)views[i].len);
            target += views[i].len;
        }
        header->length = (uint32_t)total;
        producer_publish(self, &claim, header, header->count);
    }
    result = PyBool_FromLong(written);
done:
    while (acquired > 0) PyBuffer_Release(&views[--acquired]);
    if (views != few) PyMem_Free(views);
    return result;
}

static PyObject *producer_push_bytes(RingProducer *self, PyObject *const *args, Py_ssize_t count) {
    if (producer_check(self) < 0) return NULL;
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "push_bytes(kind, codec_id, flags, count, buffers)");
        return NULL;
    }
    static const long limits[4] = {254, 255, 65535, 0};
    long values[4];
    for (int i = 0; i < 4; i++) {
        values[i] = PyLong_AsLong(args[i]);
        if (values[i] == -1 && PyErr_Occurred()) return NULL;
        if (values[i] < 0 || (limits[i] && values[i] > limits[i]) || values[i] > UINT32_MAX) {
            PyErr_Format(PyExc_ValueError, "argument %d of push_bytes() does not fit its field: %ld", i + 1, values[i]);
            return NULL;
        }
    }
    PyObject *buffers = PySequence_Tuple(args[4]);
    if (!buffers) return NULL;
    record_header_t header = {0, (uint8_t)values[0], (uint8_t)values[1], (uint16_t)values[2], (uint32_t)values[3], 0};
    PyObject *result = push_gathered(self, &header, buffers);
    Py_DECREF(buffers);
    return result;
}

static PyObject *producer_push_mark(RingProducer *self, PyObject *const *args, Py_ssize_t count) {
    if (producer_check(self) < 0) return NULL;
    if (count != 2 && count != 3) {
        PyErr_SetString(PyExc_TypeError, "push_mark(kind, value, flags=0)");
        return NULL;
    }
    long kind = PyLong_AsLong(args[0]);
    if (kind == -1 && PyErr_Occurred()) return NULL;
    long long value = PyLong_AsLongLong(args[1]);
    if (value == -1 && PyErr_Occurred()) return NULL;
    long flags = count == 3 ? PyLong_AsLong(args[2]) : 0;
    if (flags == -1 && PyErr_Occurred()) return NULL;
    if (kind < KIND_WATERMARK || kind > KIND_DONE || flags < 0 || flags > 65535) {
        PyErr_Format(PyExc_ValueError, "no mark has kind %ld and flags %ld", kind, flags);
        return NULL;
    }
    ring_claim_t claim;
    int written = producer_claim(self, sizeof value, 0, &claim);
    if (written < 0) return NULL;
    if (written) {
        record_header_t header = {sizeof value, (uint8_t)kind, 0, (uint16_t)flags, 0, 0};
        memcpy(claim.record + RECORD_HEADER_SIZE, &value, sizeof value);
        producer_publish(self, &claim, &header, 0);
    }
    return PyBool_FromLong(written);
}

/* put_run(data, start, stop): whole records as take_run() gives them. Returns (position of the first record that found
 * no room, items written). */
static PyObject *producer_put_run(RingProducer *self, PyObject *args) {
    Py_buffer data;
    Py_ssize_t start, stop;
    if (!PyArg_ParseTuple(args, "y*nn:put_run", &data, &start, &stop)) return NULL;
    PyObject *result = NULL;
    uint64_t items = 0;
    if (start < 0 || stop < start || stop > data.len) {
        PyErr_SetString(PyExc_ValueError, "start and stop do not lie in the data");
    } else {
        int64_t put = producer_put_records(self, (const uint8_t *)data.buf + start, (uint64_t)(stop - start), &items);
        if (put >= 0) result = Py_BuildValue("(nK)", start + (Py_ssize_t)put, (unsigned long long)items);
    }
    PyBuffer_Release(&data);
    return result;
}

static PyObject *producer_admit(RingProducer *self, PyObject *const *args, Py_ssize_t count) {
    if (producer_check(self) < 0) return NULL;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "admit(count, size)");
        return NULL;
    }
    long long items = PyLong_AsLongLong(args[0]);
    if (items == -1 && PyErr_Occurred()) return NULL;
    long long size = PyLong_AsLongLong(args[1]);
    if (size == -1 && PyErr_Occurred()) return NULL;
    if (items < 0 || (uint64_t)items > self->ring.queue_size || size < 0 ||
        (uint64_t)size > self->ring.max_record - RECORD_HEADER_SIZE) {
        PyErr_Format(PyExc_ValueError, "no record of this ring has %lld items and %lld bytes", items, size);
        return NULL;
    }
    ring_claim_t claim;
    int fits = producer_claim(self, (uint64_t)size, (uint64_t)items, &claim);
    return fits < 0 ? NULL : PyBool_FromLong(fits);
}

static PyObject *producer_leave_mark(RingProducer *self, PyObject *size) {
    if (producer_check(self) < 0) return NULL;
    unsigned long long payload = PyLong_AsUnsignedLongLong(size);
    if (PyErr_Occurred()) return NULL;
    if (ring_refresh(&self->ring) != RING_OK) return raise_corrupt(self->corrupt_error, "consumer"), NULL;
    int refused = refuse(self, record_size(payload < self->ring.max_record ? payload : self->ring.max_record));
    return refused < 0 ? NULL : PyBool_FromLong(refused);
}

static PyObject *producer_reader_idle(RingProducer *self, void *closure) {
    (void)closure;
    if (producer_check(self) < 0) return NULL;
    if (ring_refresh(&self->ring) != RING_OK) return raise_corrupt(self->corrupt_error, "consumer"), NULL;
    const Doorbell *now = bell_now(self->bell);
    return PyBool_FromLong(self->ring.head == self->ring.tail &&
                           (!now || atomic_load_explicit(&now->bell->sleeping, memory_order_relaxed)));
}

static PyObject *producer_number(RingProducer *self, void *closure) {
    if (producer_check(self) < 0) return NULL;
    const ring_producer_t *ring = &self->ring;
    const char which = *(const char *)closure;
    if ((which == 'i' || which == 'b') && ring_refresh(&self->ring) != RING_OK)
        return raise_corrupt(self->corrupt_error, "consumer"), NULL;
    uint64_t value = which == 'm'   ? ring->max_record - RECORD_HEADER_SIZE
                     : which == 'c' ? ring->capacity
                     : which == 'q' ? ring->queue_size
                     : which == 'i' ? ring_free_items(ring)
                     : which == 'o' ? ring->items_in
                                    : ring_free_bytes(ring);
    return PyLong_FromUnsignedLongLong(value);
}

static PyObject *producer_blocked(RingProducer *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(self->blocked);
}

static PyObject *producer_get_reserved(RingProducer *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(self->reserved);
}

static int producer_set_reserved(RingProducer *self, PyObject *value, void *closure) {
    (void)closure;
    int truth = value ? PyObject_IsTrue(value) : 0;
    if (truth < 0) return -1;
    self->reserved = truth;
    return 0;
}

#define FAST(name, function, doc) {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, doc}

static PyMethodDef producer_methods[] = {
    FAST("push", producer_push, "push(codec, items, start, stop) -> int"),
    FAST("push_bytes", producer_push_bytes, "push_bytes(kind, codec_id, flags, count, buffers) -> bool"),
    FAST("push_mark", producer_push_mark, "push_mark(kind, value, flags=0) -> bool"),
    {"put_run", (PyCFunction)producer_put_run, METH_VARARGS, "put_run(data, start, stop) -> tuple[int, int]"},
    FAST("admit", producer_admit, "admit(count, size) -> bool"),
    {"leave_mark", (PyCFunction)producer_leave_mark, METH_O, "leave_mark(size) -> bool"},
    {"close", (PyCFunction)producer_close, METH_NOARGS, "close() -> None: let go of the memory"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef producer_getset[] = {
    {"max_record", (getter)producer_number, NULL, "largest payload of one record, in bytes", "m"},
    {"capacity", (getter)producer_number, NULL, "bytes of data in the ring", "c"},
    {"queue_size", (getter)producer_number, NULL, "items that may be in the ring at once", "q"},
    {"free_items", (getter)producer_number, NULL, "items that may enter now", "i"},
    {"free_bytes", (getter)producer_number, NULL, "bytes not in use now", "b"},
    {"items_in", (getter)producer_number, NULL, "items ever published", "o"},
    {"reader_idle", (getter)producer_reader_idle, NULL, "whether the ring is empty and its reader sleeps", NULL},
    {"reserved", (getter)producer_get_reserved, (setter)producer_set_reserved,
     "whether a PacketReader leaves it to its owner", NULL},
    {"blocked", (getter)producer_blocked, NULL, "whether the last push was refused", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot producer_slots[] = {
    {Py_tp_new, producer_new},         {Py_tp_dealloc, producer_dealloc},
    {Py_tp_methods, producer_methods}, {Py_tp_getset, producer_getset},
    {Py_tp_doc, "RingProducer(buffer, offset, consumer_bell=None): the writing end of a ring."},
    {0, NULL},
};

PyType_Spec producer_spec = {"shmjet._native._core.RingProducer", sizeof(RingProducer), 0, Py_TPFLAGS_DEFAULT,
                             producer_slots};
