/* SlabWriter, SlabReader and Slot: both ends of a slab, and one slot of it as read-only memory that lives as long as
 * its last view. */
#include "ring/native.h"

#include <unistd.h>

#include "ring/slab_writer.h"

typedef struct {
    PyObject_HEAD
    Py_buffer view;
    int is_open;
    slab_t slab;
    Py_ssize_t live;
    PyTypeObject *slot_type;
    PyObject *corrupt_error;
} SlabReader;

typedef struct {
    PyObject_HEAD
    SlabReader *reader;
    const uint8_t *data;
    Py_ssize_t length;
    uint32_t unit;
    pid_t pid;
} Slot;

static void view_release(Py_buffer *view, int *is_open) {
    if (*is_open) PyBuffer_Release(view);
    *is_open = 0;
}

static int map_slab(PyObject *args, PyObject *kwargs, const char *format, Py_buffer *view, uint8_t **memory,
                    Py_ssize_t *size) {
    static char *names[] = {"buffer", "offset", "size", NULL};
    PyObject *buffer;
    Py_ssize_t offset;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, names, &buffer, &offset, size)) return -1;
    if (*size < 0 || slab_units((uint64_t)*size) == 0) {
        PyErr_Format(PyExc_ValueError, "no slab fits into %zd bytes", *size);
        return -1;
    }
    return native_map(buffer, offset, *size, view, memory);
}

/* -- writer -------------------------------------------------------------------------------------------------------- */

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    SlabWriter *self = PyObject_New(SlabWriter, type);
    if (!self) return NULL;
    uint8_t *memory;
    Py_ssize_t size;
    self->is_open = 0;
    self->lengths = NULL;
    self->usable = 0;
    memset(&self->slab, 0, sizeof self->slab);
    if (map_slab(args, kwargs, "Onn:SlabWriter", &self->view, &memory, &size) < 0) goto failed;
    self->is_open = 1;
    slab_format(&self->slab, memory, (uint64_t)size);
    self->lengths = PyMem_Calloc(self->slab.units, sizeof *self->lengths);
    if (!self->lengths) {
        PyErr_NoMemory();
        goto failed;
    }
    return (PyObject *)self;
failed:
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void writer_dealloc(SlabWriter *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    view_release(&self->view, &self->is_open);
    PyMem_Free(self->lengths);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *writer_close(SlabWriter *self, PyObject *none) {
    (void)none;
    view_release(&self->view, &self->is_open);
    Py_RETURN_NONE;
}

static int writer_check(SlabWriter *self) {
    if (LIKELY(self->is_open)) return 0;
    PyErr_SetString(PyExc_ValueError, "the slab is closed");
    return -1;
}

static uint64_t aligned(uint64_t offset) { return (offset + SLAB_ALIGNMENT - 1) & ~(uint64_t)(SLAB_ALIGNMENT - 1); }

/* put(parts, count): each part at the next multiple of 64. Returns the slot's offset, or -1 when no run is free. */
static PyObject *writer_put(SlabWriter *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "put(parts: tuple, count: int)");
        return NULL;
    }
    long readers = PyLong_AsLong(args[1]);
    if (readers == -1 && PyErr_Occurred()) return NULL;
    if (readers < 1 || readers > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "a slot has at least one reader, got %ld", readers);
        return NULL;
    }
    Py_ssize_t parts = PyTuple_Size(args[0]), held = 0;
    Py_buffer few[16], *views = few;
    PyObject *result = NULL;
    if (parts > 16 && !(views = PyMem_Malloc((size_t)parts * sizeof *views))) return PyErr_NoMemory();
    uint64_t size = 0;
    for (; held < parts; held++) {
        if (PyObject_GetBuffer(PyTuple_GetItem(args[0], held), &views[held], PyBUF_SIMPLE) < 0) goto done;
        size = aligned(size) + (uint64_t)views[held].len;
    }
    if (writer_check(self) < 0) goto done; /* a buffer's own code may have closed it */
    uint32_t unit = slab_writer_claim(self, size, (uint32_t)readers);
    if (unit == UINT32_MAX) {
        result = PyLong_FromLong(-1);
        goto done;
    }
    uint8_t *target = self->slab.data + (uint64_t)unit * SLAB_UNIT;
    uint64_t at = 0;
    for (Py_ssize_t i = 0; i < parts; i++) {
        at = aligned(at);
        if (views[i].len) memcpy(target + at, views[i].buf, (size_t)views[i].len);
        at += (uint64_t)views[i].len;
    }
    result = PyLong_FromUnsignedLongLong((uint64_t)unit * SLAB_UNIT);
done:
    while (held > 0) PyBuffer_Release(&views[--held]);
    if (views != few) PyMem_Free(views);
    return result;
}

