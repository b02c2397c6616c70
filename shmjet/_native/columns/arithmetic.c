/* Bindings of arithmetic.h, keep.h and take.h. */
#include "columns/arithmetic.h"

#include "columns/columns.h"
#include "columns/keep.h"
#include "columns/take.h"

/* What a call works on: an array each, of `rows` values or of one. */
typedef struct {
    Py_buffer views[3];
    int held;
} arrays_t;

static int hold(arrays_t *arrays, PyObject *object, int writable) {
    int flags = writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (PyObject_GetBuffer(object, &arrays->views[arrays->held], flags) < 0) return -1;
    arrays->held++;
    return 0;
}

static PyObject *released(arrays_t *arrays, PyObject *result) {
    while (arrays->held > 0) PyBuffer_Release(&arrays->views[--arrays->held]);
    return result;
}

#define CASE(letter, size, type)                                                                                    \
    if (*kind == letter && itemsize == size)                                                                        \
        return released(&arrays, PyBool_FromLong(arithmetic_##type(*symbol, a, step_a, b, step_b, to, rows)));

/* checked_arithmetic(symbol, kind, itemsize, one, two, out) -> bool: a result has left the type */
static PyObject *checked_arithmetic(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *symbol, *kind;
    Py_ssize_t itemsize;
    PyObject *one, *two, *out;
    if (!PyArg_ParseTuple(args, "ssnOOO:checked_arithmetic", &symbol, &kind, &itemsize, &one, &two, &out)) return NULL;
    arrays_t arrays = {.held = 0};
    if (hold(&arrays, one, 0) < 0 || hold(&arrays, two, 0) < 0 || hold(&arrays, out, 1) < 0)
        return released(&arrays, NULL);
    Py_ssize_t size = arrays.views[2].len;
    if (itemsize < 1 || size % itemsize || !strchr("+-*", *symbol) || !*symbol) goto unfit;
    for (int i = 0; i < 2; i++)
        if (arrays.views[i].len != size && arrays.views[i].len != itemsize) goto unfit;
    int64_t rows = size / itemsize;
    int step_a = arrays.views[0].len == size, step_b = arrays.views[1].len == size;
    const void *a = arrays.views[0].buf, *b = arrays.views[1].buf;
    void *to = arrays.views[2].buf;
    CASE('i', 1, int8_t)
    CASE('i', 2, int16_t)
    CASE('i', 4, int32_t)
    CASE('i', 8, int64_t)
    CASE('u', 1, uint8_t)
    CASE('u', 2, uint16_t)
    CASE('u', 4, uint32_t)
    CASE('u', 8, uint64_t)
unfit:
    PyErr_SetString(PyExc_ValueError, "arrays of one integer type are needed, of equal length or of one value");
    return released(&arrays, NULL);
}

/* keep_rows(values, itemsize, mask, out) -> int: the values kept */
static PyObject *keep_rows(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *values, *mask, *out;
    Py_ssize_t itemsize;
    if (!PyArg_ParseTuple(args, "OnOO:keep_rows", &values, &itemsize, &mask, &out)) return NULL;
    arrays_t arrays = {.held = 0};
    if (hold(&arrays, values, 0) < 0 || hold(&arrays, mask, 0) < 0 || hold(&arrays, out, 1) < 0)
        return released(&arrays, NULL);
    int64_t rows = arrays.views[1].len, kept;
    const void *from = arrays.views[0].buf;
    const uint8_t *marks = arrays.views[1].buf;
    void *to = arrays.views[2].buf;
    int64_t chosen = marked_rows(marks, rows), room = chosen < rows ? chosen + 1 : rows;
    if (itemsize > 8 || arrays.views[0].len < rows * itemsize || arrays.views[2].len < room * itemsize) goto unfit;
    if (itemsize == 1) kept = keep_uint8_t(from, marks, rows, to);
    else if (itemsize == 2) kept = keep_uint16_t(from, marks, rows, to);
    else if (itemsize == 4) kept = keep_uint32_t(from, marks, rows, to);
    else if (itemsize == 8) kept = keep_words(from, marks, rows, to, arrays.views[2].len / itemsize);
    else goto unfit;
    return released(&arrays, PyLong_FromLongLong(kept));
unfit:
    PyErr_SetString(PyExc_ValueError,
                    "values of 1, 2, 4 or 8 bytes, a mask for them and room for one more than it chooses are needed");
    return released(&arrays, NULL);
}

/* take_numbers(values, itemsize, rows, out) -> None */
static PyObject *take_numbers(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *values, *numbers, *out;
    Py_ssize_t itemsize;
    if (!PyArg_ParseTuple(args, "OnOO:take_numbers", &values, &itemsize, &numbers, &out)) return NULL;
    arrays_t arrays = {.held = 0};
    if (hold(&arrays, values, 0) < 0 || hold(&arrays, numbers, 0) < 0 || hold(&arrays, out, 1) < 0)
        return released(&arrays, NULL);
    const void *from = arrays.views[0].buf;
    void *to = arrays.views[2].buf;
    const int64_t *rows = arrays.views[1].buf;
    int64_t wanted = arrays.views[1].len / 8;
    if ((itemsize != 4 && itemsize != 8) ||
        arrays.views[1].len % 8 || (uintptr_t)rows % 8 || arrays.views[2].len != wanted * itemsize ||
        (uintptr_t)from % (uintptr_t)itemsize || (uintptr_t)to % (uintptr_t)itemsize) {
        PyErr_SetString(PyExc_ValueError, "aligned values of 4 or 8 bytes, int64 numbers and room are needed");
        return released(&arrays, NULL);
    }
    if (!rows_are_there(rows, wanted, arrays.views[0].len / itemsize)) {
        PyErr_Format(PyExc_IndexError, "a row is not one of the %zd there are", arrays.views[0].len / itemsize);
        return released(&arrays, NULL);
    }
    if (itemsize == 4) take_uint32_t(from, rows, wanted, to);
    else take_uint64_t(from, rows, wanted, to);
    return released(&arrays, Py_NewRef(Py_None));
}

PyMethodDef columns_arithmetic_methods[] = {
    {"checked_arithmetic", checked_arithmetic, METH_VARARGS,
     "checked_arithmetic(symbol, kind, itemsize, one, two, out) -> bool: a result has left the type"},
    {"keep_rows", keep_rows, METH_VARARGS, "keep_rows(values, itemsize, mask, out) -> int: the values kept"},
    {"take_numbers", take_numbers, METH_VARARGS, "take_numbers(values, itemsize, rows, out) -> None"},
    {NULL, NULL, 0, NULL},
};
