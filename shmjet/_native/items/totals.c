/* Totals: a sum, mean, least or greatest value for each key. A table (keyed.h) of numbers (number.h). */
#include "items/items.h"
#include "items/keyed.h"
#include "items/number.h"

enum { SUM, MEAN, LEAST, MOST };

typedef struct {
    keyed_entry_t head;
    number_t number; /* none: of a least or greatest value that is still to come */
    int64_t count;   /* of a mean */
} total_t;

#define STRIDE sizeof(total_t)

typedef struct {
    PyObject_HEAD
    keyed_t table;
    const object_layout_t *layout;
    int kind;
} Totals;

/* The entry of a key; a fresh one has the sum 0. */
static inline total_t *entry_of(Totals *self, const keyed_probe_t *probe) {
    total_t *entry = (total_t *)keyed_entry(&self->table, STRIDE, probe);
    if (entry && entry->number.kind == NUMBER_NONE && self->kind <= MEAN) entry->number.kind = NUMBER_INT;
    return entry;
}

static inline int put(Totals *self, total_t *entry, PyObject *value, int64_t count) {
    number_t number = number_borrow(value);
    if (self->kind <= MEAN) {
        if (number_add(&entry->number, number) < 0) return -1;
        if (__builtin_add_overflow(entry->count, count, &entry->count)) {
            PyErr_SetString(PyExc_OverflowError, "a count does not fit 64 bits");
            return -1;
        }
        return 0;
    }
    if (entry->number.kind != NUMBER_NONE) {
        int beats = number_beats(&number, &entry->number, self->kind == LEAST ? Py_LT : Py_GT);
        if (beats <= 0) return beats;
    }
    number_set(&entry->number, number);
    return 0;
}

static int add_lists(Totals *self, PyObject *keys, PyObject *values) {
    keyed_source_t source = {.layout = self->layout, .list = keys};
    keyed_probe_t probes[KEYED_BLOCK];
    Py_ssize_t at = 0;
    int count, status, failed = 0;
    do {
        status = keyed_gather(&self->table, STRIDE, &source, probes, &count);
        failed = status < 0; /* what came before it in the block is left out: the job fails */
        for (int i = 0; i < count; i++) {
            if (LIKELY(!failed && at < PyList_Size(values))) {
                PyObject *value = layout_get_list(self->layout, values, at++);
                total_t *entry = entry_of(self, &probes[i]);
                Py_INCREF(value);
                failed = !entry || put(self, entry, value, 1) < 0;
                Py_DECREF(value);
            }
            Py_DECREF(probes[i].key);
        }
    } while (status > 0 && !failed);
    return failed ? -1 : 0;
}

static PyObject *list_of(PyObject *values) {
    if (!PyList_CheckExact(values)) return PySequence_List(values);
    Py_INCREF(values);
    return values;
}

static PyObject *totals_add(Totals *self, PyObject *args) {
    PyObject *keys, *values;
    if (!PyArg_ParseTuple(args, "OO:add", &keys, &values)) return NULL;
    keys = list_of(keys);
    values = keys ? list_of(values) : NULL;
    int status = -1;
    if (keys && values) {
        if (PyList_Size(keys) != PyList_Size(values)) {
            PyErr_Format(PyExc_ValueError, "%zd keys, but %zd values", PyList_Size(keys), PyList_Size(values));
        } else if (keyed_start(&self->table, "Totals") == 0) {
            status = add_lists(self, keys, values);
            self->table.busy = 0;
        }
    }
    Py_XDECREF(keys);
    Py_XDECREF(values);
    if (status < 0) return NULL;
    Py_RETURN_NONE;
}

/* Puts the accumulator of a pair to its key: 1 = done, 0 = no such pair, -1 = exception. */
static int put_pair(Totals *self, PyObject *pair) {
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) return 0;
    PyObject *value = layout_get_tuple(self->layout, pair, 1);
    int64_t count = 0;
    if (self->kind == MEAN) {
        if (!PyTuple_Check(value) || PyTuple_Size(value) != 2) return 0;
        PyObject *number = layout_get_tuple(self->layout, value, 1);
        int overflow = 1;
        if (PyLong_CheckExact(number)) count = PyLong_AsLongLongAndOverflow(number, &overflow);
        if (overflow) return 0;
        value = layout_get_tuple(self->layout, value, 0);
    }
    keyed_probe_t probe;
    if (keyed_probe(layout_get_tuple(self->layout, pair, 0), &probe) < 0) return -1;
    total_t *entry = entry_of(self, &probe);
    if (!entry) return -1;
    if (value == Py_None && self->kind > MEAN) return 1;
    return put(self, entry, value, count) < 0 ? -1 : 1;
}

