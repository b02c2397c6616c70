/* Tally: counts keys. A hash table with the counts inside, for the commonest of all aggregations.
 *
 * collections.Counter looks a key up twice and makes an int object for every count. Here a key is looked up once, its
 * count is a machine word, and the memory for the next keys of a list is fetched while this one is compared: on a table
 * that is larger than the cache, waiting for memory is most of the work. Like CPython's dict a small index (open
 * addressing, linear probing, at most 5/8 full) points into entries in the order of insertion. Keys are equal as in a
 * dict. */
#include "native.h"

#define BLOCK 16
#define FIRST_BITS 6

typedef struct {
    uint64_t hash;
    PyObject *key;
    int64_t count;
} entry_t;

typedef struct {
    PyObject_HEAD
    uint32_t *index; /* 0 = free, else 1 + the place in entries */
    entry_t *entries;
    unsigned bits; /* the index has 2^bits words */
    Py_ssize_t used, capacity;
    int busy; /* user code (__hash__, __eq__) may be running */
    const object_layout_t *layout;
} Tally;

static inline uint64_t home(const Tally *self, uint64_t hash) {
    return (hash * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - self->bits);
}

static int start_work(Tally *self) {
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "a Tally was used by the __hash__ or __eq__ of its own keys");
        return -1;
    }
    self->busy = 1;
    return 0;
}

/* Makes room for one more entry. */
static int grow(Tally *self) {
    if (self->used == self->capacity) {
        Py_ssize_t capacity = self->capacity * 2;
        entry_t *entries = PyMem_Realloc(self->entries, (size_t)capacity * sizeof *entries);
        if (!entries) return PyErr_NoMemory(), -1;
        self->entries = entries;
        self->capacity = capacity;
    }
    if ((uint64_t)(self->used + 1) * 8 <= (UINT64_C(5) << self->bits)) return 0;
    if (self->used >= (Py_ssize_t)(UINT32_MAX - 1)) {
        PyErr_SetString(PyExc_OverflowError, "a Tally holds at most 4 billion keys");
        return -1;
    }
    unsigned bits = self->bits < 16 ? self->bits + 2 : self->bits + 1;
    uint32_t *index = PyMem_Calloc((size_t)1 << bits, sizeof *index);
    if (!index) return PyErr_NoMemory(), -1;
    PyMem_Free(self->index);
    self->index = index;
    self->bits = bits;
    uint64_t mask = (UINT64_C(1) << bits) - 1;
    for (Py_ssize_t i = 0; i < self->used; i++) {
        uint64_t at = home(self, self->entries[i].hash);
        while (index[at]) at = (at + 1) & mask;
        index[at] = (uint32_t)i + 1;
    }
    return 0;
}

/* The entry of a key, made with a count of 0 when it is new; NULL with an exception set. */
static entry_t *entry_of(Tally *self, PyObject *key, uint64_t hash) {
    uint64_t mask = (UINT64_C(1) << self->bits) - 1, at = home(self, hash);
    for (; self->index[at]; at = (at + 1) & mask) {
        entry_t *entry = &self->entries[self->index[at] - 1];
        if (entry->hash != hash) continue;
        if (entry->key == key) return entry;
        int equal = PyObject_RichCompareBool(entry->key, key, Py_EQ);
        if (equal < 0) return NULL;
        if (equal) return entry;
    }
    if (UNLIKELY(self->used == self->capacity || (uint64_t)(self->used + 1) * 8 > (UINT64_C(5) << self->bits))) {
        if (grow(self) < 0) return NULL;
        mask = (UINT64_C(1) << self->bits) - 1;
        at = home(self, hash);
        while (self->index[at]) at = (at + 1) & mask;
    }
    entry_t *entry = &self->entries[self->used++];
    self->index[at] = (uint32_t)self->used;
    Py_INCREF(key);
    *entry = (entry_t){hash, key, 0};
    return entry;
}

/* Adds to the count of one key, which the caller holds. */
static int add_to(Tally *self, PyObject *key, int64_t count) {
    Py_hash_t hash = PyObject_Hash(key);
    if (hash == -1 && PyErr_Occurred()) return -1;
    entry_t *entry = entry_of(self, key, (uint64_t)hash);
    if (!entry) return -1;
    if (__builtin_add_overflow(entry->count, count, &entry->count)) {
        PyErr_SetString(PyExc_OverflowError, "a count does not fit 64 bits");
        return -1;
    }
    return 0;
}

/* Counts a list. Texts, whose hash and comparison run no user code, go by blocks: all hashes first, then a look at where
 * they point, so that index, entries and keys are on their way from memory when they are compared. */
static int add_list(Tally *self, PyObject *list) {
    uint64_t hashes[BLOCK];
    Py_ssize_t i = 0;
    while (i < PyList_Size(list)) {
        Py_ssize_t block = PyList_Size(list) - i;
        if (block > BLOCK) block = BLOCK;
        Py_ssize_t texts = 0;
        for (; texts < block; texts++) {
            PyObject *key = layout_get_list(self->layout, list, i + texts);
            if (UNLIKELY(!PyUnicode_CheckExact(key))) break;
            hashes[texts] = (uint64_t)PyObject_Hash(key);
            __builtin_prefetch(&self->index[home(self, hashes[texts])]);
        }
        for (Py_ssize_t k = 0; k < texts; k++) {
            uint32_t place = self->index[home(self, hashes[k])];
            if (place) __builtin_prefetch(&self->entries[place - 1]);
        }
        for (Py_ssize_t k = 0; k < texts; k++) {
            uint32_t place = self->index[home(self, hashes[k])];
            if (place) __builtin_prefetch(self->entries[place - 1].key);
        }
        for (Py_ssize_t k = 0; k < texts; k++) {
            entry_t *entry = entry_of(self, layout_get_list(self->layout, list, i + k), hashes[k]);
            if (!entry) return -1;
            entry->count++;
        }
        i += texts;
        if (texts < block) {
            PyObject *key = layout_get_list(self->layout, list, i++);
            Py_INCREF(key);
            int status = add_to(self, key, 1);
            Py_DECREF(key);
            if (status < 0) return -1;
        }
    }
    return 0;
}

