/* Entries of maps on their way, many at a time: pairs of a key and a stored entry, both bytes.
 *
 * A key is a prefix of four bytes, the partition (2, big-endian), and what stands for the user's key; a stored entry is
 * a msgpack array of key and value (docs/formats/grid.md). Nothing is decoded here: one look at each entry says what a
 * portion of them needs. */
#include "codec/hash.h"
#include "items/items.h"

#define PREFIX 4
#define HEAD 6 /* prefix and partition */
#define ARRAY_OF_2 0x92
#define EXT_32 0xc9
#define DEEPEST 16 /* containers in each other that are looked through; what is deeper is left to a decoder */

typedef struct {
    const uint8_t *at;
    Py_ssize_t size;
} bytes_t;

/* Key and value of an entry, which keep where they are as long as the list keeps the entry; 0 when it is none. */
static inline int take_entry(const object_layout_t *layout, PyObject *entries, Py_ssize_t i, bytes_t *parts) {
    PyObject *entry = layout_get_list(layout, entries, i);
    if (!PyTuple_CheckExact(entry) || PyTuple_Size(entry) != 2) return 0;
    for (int k = 0; k < 2; k++) {
        PyObject *part = layout_get_tuple(layout, entry, k);
        if (!PyBytes_CheckExact(part)) return 0;
        parts[k] = (bytes_t){(const uint8_t *)PyBytes_AsString(part), PyBytes_Size(part)};
    }
    return 1;
}

static int not_entries(void) {
    PyErr_SetString(PyExc_TypeError, "entries are a list of tuples (bytes, bytes), and no key is shorter than 7 bytes");
    return -1;
}

static inline uint64_t big_endian(const uint8_t *from, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | from[i];
    return value;
}

/* What a byte of msgpack begins: how many bytes of length follow it, how many more belong to it, and how many elements
 * follow. 0 for the byte that begins nothing. */
static inline int look_at(const uint8_t *at, const uint8_t *end, uint64_t *bytes, uint64_t *elements) {
    static const uint8_t fixed[] = {/* 0xca */ 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, /* 0xd4 */ 2, 3, 5, 9, 17};
    uint8_t first = *at;
    int length = 0, twice = 0, is_container = 0;
    *bytes = *elements = 0;
    if (first <= 0x7f || first >= 0xe0 || first == 0xc0 || first == 0xc2 || first == 0xc3) return 1;
    if (first >= 0xca && first <= 0xd8) return *bytes = fixed[first - 0xca], 1;
    if (first >= 0xa0 && first <= 0xbf) return *bytes = first & 0x1f, 1;
    if (first <= 0x9f) return *elements = first & 0x0f, *elements <<= first <= 0x8f, 1;
    switch (first) {
    case 0xc4:
    case 0xd9: length = 1; break;
    case 0xc5:
    case 0xda: length = 2; break;
    case 0xc6:
    case 0xdb: length = 4; break;
    case 0xc7:
    case 0xc8:
    case 0xc9: length = 1 << (first - 0xc7); break;
    case 0xdc:
    case 0xdd: length = 2 << (first - 0xdc), is_container = 1; break;
    case 0xde:
    case 0xdf: length = 2 << (first - 0xde), is_container = 1, twice = 1; break;
    default: return 0;
    }
    if (end - at <= length) return 0;
    uint64_t count = big_endian(at + 1, length);
    *bytes = (uint64_t)length;
    if (is_container)
        *elements = count << twice;
    else
        *bytes += count + (first >= 0xc7 && first <= 0xc9); /* the code of an extension */
    return 1;
}

/* The byte behind one element of msgpack; NULL when it is none, or too deep. */
static const uint8_t *skip_element(const uint8_t *at, const uint8_t *end) {
    uint64_t left[DEEPEST] = {1};
    int depth = 0;
    while (depth >= 0) {
        if (!left[depth]) {
            depth--;
            continue;
        }
        left[depth]--;
        uint64_t bytes, elements;
        if (at >= end || !look_at(at, end, &bytes, &elements) || bytes > (uint64_t)(end - at) - 1) return NULL;
        at += 1 + bytes;
        if (elements) {
            if (++depth == DEEPEST) return NULL;
            left[depth] = elements;
        }
    }
    return at;
}

