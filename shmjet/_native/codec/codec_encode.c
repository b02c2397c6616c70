/* Lists of plain values to columns.
 *
 * Each column looks at its values first (exact types, range, lengths) and then writes; so its size is known before the
 * first byte, and a frame that does not fit leaves nothing but garbage in memory that was free anyway. No Python code
 * runs in here, hence borrowed references are enough. */
#include "codec/codec.h"

typedef struct {
    uint8_t *at, *end;
} writer_t;

typedef struct {
    const char *bytes;
    size_t length;
} span_t;

static int encode_column(Codec *codec, PyObject **values, Py_ssize_t count, writer_t *out, int depth);

static int classify(PyObject *value) {
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyUnicode_Type) return CLASS_STR;
    if (type == &PyLong_Type) return CLASS_INT;
    if (type == &PyFloat_Type) return CLASS_FLOAT;
    if (type == &PyTuple_Type) return CLASS_TUPLE;
    if (value == Py_None) return CLASS_NONE;
    if (type == &PyBool_Type) return value == Py_True ? CLASS_TRUE : CLASS_FALSE;
    if (type == &PyBytes_Type) return CLASS_BYTES;
    if (type == &PyDict_Type) return CLASS_DICT;
    if (type == &PyList_Type) return CLASS_LIST;
    return CLASS_COUNT;
}

static inline int room_for(const writer_t *out, uint64_t size) { return size <= (uint64_t)(out->end - out->at); }

static inline void put_header(writer_t *out, uint8_t type, uint8_t width, uint32_t extra) {
    uint8_t header[COLUMN_HEADER_SIZE] = {type, width, 0, 0};
    memcpy(header + 4, &extra, sizeof extra);
    memcpy(out->at, header, sizeof header);
    out->at += sizeof header;
}

#define NARROW(name, type)                                                                                             \
    static void name(uint8_t *restrict out, const int64_t *restrict values, Py_ssize_t count, int64_t base) {          \
        for (Py_ssize_t i = 0; i < count; i++) {                                                                       \
            type narrow = (type)((uint64_t)values[i] - (uint64_t)base);                                                \
            memcpy(out + i * (Py_ssize_t)sizeof narrow, &narrow, sizeof narrow);                                       \
        }                                                                                                              \
    }

NARROW(narrow_to_8, uint8_t)
NARROW(narrow_to_16, uint16_t)
NARROW(narrow_to_32, uint32_t)
NARROW(narrow_to_64, uint64_t)

static int put_ints(writer_t *out, const int64_t *values, Py_ssize_t count, int64_t low, int64_t high) {
    uint64_t range = (uint64_t)high - (uint64_t)low;
    uint8_t width = range <= UINT8_MAX ? 1 : range <= UINT16_MAX ? 2 : range <= UINT32_MAX ? 4 : 8;
    if (!room_for(out, COLUMN_HEADER_SIZE + 8 + (uint64_t)count * width)) return COLUMNS_NO_ROOM;
    put_header(out, COLUMN_INT, width, 0);
    memcpy(out->at, &low, sizeof low);
    out->at += sizeof low;
    switch (width) {
    case 1: narrow_to_8(out->at, values, count, low); break;
    case 2: narrow_to_16(out->at, values, count, low); break;
    case 4: narrow_to_32(out->at, values, count, low); break;
    default: narrow_to_64(out->at, values, count, low); break;
    }
    out->at += (uint64_t)count * width;
    return 0;
}

/* CLASS_COUNT as a result of the functions below: not all values have this type, so the column is a mixed one. */

static int encode_ints(Codec *codec, PyObject **values, Py_ssize_t count, writer_t *out) {
    if (!room_for(out, COLUMN_HEADER_SIZE + 8 + (uint64_t)count)) return COLUMNS_NO_ROOM;
    int64_t *numbers = scratch_alloc(codec, (size_t)count * sizeof *numbers), low = INT64_MAX, high = INT64_MIN;
    if (!numbers) return COLUMNS_ERROR;
    for (Py_ssize_t i = 0; i < count; i++) {
        int overflow;
        if (UNLIKELY(Py_TYPE(values[i]) != &PyLong_Type)) return CLASS_COUNT;
        int64_t number = PyLong_AsLongLongAndOverflow(values[i], &overflow);
        if (UNLIKELY(overflow)) return COLUMNS_REFUSED;
        low = number < low ? number : low;
        high = number > high ? number : high;
        numbers[i] = number;
    }
    return put_ints(out, numbers, count, low, high);
}

