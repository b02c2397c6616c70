/* Binding of the functions over text: string_view.h, utf8.h, dictionary.h. */
#include "arrow/arrow.h"
#include "arrow/dictionary.h"
#include "arrow/string_view.h"
#include "arrow/utf8.h"

/* The buffers of an array of views are: validity, views, any number of data buffers, and the sizes of these. */
static int bind_views(array_t *array, long long start, long long rows, string_views_t *views) {
    const struct ArrowArray *node = array->node;
    if (node->n_buffers < 3 || start < 0 || rows < 0 || start > node->length || rows > node->length - start ||
        (rows && !node->buffers[1]) || (node->n_buffers > 3 && !node->buffers[node->n_buffers - 1])) {
        PyErr_Format(PyExc_ValueError, "an array of views has %lld rows and %lld buffers, or lacks one",
                     (long long)node->length, (long long)node->n_buffers);
        return -1;
    }
    views->views = (const uint8_t *)node->buffers[1] + (rows ? VIEW_SIZE * (node->offset + start) : 0);
    views->rows = rows;
    views->buffers = node->n_buffers - 3;
    views->starts = node->buffers + 2;
    views->sizes = node->buffers[node->n_buffers - 1];
    views->valid = NULL;
    return 0;
}

static int is_array(PyObject *module, PyObject *object) {
    arrow_state_t *state = PyModule_GetState(module);
    if (Py_IS_TYPE(object, state->array)) return 1;
    PyErr_Format(PyExc_TypeError, "an Array is needed, got %R", Py_TYPE(object));
    return 0;
}

static int get_room(PyObject *object, Py_buffer *view, int flags, long long least, const char *what) {
    if (PyObject_GetBuffer(object, view, flags) < 0) return -1;
    if (view->len >= least) return 0;
    PyErr_Format(PyExc_ValueError, "%s has %zd bytes, but needs %lld", what, view->len, least);
    PyBuffer_Release(view);
    return -1;
}

/* view_ends(array, start, rows, valid or None, offsets) -> bytes */
static PyObject *view_ends(PyObject *module, PyObject *args) {
    PyObject *array, *mask, *offsets, *result = NULL;
    long long start, rows;
    string_views_t views;
    Py_buffer valid = {0}, out;
    if (!PyArg_ParseTuple(args, "OLLOO:view_ends", &array, &start, &rows, &mask, &offsets)) return NULL;
    if (!is_array(module, array) || bind_views((array_t *)array, start, rows, &views) < 0) return NULL;
    if (mask != Py_None) {
        if (get_room(mask, &valid, PyBUF_SIMPLE, rows, "valid") < 0) return NULL;
        views.valid = valid.buf;
    }
    if (get_room(offsets, &out, PyBUF_WRITABLE, 8 * (rows + 1), "offsets") == 0) {
        int64_t wrong;
        Py_BEGIN_ALLOW_THREADS
        wrong = views_ends(&views, out.buf);
        Py_END_ALLOW_THREADS
        if (wrong >= 0)
            PyErr_Format(PyExc_ValueError, "the value in row %lld lies outside its buffer", (long long)wrong);
        else
            result = PyLong_FromLongLong(((const int64_t *)out.buf)[rows]);
        PyBuffer_Release(&out);
    }
    if (valid.obj) PyBuffer_Release(&valid);
    return result;
}

/* view_data(array, start, rows, offsets, data) -> None */
static PyObject *view_data(PyObject *module, PyObject *args) {
    PyObject *array, *offsets, *data, *result = NULL;
    long long start, rows;
    string_views_t views;
    Py_buffer ends, out;
    if (!PyArg_ParseTuple(args, "OLLOO:view_data", &array, &start, &rows, &offsets, &data)) return NULL;
    if (!is_array(module, array) || bind_views((array_t *)array, start, rows, &views) < 0) return NULL;
    if (get_room(offsets, &ends, PyBUF_SIMPLE, 8 * (rows + 1), "offsets") < 0) return NULL;
    const int64_t *places = ends.buf;
    if (get_room(data, &out, PyBUF_WRITABLE, places[rows] + VIEW_SLACK, "data") == 0) {
        Py_BEGIN_ALLOW_THREADS
        views_copy(&views, places, out.buf);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
        PyBuffer_Release(&out);
    }
    PyBuffer_Release(&ends);
    return result;
}

/* wrong_utf8(offsets, data) -> row or -1 */
static PyObject *wrong_utf8(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *offsets, *data;
    Py_buffer ends, bytes;
    if (!PyArg_ParseTuple(args, "OO:wrong_utf8", &offsets, &data)) return NULL;
    if (get_room(offsets, &ends, PyBUF_SIMPLE, 8, "offsets") < 0) return NULL;
    int64_t rows = ends.len / 8 - 1, row;
    const int64_t *places = ends.buf;
    if (get_room(data, &bytes, PyBUF_SIMPLE, places[rows], "data") < 0) {
        PyBuffer_Release(&ends);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    row = utf8_wrong_row(places, rows, bytes.buf);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&bytes);
    PyBuffer_Release(&ends);
    return PyLong_FromLongLong(row);
}

/* text_codes(offsets, data, valid or None, codes) -> bytes of int64 */
static PyObject *text_codes(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *objects[4], *result = NULL;
    Py_buffer views[4];
    int held = 0;
    if (!PyArg_ParseTuple(args, "OOOO:text_codes", &objects[0], &objects[1], &objects[2], &objects[3])) return NULL;
    views[2].obj = NULL;
    views[2].buf = NULL;
    if (get_room(objects[0], &views[0], PyBUF_SIMPLE, 8, "offsets") < 0) return NULL;
    held = 1;
    int64_t rows = views[0].len / 8 - 1, number = 0;
    const int64_t *offsets = views[0].buf;
    if (get_room(objects[1], &views[1], PyBUF_SIMPLE, offsets[rows], "data") < 0) goto done;
    held = 2;
    if (objects[2] != Py_None && get_room(objects[2], &views[2], PyBUF_SIMPLE, rows, "valid") < 0) goto done;
    held = 3;
    if (get_room(objects[3], &views[3], PyBUF_WRITABLE, 4 * rows, "codes") < 0) goto done;
    held = 4;
    dictionary_t table = {.offsets = offsets, .data = views[1].buf};
    const uint8_t *valid = views[2].buf;
    int32_t *codes = views[3].buf;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = 0; row < rows && number >= 0; row++) {
        number = valid && !valid[row] ? 0 : dictionary_number(&table, row);
        codes[row] = (int32_t)number;
    }
    Py_END_ALLOW_THREADS
    if (number == -1)
        PyErr_NoMemory();
    else if (number == -2)
        PyErr_SetString(PyExc_ValueError, "there are more than 2**31 - 2 different values");
    else
        result = PyBytes_FromStringAndSize((const char *)table.firsts, 8 * table.count);
    dictionary_free(&table);
done:
    while (held > 0)
        if (views[--held].obj) PyBuffer_Release(&views[held]);
    return result;
}

PyMethodDef arrow_text_methods[] = {
    {"view_ends", view_ends, METH_VARARGS, NULL},
    {"view_data", view_data, METH_VARARGS, NULL},
    {"text_codes", text_codes, METH_VARARGS, NULL},
    {"wrong_utf8", wrong_utf8, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
