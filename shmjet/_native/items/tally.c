/* Tally: counts keys. A table (keyed.h) with the counts inside, for the commonest of all aggregations. */
#include "items/keyed.h"

typedef struct {
    keyed_entry_t head;
    int64_t count;
} count_t;

#define STRIDE sizeof(count_t)

typedef struct {
    PyObject_HEAD
    keyed_t table;
    const object_layout_t *layout;
} Tally;

/* Adds to the count of one key. */
static int add_to(Tally *self, const keyed_probe_t *probe, int64_t count) {
    count_t *entry = (count_t *)keyed_entry(&self->table, STRIDE, probe);
    if (!entry) return -1;
    if (__builtin_add_overflow(entry->count, count, &entry->count)) {
        PyErr_SetString(PyExc_OverflowError, "a count does not fit 64 bits");
        return -1;
    }
    return 0;
}

static int add_keys(Tally *self, keyed_source_t *source) {
    keyed_probe_t probes[KEYED_BLOCK];
    int count, status;
    do {
        status = keyed_gather(&self->table, STRIDE, source, probes, &count);
        PyObject *type = NULL, *error = NULL, *trace = NULL;
        if (UNLIKELY(status < 0)) PyErr_Fetch(&type, &error, &trace);
        int failed = 0;
        for (int i = 0; i < count; i++) {
            if (LIKELY(!failed)) {
                count_t *entry = (count_t *)keyed_entry(&self->table, STRIDE, &probes[i]);
                if (LIKELY(entry != NULL))
                    entry->count++;
                else
                    failed = 1;
            }
            Py_DECREF(probes[i].key);
        }
        if (UNLIKELY(status < 0)) PyErr_Restore(type, error, trace);
        if (failed) return -1;
    } while (status > 0);
    return status;
}

static PyObject *tally_add(Tally *self, PyObject *keys) {
    keyed_source_t source = {.layout = self->layout};
    if (PyList_CheckExact(keys))
        source.list = keys;
    else if (!(source.iterator = PyObject_GetIter(keys)))
        return NULL;
    int status = keyed_start(&self->table, "Tally");
    if (status == 0) {
        status = add_keys(self, &source);
        self->table.busy = 0;
    }
    Py_XDECREF(source.iterator);
    if (status < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *tally_add_pairs(Tally *self, PyObject *pairs) {
    if (!PyList_Check(pairs)) return PyErr_SetString(PyExc_TypeError, "add_pairs(pairs: list[tuple[key, int]])"), NULL;
    if (keyed_start(&self->table, "Tally") < 0) return NULL;
    Py_ssize_t i = 0;
    for (int status = 0; status == 0 && i < PyList_Size(pairs); i += status == 0) {
        PyObject *pair = layout_get_list(self->layout, pairs, i);
        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) break;
        PyObject *value = layout_get_tuple(self->layout, pair, 1);
        if (!PyLong_CheckExact(value)) break;
        int overflow;
        long long count = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow) break;
        keyed_probe_t probe;
        Py_INCREF(pair);
        status = keyed_probe(layout_get_tuple(self->layout, pair, 0), &probe);
        if (status == 0) status = add_to(self, &probe, count);
        Py_DECREF(pair);
    }
    self->table.busy = 0;
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(i);
}

static PyObject *count_of(const void *owner, const keyed_entry_t *entry) {
    (void)owner;
    return PyLong_FromLongLong(((const count_t *)entry)->count);
}

static PyObject *tally_chunk(Tally *self, PyObject *args) {
    return keyed_chunk(&self->table, STRIDE, self->layout, args, count_of, self);
}

static PyObject *tally_get(Tally *self, PyObject *args) {
    PyObject *key, *absent = NULL, *zero = NULL;
    if (!PyArg_ParseTuple(args, "O|O:get", &key, &absent)) return NULL;
    if (!absent && !(absent = zero = PyLong_FromLong(0))) return NULL;
    PyObject *found = keyed_get(&self->table, STRIDE, "Tally", key, absent, count_of, self);
    Py_XDECREF(zero);
    return found;
}

static Py_ssize_t tally_length(Tally *self) { return self->table.used; }

static PyObject *tally_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Tally", names)) return NULL;
    native_state_t *state = native_state(type);
    if (!state) return NULL;
    Tally *self = PyObject_New(Tally, type);
    if (!self) return NULL;
    self->layout = &state->layout;
    if (keyed_init(&self->table, STRIDE) < 0) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void tally_dealloc(Tally *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    keyed_free(&self->table, STRIDE);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef tally_methods[] = {
    {"add", (PyCFunction)tally_add, METH_O, "add(keys) -> None: count each key once more"},
    {"add_pairs", (PyCFunction)tally_add_pairs, METH_O,
     "add_pairs(pairs) -> int: pairs taken before the first bad one"},
    {"chunk", (PyCFunction)tally_chunk, METH_VARARGS, "chunk(position, limit) -> (pairs, next position or -1)"},
    {"get", (PyCFunction)tally_get, METH_VARARGS, "get(key, default=0): its count, or the default when it has none"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tally_slots[] = {
    {Py_tp_new, tally_new},           {Py_tp_dealloc, tally_dealloc},
    {Py_tp_methods, tally_methods},   {Py_mp_length, tally_length},
    {Py_tp_doc, "Tally(): counts keys, any that a dict would take."},
    {0, NULL},
};

PyType_Spec tally_spec = {"shmjet._native._core.Tally", sizeof(Tally), 0, Py_TPFLAGS_DEFAULT, tally_slots};
