/* Events of a map's journal, many at a time: what has to be decoded of them, and the named tuples that users get.
 *
 * An event is a head and up to two entries, the old one before the new one; an entry is a msgpack array of a key and a
 * value (docs/formats/grid.md). Here the heads are read. The entries are not decoded but laid behind each other, as one
 * array of four elements for each event, which a decoder of msgpack turns into values in one call. */
#include "items/items.h"

#define HEAD 23 /* kind, partition (2), sequence (8), moment (8), length of the old entry (4); big-endian */
#define NIL 0xc0
#define ARRAY_OF_2 0x92
#define ARRAY_32 0xdd
#define FIELDS 7 /* of an event, as users get it: kind, key, old, new, partition, sequence, lost */
#define PARTS 4  /* elements for each event: old key, old value, new key, new value */

static inline uint64_t big_endian(const uint8_t *from, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | from[i];
    return value;
}

typedef struct {
    const uint8_t *head, *old, *new; /* the entries without the byte that says that two elements follow */
    size_t old_size, new_size;       /* 0: there is none */
} event_t;

/* Finds the parts of an event; -1 with an exception when it is none. */
static int find_parts(PyObject *data, event_t *event) {
    char *start = NULL;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(data, &start, &size) < 0) return -1;
    event->head = (const uint8_t *)start;
    if (size >= HEAD) {
        event->old_size = (size_t)big_endian(event->head + 19, 4);
        event->old = event->head + HEAD;
        if (event->old_size <= (size_t)size - HEAD) {
            event->new = event->old + event->old_size;
            event->new_size = (size_t)size - HEAD - event->old_size;
            if ((!event->old_size || *event->old++ == ARRAY_OF_2) && (!event->new_size || *event->new++ == ARRAY_OF_2))
                return 0;
        }
    }
    PyErr_SetString(PyExc_ValueError, "an event of a journal is damaged");
    return -1;
}

static uint8_t *put_entry(uint8_t *out, const uint8_t *entry, size_t size) {
    if (!size) {
        out[0] = out[1] = NIL;
        return out + 2;
    }
    memcpy(out, entry, size - 1);
    return out + size - 1;
}

static int note_following(PyObject *following, uint64_t partition, uint64_t sequence) {
    PyObject *key = PyLong_FromUnsignedLongLong(partition), *value = PyLong_FromUnsignedLongLong(sequence + 1);
    int status = key && value ? PyDict_SetItem(following, key, value) : -1;
    Py_XDECREF(key);
    Py_XDECREF(value);
    return status;
}

/* Fills the packed entries and the moments of events that have been looked at; -1 with an exception. */
static int pack(const object_layout_t *layout, PyObject *events, uint8_t *out, uint8_t *moments, PyObject *following) {
    Py_ssize_t count = PyList_Size(events);
    uint32_t elements = (uint32_t)(PARTS * count);
    *out++ = ARRAY_32;
    for (int shift = 24; shift >= 0; shift -= 8) *out++ = (uint8_t)(elements >> shift);
    uint64_t partition = 0, sequence = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        event_t event;
        if (find_parts(layout_get_list(layout, events, i), &event) < 0) return -1;
        out = put_entry(out, event.old, event.old_size);
        out = put_entry(out, event.new, event.new_size);
        uint64_t moment = big_endian(event.head + 11, 8), before = partition;
        memcpy(moments + (size_t)i * sizeof moment, &moment, sizeof moment);
        partition = big_endian(event.head + 1, 2);
        if (i && partition != before && note_following(following, before, sequence) < 0) return -1;
        sequence = big_endian(event.head + 3, 8);
    }
    return count ? note_following(following, partition, sequence) : 0;
}

/* journal_parts(events) -> (packed, moments, following): a msgpack array of old key, old value, new key, new value of
 * each event, nil where it has no such entry; the moments as an array of uint64; and the sequence that follows the last
 * one of each partition. */
