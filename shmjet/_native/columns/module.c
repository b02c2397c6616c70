/* The module of the column kernels: apart from `_core`, so that a job without columns does not load it. Everything it
 * offers is typed and described in _columns.pyi. */
#include "columns/columns.h"

#include "columns/simd.h"

void column_unbind(bound_column_t *bound) {
    while (bound->view_count > 0) PyBuffer_Release(&bound->views[--bound->view_count]);
}

static const uint8_t *bind_buffer(bound_column_t *bound, PyObject *buffer, int64_t least, const char *what) {
    Py_buffer *view = &bound->views[bound->view_count];
    if (PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE) < 0) return NULL;
    bound->view_count++;
    if (view->len < least) {
        PyErr_Format(PyExc_ValueError, "a column's %s has %zd bytes, but needs %lld", what, view->len,
                     (long long)least);
        return NULL;
    }
    return view->buf ? view->buf : (const uint8_t *)"";
}

/* Whether no offset and no difference of two neighbours has its sign bit set. Differences of numbers that are not
 * negative do not overflow, so that is the same as ascending from 0 or more; and the loop is vectorised, which counts:
 * every call of a kernel checks its columns of text. */
SIMD_CLONES static int ascends(const uint8_t *offsets, int64_t rows) {
    uint64_t signs = (uint64_t)load_i64(offsets + 8 * rows);
    for (int64_t i = 0; i < rows; i++) {
        uint64_t offset = (uint64_t)load_i64(offsets + 8 * i);
        signs |= offset | ((uint64_t)load_i64(offsets + 8 * (i + 1)) - offset);
    }
    return signs >> 63 == 0;
}

static int check_offsets(const column_t *column, int64_t bytes) {
    if (ascends(column->offsets, column->rows) && column_offset(column, column->rows) <= bytes) return 0;
    PyErr_Format(PyExc_ValueError, "offsets must ascend from 0 or more to at most the %lld bytes of data",
                 (long long)bytes);
    return -1;
}

int column_bind(PyObject *descriptor, bound_column_t *bound) {
    column_t *column = &bound->column;
    memset(bound, 0, sizeof *bound);
    if (!PyTuple_Check(descriptor) || PyTuple_Size(descriptor) != 6) {
        PyErr_SetString(PyExc_TypeError, "a column is (kind, itemsize, rows, data, offsets or None, valid or None)");
        return -1;
    }
    Py_ssize_t length = 0;
    const char *kind = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(descriptor, 0), &length);
    if (!kind) return -1;
    long long itemsize = PyLong_AsLongLong(PyTuple_GetItem(descriptor, 1));
    if (itemsize == -1 && PyErr_Occurred()) return -1;
    long long rows = PyLong_AsLongLong(PyTuple_GetItem(descriptor, 2));
    if (rows == -1 && PyErr_Occurred()) return -1;
    PyObject *data = PyTuple_GetItem(descriptor, 3), *offsets = PyTuple_GetItem(descriptor, 4),
             *valid = PyTuple_GetItem(descriptor, 5);
    int variable = length == 1 && (*kind == 't' || *kind == 'y');
    if (length != 1 || !strchr("biufcMmSUVty", *kind) || itemsize < 0 || itemsize > INT32_MAX || rows < 0 ||
        rows > (INT64_MAX >> 8) / (itemsize + 8) || variable != (offsets != Py_None) || (variable && itemsize)) {
        PyErr_Format(PyExc_ValueError, "no column has kind %R, itemsize %lld and %lld rows %s offsets",
                     PyTuple_GetItem(descriptor, 0), itemsize, rows, offsets == Py_None ? "without" : "with");
        return -1;
    }
    column->kind = *kind;
    column->itemsize = (uint32_t)itemsize;
    column->rows = rows;
    if (!(column->data = bind_buffer(bound, data, rows * itemsize, "data"))) goto fail;
    int64_t bytes = bound->views[0].len;
    if (variable && (!(column->offsets = bind_buffer(bound, offsets, 8 * (rows + 1), "offsets")) ||
                     check_offsets(column, bytes) < 0))
        goto fail;
    if (valid != Py_None && !(column->valid = bind_buffer(bound, valid, rows, "validity"))) goto fail;
    return 0;
fail:
    column_unbind(bound);
    return -1;
}

void columns_unbind(bound_column_t *bound, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) column_unbind(&bound[i]);
    PyMem_Free(bound);
}

bound_column_t *columns_bind(PyObject *descriptors, Py_ssize_t *count) {
    PyObject *sequence = PySequence_Tuple(descriptors);
    if (!sequence) return NULL;
    Py_ssize_t wanted = PyTuple_Size(sequence), done = 0;
    bound_column_t *bound = PyMem_Calloc((size_t)wanted + 1, sizeof *bound);
    if (!bound) {
        PyErr_NoMemory();
        goto fail;
    }
    for (; done < wanted; done++) {
        if (column_bind(PyTuple_GetItem(sequence, done), &bound[done]) < 0) goto fail;
        if (bound[done].column.rows != bound[0].column.rows) {
            PyErr_Format(PyExc_ValueError, "column %zd has %lld rows, column 0 has %lld", done,
                         (long long)bound[done].column.rows, (long long)bound[0].column.rows);
            done++;
            goto fail;
        }
    }
    Py_DECREF(sequence);
    *count = wanted;
    return bound;
fail:
    if (bound) columns_unbind(bound, done);
    Py_DECREF(sequence);
    return NULL;
}

static int module_exec(PyObject *module) {
    PyMethodDef *const tables[] = {columns_hash_methods, columns_scatter_methods, columns_group_methods,
                                   columns_text_methods, columns_sort_methods,    columns_join_methods,
                                   columns_rows_methods, columns_csv_methods,     columns_csv_write_methods,
                                   columns_text_functions_methods, columns_arithmetic_methods, columns_decimal_methods,
                                   columns_number_program_methods};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (PyModule_AddFunctions(module, tables[i]) < 0) return -1;
    if (columns_group_exec(module) < 0 || columns_text_exec(module) < 0 || columns_sort_exec(module) < 0 ||
        columns_join_exec(module) < 0 || columns_csv_exec(module) < 0)
        return -1;
    return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "shmjet._native._columns",
    .m_doc = "Kernels over columns: key hashes, scatter, group-by, text, sort, join.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__columns(void) { return PyModuleDef_Init(&module_definition); }