static int encode_floats(PyObject **values, Py_ssize_t count, writer_t *out) {
    if (!room_for(out, COLUMN_HEADER_SIZE + 8 * (uint64_t)count)) return COLUMNS_NO_ROOM;
    uint8_t *start = out->at;
    put_header(out, COLUMN_FLOAT, 8, 0);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (UNLIKELY(Py_TYPE(values[i]) != &PyFloat_Type)) {
            out->at = start;
            return CLASS_COUNT;
        }
        double number = PyFloat_AsDouble(values[i]);
        memcpy(out->at, &number, sizeof number);
        out->at += sizeof number;
    }
    return 0;
}

static int encode_flags(PyObject **values, Py_ssize_t count, writer_t *out) {
    if (!room_for(out, COLUMN_HEADER_SIZE + (uint64_t)count)) return COLUMNS_NO_ROOM;
    uint8_t *start = out->at;
    put_header(out, COLUMN_FLAGS, 1, 0);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = values[i];
        if (UNLIKELY(value != Py_None && Py_TYPE(value) != &PyBool_Type)) {
            out->at = start;
            return CLASS_COUNT;
        }
        *out->at++ = value == Py_None ? CLASS_NONE : value == Py_True ? CLASS_TRUE : CLASS_FALSE;
    }
    return 0;
}

/* memcpy for lengths that are mostly short, where a call costs more than the copy. */
static inline void copy_short(uint8_t *out, const char *in, size_t length) {
    if (length >= 8 && length <= 16) {
        uint64_t first, last;
        memcpy(&first, in, 8);
        memcpy(&last, in + length - 8, 8);
        memcpy(out, &first, 8);
        memcpy(out + length - 8, &last, 8);
    } else if (length >= 4 && length < 8) {
        uint32_t first, last;
        memcpy(&first, in, 4);
        memcpy(&last, in + length - 4, 4);
        memcpy(out, &first, 4);
        memcpy(out + length - 4, &last, 4);
    } else if (length < 4) {
        if (length > 0) {
            out[0] = (uint8_t)in[0];
            out[length / 2] = (uint8_t)in[length / 2];
            out[length - 1] = (uint8_t)in[length - 1];
        }
    } else {
        memcpy(out, in, length);
    }
}

static uint8_t length_width(size_t longest) { return longest <= UINT8_MAX ? 1 : longest <= UINT16_MAX ? 2 : 4; }

static inline void put_length(writer_t *out, uint8_t width, size_t length) {
    uint32_t value = (uint32_t)length;
    if (width == 1) {
        *out->at = (uint8_t)value;
    } else if (width == 2) {
        uint16_t narrow = (uint16_t)value;
        memcpy(out->at, &narrow, sizeof narrow);
    } else {
        memcpy(out->at, &value, sizeof value);
    }
    out->at += width;
}

static int put_spans(writer_t *out, uint8_t type, const span_t *spans, Py_ssize_t count, size_t longest,
                     uint64_t total) {
    if (longest > UINT32_MAX) return COLUMNS_REFUSED;
    uint8_t width = length_width(longest);
    if (!room_for(out, COLUMN_HEADER_SIZE + (uint64_t)count * width + total)) return COLUMNS_NO_ROOM;
    put_header(out, type, width, 0);
    for (Py_ssize_t i = 0; i < count; i++) put_length(out, width, spans[i].length);
    for (Py_ssize_t i = 0; i < count; i++) {
        copy_short(out->at, spans[i].bytes, spans[i].length);
        out->at += spans[i].length;
    }
    return 0;
}

static int encode_spans(Codec *codec, PyObject **values, Py_ssize_t count, writer_t *out, int of_text) {
    if (!room_for(out, COLUMN_HEADER_SIZE + (uint64_t)count)) return COLUMNS_NO_ROOM;
    span_t *spans = scratch_alloc(codec, (size_t)count * sizeof *spans);
    if (!spans) return COLUMNS_ERROR;
    PyTypeObject *type = of_text ? &PyUnicode_Type : &PyBytes_Type;
    size_t longest = 0;
    uint64_t total = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t length;
        if (UNLIKELY(Py_TYPE(values[i]) != type)) return CLASS_COUNT;
        if (of_text) {
            spans[i].bytes = PyUnicode_AsUTF8AndSize(values[i], &length);
            if (UNLIKELY(!spans[i].bytes)) {
                PyErr_Clear();
                return COLUMNS_REFUSED;
            }
        } else {
            spans[i].bytes = PyBytes_AsString(values[i]);
            length = PyBytes_Size(values[i]);
        }
        spans[i].length = (size_t)length;
        if ((size_t)length > longest) longest = (size_t)length;
        total += (uint64_t)length;
    }
    return put_spans(out, of_text ? COLUMN_STR : COLUMN_BYTES, spans, count, longest, total);
}

