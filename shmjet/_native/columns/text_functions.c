/* Binding of the kernels for functions of text in expressions: text_match.h, text_edit.h, text_parse.h. */
#include "columns/columns.h"
#include "columns/text_edit.h"
#include "columns/text_match.h"
#include "columns/text_parse.h"

enum { MOST_BUFFERS = 4 };

/* A column of text or bytes, and buffers next to it. */
typedef struct {
    bound_column_t bound;
    Py_buffer views[MOST_BUFFERS];
    int held;
} text_call_t;

static void end_call(text_call_t *call) {
    while (call->held > 0) PyBuffer_Release(&call->views[--call->held]);
    column_unbind(&call->bound);
}

static int begin_call(text_call_t *call, PyObject *descriptor) {
    call->held = 0;
    if (column_bind(descriptor, &call->bound) < 0) return -1;
    if (call->bound.column.offsets) return 0;
    PyErr_Format(PyExc_TypeError, "a column of text or bytes is needed, got kind '%c'", call->bound.column.kind);
    column_unbind(&call->bound);
    return -1;
}

/* Adds a buffer of at least so many bytes; NULL with an exception set if it is shorter. */
static void *add_buffer(text_call_t *call, PyObject *object, int writable, int64_t least, const char *what) {
    Py_buffer *view = &call->views[call->held];
    if (PyObject_GetBuffer(object, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) return NULL;
    call->held++;
    if (view->len < least) {
        PyErr_Format(PyExc_ValueError, "%s has %zd bytes, but needs %lld", what, view->len, (long long)least);
        return NULL;
    }
    return view->buf ? view->buf : (void *)"";
}

static PyObject *ended(text_call_t *call, PyObject *result) {
    end_call(call);
    return result;
}

/* text_has(text, how, part, found) -> None; how: 0 anywhere, 1 at the beginning, 2 at the end */
static PyObject *has(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *part, *out;
    int how;
    if (!PyArg_ParseTuple(args, "OiOO:text_has", &descriptor, &how, &part, &out)) return NULL;
    text_call_t call;
    if (begin_call(&call, descriptor) < 0) return NULL;
    const column_t *column = &call.bound.column;
    const uint8_t *needle = add_buffer(&call, part, 0, 0, "part");
    uint8_t *found = needle ? add_buffer(&call, out, 1, column->rows, "found") : NULL;
    if (!found) return ended(&call, NULL);
    size_t size = (size_t)call.views[0].len;
    if (how == 1) text_starts_column(column, needle, size, found);
    else if (how == 2) text_ends_column(column, needle, size, found);
    else text_contains_column(column, needle, size, found);
    return ended(&call, Py_NewRef(Py_None));
}

/* Two columns: text_compare, text_equal and text_among. */
typedef enum { COMPARE, EQUAL, AMONG } two_columns_t;

static PyObject *on_two(PyObject *args, two_columns_t how, const char *format) {
    PyObject *descriptor, *other, *out;
    if (!PyArg_ParseTuple(args, format, &descriptor, &other, &out)) return NULL;
    text_call_t call, second;
    if (begin_call(&call, descriptor) < 0) return NULL;
    if (begin_call(&second, other) < 0) return ended(&call, NULL);
    const column_t *one = &call.bound.column, *two = &second.bound.column;
    PyObject *result = NULL;
    int is_scalar = two->rows == 1;
    if (how != AMONG && !is_scalar && two->rows != one->rows) {
        PyErr_Format(PyExc_ValueError, "columns of %lld and %lld rows", (long long)one->rows, (long long)two->rows);
    } else {
        void *to = add_buffer(&call, out, 1, one->rows, "out");
        if (to) {
            if (how == COMPARE) text_compare_columns(one, two, is_scalar, to);
            else if (how == EQUAL) text_equal_columns(one, two, is_scalar, to);
            else text_among_column(one, two, to);
            result = Py_NewRef(Py_None);
        }
    }
    end_call(&second);
    return ended(&call, result);
}

static PyObject *compare(PyObject *Py_UNUSED(module), PyObject *args) {
    return on_two(args, COMPARE, "OOO:text_compare");
}

static PyObject *equal(PyObject *Py_UNUSED(module), PyObject *args) { return on_two(args, EQUAL, "OOO:text_equal"); }

static PyObject *among(PyObject *Py_UNUSED(module), PyObject *args) { return on_two(args, AMONG, "OOO:text_among"); }

/* text_dfa(text, table, at_end, start, found) -> int */
static PyObject *dfa(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *table_object, *ends_object, *out;
    int start;
    if (!PyArg_ParseTuple(args, "OOOiO:text_dfa", &descriptor, &table_object, &ends_object, &start, &out)) return NULL;
    text_call_t call;
    if (begin_call(&call, descriptor) < 0) return NULL;
    const uint8_t *at_end = add_buffer(&call, ends_object, 0, 3, "at_end");
    if (!at_end) return ended(&call, NULL);
    int64_t states = call.views[0].len;
    const uint16_t *table = add_buffer(&call, table_object, 0, states * 512, "table");
    uint8_t *found = table ? add_buffer(&call, out, 1, call.bound.column.rows, "found") : NULL;
    if (!found) return ended(&call, NULL);
    int fits = start >= 0 && start < states;
    for (int64_t i = 0; i < states * 256; i++) fits &= table[i] < states;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "a state is out of range");
        return ended(&call, NULL);
    }
    int64_t rows = text_dfa_column(&call.bound.column, table, at_end, (uint16_t)start, found);
    return ended(&call, PyLong_FromLongLong(rows));
}