/* Whether a stored entry is a key and a value, which is not an extension of this code with four bytes of length. */
static int is_plain(bytes_t stored, int code) {
    const uint8_t *end = stored.at + stored.size;
    if (!stored.size || *stored.at != ARRAY_OF_2) return 0;
    const uint8_t *value = skip_element(stored.at + 1, end);
    if (!value || skip_element(value, end) != end) return 0;
    return value[0] != EXT_32 || value[5] != code;
}

static int add_run(PyObject *runs, const uint8_t *key, Py_ssize_t begin, Py_ssize_t end) {
    PyObject *run = Py_BuildValue("(inn)", (int)big_endian(key + PREFIX, 2), begin, end);
    int status = run ? PyList_Append(runs, run) : -1;
    Py_XDECREF(run);
    return status;
}

/* survey_entries(entries, mark, back, code) -> (runs, prefix, size, longest key, longest value, is marked, are plain);
 * see _core.pyi */
PyObject *entries_survey(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 4 || !PyList_CheckExact(args[0]) || !PyBytes_CheckExact(args[1]))
        return PyErr_SetString(PyExc_TypeError, "survey_entries(entries: list, mark: bytes, back: int, code: int)"),
               NULL;
    PyObject *entries = args[0], *runs = PyList_New(0);
    const char *mark = PyBytes_AsString(args[1]);
    Py_ssize_t marked = PyBytes_Size(args[1]), back = PyLong_AsSsize_t(args[2]), code = PyLong_AsSsize_t(args[3]);
    if (!runs || PyErr_Occurred()) goto failed;
    if (back < marked) {
        PyErr_SetString(PyExc_ValueError, "a mark begins so far before the end that it fits in");
        goto failed;
    }
    Py_ssize_t begun = 0, size = 0, longest[2] = {0, 0}, number = PyList_Size(entries);
    const uint8_t *run = NULL;
    int has_mark = 0, are_plain = 1, is_one_prefix = 1;
    for (Py_ssize_t i = 0; i < number; i++) {
        bytes_t parts[2];
        if (i >= PyList_Size(entries) || !take_entry(layout, entries, i, parts) || parts[0].size <= HEAD) {
            not_entries();
            goto failed;
        }
        for (int k = 0; k < 2; k++) {
            size += parts[k].size;
            if (parts[k].size > longest[k]) longest[k] = parts[k].size;
        }
        if (!run || memcmp(run, parts[0].at, HEAD)) {
            if (run && add_run(runs, run, begun, i) < 0) goto failed;
            if (run && memcmp(run, parts[0].at, PREFIX)) is_one_prefix = 0;
            run = parts[0].at;
            begun = i;
        }
        if (parts[1].size >= back && !memcmp(parts[1].at + parts[1].size - back, mark, (size_t)marked)) has_mark = 1;
        if (are_plain && !is_plain(parts[1], (int)code)) are_plain = 0;
    }
    if (run && add_run(runs, run, begun, number) < 0) goto failed;
    PyObject *prefix = run && is_one_prefix ? PyBytes_FromStringAndSize((const char *)run, PREFIX) : Py_NewRef(Py_None);
    if (prefix)
        return Py_BuildValue("(NNnnnNN)", runs, prefix, size, longest[0], longest[1], PyBool_FromLong(has_mark),
                             PyBool_FromLong(are_plain));
failed:
    Py_XDECREF(runs);
    return NULL;
}

/* A pair of a key, whose reference is taken, and a stored entry. */
static PyObject *new_entry(PyObject *key, PyObject *value) {
    PyObject *entry = key ? PyTuple_Pack(2, key, value) : NULL;
    Py_XDECREF(key);
    if (entry) PyObject_GC_UnTrack(entry); /* bytes are part of no cycle */
    return entry;
}

