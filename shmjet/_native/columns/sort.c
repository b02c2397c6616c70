/* Binding of the kernels in sort.h and merge.h. */
#include "columns/columns.h"

#include "columns/merge.h"
#include "columns/sort.h"

/* A buffer of `count` int64 that kernels may write, aligned. Returns 0, or -1 with an exception set. */
static int bind_int64(PyObject *buffer, Py_buffer *view, int64_t count, const char *what) {
    if (PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE) < 0) return -1;
    if (view->len >= 8 * count && (uintptr_t)view->buf % 8 == 0) return 0;
    PyErr_Format(PyExc_ValueError, "%s must be an aligned buffer of %lld int64, got %zd bytes", what, (long long)count,
                 view->len);
    PyBuffer_Release(view);
    return -1;
}

/* What a column is sorted by; NULL with an exception set. The caller frees it with PyMem_Free. */
static order_key_t *order_keys(const bound_column_t *bound, Py_ssize_t count, PyObject *descending, int nulls_first) {
    order_key_t *keys = PyMem_Calloc((size_t)count + 1, sizeof *keys);
    PyObject *flags = PySequence_Tuple(descending);
    if (!keys || !flags) {
        if (!keys) PyErr_NoMemory();
        goto fail;
    }
    if (PyTuple_Size(flags) != count) {
        PyErr_Format(PyExc_ValueError, "descending has %zd flags for %zd columns", PyTuple_Size(flags), count);
        goto fail;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        int down = PyObject_IsTrue(PyTuple_GetItem(flags, i));
        if (down < 0) goto fail;
        if (order_key(&keys[i], &bound[i].column, down, nulls_first) == 0) continue;
        PyErr_Format(PyExc_ValueError, "column %zd of kind '%c' and itemsize %u cannot be sorted by", i,
                     bound[i].column.kind, (unsigned)bound[i].column.itemsize);
        goto fail;
    }
    Py_DECREF(flags);
    return keys;
fail:
    Py_XDECREF(flags);
    PyMem_Free(keys);
    return NULL;
}

/* argsort(columns, descending, nulls_first, out, limit) -> None */
static PyObject *columns_argsort(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    if (nargs != 5)
        return PyErr_SetString(PyExc_TypeError, "argsort(columns, descending, nulls_first, out, limit)"), NULL;
    int nulls_first = PyObject_IsTrue(args[2]);
    long long limit = PyLong_AsLongLong(args[4]);
    if (nulls_first < 0 || (limit == -1 && PyErr_Occurred())) return NULL;
    Py_ssize_t count = 0;
    bound_column_t *bound = columns_bind(args[0], &count);
    if (!bound) return NULL;
    PyObject *result = NULL;
    Py_buffer out;
    uint64_t *spare = NULL;
    int64_t rows = count ? bound[0].column.rows : 0;
    order_key_t *keys = order_keys(bound, count, args[1], nulls_first);
    if (!keys) goto done;
    if (!count) {
        PyErr_SetString(PyExc_ValueError, "argsort needs at least one column");
        goto done;
    }
    if (bind_int64(args[3], &out, rows, "out") < 0) goto done;
    if ((spare = PyMem_Malloc((size_t)rows * sizeof *spare + 1))) {
        argsort(keys, count, rows, limit < 0 || limit > rows ? rows : limit, out.buf, spare);
        result = Py_NewRef(Py_None);
    } else {
        PyErr_NoMemory();
    }
    PyBuffer_Release(&out);
done:
    PyMem_Free(spare);
    PyMem_Free(keys);
    columns_unbind(bound, count);
    return result;
}

/* -- Merger -------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Py_ssize_t run_count, key_count;
    bound_column_t **bound; /* of each run; NULL after the bound columns */
    order_key_t **keys;
    merge_run_t *runs;
} Merger;