/* text_chars(text, count) -> None */
static PyObject *chars(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *out;
    if (!PyArg_ParseTuple(args, "OO:text_chars", &descriptor, &out)) return NULL;
    text_call_t call;
    if (begin_call(&call, descriptor) < 0) return NULL;
    int64_t *count = add_buffer(&call, out, 1, 8 * call.bound.column.rows, "count");
    if (!count) return ended(&call, NULL);
    text_chars_column(&call.bound.column, count);
    return ended(&call, Py_NewRef(Py_None));
}

/* text_slice(text, start, length, begins, ends) -> None */
static PyObject *slice(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *first, *last;
    long long start, length;
    if (!PyArg_ParseTuple(args, "OLLOO:text_slice", &descriptor, &start, &length, &first, &last)) return NULL;
    text_call_t call;
    if (begin_call(&call, descriptor) < 0) return NULL;
    int64_t bytes = 8 * call.bound.column.rows, *begins = add_buffer(&call, first, 1, bytes, "begins");
    int64_t *ends = begins ? add_buffer(&call, last, 1, bytes, "ends") : NULL;
    if (!ends) return ended(&call, NULL);
    text_slice_column(&call.bound.column, start, length, begins, ends);
    return ended(&call, Py_NewRef(Py_None));
}

/* text_strip(text, set, wide, begins, ends, other) -> int */
static PyObject *strip(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *marks, *first, *last, *out;
    int wide;
    if (!PyArg_ParseTuple(args, "OOpOOO:text_strip", &descriptor, &marks, &wide, &first, &last, &out)) return NULL;
    text_call_t call;
    if (begin_call(&call, descriptor) < 0) return NULL;
    int64_t rows = call.bound.column.rows;
    const uint8_t *set = add_buffer(&call, marks, 0, 256, "set");
    int64_t *begins = set ? add_buffer(&call, first, 1, 8 * rows, "begins") : NULL;
    int64_t *ends = begins ? add_buffer(&call, last, 1, 8 * rows, "ends") : NULL;
    uint8_t *other = ends ? add_buffer(&call, out, 1, rows, "other") : NULL;
    if (!other) return ended(&call, NULL);
    return ended(&call, PyLong_FromLongLong(text_strip_column(&call.bound.column, set, wide, begins, ends, other)));
}

