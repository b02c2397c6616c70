/* A hash table from Python keys to entries of machine words: what tally.c and totals.c are made of.
 *
 * collections.Counter and a loop over a dict look a key up twice and make an object for every number. Here a key is
 * looked up once, what belongs to it lies in its entry, and a list goes by blocks: first all hashes, then a look at
 * where they point, so that index, entries and keys are on their way from memory when they are compared. On a table
 * that is larger than the cache, waiting for memory is most of the work.
 *
 * Like CPython's dict a small index (open addressing, linear probing, at most 5/8 full) points into entries in the
 * order of insertion. Keys are equal as in a dict. An int of 64 bits is kept as a number, not as an object: no
 * reference into far memory, none to count. It still meets True, 1.0 and any other object that has its hash and equals
 * it.
 *
 * User code (__hash__, __eq__) may run in here; `busy` keeps it from the table, and the callers own the keys of a
 * block. */
#ifndef SHMJET_KEYED_H
#define SHMJET_KEYED_H

#include "binding.h"

#define KEYED_BLOCK 32
#define KEYED_FIRST_BITS 6
#define KEYED_FIRST_CAPACITY 32

/* Every entry starts so; its size is the `stride` of the functions below, a constant in each caller. */
typedef struct {
    uint64_t word; /* the hash, or the number of an int */
    PyObject *key; /* NULL: an int of 64 bits */
} keyed_entry_t;

typedef struct {
    uint32_t *index; /* 0 = free, else 1 + the place in entries */
    char *entries;
    unsigned bits; /* the index has 2^bits words */
    Py_ssize_t used, capacity;
    int busy;
} keyed_t;

/* A key with what a lookup needs of it. */
typedef struct {
    uint64_t hash;
    int64_t number; /* of an int of 64 bits */
    PyObject *key;
    int is_int;
} keyed_probe_t;

/* Where keys come from: a list, or else an iterator. */
typedef struct {
    const object_layout_t *layout;
    PyObject *list, *iterator;
    Py_ssize_t at;
} keyed_source_t;

/* What CPython's hash(int) is: the number modulo the prime 2^61 - 1, with its sign, and -2 for -1. */
static inline uint64_t keyed_hash_of_int(int64_t number) {
    const uint64_t prime = (UINT64_C(1) << 61) - 1;
    uint64_t size = number < 0 ? ~(uint64_t)number + 1 : (uint64_t)number;
    size = (size & prime) + (size >> 61);
    if (size >= prime) size -= prime;
    uint64_t hash = number < 0 ? ~size + 1 : size;
    return hash == UINT64_MAX ? UINT64_MAX - 1 : hash;
}

static inline uint64_t keyed_home(const keyed_t *self, uint64_t hash) {
    return (hash * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - self->bits);
}

static inline keyed_entry_t *keyed_at(const keyed_t *self, size_t stride, Py_ssize_t place) {
    return (keyed_entry_t *)(void *)(self->entries + (size_t)place * stride);
}

static inline int keyed_init(keyed_t *self, size_t stride) {
    *self = (keyed_t){.bits = KEYED_FIRST_BITS, .capacity = KEYED_FIRST_CAPACITY};
    self->index = PyMem_Calloc((size_t)1 << KEYED_FIRST_BITS, sizeof *self->index);
    self->entries = PyMem_Calloc(KEYED_FIRST_CAPACITY, stride);
    return self->index && self->entries ? 0 : -1;
}

static inline void keyed_free(keyed_t *self, size_t stride) {
    for (Py_ssize_t i = 0; i < self->used; i++) Py_XDECREF(keyed_at(self, stride, i)->key);
    PyMem_Free(self->entries);
    PyMem_Free(self->index);
}

static inline int keyed_start(keyed_t *self, const char *type) {
    if (self->busy) {
        PyErr_Format(PyExc_RuntimeError, "a %s was used by the __hash__, __eq__ or arithmetic of what is in it", type);
        return -1;
    }
    self->busy = 1;
    return 0;
}