static void merger_dealloc(Merger *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (Py_ssize_t r = 0; r < self->run_count; r++) {
        if (self->bound && self->bound[r]) columns_unbind(self->bound[r], self->key_count);
        if (self->keys) PyMem_Free(self->keys[r]);
    }
    PyMem_Free(self->bound);
    PyMem_Free(self->keys);
    PyMem_Free(self->runs);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static int merger_bind(Merger *self, Py_ssize_t r, PyObject *columns, PyObject *descending, int nulls_first) {
    Py_ssize_t count = 0;
    bound_column_t *bound = columns_bind(columns, &count);
    if (!bound) return -1;
    if (!r) self->key_count = count;
    if (!count || count != self->key_count) {
        columns_unbind(bound, count);
        PyErr_Format(PyExc_ValueError, "run %zd has %zd columns, run 0 has %zd", r, count, self->key_count);
        return -1;
    }
    self->bound[r] = bound;
    if (!(self->keys[r] = order_keys(bound, count, descending, nulls_first))) return -1;
    for (Py_ssize_t k = 0; k < count; k++) {
        const order_key_t *mine = &self->keys[r][k], *first = &self->keys[0][k];
        if (mine->form == first->form && mine->column.itemsize == first->column.itemsize) continue;
        PyErr_Format(PyExc_ValueError, "column %zd of run %zd is of another kind than that of run 0", k, r);
        return -1;
    }
    self->runs[r] = (merge_run_t){self->keys[r], bound[0].column.rows, 0};
    return 0;
}

static PyObject *merger_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"runs", "descending", "nulls_first", NULL};
    PyObject *given, *descending;
    int nulls_first;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOp:Merger", names, &given, &descending, &nulls_first)) return NULL;
    PyObject *runs = PySequence_Tuple(given);
    if (!runs) return NULL;
    Merger *self = PyObject_New(Merger, type);
    if (!self) {
        Py_DECREF(runs);
        return NULL;
    }
    size_t count = (size_t)PyTuple_Size(runs);
    self->run_count = (Py_ssize_t)count;
    self->key_count = 0;
    self->bound = PyMem_Calloc(count + 1, sizeof *self->bound);
    self->keys = PyMem_Calloc(count + 1, sizeof *self->keys);
    self->runs = PyMem_Calloc(count + 1, sizeof *self->runs);
    int status = 0;
    if (!self->bound || !self->keys || !self->runs) {
        PyErr_NoMemory();
        status = -1;
    }
    for (Py_ssize_t r = 0; !status && r < self->run_count; r++)
        status = merger_bind(self, r, PyTuple_GetItem(runs, r), descending, nulls_first);
    Py_DECREF(runs);
    if (!status) return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return NULL;
}

/* cut(step, ends) -> rows of the next slice */
static PyObject *merger_cut(Merger *self, PyObject *args) {
    long long step;
    PyObject *buffer;
    Py_buffer ends;
    if (!PyArg_ParseTuple(args, "LO:cut", &step, &buffer)) return NULL;
    if (step < 1) return PyErr_Format(PyExc_ValueError, "step must be at least 1, got %lld", step), NULL;
    if (bind_int64(buffer, &ends, self->run_count, "ends") < 0) return NULL;
    int64_t rows = merge_cut(self->runs, self->run_count, self->key_count, step, ends.buf);
    PyBuffer_Release(&ends);
    return PyLong_FromLongLong(rows);
}

static PyMethodDef merger_methods[] = {
    {"cut", (PyCFunction)merger_cut, METH_VARARGS, "cut(step, ends) -> int: rows of the next slice, 0 at the end"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot merger_slots[] = {
    {Py_tp_new, merger_new},
    {Py_tp_dealloc, merger_dealloc},
    {Py_tp_methods, merger_methods},
    {Py_tp_doc, "Merger(runs, descending, nulls_first): cuts sorted runs into slices."},
    {0, NULL},
};

static PyType_Spec merger_spec = {"shmjet._native._columns.Merger", sizeof(Merger), 0, Py_TPFLAGS_DEFAULT,
                                  merger_slots};

PyMethodDef columns_sort_methods[] = {
    FAST("argsort", columns_argsort, "argsort(columns, descending, nulls_first, out, limit) -> None"),
    {NULL, NULL, 0, NULL},
};

int columns_sort_exec(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &merger_spec, NULL);
    if (!type) return -1;
    int status = PyModule_AddObjectRef(module, "Merger", type);
    Py_DECREF(type);
    return status;
}
