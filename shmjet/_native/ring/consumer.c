/* RingConsumer: the reading end of a ring as a Python object.
 *
 * Frames of columns are decoded here and freed at once. Any other record is handed out as a view of the consumer
 * itself, so that the view keeps consumer and mapping alive, and release() refuses while a view lives. */
#include "ring/native.h"

#include "codec/codec.h"
#include "ring/ring_run.h"

static int consumer_check(RingConsumer *self) {
    if (LIKELY(self->ring.shared != NULL)) return 0;
    PyErr_SetString(PyExc_ValueError, "the ring is closed");
    return -1;
}

static PyObject *consumer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"buffer", "offset", "producer_bell", NULL};
    PyObject *buffer, *bell = Py_None;
    Py_ssize_t offset;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "On|O:RingConsumer", names, &buffer, &offset, &bell)) return NULL;
    native_state_t *state = native_state(type);
    if (!state) return NULL;
    if (bell != Py_None && Py_TYPE(bell) != state->doorbell) {
        PyErr_SetString(PyExc_TypeError, "producer_bell must be a Doorbell or None");
        return NULL;
    }
    RingConsumer *self = PyObject_New(RingConsumer, type);
    if (!self) return NULL;
    memset(&self->ring, 0, sizeof self->ring);
    memset(&self->held, 0, sizeof self->held);
    self->is_open = self->is_holding = self->is_relaying = 0;
    self->exports = 0;
    self->enabled = 1;
    self->bell = NULL;
    self->codec_type = state->codec;
    self->corrupt_error = state->corrupt_error;
    Py_INCREF((PyObject *)self->codec_type);
    Py_INCREF(self->corrupt_error);
    uint8_t *memory;
    if (native_map(buffer, offset, RING_HEADER_SIZE, &self->view, &memory) < 0) goto failed;
    self->is_open = 1;
    int status = ring_open_consumer(&self->ring, memory, (uint64_t)(self->view.len - offset));
    if (status != RING_OK) {
        if (status == RING_CORRUPT)
            PyErr_SetString(self->corrupt_error, "the positions in the ring are damaged");
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

static void consumer_let_go(RingConsumer *self) {
    self->ring.shared = NULL;
    self->is_holding = 0;
    if (self->is_open) PyBuffer_Release(&self->view);
    self->is_open = 0;
}

static void consumer_dealloc(RingConsumer *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    consumer_let_go(self);
    Py_XDECREF((PyObject *)self->bell);
    Py_DECREF((PyObject *)self->codec_type);
    Py_DECREF(self->corrupt_error);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static int refuse_while_viewed(RingConsumer *self) {
    if (self->exports == 0) return 0;
    PyErr_SetString(PyExc_BufferError, "a view of the record still lives");
    return -1;
}

static PyObject *consumer_close(RingConsumer *self, PyObject *none) {
    (void)none;
    if (refuse_while_viewed(self) < 0) return NULL;
    consumer_let_go(self);
    Py_RETURN_NONE;
}

void consumer_give_back(RingConsumer *self) {
    self->is_holding = self->is_relaying = 0;
    if (!ring_release(&self->ring)) return;
    const Doorbell *now = bell_now(self->bell);
    if (now) bell_signal_by(now->bell, now->eventfd);
}

static PyObject *consumer_release(RingConsumer *self, PyObject *none) {
    (void)none;
    if (consumer_check(self) < 0 || refuse_while_viewed(self) < 0) return NULL;
    if (self->is_holding || self->is_relaying) consumer_give_back(self);
    Py_RETURN_NONE;
}

static int damaged(RingConsumer *self, const char *what) {
    PyErr_Format(self->corrupt_error, "the ring holds a record with %s", what);
    return -1;
}

int consumer_damaged(RingConsumer *self, int status) {
    return damaged(self, status == RUN_BAD_LENGTH  ? "an impossible length"
                         : status == RUN_BAD_COUNT ? "more items than the queue takes"
                                                   : "a place that is not 24 bytes");
}

/* Reads the next record; 1 = there is one, 0 = empty, -1 = damaged. */
static int next_record(RingConsumer *self, ring_record_t *record) {
    int status = ring_next_counted(&self->ring, record);
    return status < 0 ? consumer_damaged(self, status) : status;
}

static PyObject *mark_tuple(RingConsumer *self, const ring_record_t *record) {
    long long value;
    if (record->header.length != sizeof value) return damaged(self, "a mark that is not 8 bytes"), NULL;
    memcpy(&value, record->payload, sizeof value);
    consumer_give_back(self);
    return Py_BuildValue("(iLi)", (int)record->header.kind, value, (int)record->header.flags);
}

/* The place of a batch: number of the slab, offset, length. */
static PyObject *slot_tuple(RingConsumer *self, const ring_record_t *record) {
    slab_place_t place;
    if (record->header.length != sizeof place) return consumer_damaged(self, RUN_BAD_PLACE), NULL;
    memcpy(&place, record->payload, sizeof place);
    consumer_give_back(self);
    return Py_BuildValue("(IKKO)", (unsigned int)place.slab, (unsigned long long)place.offset,
                         (unsigned long long)place.length, Py_None);
}

static PyObject *held_tuple(RingConsumer *self, const ring_record_t *record) {
    self->held = *record;
    self->is_holding = 1;
    PyObject *view = PyMemoryView_FromObject((PyObject *)self);
    if (!view) return NULL;
    return Py_BuildValue("(iiiIN)", (int)record->header.kind, (int)record->header.codec, (int)record->header.flags,
                         (unsigned int)record->header.count, view);
}

/* Decodes a frame and the frames of columns right behind it, as long as the list stays below `limit` items. */
static PyObject *decode_frames(RingConsumer *self, Codec *codec, ring_record_t *record, uint64_t limit) {
    uint64_t total = record->header.count, room = total > limit ? total : limit;
    /* Nothing here may run Python code: the scratch memory belongs to the codec, which that code could use. */
    int collecting = PyGC_Disable();
    PyObject *list = NULL, **values = scratch_alloc(codec, (size_t)room * sizeof(PyObject *));
    if (!values) goto done;
    if (columns_decode(codec, record->payload, record->header.length, (Py_ssize_t)total, values) < 0) goto done;
    while (total < limit) {
        uint64_t position = self->ring.position, seen = self->ring.items_seen;
        int found = next_record(self, record);
        if (found < 0) PyErr_Clear(); /* reported by the next pull, which meets the same record */
        if (found <= 0 || record->header.kind != KIND_ITEMS || record->header.codec != CODEC_COLUMNS ||
            total + record->header.count > room ||
            columns_decode(codec, record->payload, record->header.length, (Py_ssize_t)record->header.count,
                           values + total)) {
            PyErr_Clear();
            ring_unread(&self->ring, position);
            self->ring.items_seen = seen;
            break;
        }
        total += record->header.count;
    }
    list = list_from(codec, values, (Py_ssize_t)total);
done:
    scratch_reset(codec);
    if (collecting) PyGC_Enable();
    if (list) consumer_give_back(self);
    return list;
}

static PyObject *consumer_pull(RingConsumer *self, PyObject *const *args, Py_ssize_t count) {
    if (consumer_check(self) < 0) return NULL;
    if (count < 1 || count > 2 || Py_TYPE(args[0]) != self->codec_type) {
        PyErr_SetString(PyExc_TypeError, "pull(codec: Codec, limit: int = 0)");
        return NULL;
    }
    long limit = count == 2 ? PyLong_AsLong(args[1]) : 0;
    if (limit == -1 && PyErr_Occurred()) return NULL;
    if (self->is_holding) {
        PyErr_SetString(PyExc_ValueError, "release() the last record first");
        return NULL;
    }
    if (limit < 0) limit = 0;
    uint64_t most = (uint64_t)limit < self->ring.queue_size ? (uint64_t)limit : self->ring.queue_size;
    ring_record_t record;
    int found = next_record(self, &record);
    if (found < 0) return NULL;
    if (found == 0) Py_RETURN_NONE;
    if (record.header.kind == KIND_ITEMS && record.header.codec == CODEC_COLUMNS)
        return decode_frames(self, (Codec *)args[0], &record, most);
    if (record.header.kind >= KIND_WATERMARK && record.header.kind <= KIND_DONE) return mark_tuple(self, &record);
    if (record.header.kind == KIND_ITEMS && record.header.codec == CODEC_SLOT) return slot_tuple(self, &record);
    return held_tuple(self, &record);
}

/* take_run(limit): records as they lie in the ring, undecoded, to be freed by release() once they have been copied. A
 * run is contiguous and has at most `limit` bytes, or one record: (offset in the buffer, bytes, items). A batch in a
 * slab ends a run and is then handed out alone: (slab, offset, bytes, count). None when nothing is there. */
static PyObject *consumer_take_run(RingConsumer *self, PyObject *most) {
    if (consumer_check(self) < 0) return NULL;
    unsigned long long limit = PyLong_AsUnsignedLongLong(most);
    if (PyErr_Occurred()) return NULL;
    if (self->is_holding) {
        PyErr_SetString(PyExc_ValueError, "release() the last record first");
        return NULL;
    }
    ring_run_t run;
    int status = ring_take_run(&self->ring, limit, &run);
    if (status < 0) return consumer_damaged(self, status), NULL;
    if (status == RUN_NONE) Py_RETURN_NONE;
    self->is_relaying = 1;
    if (status == RUN_PLACE)
        return Py_BuildValue("(IKKI)", (unsigned int)run.place.slab, (unsigned long long)run.place.offset,
                             (unsigned long long)run.place.length, (unsigned int)run.items);
    return Py_BuildValue("(nKK)", (Py_ssize_t)(run.start - (const uint8_t *)self->view.buf),
                         (unsigned long long)run.length, (unsigned long long)run.items);
}

static int consumer_getbuffer(PyObject *object, Py_buffer *view, int flags) {
    RingConsumer *self = (RingConsumer *)object;
    if (!self->is_holding) {
        PyErr_SetString(PyExc_BufferError, "the consumer holds no record");
        view->obj = NULL;
        return -1;
    }
    if (PyBuffer_FillInfo(view, object, (void *)self->held.payload, (Py_ssize_t)self->held.header.length, 1, flags) < 0)
        return -1;
    self->exports++;
    return 0;
}

static void consumer_releasebuffer(PyObject *object, Py_buffer *view) {
    (void)view;
    ((RingConsumer *)object)->exports--;
}

static PyObject *consumer_has_data(RingConsumer *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(self->ring.shared && ring_has_data(&self->ring));
}

static PyObject *consumer_get_enabled(RingConsumer *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(self->enabled);
}

static int consumer_set_enabled(RingConsumer *self, PyObject *value, void *closure) {
    (void)closure;
    int truth = value ? PyObject_IsTrue(value) : 0;
    if (truth < 0) return -1;
    self->enabled = truth;
    return 0;
}

static PyObject *consumer_number(RingConsumer *self, void *closure) {
    if (consumer_check(self) < 0) return NULL;
    const char which = *(const char *)closure;
    uint64_t value;
    if (which == 'n') { /* a metric: items published and not yet read, as of now */
        uint64_t items_in = atomic_load_explicit(&self->ring.shared->items_in, memory_order_acquire);
        value = items_in - self->ring.items_seen;
        if (value > self->ring.queue_size) value = self->ring.queue_size;
    } else {
        value = which == 'c' ? self->ring.capacity : which == 'q' ? self->ring.queue_size : self->ring.items_seen;
    }
    return PyLong_FromUnsignedLongLong(value);
}

#define FAST(name, function, doc) {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, doc}

static PyMethodDef consumer_methods[] = {
    {"take_run", (PyCFunction)consumer_take_run, METH_O, "take_run(limit) -> None | run tuple | place tuple"},
    FAST("pull", consumer_pull, "pull(codec, limit=0) -> None | list | mark tuple | place tuple | record tuple"),
    {"release", (PyCFunction)consumer_release, METH_NOARGS, "release() -> None: free the record handed out as a view"},
    {"close", (PyCFunction)consumer_close, METH_NOARGS, "close() -> None: let go of the memory"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef consumer_getset[] = {
    {"has_data", (getter)consumer_has_data, NULL, "whether a record can be pulled", NULL},
    {"enabled", (getter)consumer_get_enabled, (setter)consumer_set_enabled, "whether a Poller looks at it", NULL},
    {"capacity", (getter)consumer_number, NULL, "bytes of data in the ring", "c"},
    {"queue_size", (getter)consumer_number, NULL, "items that may be in the ring at once", "q"},
    {"queued_items", (getter)consumer_number, NULL, "items published and not yet pulled", "n"},
    {"items_out", (getter)consumer_number, NULL, "items ever pulled", "o"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot consumer_slots[] = {
    {Py_tp_new, consumer_new},
    {Py_tp_dealloc, consumer_dealloc},
    {Py_tp_methods, consumer_methods},
    {Py_tp_getset, consumer_getset},
    {Py_bf_getbuffer, consumer_getbuffer},
    {Py_bf_releasebuffer, consumer_releasebuffer},
    {Py_tp_doc, "RingConsumer(buffer, offset, producer_bell=None): the reading end of a ring."},
    {0, NULL},
};

PyType_Spec consumer_spec = {"shmjet._native._core.RingConsumer", sizeof(RingConsumer), 0, Py_TPFLAGS_DEFAULT,
                             consumer_slots};