/* Makes room for one more entry. */
static int keyed_grow(keyed_t *self, size_t stride) {
    if (self->used == self->capacity) {
        Py_ssize_t capacity = self->capacity * 2;
        char *entries = PyMem_Realloc(self->entries, (size_t)capacity * stride);
        if (!entries) return PyErr_NoMemory(), -1;
        self->entries = entries;
        self->capacity = capacity;
    }
    if ((uint64_t)(self->used + 1) * 8 <= (UINT64_C(5) << self->bits)) return 0;
    if (self->used >= (Py_ssize_t)(UINT32_MAX - 1)) {
        PyErr_SetString(PyExc_OverflowError, "a table holds at most 4 billion keys");
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
        const keyed_entry_t *entry = keyed_at(self, stride, i);
        uint64_t at = keyed_home(self, entry->key ? entry->word : keyed_hash_of_int((int64_t)entry->word));
        while (index[at]) at = (at + 1) & mask;
        index[at] = (uint32_t)i + 1;
    }
    return 0;
}

/* Whether an entry is that of a key; -1 with an exception set. */
static inline int keyed_equal(const keyed_entry_t *entry, const keyed_probe_t *probe) {
    if (!entry->key) {
        if (probe->is_int) return (int64_t)entry->word == probe->number;
        if (PyUnicode_CheckExact(probe->key) || keyed_hash_of_int((int64_t)entry->word) != probe->hash) return 0;
        PyObject *number = PyLong_FromLongLong((int64_t)entry->word);
        if (!number) return -1;
        int equal = PyObject_RichCompareBool(number, probe->key, Py_EQ);
        Py_DECREF(number);
        return equal;
    }
    if (entry->word != probe->hash) return 0;
    return entry->key == probe->key ? 1 : PyObject_RichCompareBool(entry->key, probe->key, Py_EQ);
}

/* The place of a key, or -1; -2 with an exception set. `free_at`: where in the index it would be entered. */
static inline Py_ssize_t keyed_find(const keyed_t *self, size_t stride, const keyed_probe_t *probe, uint64_t *free_at) {
    uint64_t mask = (UINT64_C(1) << self->bits) - 1, at = keyed_home(self, probe->hash);
    for (; self->index[at]; at = (at + 1) & mask) {
        int equal = keyed_equal(keyed_at(self, stride, (Py_ssize_t)self->index[at] - 1), probe);
        if (equal) return equal < 0 ? -2 : (Py_ssize_t)self->index[at] - 1;
    }
    *free_at = at;
    return -1;
}

/* The entry of a key, made with a payload of zeros when it is new; NULL with an exception set. */
static inline keyed_entry_t *keyed_entry(keyed_t *self, size_t stride, const keyed_probe_t *probe) {
    uint64_t at = 0;
    Py_ssize_t place = keyed_find(self, stride, probe, &at);
    if (LIKELY(place >= 0)) return keyed_at(self, stride, place);
    if (place < -1) return NULL;
    if (UNLIKELY(self->used == self->capacity || (uint64_t)(self->used + 1) * 8 > (UINT64_C(5) << self->bits))) {
        unsigned bits = self->bits;
        if (keyed_grow(self, stride) < 0) return NULL;
        if (bits != self->bits) {
            uint64_t mask = (UINT64_C(1) << self->bits) - 1;
            at = keyed_home(self, probe->hash);
            while (self->index[at]) at = (at + 1) & mask;
        }
    }
    keyed_entry_t *entry = keyed_at(self, stride, self->used++);
    self->index[at] = (uint32_t)self->used;
    memset(entry, 0, stride);
    if (probe->is_int) {
        entry->word = (uint64_t)probe->number;
    } else {
        Py_INCREF(probe->key);
        entry->word = probe->hash;
        entry->key = probe->key;
    }
    return entry;
}

/* Fills a probe for a key whose hash runs no user code: 1; else 0. */
static inline int keyed_is_plain(PyObject *key, keyed_probe_t *probe) {
    probe->key = key;
    probe->is_int = 0;
    if (PyLong_CheckExact(key)) {
        int overflow;
        probe->number = PyLong_AsLongLongAndOverflow(key, &overflow);
        if (overflow) return 0;
        probe->hash = keyed_hash_of_int(probe->number);
        probe->is_int = 1;
        return 1;
    }
    if (!PyUnicode_CheckExact(key)) return 0;
    probe->hash = (uint64_t)PyObject_Hash(key);
    return 1;
}

/* Fills a probe for any key; -1 with an exception set. */
static inline int keyed_probe(PyObject *key, keyed_probe_t *probe) {
    if (keyed_is_plain(key, probe)) return 0;
    Py_hash_t hash = PyObject_Hash(key);
    if (hash == -1 && PyErr_Occurred()) return -1;
    probe->hash = (uint64_t)hash;
    return 0;
}