static int encode_empty(Py_ssize_t count, writer_t *out, uint8_t of_dicts) {
    if (!room_for(out, COLUMN_HEADER_SIZE + (uint64_t)count)) return COLUMNS_NO_ROOM;
    put_header(out, COLUMN_EMPTY, of_dicts, 0);
    memset(out->at, 0, (size_t)count);
    out->at += count;
    return 0;
}

/* Lists, or tuples of different lengths: all lengths, then all elements as one column. */
static int encode_ragged(Codec *codec, PyObject **values, Py_ssize_t count, writer_t *out, int depth, int of_lists) {
    size_t longest = 0, total = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (Py_TYPE(values[i]) != (of_lists ? &PyList_Type : &PyTuple_Type)) return CLASS_COUNT;
        size_t length = (size_t)(of_lists ? PyList_Size(values[i]) : PyTuple_Size(values[i]));
        if (length > longest) longest = length;
        total += length;
    }
    if (longest > UINT32_MAX) return COLUMNS_REFUSED;
    uint8_t width = length_width(longest);
    /* An element takes at least a byte: a list that can never fit is not gathered first. */
    if (!room_for(out, COLUMN_HEADER_SIZE + (uint64_t)count * width + total)) return COLUMNS_NO_ROOM;
    PyObject **elements = scratch_alloc(codec, (total ? total : 1) * sizeof *elements);
    if (!elements) return COLUMNS_ERROR;
    put_header(out, of_lists ? COLUMN_LISTS : COLUMN_TUPLES, width, 0);
    size_t filled = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t length = of_lists ? PyList_Size(values[i]) : PyTuple_Size(values[i]);
        put_length(out, width, (size_t)length);
        for (Py_ssize_t k = 0; k < length; k++)
            elements[filled++] = of_lists ? layout_get_list(&codec->layout, values[i], k)
                                          : layout_get_tuple(&codec->layout, values[i], k);
    }
    return total ? encode_column(codec, elements, (Py_ssize_t)total, out, depth + 1) : 0;
}

/* Tuples of one length: a column for each field. */
static int encode_fields(Codec *codec, PyObject **values, Py_ssize_t count, Py_ssize_t arity, writer_t *out, int depth,
                         uint8_t type, uint8_t width) {
    if (!room_for(out, COLUMN_HEADER_SIZE + (uint64_t)arity * (uint64_t)count)) return COLUMNS_NO_ROOM;
    PyObject **fields = scratch_alloc(codec, (size_t)count * sizeof *fields);
    if (!fields) return COLUMNS_ERROR;
    put_header(out, type, width, (uint32_t)arity);
    for (Py_ssize_t k = 0; k < arity; k++) {
        for (Py_ssize_t i = 0; i < count; i++) fields[i] = layout_get_tuple(&codec->layout, values[i], k);
        int status = encode_column(codec, fields, count, out, depth + 1);
        if (status) return status;
    }
    return 0;
}

static int encode_tuples(Codec *codec, PyObject **values, Py_ssize_t count, writer_t *out, int depth) {
    Py_ssize_t arity = PyTuple_Size(values[0]);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (Py_TYPE(values[i]) != &PyTuple_Type) return CLASS_COUNT;
        if (PyTuple_Size(values[i]) != arity) return encode_ragged(codec, values, count, out, depth, 0);
    }
    if (arity == 0) return encode_empty(count, out, 0);
    if (arity > UINT16_MAX) return COLUMNS_REFUSED;
    return encode_fields(codec, values, count, arity, out, depth, COLUMN_TUPLE, 0);
}

/* Named tuples of one of the classes that have a number. */
static int encode_named(Codec *codec, PyObject **values, Py_ssize_t count, writer_t *out, int depth) {
    PyTypeObject *type = Py_TYPE(values[0]);
    uint8_t number = 0;
    while (number < NAMED_TUPLES && codec->named[number].type != type) number++;
    if (number == NAMED_TUPLES) return COLUMNS_REFUSED;
    Py_ssize_t arity = codec->named[number].fields;
    for (Py_ssize_t i = 0; i < count; i++)
        if (Py_TYPE(values[i]) != type || PyTuple_Size(values[i]) != arity) return COLUMNS_REFUSED;
    return encode_fields(codec, values, count, arity, out, depth, COLUMN_NAMED, number);
}

static int same_key(PyObject *a, PyObject *b) {
    return a == b || (Py_TYPE(a) == &PyUnicode_Type && Py_TYPE(b) == &PyUnicode_Type && PyUnicode_Compare(a, b) == 0);
}

