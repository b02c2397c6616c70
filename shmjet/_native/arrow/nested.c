/* Binding of nested.h. A part comes from Python as a tuple (kind, width, children, data, offsets, valid), where what
 * does not apply is 0, () or None. */
#include "arrow/arrow.h"
#include "arrow/nested.h"

/* A part, and the buffers that keep its memory. */
typedef struct {
    part_t part;
    Py_buffer views[3];
    int held;
} bound_part_t;

static void unbind(bound_part_t *bound) {
    if (!bound) return;
    for (int64_t i = 0; i < bound->part.count; i++) unbind((bound_part_t *)bound->part.children[i]);
    PyMem_Free(bound->part.children);
    while (bound->held > 0) PyBuffer_Release(&bound->views[--bound->held]);
    PyMem_Free(bound);
}

static int bind_memory(bound_part_t *bound, PyObject *object, int writable, int64_t least, void *start) {
    if (object == Py_None) return 0;
    Py_buffer *view = &bound->views[bound->held];
    if (PyObject_GetBuffer(object, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) return -1;
    bound->held++;
    if (view->len < least) {
        PyErr_Format(PyExc_ValueError, "a part of a nested column has %zd bytes, but needs %lld", view->len,
                     (long long)least);
        return -1;
    }
    *(void **)start = view->buf ? view->buf : (void *)"";
    return 0;
}

/* Offsets must ascend from 0 or more; returns the last, or -1. */
static int64_t last_offset(const int64_t *offsets, int64_t slots) {
    if (offsets[0] < 0) return -1;
    for (int64_t i = 0; i < slots; i++)
        if (offsets[i + 1] < offsets[i]) return -1;
    return offsets[slots];
}

/* Binds a part to read `slots` values from (encoding), or to count or write into (decoding, slots < 0). */
static bound_part_t *bind_part(PyObject *tuple, int64_t slots, int depth) {
    int kind;
    long long width;
    PyObject *children, *data, *offsets, *valid;
    int decoding = slots < 0;
    bound_part_t *bound = PyMem_Calloc(1, sizeof *bound);
    if (!bound) return (bound_part_t *)PyErr_NoMemory();
    part_t *part = &bound->part;
    if (!PyArg_ParseTuple(tuple, "CLO!OOO:part", &kind, &width, &PyTuple_Type, &children, &data, &offsets, &valid))
        goto fail;
    Py_ssize_t count = PyTuple_Size(children);
    if (!strchr("ftls", kind) || depth > ARROW_DEEPEST || width < 0 || width > INT32_MAX ||
        (kind == 'l' ? count != 1 : kind != 's' && count != 0)) {
        PyErr_SetString(PyExc_ValueError, "a part of a nested type is wrong, or nested too deep");
        goto fail;
    }
    part->kind = (char)kind;
    part->width = width;
    int64_t inner = slots, bytes = decoding ? 0 : slots * width;
    if (bind_memory(bound, offsets, decoding, decoding ? 8 : 8 * (slots + 1), &part->offsets) < 0) goto fail;
    if (!decoding && (kind == 't' || kind == 'l')) {
        inner = bytes = part->offsets ? last_offset(part->offsets, slots) : -1;
        if (inner < 0) {
            PyErr_SetString(PyExc_ValueError, "the offsets of a nested column do not ascend");
            goto fail;
        }
    }
    if (decoding && part->offsets) part->offsets[0] = 0;
    if (bind_memory(bound, data, decoding, bytes, &part->data) < 0) goto fail;
    if (bind_memory(bound, valid, decoding, decoding ? 0 : slots, &part->valid) < 0) goto fail;
    if (!(part->children = PyMem_Calloc((size_t)count + 1, sizeof *part->children))) {
        PyErr_NoMemory();
        goto fail;
    }
    for (; part->count < count; part->count++) {
        bound_part_t *child = bind_part(PyTuple_GetItem(children, part->count), inner, depth + 1);
        if (!child) goto fail;
        part->children[part->count] = &child->part;
    }
    return bound;
fail:
    unbind(bound);
    return NULL;
}

/* nested_ends(part, rows, offsets) -> bytes */
static PyObject *nested_ends(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *tuple, *offsets;
    long long rows;
    Py_buffer out;
    if (!PyArg_ParseTuple(args, "OLO:nested_ends", &tuple, &rows, &offsets)) return NULL;
    bound_part_t *bound = rows < 0 ? NULL : bind_part(tuple, rows, 0);
    if (!bound) return NULL;
    if (PyObject_GetBuffer(offsets, &out, PyBUF_WRITABLE) < 0) {
        unbind(bound);
        return NULL;
    }
    int64_t *ends = out.buf, size = 0;
    if (out.len < 8 * (rows + 1))
        PyErr_SetString(PyExc_ValueError, "there is no room for the offsets");
    else {
        Py_BEGIN_ALLOW_THREADS
        ends[0] = 0;
        for (int64_t row = 0; row < rows && size >= 0; row++) {
            size = part_is_null(&bound->part, row) ? 0 : nested_size(&bound->part, row);
            ends[row + 1] = ends[row] + size;
        }
        Py_END_ALLOW_THREADS
        if (size < 0) PyErr_SetString(PyExc_ValueError, "a list or text in a nested value is longer than 2**32 - 1");
        size = ends[rows];
    }
    PyBuffer_Release(&out);
    unbind(bound);
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(size);
}

/* nested_data(part, rows, data) -> None */
static PyObject *nested_data(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *tuple, *data;
    long long rows;
    Py_buffer out;
    if (!PyArg_ParseTuple(args, "OLO:nested_data", &tuple, &rows, &data)) return NULL;
    bound_part_t *bound = rows < 0 ? NULL : bind_part(tuple, rows, 0);
    if (!bound) return NULL;
    if (PyObject_GetBuffer(data, &out, PyBUF_WRITABLE) < 0) {
        unbind(bound);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    uint8_t *to = out.buf, *end = to + out.len;
    for (int64_t row = 0; row < rows && to; row++) {
        if (part_is_null(&bound->part, row)) continue;
        to = end - to < nested_size(&bound->part, row) ? NULL : nested_write(&bound->part, row, to);
    }
    Py_BLOCK_THREADS
    if (!to && rows) PyErr_SetString(PyExc_ValueError, "there is no room for the values");
    Py_UNBLOCK_THREADS
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&out);
    unbind(bound);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* The counts of a part and those in it, in the order in which they are written in the type. */
static int add_counts(PyObject *list, const part_t *part) {
    PyObject *pair = Py_BuildValue("(LL)", (long long)part->slots, (long long)part->bytes);
    int status = pair ? PyList_Append(list, pair) : -1;
    Py_XDECREF(pair);
    for (int64_t i = 0; status == 0 && i < part->count; i++) status = add_counts(list, part->children[i]);
    return status;
}

/* nested_parts(offsets, data, valid or None, part) -> [(slots, bytes), ...] */
static PyObject *nested_parts(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *objects[3], *tuple, *result = NULL;
    Py_buffer views[3];
    int held = 0;
    if (!PyArg_ParseTuple(args, "OOOO:nested_parts", &objects[0], &objects[1], &objects[2], &tuple)) return NULL;
    bound_part_t *bound = bind_part(tuple, -1, 0);
    if (!bound) return NULL;
    for (; held < (objects[2] == Py_None ? 2 : 3); held++)
        if (PyObject_GetBuffer(objects[held], &views[held], PyBUF_SIMPLE) < 0) goto done;
    int64_t rows = views[0].len / 8 - 1, wrong = -1;
    const int64_t *offsets = views[0].buf;
    const uint8_t *data = views[1].buf, *valid = held == 3 ? views[2].buf : NULL;
    if (rows < 0 || last_offset(offsets, rows) < 0 || offsets[rows] > views[1].len || (valid && views[2].len < rows)) {
        PyErr_SetString(PyExc_ValueError, "the offsets of a nested column do not fit its data");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = 0; row < rows && wrong < 0; row++) {
        if (valid && !valid[row])
            nested_null(&bound->part);
        else if (nested_read(&bound->part, data + offsets[row], data + offsets[row + 1]) != data + offsets[row + 1])
            wrong = row;
    }
    Py_END_ALLOW_THREADS
    if (wrong >= 0)
        PyErr_Format(PyExc_ValueError, "the value in row %lld is not one of its type", (long long)wrong);
    else if ((result = PyList_New(0)) && add_counts(result, &bound->part) < 0)
        Py_CLEAR(result);
done:
    while (held > 0) PyBuffer_Release(&views[--held]);
    unbind(bound);
    return result;
}

PyMethodDef arrow_nested_methods[] = {
    {"nested_ends", nested_ends, METH_VARARGS, NULL},
    {"nested_data", nested_data, METH_VARARGS, NULL},
    {"nested_parts", nested_parts, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
