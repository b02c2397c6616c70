/* The Codec type: scratch memory, the cache of repeated strings, and the two calls that work without a ring. */
#include "codec/codec.h"

#define SCRATCH_ALIGN(size) (((size) + 15u) & ~(size_t)15u)

void *scratch_alloc(Codec *codec, size_t size) {
    size = SCRATCH_ALIGN(size);
    if (LIKELY(size <= CODEC_SCRATCH_SIZE - codec->used)) {
        void *memory = codec->scratch + codec->used;
        codec->used += size;
        return memory;
    }
    scratch_block_t *block = PyMem_Malloc(SCRATCH_ALIGN(sizeof *block) + size);
    if (!block) {
        PyErr_NoMemory();
        return NULL;
    }
    block->next = codec->overflow;
    codec->overflow = block;
    return (uint8_t *)block + SCRATCH_ALIGN(sizeof *block);
}

void scratch_reset(Codec *codec) {
    codec->used = 0;
    while (UNLIKELY(codec->overflow != NULL)) {
        scratch_block_t *block = codec->overflow;
        codec->overflow = block->next;
        PyMem_Free(block);
    }
}

PyObject *list_from(const Codec *codec, PyObject **values, Py_ssize_t count) {
    PyObject *list = PyList_New(count);
    if (!list) {
        for (Py_ssize_t i = 0; i < count; i++) Py_DECREF(values[i]);
        return NULL;
    }
    PyObject **items = layout_list(&codec->layout, list);
    if (LIKELY(items != NULL))
        memcpy(items, values, (size_t)count * sizeof *items);
    else
        for (Py_ssize_t i = 0; i < count; i++) PyList_SetItem(list, i, values[i]);
    return list;
}

/* From now on tuples of this class are columns, here and wherever a class has the same number. */
PyObject *codec_name_tuples(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    native_state_t *state = PyModule_GetState(module);
    Py_ssize_t number = count == 2 ? PyLong_AsSsize_t(args[0]) : -1;
    PyObject *fields = count == 2 ? PyObject_GetAttrString(args[1], "_fields") : NULL;
    Py_ssize_t size = fields ? PyObject_Size(fields) : -1;
    Py_XDECREF(fields);
    PyErr_Clear();
    if (number < 0 || number >= NAMED_TUPLES || size < 1 || size > UINT8_MAX || !PyType_Check(args[1]) ||
        !PyType_IsSubtype((PyTypeObject *)args[1], &PyTuple_Type))
        return PyErr_SetString(PyExc_TypeError, "name_tuples(number below 8, a class of named tuples)"), NULL;
    named_tuple_t *named = &state->named[number];
    PyTypeObject *before = named->type;
    named->type = (PyTypeObject *)Py_NewRef(args[1]);
    named->fields = size;
    Py_XDECREF((PyObject *)before);
    Py_RETURN_NONE;
}

static PyObject *codec_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Codec", names)) return NULL;
    native_state_t *state = native_state(type);
    Codec *self = state ? PyObject_New(Codec, type) : NULL;
    if (!self) return NULL;
    self->layout = state->layout;
    self->named = state->named;
    self->used = 0;
    self->overflow = NULL;
    self->lookups = self->hits = self->sleep = 0;
    self->scratch = PyMem_Malloc(CODEC_SCRATCH_SIZE);
    self->strings = PyMem_Calloc(STRING_SETS, sizeof *self->strings);
    self->ints = PyMem_Calloc(KEPT_INTS, sizeof *self->ints);
    if (!self->scratch || !self->strings || !self->ints) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void codec_dealloc(Codec *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    scratch_reset(self);
    for (size_t i = 0; self->strings && i < STRING_SETS; i++)
        for (size_t way = 0; way < STRING_WAYS; way++) Py_XDECREF(self->strings[i].strings[way]);
    for (size_t i = 0; self->ints && i < KEPT_INTS; i++) Py_XDECREF(self->ints[i]);
    PyMem_Free(self->strings);
    PyMem_Free(self->ints);
    PyMem_Free(self->scratch);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *codec_encode(Codec *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "encode(items: list, start: int, stop: int)");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]), stop = PyLong_AsSsize_t(args[2]), size = PyList_Size(args[0]);
    if ((start == -1 || stop == -1) && PyErr_Occurred()) return NULL;
    if (stop > size) stop = size;
    if (start < 0 || start >= stop) {
        PyErr_SetString(PyExc_ValueError, "encode() needs at least one item");
        return NULL;
    }
    for (uint64_t room = 256 + 24 * (uint64_t)(stop - start);; room *= 4) {
        uint8_t *out = PyMem_Malloc(room);
        if (!out) return PyErr_NoMemory();
        int64_t written = columns_encode(self, args[0], start, stop - start, out, room);
        PyObject *result = NULL;
        if (written >= 0) {
            result = PyBytes_FromStringAndSize((const char *)out, (Py_ssize_t)written);
        } else if (written == COLUMNS_REFUSED) {
            Py_INCREF(Py_None);
            result = Py_None;
        }
        PyMem_Free(out);
        if (written != COLUMNS_NO_ROOM) return result;
    }
}

static PyObject *codec_decode(Codec *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "decode(payload, count)");
        return NULL;
    }
    Py_ssize_t items = PyLong_AsSsize_t(args[1]);
    if (items == -1 && PyErr_Occurred()) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *list = NULL, **values = NULL;
    if (items < 1 || items > view.len) {
        PyErr_Format(PyExc_ValueError, "a frame of %zd bytes cannot hold %zd items", view.len, items);
    } else {
        int collecting = PyGC_Disable();
        values = scratch_alloc(self, (size_t)items * sizeof *values);
        if (values && columns_decode(self, view.buf, (uint64_t)view.len, items, values) == 0)
            list = list_from(self, values, items);
        scratch_reset(self);
        if (collecting) PyGC_Enable();
    }
    PyBuffer_Release(&view);
    return list;
}

#define FAST(name, function, doc) {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, doc}

static PyMethodDef codec_methods[] = {
    FAST("encode", codec_encode, "encode(items, start, stop) -> bytes | None"),
    FAST("decode", codec_decode, "decode(payload, count) -> list"),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot codec_slots[] = {
    {Py_tp_new, codec_new},
    {Py_tp_dealloc, codec_dealloc},
    {Py_tp_methods, codec_methods},
    {Py_tp_doc, "Codec(): scratch memory and string cache of the column codec, one for each process."},
    {0, NULL},
};

PyType_Spec codec_spec = {"shmjet._native._core.Codec", sizeof(Codec), 0, Py_TPFLAGS_DEFAULT, codec_slots};