/* Dicts that have the same keys in the same order; others are left to pickle. */
static int encode_dicts(Codec *codec, PyObject **values, Py_ssize_t count, writer_t *out, int depth) {
    Py_ssize_t size = PyDict_Size(values[0]), position, k;
    PyObject *key, *value;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (Py_TYPE(values[i]) != &PyDict_Type) return CLASS_COUNT;
        if (PyDict_Size(values[i]) != size) return COLUMNS_REFUSED;
    }
    if (size == 0) return encode_empty(count, out, 1);
    if (size > UINT16_MAX) return COLUMNS_REFUSED;
    if (!room_for(out, COLUMN_HEADER_SIZE + (uint64_t)size * (uint64_t)(count + 1))) return COLUMNS_NO_ROOM;
    PyObject **keys = scratch_alloc(codec, (size_t)size * sizeof *keys);
    PyObject **fields = scratch_alloc(codec, (size_t)size * (size_t)count * sizeof *fields);
    if (!keys || !fields) return COLUMNS_ERROR;
    for (position = 0, k = 0; k < size && PyDict_Next(values[0], &position, &key, &value); k++) keys[k] = key;
    for (Py_ssize_t i = 0; i < count; i++) {
        for (position = 0, k = 0; k < size && PyDict_Next(values[i], &position, &key, &value); k++) {
            if (!same_key(keys[k], key)) return COLUMNS_REFUSED;
            fields[k * count + i] = value;
        }
    }
    put_header(out, COLUMN_DICT, 0, (uint32_t)size);
    int status = encode_column(codec, keys, size, out, depth + 1);
    for (k = 0; status == 0 && k < size; k++) status = encode_column(codec, fields + k * count, count, out, depth + 1);
    return status;
}

/* Values of several classes: the class of each, then one column for each class that has values. */
static int encode_mixed(Codec *codec, PyObject **values, Py_ssize_t count, writer_t *out, int depth) {
    if (!room_for(out, COLUMN_HEADER_SIZE + (uint64_t)count)) return COLUMNS_NO_ROOM;
    put_header(out, COLUMN_MIXED, 1, 0);
    uint8_t *classes = out->at;
    Py_ssize_t counts[CLASS_COUNT] = {0};
    for (Py_ssize_t i = 0; i < count; i++) {
        int class = classify(values[i]);
        if (class == CLASS_COUNT) return COLUMNS_REFUSED;
        classes[i] = (uint8_t)class;
        counts[class]++;
    }
    out->at += count;
    PyObject **chosen = scratch_alloc(codec, (size_t)count * sizeof *chosen);
    if (!chosen) return COLUMNS_ERROR;
    for (int class = CLASS_INT; class < CLASS_COUNT; class++) {
        if (counts[class] == 0) continue;
        Py_ssize_t filled = 0;
        for (Py_ssize_t i = 0; i < count; i++)
            if (classes[i] == class && filled < counts[class]) chosen[filled++] = values[i];
        int status = encode_column(codec, chosen, filled, out, depth + 1);
        if (status) return status;
    }
    return 0;
}

static int encode_column(Codec *codec, PyObject **values, Py_ssize_t count, writer_t *out, int depth) {
    int status;
    if (depth > CODEC_MAX_DEPTH) return COLUMNS_REFUSED;
    uint8_t *start = out->at;
    switch (classify(values[0])) {
    case CLASS_FALSE:
    case CLASS_TRUE:
    case CLASS_NONE: status = encode_flags(values, count, out); break;
    case CLASS_INT: status = encode_ints(codec, values, count, out); break;
    case CLASS_FLOAT: status = encode_floats(values, count, out); break;
    case CLASS_STR: status = encode_spans(codec, values, count, out, 1); break;
    case CLASS_BYTES: status = encode_spans(codec, values, count, out, 0); break;
    case CLASS_TUPLE: status = encode_tuples(codec, values, count, out, depth); break;
    case CLASS_LIST: status = encode_ragged(codec, values, count, out, depth, 1); break;
    case CLASS_DICT: status = encode_dicts(codec, values, count, out, depth); break;
    default: return encode_named(codec, values, count, out, depth);
    }
    if (LIKELY(status != CLASS_COUNT)) return status;
    out->at = start;
    return encode_mixed(codec, values, count, out, depth);
}

int64_t columns_encode(Codec *codec, PyObject *items, Py_ssize_t start, Py_ssize_t count, uint8_t *out, uint64_t room) {
    writer_t writer = {out, out + room};
    PyObject **values = scratch_alloc(codec, (size_t)count * sizeof *values);
    int status = values ? 0 : COLUMNS_ERROR;
    PyObject **array = layout_list(&codec->layout, items);
    if (LIKELY(values && array)) {
        memcpy(values, array + start, (size_t)count * sizeof *values);
    } else {
        for (Py_ssize_t i = 0; status == 0 && i < count; i++) values[i] = PyList_GetItem(items, start + i);
    }
    if (status == 0) status = encode_column(codec, values, count, &writer, 0);
    scratch_reset(codec);
    return status == 0 ? writer.at - out : status;
}