static int add_iterable(Tally *self, PyObject *keys) {
    PyObject *iterator = PyObject_GetIter(keys), *key;
    if (!iterator) return -1;
    while ((key = PyIter_Next(iterator))) {
        int status = add_to(self, key, 1);
        Py_DECREF(key);
        if (status < 0) break;
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *tally_add(Tally *self, PyObject *keys) {
    if (start_work(self) < 0) return NULL;
    int status = PyList_CheckExact(keys) ? add_list(self, keys) : add_iterable(self, keys);
    self->busy = 0;
    if (status < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *tally_add_pairs(Tally *self, PyObject *pairs) {
    if (!PyList_Check(pairs)) return PyErr_SetString(PyExc_TypeError, "add_pairs(pairs: list[tuple[key, int]])"), NULL;
    if (start_work(self) < 0) return NULL;
    Py_ssize_t i = 0;
    for (; i < PyList_Size(pairs); i++) {
        PyObject *pair = layout_get_list(self->layout, pairs, i);
        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) break;
        PyObject *value = PyTuple_GetItem(pair, 1);
        if (!PyLong_CheckExact(value)) break;
        int overflow;
        long long count = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow) break;
        Py_INCREF(pair);
        int status = add_to(self, PyTuple_GetItem(pair, 0), count);
        Py_DECREF(pair);
        if (status < 0) break;
    }
    self->busy = 0;
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(i);
}

/* chunk(position, limit) -> (list of (key, count), next position or -1) */
static PyObject *tally_chunk(Tally *self, PyObject *args) {
    Py_ssize_t position, limit;
    if (!PyArg_ParseTuple(args, "nn:chunk", &position, &limit)) return NULL;
    Py_ssize_t at = position < 0 ? 0 : position;
    Py_ssize_t stop = limit < self->used - at ? at + limit : self->used;
    PyObject *list = PyList_New(stop > at ? stop - at : 0);
    for (Py_ssize_t i = 0; list && at < stop; i++, at++) {
        PyObject *pair = PyTuple_New(2), *count = PyLong_FromLongLong(self->entries[at].count);
        if (!pair || !count) {
            Py_XDECREF(pair);
            Py_XDECREF(count);
            Py_CLEAR(list);
            break;
        }
        Py_INCREF(self->entries[at].key);
        PyTuple_SetItem(pair, 0, self->entries[at].key);
        PyTuple_SetItem(pair, 1, count);
        PyList_SetItem(list, i, pair);
    }
    if (!list) return NULL;
    return Py_BuildValue("(Nn)", list, at < self->used ? at : (Py_ssize_t)-1);
}

static PyObject *tally_get(Tally *self, PyObject *key) {
    if (start_work(self) < 0) return NULL;
    PyObject *result = NULL;
    Py_hash_t hash = PyObject_Hash(key);
    if (hash != -1 || !PyErr_Occurred()) {
        uint64_t mask = (UINT64_C(1) << self->bits) - 1, at = home(self, (uint64_t)hash);
        int equal = 0;
        long long count = 0;
        for (; self->index[at] && !equal; at = (at + 1) & mask) {
            const entry_t *entry = &self->entries[self->index[at] - 1];
            if (entry->hash != (uint64_t)hash) continue;
            count = entry->count;
            equal = PyObject_RichCompareBool(entry->key, key, Py_EQ);
        }
        if (equal >= 0) result = PyLong_FromLongLong(equal ? count : 0);
    }
    self->busy = 0;
    return result;
}

static Py_ssize_t tally_length(Tally *self) { return self->used; }

static PyObject *tally_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Tally", names)) return NULL;
    native_state_t *state = native_state(type);
    if (!state) return NULL;
    Tally *self = PyObject_New(Tally, type);
    if (!self) return NULL;
    self->used = 0;
    self->busy = 0;
    self->bits = FIRST_BITS;
    self->capacity = 32;
    self->layout = &state->layout;
    self->index = PyMem_Calloc((size_t)1 << FIRST_BITS, sizeof *self->index);
    self->entries = PyMem_Calloc((size_t)self->capacity, sizeof *self->entries);
    if (!self->index || !self->entries) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void tally_dealloc(Tally *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (Py_ssize_t i = 0; i < self->used; i++) Py_DECREF(self->entries[i].key);
    PyMem_Free(self->entries);
    PyMem_Free(self->index);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef tally_methods[] = {
    {"add", (PyCFunction)tally_add, METH_O, "add(keys) -> None: count each key once more"},
    {"add_pairs", (PyCFunction)tally_add_pairs, METH_O, "add_pairs(pairs) -> int: pairs taken before one that is no (key, int)"},
    {"chunk", (PyCFunction)tally_chunk, METH_VARARGS, "chunk(position, limit) -> (pairs, next position or -1)"},
    {"get", (PyCFunction)tally_get, METH_O, "get(key) -> int: its count, 0 when it has none"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tally_slots[] = {
    {Py_tp_new, tally_new},           {Py_tp_dealloc, tally_dealloc},
    {Py_tp_methods, tally_methods},   {Py_mp_length, tally_length},
    {Py_tp_doc, "Tally(): counts keys, any that a dict would take."},
    {0, NULL},
};

PyType_Spec tally_spec = {"shmjet._native._core.Tally", sizeof(Tally), 0, Py_TPFLAGS_DEFAULT, tally_slots};
