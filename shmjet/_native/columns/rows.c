/* Rows that are Python objects become a column: exact tuples and dicts of exact int, float, bool, str, bytes and None.
 *
 * Anything else (subclasses, integers above 64 bits, kinds that change, rows that lack the value) is left to Python,
 * which converts it slowly or says what is wrong; so this file raises nothing of its own about values. */
#include "columns/columns.h"

/* Where the value is found in a row. */
typedef struct {
    PyObject *name; /* of dicts; NULL for tuples */
    Py_ssize_t index, width; /* of tuples */
} place_t;

/* Returns the row's value; NULL when it is not plain or has none, or an exception is set. A dict may hold keys
 * whose comparison runs any code, so that the row must be held meanwhile. */
static PyObject *value_in(PyObject *rows, Py_ssize_t i, const place_t *place) {
    PyObject *row = PyList_GetItem(rows, i), *value;
    if (!row) return NULL;
    if (place->name) {
        if (Py_TYPE(row) != &PyDict_Type) return NULL;
        Py_INCREF(row);
        value = PyDict_GetItemWithError(row, place->name);
        Py_XINCREF(value);
        Py_DECREF(row);
        return value;
    }
    if (Py_TYPE(row) != &PyTuple_Type || Py_SIZE(row) != place->width) return NULL;
    value = PyTuple_GetItem(row, place->index);
    Py_XINCREF(value);
    return value;
}

static char kind_of(PyObject *value) {
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyLong_Type) return 'i';
    if (type == &PyFloat_Type) return 'f';
    if (type == &PyUnicode_Type) return 't';
    if (type == &PyBool_Type) return 'b';
    if (type == &PyBytes_Type) return 'y';
    return 0;
}

static const char *bytes_in(PyObject *value, char kind, Py_ssize_t *size) {
    if (kind == 't') return PyUnicode_AsUTF8AndSize(value, size);
    char *data;
    return PyBytes_AsStringAndSize(value, &data, size) < 0 ? NULL : data;
}

/* Writes the word of a value: the number, or for text the offset of its end. Returns 0 when the value has none. */
static int put_word(PyObject *value, char kind, uint8_t *word, int64_t *end) {
    if (kind == 'f') {
        double number = value == Py_None ? 0.0 : PyFloat_AsDouble(value);
        memcpy(word, &number, 8);
        return 1;
    }
    int64_t number = 0;
    if (kind == 't' || kind == 'y') {
        Py_ssize_t size = 0;
        if (value != Py_None && !bytes_in(value, kind, &size)) return 0;
        number = *end += size;
        word += 8;
    } else if (value != Py_None) {
        int overflow = 0;
        number = kind == 'b' ? value == Py_True : PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow) return 0;
    }
    memcpy(word, &number, 8);
    return 1;
}

/* Returns the bytes of all texts; NULL with or without an exception when a row has changed since they were measured. */
static PyObject *join(PyObject *rows, Py_ssize_t count, const place_t *place, char kind, int64_t size) {
    PyObject *joined = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    char *to = joined ? PyBytes_AsString(joined) : NULL;
    for (Py_ssize_t i = 0; to && i < count; i++) {
        PyObject *value = value_in(rows, i, place);
        Py_ssize_t length = 0;
        const char *from = value == Py_None ? to : NULL;
        if (value && kind_of(value) == kind) from = bytes_in(value, kind, &length);
        if (!from || length > size) {
            Py_CLEAR(joined);
        } else {
            if (length) memcpy(to, from, (size_t)length);
            to += length;
            size -= length;
        }
        Py_XDECREF(value);
        if (!joined) return NULL;
    }
    if (joined && size) Py_CLEAR(joined);
    return joined;
}

static PyObject *fill(PyObject *rows, Py_ssize_t count, const place_t *place, uint8_t *words, uint8_t *valid) {
    char kind = 0;
    int nulls = 0;
    int64_t end = 0;
    for (Py_ssize_t i = 0; i < count && !kind; i++) { /* the first value that is not null says what they all are */
        PyObject *value = value_in(rows, i, place);
        int is_plain = value && (value == Py_None || (kind = kind_of(value)));
        Py_XDECREF(value);
        if (!is_plain) return NULL;
    }
    if (!kind) return NULL;
    memset(words, 0, 8);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = value_in(rows, i, place);
        int is_null = value == Py_None;
        int is_put = value && (is_null || kind_of(value) == kind) && put_word(value, kind, words + 8 * i, &end);
        Py_XDECREF(value);
        if (!is_put) return NULL;
        nulls |= is_null;
        valid[i] = !is_null;
    }
    PyObject *data = Py_None;
    if (kind == 't' || kind == 'y') {
        if (!(data = join(rows, count, place, kind, end))) return NULL;
    } else {
        Py_INCREF(data);
    }
    PyObject *name = PyUnicode_FromStringAndSize(&kind, 1);
    PyObject *result = name ? PyTuple_Pack(3, name, nulls ? Py_True : Py_False, data) : NULL;
    Py_XDECREF(name);
    Py_DECREF(data);
    return result;
}

static PyObject *row_values(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 5 || !PyList_Check(args[0]) || !(PyUnicode_Check(args[1]) || PyLong_Check(args[1]))) {
        PyErr_SetString(PyExc_TypeError,
                        "row_values(rows: list, place: int or str, width: int, words, valid: buffers)");
        return NULL;
    }
    place_t place = {NULL, 0, 0};
    if (PyUnicode_Check(args[1])) {
        place.name = args[1];
    } else {
        place.index = PyLong_AsSsize_t(args[1]);
        place.width = PyLong_AsSsize_t(args[2]);
        if (PyErr_Occurred()) return NULL;
        if (place.index < 0 || place.index >= place.width)
            return PyErr_Format(PyExc_ValueError, "there is no place %R in a row of %R", args[1], args[2]);
    }
    Py_ssize_t count = PyList_Size(args[0]);
    Py_buffer words, valid;
    if (PyObject_GetBuffer(args[3], &words, PyBUF_WRITABLE) < 0) return NULL;
    if (PyObject_GetBuffer(args[4], &valid, PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&words);
        return NULL;
    }
    PyObject *result = NULL;
    if (words.len < 8 * (count + 1) || valid.len < count)
        PyErr_Format(PyExc_ValueError, "%zd rows need %zd bytes of words and %zd of valid, got %zd and %zd", count,
                     8 * (count + 1), count, words.len, valid.len);
    else if (!(result = fill(args[0], count, &place, words.buf, valid.buf)) &&
             (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_UnicodeError))) {
        PyErr_Clear(); /* text with lone surrogates among them: Python says so */
        Py_INCREF(result = Py_None);
    }
    PyBuffer_Release(&words);
    PyBuffer_Release(&valid);
    return result;
}

static PyObject *longest_row(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 1 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "longest_row(rows: list)");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(args[0]), longest = 0;
    for (Py_ssize_t i = 0; i < count; i++) { /* no code of others runs here, so the list stays as it is */
        PyObject *row = PyList_GetItem(args[0], i);
        int is_dict = Py_TYPE(row) == &PyDict_Type;
        if (!is_dict && Py_TYPE(row) != &PyTuple_Type) Py_RETURN_NONE;
        Py_ssize_t length = is_dict ? PyDict_Size(row) : Py_SIZE(row);
        if (length > longest) longest = length;
    }
    return PyLong_FromSsize_t(longest);
}

PyMethodDef columns_rows_methods[] = {
    FAST("longest_row", longest_row, NULL),
    FAST("row_values", row_values, NULL),
    {NULL, NULL, 0, NULL},
};