static PyObject *joined(const uint8_t *head, Py_ssize_t size, const uint8_t *tail, Py_ssize_t more) {
    PyObject *made = PyBytes_FromStringAndSize(NULL, size + more);
    if (made) {
        char *out = PyBytes_AsString(made);
        memcpy(out, head, (size_t)size);
        memcpy(out + size, tail, (size_t)more);
    }
    return made;
}

/* move_entries(entries, cut, prefix) -> list: with `prefix` in place of the first `cut` bytes of each key. */
PyObject *entries_move(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 3 || !PyList_CheckExact(args[0]) || !PyBytes_CheckExact(args[2]))
        return PyErr_SetString(PyExc_TypeError, "move_entries(entries: list, cut: int, prefix: bytes)"), NULL;
    Py_ssize_t cut = PyLong_AsSsize_t(args[1]), number = PyList_Size(args[0]), size = PyBytes_Size(args[2]);
    if (cut < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "cut is below 0");
        return NULL;
    }
    const uint8_t *prefix = (const uint8_t *)PyBytes_AsString(args[2]);
    PyObject *moved = PyList_New(number);
    for (Py_ssize_t i = 0; moved && i < number; i++) {
        bytes_t parts[2];
        if (i >= PyList_Size(args[0]) || !take_entry(layout, args[0], i, parts) || parts[0].size < cut) {
            not_entries();
            Py_CLEAR(moved);
            break;
        }
        PyObject *value = layout_get_tuple(layout, layout_get_list(layout, args[0], i), 1);
        PyObject *entry = new_entry(joined(prefix, size, parts[0].at + cut, parts[0].size - cut), value);
        if (!entry || PyList_SetItem(moved, i, entry) < 0) Py_CLEAR(moved);
    }
    return moved;
}

/* A value as msgpack has it: a head, and the bytes of text and bytes behind it. */
typedef struct {
    uint8_t head[9];
    int head_size;
    bytes_t more;
} packed_t;

static inline void head_of(packed_t *packed, uint8_t first, uint64_t number, int bytes) {
    packed->head[0] = first;
    for (int i = 0; i < bytes; i++) packed->head[1 + i] = (uint8_t)(number >> 8 * (bytes - 1 - i));
    packed->head_size = 1 + bytes;
}

static void pack_integer(packed_t *packed, long long value, int is_above) {
    uint64_t bits = (uint64_t)value;
    if (is_above || value >= 0) {
        if (bits <= 0x7f)
            head_of(packed, (uint8_t)bits, 0, 0);
        else if (bits <= 0xff)
            head_of(packed, 0xcc, bits, 1);
        else if (bits <= 0xffff)
            head_of(packed, 0xcd, bits, 2);
        else if (bits <= 0xffffffff)
            head_of(packed, 0xce, bits, 4);
        else
            head_of(packed, 0xcf, bits, 8);
    } else if (value >= -32)
        head_of(packed, (uint8_t)value, 0, 0);
    else if (value >= INT8_MIN)
        head_of(packed, 0xd0, bits, 1);
    else if (value >= INT16_MIN)
        head_of(packed, 0xd1, bits, 2);
    else if (value >= INT32_MIN)
        head_of(packed, 0xd2, bits, 4);
    else
        head_of(packed, 0xd3, bits, 8);
}

static void pack_bytes(packed_t *packed, const char *at, Py_ssize_t size, int is_text) {
    uint64_t count = (uint64_t)size;
    uint8_t shortest = is_text ? 0xd9 : 0xc4; /* with one byte of length */
    packed->more = (bytes_t){(const uint8_t *)at, size};
    if (is_text && count < 32)
        head_of(packed, (uint8_t)(0xa0 | count), 0, 0);
    else if (count <= 0xff)
        head_of(packed, shortest, count, 1);
    else if (count <= 0xffff)
        head_of(packed, shortest + 1, count, 2);
    else
        head_of(packed, shortest + 2, count, 4);
}