/* text_ranges(text, begins, ends, offsets, data) -> None: the ranges lie in the data, and `data` has room for them */
static PyObject *ranges(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *first, *last, *to_offsets, *to;
    if (!PyArg_ParseTuple(args, "OOOOO:text_ranges", &descriptor, &first, &last, &to_offsets, &to)) return NULL;
    text_call_t call;
    if (begin_call(&call, descriptor) < 0) return NULL;
    int64_t rows = call.bound.column.rows, size = call.bound.views[0].len, needed = 0;
    const int64_t *begins = add_buffer(&call, first, 0, 8 * rows, "begins");
    const int64_t *ends = begins ? add_buffer(&call, last, 0, 8 * rows, "ends") : NULL;
    if (!ends) return ended(&call, NULL);
    for (int64_t row = 0; row < rows; row++) {
        if (begins[row] < 0 || begins[row] > ends[row] || ends[row] > size) {
            PyErr_SetString(PyExc_ValueError, "a range leaves the data");
            return ended(&call, NULL);
        }
        needed += ends[row] - begins[row];
    }
    int64_t *offsets = add_buffer(&call, to_offsets, 1, 8 * (rows + 1), "offsets");
    uint8_t *data = offsets ? add_buffer(&call, to, 1, needed, "data") : NULL;
    if (!data) return ended(&call, NULL);
    text_copy_ranges(call.bound.column.data, begins, ends, rows, offsets, data);
    return ended(&call, Py_NewRef(Py_None));
}

/* text_replace(text, part, value, offsets, data) -> int; without offsets and data (None) only the size */
static PyObject *replace(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *part_object, *value_object, *to_offsets, *to;
    if (!PyArg_ParseTuple(args, "OOOOO:text_replace", &descriptor, &part_object, &value_object, &to_offsets, &to))
        return NULL;
    text_call_t call;
    if (begin_call(&call, descriptor) < 0) return NULL;
    const column_t *column = &call.bound.column;
    const uint8_t *part = add_buffer(&call, part_object, 0, 1, "part");
    const uint8_t *value = part ? add_buffer(&call, value_object, 0, 0, "value") : NULL;
    if (!value) return ended(&call, NULL);
    size_t size = (size_t)call.views[0].len, with = (size_t)call.views[1].len;
    int64_t needed = text_replace_column(column, part, size, value, with, NULL, NULL);
    if (to != Py_None) {
        int64_t *offsets = add_buffer(&call, to_offsets, 1, 8 * (column->rows + 1), "offsets");
        uint8_t *data = offsets ? add_buffer(&call, to, 1, needed, "data") : NULL;
        if (!data) return ended(&call, NULL);
        text_replace_column(column, part, size, value, with, offsets, data);
    }
    return ended(&call, PyLong_FromLongLong(needed));
}

/* text_split_lists(text, by, offsets, data) -> int; without offsets and data (None) only the size */
static PyObject *split_lists(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *by_object, *to_offsets, *to;
    if (!PyArg_ParseTuple(args, "OOOO:text_split_lists", &descriptor, &by_object, &to_offsets, &to)) return NULL;
    text_call_t call;
    if (begin_call(&call, descriptor) < 0) return NULL;
    const column_t *column = &call.bound.column;
    const uint8_t *by = add_buffer(&call, by_object, 0, 1, "by");
    if (!by) return ended(&call, NULL);
    size_t size = (size_t)call.views[0].len;
    int64_t needed = text_split_lists_column(column, by, size, NULL, NULL);
    if (needed < 0) {
        PyErr_SetString(PyExc_OverflowError, "a value has more than 2**32 - 1 bytes");
        return ended(&call, NULL);
    }
    if (to != Py_None) {
        int64_t *offsets = add_buffer(&call, to_offsets, 1, 8 * (column->rows + 1), "offsets");
        uint8_t *data = offsets ? add_buffer(&call, to, 1, needed, "data") : NULL;
        if (!data) return ended(&call, NULL);
        text_split_lists_column(column, by, size, offsets, data);
    }
    return ended(&call, PyLong_FromLongLong(needed));
}

/* text_upper(text, data, other) -> int */
static PyObject *upper(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *data, *marks;
    if (!PyArg_ParseTuple(args, "OOO:text_upper", &descriptor, &data, &marks)) return NULL;
    text_call_t call;
    if (begin_call(&call, descriptor) < 0) return NULL;
    const column_t *column = &call.bound.column;
    int64_t bytes = column_offset(column, column->rows) - column_offset(column, 0);
    uint8_t *to = add_buffer(&call, data, 1, bytes, "data");
    uint8_t *other = to ? add_buffer(&call, marks, 1, column->rows, "other") : NULL;
    if (!other) return ended(&call, NULL);
    return ended(&call, PyLong_FromLongLong(text_upper_column(column, to, other)));
}

