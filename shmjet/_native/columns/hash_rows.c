/* Binding of the kernels in column_hash.h. */
#include "columns/columns_key.h"

static int key_form_of_kind(const column_t *column, key_form_t *form) {
    const uint32_t size = column->itemsize;
    switch (column->kind) {
    case 'b':
    case 'i':
    case 'u': *form = KEY_NUMBER; return size == 1 || size == 2 || size == 4 || size == 8;
    case 'f': *form = KEY_FLOAT; return size == 2 || size == 4 || size == 8;
    case 't':
    case 'y': *form = KEY_TEXT; return 1;
    case 'S': *form = KEY_PADDED; return 1;
    case 'U': *form = KEY_UCS4; return size % 4 == 0;
    case 'V': *form = KEY_RAW; return 1;
    default: return 0;
    }
}

static int read_time(PyObject *form, key_time_t *time) {
    int64_t *const places[] = {&time->times, &time->least, &time->most, &time->scale, &time->add};
    Py_ssize_t length;
    if (PyTuple_Size(form) != 6) {
        PyErr_SetString(PyExc_TypeError, "the form of a date is (tag, times, least, most, scale, add)");
        return -1;
    }
    const char *tag = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(form, 0), &length);
    if (!tag) return -1;
    time->tag = (uint8_t)*tag;
    for (int i = 0; i < 5; i++) {
        *places[i] = PyLong_AsLongLong(PyTuple_GetItem(form, i + 1));
        if (*places[i] == -1 && PyErr_Occurred()) return -1;
    }
    return 0;
}

static int read_node(const column_t *column, PyObject *form, key_node_t *node) {
    node->column = *column;
    node->span = 1;
    if (PyTuple_Check(form) && (column->kind == 'M' || column->kind == 'm') && column->itemsize == 8) {
        node->form = KEY_TIME;
        return read_time(form, &node->time);
    }
    if (PyTuple_Check(form) && ((column->kind == 'i' && column->itemsize == 8) ||
                                (column->kind == 'V' && column->itemsize == 16))) {
        long scale = PyTuple_Size(form) == 2 ? PyLong_AsLong(PyTuple_GetItem(form, 1)) : -1;
        if (scale < 0 || scale > 38) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "the form of a decimal is ('D', scale)");
            return -1;
        }
        node->form = KEY_DECIMAL;
        node->scale = (uint32_t)scale;
        return 0;
    }
    if (PyLong_Check(form) && column->kind == 'V') {
        long children = PyLong_AsLong(form);
        if (children == -1 && PyErr_Occurred()) return -1;
        node->form = KEY_TUPLE;
        node->children = children < 0 || children > INT32_MAX ? INT32_MAX : (int)children;
        return 0;
    }
    if (form == Py_None && key_form_of_kind(column, &node->form)) return 0;
    PyErr_Format(PyExc_TypeError, "a column of kind '%c', itemsize %u and form %R cannot be a key", column->kind,
                 column->itemsize, form);
    return -1;
}

/* Finds where the subtree of each tuple ends, from the last node to the first. */
static int measure_spans(key_node_t *nodes, Py_ssize_t count) {
    for (Py_ssize_t i = count - 1; i >= 0; i--) {
        Py_ssize_t end = i + 1;
        for (int child = 0; child < nodes[i].children; child++) {
            if (end >= count) {
                PyErr_SetString(PyExc_ValueError, "the columns end before the fields of a structured column do");
                return -1;
            }
            end += nodes[end].span;
        }
        nodes[i].span = (int)(end - i);
    }
    return 0;
}

int key_bind(PyObject *columns, PyObject *forms, bound_key_t *bound) {
    PyObject *sequence = NULL;
    memset(bound, 0, sizeof *bound);
    if (!(bound->bound = columns_bind(columns, &bound->count))) return -1;
    if (forms != Py_None && !(sequence = PySequence_Tuple(forms))) goto fail;
    if (bound->count == 0 || (sequence && PyTuple_Size(sequence) != bound->count)) {
        PyErr_SetString(PyExc_ValueError, "a key needs at least one column, and a form for each or none at all");
        goto fail;
    }
    if (!(bound->nodes = PyMem_Calloc((size_t)bound->count, sizeof *bound->nodes))) {
        PyErr_NoMemory();
        goto fail;
    }
    for (Py_ssize_t i = 0; i < bound->count; i++) {
        PyObject *form = sequence ? PyTuple_GetItem(sequence, i) : Py_None;
        if (read_node(&bound->bound[i].column, form, &bound->nodes[i]) < 0) goto fail;
    }
    if (measure_spans(bound->nodes, bound->count) < 0) goto fail;
    bound->rows = bound->nodes[0].column.rows;
    bound->key = row_key(bound->nodes, (int)bound->count);
    Py_XDECREF(sequence);
    return 0;
fail:
    Py_XDECREF(sequence);
    key_unbind(bound);
    return -1;
}

void key_unbind(bound_key_t *bound) {
    PyMem_Free(bound->nodes);
    columns_unbind(bound->bound, bound->count);
}

static PyObject *columns_hash(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count < 2 || count > 3) {
        PyErr_SetString(PyExc_TypeError, "hash_columns(columns, out, forms=None)");
        return NULL;
    }
    bound_key_t bound;
    Py_buffer out;
    if (key_bind(args[0], count > 2 ? args[2] : Py_None, &bound) < 0) return NULL;
    PyObject *result = NULL;
    if (PyObject_GetBuffer(args[1], &out, PyBUF_WRITABLE) == 0) {
        if (out.len < 4 * bound.rows || (uintptr_t)out.buf % 4) {
            PyErr_Format(PyExc_ValueError, "out must be an aligned uint32 array of %lld elements",
                         (long long)bound.rows);
        } else {
            hash_rows(&bound.key, 0, bound.rows, out.buf);
            result = Py_NewRef(Py_None);
        }
        PyBuffer_Release(&out);
    }
    key_unbind(&bound);
    return result;
}

PyMethodDef columns_hash_methods[] = {
    FAST("hash_columns", columns_hash, "hash_columns(columns, out, forms=None)"),
    {NULL, NULL, 0, NULL},
};