static PyObject *totals_add_pairs(Totals *self, PyObject *pairs) {
    if (!PyList_Check(pairs))
        return PyErr_SetString(PyExc_TypeError, "add_pairs(pairs: list[tuple[key, value]])"), NULL;
    if (keyed_start(&self->table, "Totals") < 0) return NULL;
    Py_ssize_t i = 0;
    for (int status = 1; i < PyList_Size(pairs); i++) {
        PyObject *pair = layout_get_list(self->layout, pairs, i);
        Py_INCREF(pair);
        status = put_pair(self, pair);
        Py_DECREF(pair);
        if (status <= 0) break;
    }
    self->table.busy = 0;
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(i);
}

static PyObject *totals_touch(Totals *self, PyObject *keys) {
    if (!(keys = list_of(keys))) return NULL;
    int status = keyed_start(&self->table, "Totals");
    if (status == 0) {
        for (Py_ssize_t i = 0; status == 0 && i < PyList_Size(keys); i++) {
            PyObject *key = layout_get_list(self->layout, keys, i);
            keyed_probe_t probe;
            Py_INCREF(key);
            status = keyed_probe(key, &probe) < 0 || !entry_of(self, &probe) ? -1 : 0;
            Py_DECREF(key);
        }
        self->table.busy = 0;
    }
    Py_DECREF(keys);
    if (status < 0) return NULL;
    Py_RETURN_NONE;
}

/* A pair as a new reference; steals both. */
static PyObject *accumulator(const void *owner, const keyed_entry_t *at) {
    const Totals *self = owner;
    const total_t *entry = (const total_t *)at;
    PyObject *value = number_object(&entry->number);
    return self->kind == MEAN ? keyed_pair(self->layout, value, PyLong_FromLongLong(entry->count)) : value;
}

static PyObject *totals_chunk(Totals *self, PyObject *args) {
    return keyed_chunk(&self->table, STRIDE, self->layout, args, accumulator, self);
}

static PyObject *totals_get(Totals *self, PyObject *args) {
    PyObject *key, *absent = Py_None;
    if (!PyArg_ParseTuple(args, "O|O:get", &key, &absent)) return NULL;
    return keyed_get(&self->table, STRIDE, "Totals", key, absent, accumulator, self);
}

static Py_ssize_t totals_length(Totals *self) { return self->table.used; }

static PyObject *totals_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"", NULL};
    static const char *const kinds[] = {"sum", "mean", "min", "max"};
    const char *name;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s:Totals", names, &name)) return NULL;
    int kind = SUM;
    while (kind <= MOST && strcmp(name, kinds[kind])) kind++;
    if (kind > MOST) return PyErr_Format(PyExc_ValueError, "the kind must be sum, mean, min or max, got '%s'", name);
    native_state_t *state = native_state(type);
    Totals *self = state ? PyObject_New(Totals, type) : NULL;
    if (!self) return NULL;
    self->layout = &state->layout;
    self->kind = kind;
    if (keyed_init(&self->table, STRIDE) < 0) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void totals_dealloc(Totals *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (Py_ssize_t i = 0; i < self->table.used; i++)
        number_clear(&((total_t *)keyed_at(&self->table, STRIDE, i))->number);
    keyed_free(&self->table, STRIDE);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

PyObject *totals_add_up(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 2 || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "add_up(start, numbers: list)");
        return NULL;
    }
    number_t total = {.kind = NUMBER_NONE};
    number_set(&total, number_borrow(args[0]));
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyList_Size(args[1]); i++) {
        PyObject *value = layout_get_list(layout, args[1], i);
        Py_INCREF(value);
        status = number_add(&total, number_borrow(value));
        Py_DECREF(value);
    }
    PyObject *result = status < 0 ? NULL : number_object(&total);
    number_clear(&total);
    return result;
}

static PyMethodDef totals_methods[] = {
    {"add", (PyCFunction)totals_add, METH_VARARGS, "add(keys, values) -> None: put each value to its key"},
    {"add_pairs", (PyCFunction)totals_add_pairs, METH_O, "add_pairs(pairs) -> int: (key, accumulator) pairs taken"},
    {"touch", (PyCFunction)totals_touch, METH_O, "touch(keys) -> None: enter the keys that are not there"},
    {"chunk", (PyCFunction)totals_chunk, METH_VARARGS, "chunk(position, limit) -> (pairs, next position or -1)"},
    {"get", (PyCFunction)totals_get, METH_VARARGS, "get(key, default=None): its accumulator"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot totals_slots[] = {
    {Py_tp_new, totals_new},           {Py_tp_dealloc, totals_dealloc},
    {Py_tp_methods, totals_methods},   {Py_mp_length, totals_length},
    {Py_tp_doc, "Totals(kind): the sum, mean, min or max of each key's values."},
    {0, NULL},
};

PyType_Spec totals_spec = {"shmjet._native._core.Totals", sizeof(Totals), 0, Py_TPFLAGS_DEFAULT, totals_slots};