PyObject *journal_parts(PyObject *module, PyObject *events) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (!PyList_CheckExact(events) || PyList_Size(events) > INT32_MAX / PARTS)
        return PyErr_SetString(PyExc_TypeError, "journal_parts(events: list[bytes])"), NULL;
    Py_ssize_t count = PyList_Size(events), size = 5;
    for (Py_ssize_t i = 0; i < count; i++) {
        event_t event;
        if (find_parts(layout_get_list(layout, events, i), &event) < 0) return NULL;
        size += (Py_ssize_t)((event.old_size ? event.old_size - 1 : 2) + (event.new_size ? event.new_size - 1 : 2));
    }
    PyObject *packed = PyBytes_FromStringAndSize(NULL, size);
    PyObject *moments = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint64_t));
    PyObject *following = PyDict_New();
    if (packed && moments && following &&
        pack(layout, events, (uint8_t *)PyBytes_AsString(packed), (uint8_t *)PyBytes_AsString(moments), following) == 0)
        return Py_BuildValue("(NNN)", packed, moments, following);
    Py_XDECREF(packed);
    Py_XDECREF(moments);
    Py_XDECREF(following);
    return NULL;
}

/* The named tuple of one event; `parts` are its four decoded elements, borrowed. */
static PyObject *new_event(const object_layout_t *layout, PyTypeObject *type, PyObject *names, PyObject *zero,
                           const event_t *event, PyObject **parts) {
    Py_ssize_t kind = event->head[0];
    if (kind >= PyTuple_Size(names)) return PyErr_SetString(PyExc_ValueError, "an event of an unknown kind"), NULL;
    PyObject *partition = PyLong_FromLong((long)big_endian(event->head + 1, 2));
    PyObject *sequence = PyLong_FromUnsignedLongLong(big_endian(event->head + 3, 8));
    PyObject *made = partition && sequence ? layout_new_named(layout, type, FIELDS) : NULL;
    if (!made) {
        Py_XDECREF(partition);
        Py_XDECREF(sequence);
        return NULL;
    }
    PyObject *key = event->old_size ? parts[0] : parts[2];
    PyObject *fields[4] = {layout_get_tuple(layout, names, kind), key, parts[1], parts[3]};
    for (Py_ssize_t k = 0; k < 4; k++) layout_set_tuple(layout, made, k, Py_NewRef(fields[k]));
    layout_set_tuple(layout, made, 4, partition);
    layout_set_tuple(layout, made, 5, sequence);
    layout_set_tuple(layout, made, 6, Py_NewRef(zero));
    if (is_atom(key) && is_atom(parts[1]) && is_atom(parts[3])) PyObject_GC_UnTrack(made);
    return made;
}

/* journal_events(type, names, events, parts) -> list: an event of `type` for each, whose kind is named by its number;
 * `parts` is what the packed array of `journal_parts` has been decoded to. */
PyObject *journal_events(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 4 || !PyType_Check(args[0]) || !PyType_IsSubtype((PyTypeObject *)args[0], &PyTuple_Type) ||
        !PyTuple_CheckExact(args[1]) || !PyList_CheckExact(args[2]) || !PyList_CheckExact(args[3]) ||
        PyList_Size(args[3]) != PARTS * PyList_Size(args[2]))
        return PyErr_SetString(PyExc_TypeError, "journal_events(type, names: tuple, events: list, parts: list)"), NULL;
    PyObject *zero = PyLong_FromLong(0), *made = zero ? PyList_New(0) : NULL;
    for (Py_ssize_t i = 0, size = PyList_Size(args[2]); made && i < size; i++) {
        event_t event;
        PyObject *parts[PARTS], *one = NULL;
        for (Py_ssize_t k = 0; k < PARTS; k++) parts[k] = layout_get_list(layout, args[3], PARTS * i + k);
        if (find_parts(layout_get_list(layout, args[2], i), &event) == 0)
            one = new_event(layout, (PyTypeObject *)args[0], args[1], zero, &event, parts);
        if (!one || PyList_Append(made, one) < 0) Py_CLEAR(made);
        Py_XDECREF(one);
    }
    Py_XDECREF(zero);
    return made;
}