/* text_parse(text, kind, size, unit, out, other) -> int */
static PyObject *parse(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *to, *marks;
    int kind, size, unit;
    if (!PyArg_ParseTuple(args, "OCiCOO:text_parse", &descriptor, &kind, &size, &unit, &to, &marks)) return NULL;
    int is_integer = kind == 'i' || kind == 'u';
    int fits = size == 8 ? kind != 'b' : size == 4 ? is_integer || kind == 'f' : is_integer && (size == 1 || size == 2);
    if (!(is_integer || kind == 'f' || kind == 'b' || kind == 'M') || !(fits || (kind == 'b' && size == 1)))
        return PyErr_Format(PyExc_ValueError, "kind %d of %d bytes", kind, size);
    text_call_t call;
    if (begin_call(&call, descriptor) < 0) return NULL;
    int64_t rows = call.bound.column.rows;
    uint8_t *out = add_buffer(&call, to, 1, size * rows, "out");
    uint8_t *other = out ? add_buffer(&call, marks, 1, rows, "other") : NULL;
    if (!other) return ended(&call, NULL);
    int64_t left = text_parse_column(&call.bound.column, (char)kind, (uint32_t)size, (char)unit, out, other);
    return ended(&call, PyLong_FromLongLong(left));
}

/* text_lists(words, counts, offsets, data) -> int; without offsets and data (None) only the size */
static PyObject *lists(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *of, *to_offsets, *to;
    if (!PyArg_ParseTuple(args, "OOOO:text_lists", &descriptor, &of, &to_offsets, &to)) return NULL;
    text_call_t call;
    if (begin_call(&call, descriptor) < 0) return NULL;
    const column_t *column = &call.bound.column;
    const int64_t *counts = add_buffer(&call, of, 0, 0, "counts");
    if (!counts) return ended(&call, NULL);
    int64_t rows = call.views[0].len / 8, needed = text_lists_column(column, counts, rows, NULL, NULL);
    if (needed < 0) {
        PyErr_SetString(PyExc_OverflowError, "more words than there are, or a value of more than 2**32 - 1 bytes");
        return ended(&call, NULL);
    }
    if (to != Py_None) {
        int64_t *offsets = add_buffer(&call, to_offsets, 1, 8 * (rows + 1), "offsets");
        uint8_t *data = offsets ? add_buffer(&call, to, 1, needed, "data") : NULL;
        if (!data) return ended(&call, NULL);
        text_lists_column(column, counts, rows, offsets, data);
    }
    return ended(&call, PyLong_FromLongLong(needed));
}

PyMethodDef columns_text_functions_methods[] = {
    {"text_has", has, METH_VARARGS, "text_has(text, how, part, found) -> None"},
    {"text_compare", compare, METH_VARARGS, "text_compare(text, other, sign) -> None"},
    {"text_equal", equal, METH_VARARGS, "text_equal(text, other, equal) -> None"},
    {"text_among", among, METH_VARARGS, "text_among(text, sorted, found) -> None"},
    {"text_dfa", dfa, METH_VARARGS, "text_dfa(text, table, at_end, start, found) -> int: unknown"},
    {"text_chars", chars, METH_VARARGS, "text_chars(text, count) -> None"},
    {"text_slice", slice, METH_VARARGS, "text_slice(text, start, length, begins, ends) -> None"},
    {"text_strip", strip, METH_VARARGS, "text_strip(text, set, wide, begins, ends, other) -> int: left to the caller"},
    {"text_ranges", ranges, METH_VARARGS, "text_ranges(text, begins, ends, offsets, data) -> None"},
    {"text_replace", replace, METH_VARARGS, "text_replace(text, part, value, offsets, data) -> int: bytes"},
    {"text_split_lists", split_lists, METH_VARARGS, "text_split_lists(text, by, offsets, data) -> int: bytes"},
    {"text_parse", parse, METH_VARARGS, "text_parse(text, kind, size, unit, out, other) -> int: left to the caller"},
    {"text_lists", lists, METH_VARARGS, "text_lists(words, counts, offsets, data) -> int: bytes"},
    {"text_upper", upper, METH_VARARGS, "text_upper(text, data, other) -> int: left to the caller"},
    {NULL, NULL, 0, NULL},
};