/* Packs a value of a builtin type; 0 for all others, and for what msgpack cannot say. No code of users is run. */
static int pack_value(PyObject *value, packed_t *packed) {
    PyTypeObject *type = Py_TYPE(value);
    packed->more = (bytes_t){NULL, 0};
    if (type == &PyUnicode_Type) {
        Py_ssize_t size;
        const char *text = PyUnicode_AsUTF8AndSize(value, &size);
        if (!text) return PyErr_Clear(), 0;
        return size <= UINT32_MAX ? (pack_bytes(packed, text, size, 1), 1) : 0;
    }
    if (type == &PyLong_Type) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow < 0) return 0;
        if (overflow) {
            number = (long long)PyLong_AsUnsignedLongLong(value);
            if (PyErr_Occurred()) return PyErr_Clear(), 0;
        }
        return pack_integer(packed, number, overflow), 1;
    }
    if (type == &PyFloat_Type) {
        double number = PyFloat_AsDouble(value);
        uint64_t bits;
        memcpy(&bits, &number, sizeof bits);
        return head_of(packed, 0xcb, bits, 8), 1;
    }
    if (type == &PyBytes_Type) {
        Py_ssize_t size = PyBytes_Size(value);
        return size <= UINT32_MAX ? (pack_bytes(packed, PyBytes_AsString(value), size, 0), 1) : 0;
    }
    if (type == &PyBool_Type) return head_of(packed, value == Py_True ? 0xc3 : 0xc2, 0, 0), 1;
    return 0;
}

static inline uint8_t *put_bytes(uint8_t *out, const uint8_t *at, Py_ssize_t size) {
    if (size) memcpy(out, at, (size_t)size);
    return out + size;
}

static inline uint8_t *put_packed(uint8_t *out, const packed_t *packed) {
    return put_bytes(put_bytes(out, packed->head, packed->head_size), packed->more.at, packed->more.size);
}

/* What stands for a key, behind the head of its partition: a tag, and the text or an integer. 0 for other keys. */
static int tag_key(PyObject *key, const packed_t *packed, uint8_t *integer, uint8_t *tag, bytes_t *tail) {
    if (Py_TYPE(key) == &PyUnicode_Type) {
        *tag = 's';
        *tail = packed->more;
        return 1;
    }
    int overflow = 1;
    long long number = Py_TYPE(key) == &PyLong_Type ? PyLong_AsLongLongAndOverflow(key, &overflow) : 0;
    if (overflow) return 0;
    for (int i = 0; i < 8; i++) integer[i] = (uint8_t)((uint64_t)number >> 8 * i);
    *tag = 'i';
    *tail = (bytes_t){integer, 8};
    return 1;
}

/* Adds one pair to those of its partition. 1 = done, 0 = it has to be looked at otherwise, -1 = exception. */
static int add_plain(const object_layout_t *layout, PyObject *pair, PyObject *heads, PyObject *placed,
                     Py_ssize_t most_key, Py_ssize_t most_value) {
    if (!PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2) return 0;
    PyObject *key = layout_get_tuple(layout, pair, 0);
    packed_t first, second;
    uint8_t integer[8], tag;
    bytes_t tail;
    if (!pack_value(key, &first) || !tag_key(key, &first, integer, &tag, &tail)) return 0;
    if (!pack_value(layout_get_tuple(layout, pair, 1), &second)) return 0;
    Py_ssize_t size = 1 + first.head_size + first.more.size + second.head_size + second.more.size;
    if (1 + tail.size > most_key || size > most_value) return 0;
    Py_ssize_t place = (Py_ssize_t)(murmur3_32(tail.at, (size_t)tail.size, 0) % (uint64_t)PyList_Size(heads));
    PyObject *head = layout_get_list(layout, heads, place);
    if (!PyBytes_CheckExact(head)) return PyErr_SetString(PyExc_TypeError, "heads are bytes"), -1;
    Py_ssize_t head_size = PyBytes_Size(head);
    PyObject *full = PyBytes_FromStringAndSize(NULL, head_size + 1 + tail.size);
    PyObject *stored = PyBytes_FromStringAndSize(NULL, size), *entry = NULL;
    if (full && stored) {
        uint8_t *out = put_bytes((uint8_t *)PyBytes_AsString(full), (const uint8_t *)PyBytes_AsString(head), head_size);
        *out++ = tag;
        put_bytes(out, tail.at, tail.size);
        out = (uint8_t *)PyBytes_AsString(stored);
        *out++ = ARRAY_OF_2;
        put_packed(put_packed(out, &first), &second);
        entry = new_entry(full, stored);
        full = NULL;
    }
    int status = entry && PyList_Append(layout_get_list(layout, placed, place), entry) == 0 ? 1 : -1;
    Py_XDECREF(full);
    Py_XDECREF(stored);
    Py_XDECREF(entry);
    return status;
}