uint32_t slab_writer_claim(SlabWriter *self, uint64_t size, uint32_t readers) {
    if (!self->is_open || size == 0 || size > (uint64_t)self->usable * SLAB_UNIT) return UINT32_MAX;
    uint32_t unit = slab_allocate(&self->slab, self->lengths, self->usable, slab_units_of(size));
    if (unit != UINT32_MAX) atomic_store_explicit(&self->slab.counts[unit], readers, memory_order_relaxed);
    return unit;
}

/* claim(size, count): a slot whose content will be written by the caller. Returns (offset of the slot, of its bytes in
 * the buffer), or None when no run is free. */
static PyObject *writer_claim(SlabWriter *self, PyObject *args) {
    unsigned long long size;
    unsigned int readers;
    if (!PyArg_ParseTuple(args, "KI:claim", &size, &readers) || writer_check(self) < 0) return NULL;
    if (readers < 1 || readers > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "a slot has at least one reader, got %u", readers);
        return NULL;
    }
    uint32_t unit = slab_writer_claim(self, size, readers);
    if (unit == UINT32_MAX) Py_RETURN_NONE;
    const uint8_t *target = self->slab.data + (uint64_t)unit * SLAB_UNIT;
    return Py_BuildValue("(Kn)", (unsigned long long)unit * SLAB_UNIT,
                         (Py_ssize_t)(target - (const uint8_t *)self->view.buf));
}

static int writer_unit(SlabWriter *self, PyObject *offset, uint32_t *unit) {
    unsigned long long value = PyLong_AsUnsignedLongLong(offset);
    if (PyErr_Occurred() || writer_check(self) < 0) return -1;
    if (value % SLAB_UNIT || value / SLAB_UNIT >= self->slab.units || !self->lengths[value / SLAB_UNIT]) {
        PyErr_Format(PyExc_ValueError, "no slot starts at %llu", value);
        return -1;
    }
    *unit = (uint32_t)(value / SLAB_UNIT);
    return 0;
}

static PyObject *writer_retain(SlabWriter *self, PyObject *offset) {
    uint32_t unit;
    if (writer_unit(self, offset, &unit) < 0) return NULL;
    slab_retain(&self->slab, unit, 1);
    Py_RETURN_NONE;
}

static PyObject *writer_drop(SlabWriter *self, PyObject *offset) {
    uint32_t unit;
    if (writer_unit(self, offset, &unit) < 0) return NULL;
    slab_drop(&self->slab, unit);
    Py_RETURN_NONE;
}

static PyObject *writer_get(SlabWriter *self, void *closure) {
    const char which = *(const char *)closure;
    if (which == 'u') return PyLong_FromUnsignedLong(self->usable);
    if (which == 'n') return PyLong_FromUnsignedLong(self->slab.units);
    if (writer_check(self) < 0) return NULL;
    uint32_t taken = 0;
    for (uint32_t unit = 0; unit < self->usable;) {
        uint32_t length = self->lengths[unit];
        if (length && atomic_load_explicit(&self->slab.counts[unit], memory_order_acquire)) taken += length;
        unit += length ? length : 1;
    }
    return PyLong_FromUnsignedLong(taken);
}

static int writer_set_usable(SlabWriter *self, PyObject *value, void *closure) {
    (void)closure;
    unsigned long units = value ? PyLong_AsUnsignedLong(value) : 0;
    if (PyErr_Occurred()) return -1;
    if (units < self->usable || units > self->slab.units) {
        PyErr_Format(PyExc_ValueError, "usable units grow from %u to at most %u, got %lu", self->usable,
                     self->slab.units, units);
        return -1;
    }
    self->usable = (uint32_t)units;
    return 0;
}

#define FAST(name, function, doc) {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, doc}