/* The next key, owned; NULL at the end or with an exception set. */
static inline PyObject *keyed_next(keyed_source_t *source) {
    if (!source->list) return PyIter_Next(source->iterator);
    if (source->at >= PyList_Size(source->list)) return NULL;
    PyObject *key = layout_get_list(source->layout, source->list, source->at++);
    Py_INCREF(key);
    return key;
}

/* Gathers up to a block of keys, owned by the probes, and has the memory that their lookups need fetched. It ends
 * before a key whose hash may run user code, which comes alone, as the last: returns the number of probes, 0 at the
 * end, and -1 with an exception set, after which the probes gathered so far (`*count`) are still to be used. */
static inline int keyed_gather(keyed_t *self, size_t stride, keyed_source_t *source, keyed_probe_t *probes,
                               int *count) {
    PyObject *key;
    int n = 0, status = 0;
    while (n < KEYED_BLOCK && (key = keyed_next(source))) {
        if (LIKELY(keyed_is_plain(key, &probes[n]))) {
            __builtin_prefetch(&self->index[keyed_home(self, probes[n++].hash)]);
            continue;
        }
        status = keyed_probe(key, &probes[n]);
        if (status < 0)
            Py_DECREF(key);
        else
            n++;
        break;
    }
    for (int k = 0; k < n; k++) {
        uint32_t place = self->index[keyed_home(self, probes[k].hash)];
        if (place) __builtin_prefetch(keyed_at(self, stride, (Py_ssize_t)place - 1));
    }
    for (int k = 0; k < n; k++) {
        if (probes[k].is_int) continue;
        uint32_t place = self->index[keyed_home(self, probes[k].hash)];
        if (place) __builtin_prefetch(keyed_at(self, stride, (Py_ssize_t)place - 1)->key);
    }
    *count = n;
    return status < 0 || PyErr_Occurred() ? -1 : n;
}

/* The key of an entry as a new reference. */
static inline PyObject *keyed_key(const keyed_entry_t *entry) {
    if (!entry->key) return PyLong_FromLongLong((int64_t)entry->word);
    Py_INCREF(entry->key);
    return entry->key;
}

/* What a table tells of an entry, as a new reference. */
typedef PyObject *(*keyed_value_t)(const void *owner, const keyed_entry_t *entry);

static inline PyObject *keyed_pair(const object_layout_t *layout, PyObject *key, PyObject *value) {
    PyObject *pair = key && value ? PyTuple_New(2) : NULL;
    if (!pair) {
        Py_XDECREF(key);
        Py_XDECREF(value);
        return NULL;
    }
    layout_set_tuple(layout, pair, 0, key);
    layout_set_tuple(layout, pair, 1, value);
    return pair;
}

/* The method chunk(position, limit) -> (list of (key, value), next position or -1). */
static inline PyObject *keyed_chunk(const keyed_t *self, size_t stride, const object_layout_t *layout, PyObject *args,
                                    keyed_value_t value_of, const void *owner) {
    Py_ssize_t position, limit;
    if (!PyArg_ParseTuple(args, "nn:chunk", &position, &limit)) return NULL;
    Py_ssize_t at = position < 0 ? 0 : position;
    Py_ssize_t stop = limit < self->used - at ? at + limit : self->used;
    PyObject *list = PyList_New(stop > at ? stop - at : 0);
    for (Py_ssize_t i = 0; list && at < stop; i++, at++) {
        const keyed_entry_t *entry = keyed_at(self, stride, at);
        PyObject *pair = keyed_pair(layout, keyed_key(entry), value_of(owner, entry));
        if (pair)
            layout_set_list(layout, list, i, pair);
        else
            Py_CLEAR(list);
    }
    if (!list) return NULL;
    return Py_BuildValue("(Nn)", list, at < self->used ? at : (Py_ssize_t)-1);
}

/* The method get(key, default): the value of a key, or `absent` when it has none. `name` is that of the table's
 * class. */
static inline PyObject *keyed_get(keyed_t *self, size_t stride, const char *name, PyObject *key, PyObject *absent,
                                  keyed_value_t value_of, const void *owner) {
    keyed_probe_t probe;
    uint64_t free_at;
    if (keyed_start(self, name) < 0) return NULL;
    Py_ssize_t place = keyed_probe(key, &probe) < 0 ? -2 : keyed_find(self, stride, &probe, &free_at);
    self->busy = 0;
    if (place < -1) return NULL;
    if (place >= 0) return value_of(owner, keyed_at(self, stride, place));
    Py_INCREF(absent);
    return absent;
}

#endif