static PyObject *empty_lists(Py_ssize_t count) {
    PyObject *lists = PyList_New(count);
    for (Py_ssize_t k = 0; lists && k < count; k++) {
        PyObject *some = PyList_New(0);
        if (!some || PyList_SetItem(lists, k, some) < 0) Py_CLEAR(lists);
    }
    return lists;
}

/* plain_entries(pairs, heads, most_key, most_value) -> list of lists, or None; see _core.pyi */
PyObject *entries_plain(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 4 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || !PyList_Size(args[1]))
        return PyErr_SetString(PyExc_TypeError, "plain_entries(pairs: list, heads: list, most_key, most_value)"), NULL;
    Py_ssize_t most_key = PyLong_AsSsize_t(args[2]), most_value = PyLong_AsSsize_t(args[3]);
    PyObject *placed = PyErr_Occurred() ? NULL : empty_lists(PyList_Size(args[1]));
    for (Py_ssize_t i = 0; placed && i < PyList_Size(args[0]); i++) {
        PyObject *pair = Py_NewRef(layout_get_list(layout, args[0], i));
        int status = add_plain(layout, pair, args[1], placed, most_key, most_value);
        Py_DECREF(pair);
        if (status < 0) Py_CLEAR(placed);
        if (!status) {
            Py_DECREF(placed);
            Py_RETURN_NONE;
        }
    }
    return placed;
}

/* place_entries(partitions, tails, values, heads) -> list of lists; see _core.pyi */
PyObject *entries_place(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    int right = count == 4;
    for (int k = 0; right && k < 4; k++) right = PyList_CheckExact(args[k]);
    Py_ssize_t number = right ? PyList_Size(args[0]) : 0;
    if (!right || PyList_Size(args[1]) != number || PyList_Size(args[2]) != number)
        return PyErr_SetString(PyExc_TypeError, "place_entries(partitions, tails, values, heads): four lists"), NULL;
    Py_ssize_t places = PyList_Size(args[3]);
    PyObject *placed = empty_lists(places);
    for (Py_ssize_t i = 0; placed && i < number; i++) {
        Py_ssize_t place = PyLong_AsSsize_t(layout_get_list(layout, args[0], i));
        PyObject *tail = layout_get_list(layout, args[1], i), *value = layout_get_list(layout, args[2], i);
        PyObject *head = place >= 0 && place < places ? layout_get_list(layout, args[3], place) : NULL, *entry = NULL;
        if (head && PyBytes_CheckExact(head) && PyBytes_CheckExact(tail) && PyBytes_CheckExact(value))
            entry = new_entry(joined((const uint8_t *)PyBytes_AsString(head), PyBytes_Size(head),
                                     (const uint8_t *)PyBytes_AsString(tail), PyBytes_Size(tail)),
                              value);
        else if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "tails, values and heads are bytes, and partitions have a head");
        if (!entry || PyList_Append(layout_get_list(layout, placed, place), entry) < 0) Py_CLEAR(placed);
        Py_XDECREF(entry);
    }
    return placed;
}