static PyMethodDef writer_methods[] = {
    FAST("put", writer_put, "put(parts, count) -> int: offset of the new slot, -1 when there is no room"),
    {"claim", (PyCFunction)writer_claim, METH_VARARGS, "claim(size, count) -> None | (offset, offset in the buffer)"},
    {"retain", (PyCFunction)writer_retain, METH_O, "retain(offset) -> None: one more reader"},
    {"drop", (PyCFunction)writer_drop, METH_O, "drop(offset) -> None: one reader less"},
    {"close", (PyCFunction)writer_close, METH_NOARGS, "close() -> None: let go of the memory"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef writer_getset[] = {
    {"units", (getter)writer_get, NULL, "units of the slab", "n"},
    {"usable", (getter)writer_get, (setter)writer_set_usable, "units that have memory", "u"},
    {"taken", (getter)writer_get, NULL, "units that readers may look at now", "t"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_methods, writer_methods},
    {Py_tp_getset, writer_getset},
    {Py_tp_doc, "SlabWriter(buffer, offset, size): formats a slab and writes slots."},
    {0, NULL},
};

PyType_Spec slab_writer_spec = {"shmjet._native._core.SlabWriter", sizeof(SlabWriter), 0, Py_TPFLAGS_DEFAULT,
                                writer_slots};

/* -- reader -------------------------------------------------------------------------------------------------------- */

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    native_state_t *state = native_state(type);
    SlabReader *self = state ? PyObject_New(SlabReader, type) : NULL;
    if (!self) return NULL;
    uint8_t *memory;
    Py_ssize_t size;
    self->is_open = 0;
    self->live = 0;
    self->slot_type = state->slot;
    self->corrupt_error = state->corrupt_error;
    Py_INCREF((PyObject *)self->slot_type);
    Py_INCREF(self->corrupt_error);
    memset(&self->slab, 0, sizeof self->slab);
    if (map_slab(args, kwargs, "Onn:SlabReader", &self->view, &memory, &size) < 0) goto failed;
    self->is_open = 1;
    if (slab_open(&self->slab, memory, (uint64_t)size) < 0) {
        PyErr_Format(PyExc_ValueError, "there is no slab of %zd bytes at the offset", size);
        goto failed;
    }
    return (PyObject *)self;
failed:
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void reader_dealloc(SlabReader *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    view_release(&self->view, &self->is_open);
    Py_DECREF((PyObject *)self->slot_type);
    Py_DECREF(self->corrupt_error);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* take(offset, length): a Slot, or a copy as bytes when readers hold half the slab already. */
static PyObject *reader_take(SlabReader *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "take(offset, length)");
        return NULL;
    }
    unsigned long long offset = PyLong_AsUnsignedLongLong(args[0]);
    if (PyErr_Occurred()) return NULL;
    unsigned long long length = PyLong_AsUnsignedLongLong(args[1]);
    if (PyErr_Occurred()) return NULL;
    uint64_t size = (uint64_t)self->slab.units * SLAB_UNIT;
    if (offset % SLAB_UNIT || offset >= size || length == 0 || length > size - offset) {
        PyErr_Format(self->corrupt_error, "no slot lies at [%llu, %llu) of a slab of %llu bytes", offset,
                     offset + length, (unsigned long long)size);
        return NULL;
    }
    const uint8_t *data = self->slab.data + offset;
    uint32_t unit = (uint32_t)(offset / SLAB_UNIT);
    if (!slab_may_hold(&self->slab, length)) {
        PyObject *copy = PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)length);
        if (copy) slab_drop(&self->slab, unit);
        return copy;
    }
    Slot *slot = PyObject_New(Slot, self->slot_type);
    if (!slot) {
        slab_let_go(&self->slab, length);
        return NULL;
    }
    Py_INCREF((PyObject *)self);
    slot->reader = self;
    slot->data = data;
    slot->length = (Py_ssize_t)length;
    slot->unit = unit;
    slot->pid = getpid();
    self->live++;
    return (PyObject *)slot;
}

static PyObject *reader_live(SlabReader *self, void *closure) {
    (void)closure;
    return PyLong_FromSsize_t(self->live);
}

static PyMethodDef reader_methods[] = {
    FAST("take", reader_take, "take(offset, length) -> Slot | bytes"),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef reader_getset[] = {
    {"live", (getter)reader_live, NULL, "slots that have views", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, reader_methods},
    {Py_tp_getset, reader_getset},
    {Py_tp_doc, "SlabReader(buffer, offset, size): reads slots that another process has written."},
    {0, NULL},
};

PyType_Spec slab_reader_spec = {"shmjet._native._core.SlabReader", sizeof(SlabReader), 0, Py_TPFLAGS_DEFAULT,
                                reader_slots};

/* -- slot ---------------------------------------------------------------------------------------------------------- */

static int slot_getbuffer(PyObject *object, Py_buffer *view, int flags) {
    Slot *self = (Slot *)object;
    return PyBuffer_FillInfo(view, object, (void *)self->data, self->length, 1, flags);
}

static void slot_dealloc(Slot *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    SlabReader *reader = self->reader;
    if (self->pid == getpid()) { /* a copy of the process, forked by the user, must not give it back a second time */
        slab_let_go(&reader->slab, (uint64_t)self->length);
        slab_drop(&reader->slab, self->unit);
    }
    reader->live--;
    Py_DECREF((PyObject *)reader);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot slot_slots[] = {
    {Py_tp_dealloc, slot_dealloc},
    {Py_bf_getbuffer, slot_getbuffer},
    {Py_tp_doc, "Read-only memory of a slot, given back when the last view of it is gone."},
    {0, NULL},
};

PyType_Spec slot_spec = {"shmjet._native._core.Slot", sizeof(Slot), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slot_slots};
