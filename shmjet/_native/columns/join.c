/* Binding of the kernels in join.h, join_build.h and join_probe.h: the type JoinTable. */
#include "columns/columns.h"

#include "columns/join_build.h"
#include "columns/join_probe.h"

typedef struct {
    PyObject_HEAD
    join_table_t table;
} JoinTable;

typedef struct {
    bound_column_t *bound;
    key_column_t *keys;
    Py_ssize_t count;
    int64_t rows;
} bound_keys_t;

static void keys_unbind(bound_keys_t *bound) {
    PyMem_Free(bound->keys);
    columns_unbind(bound->bound, bound->count);
}

/* Binds key columns for a table; returns 0, or -1 with an exception set. */
static int keys_bind(JoinTable *self, PyObject *columns, bound_keys_t *bound) {
    if (!(bound->bound = columns_bind(columns, &bound->count))) return -1;
    bound->keys = PyMem_Calloc((size_t)bound->count + 1, sizeof *bound->keys);
    bound->rows = bound->count ? bound->bound[0].column.rows : 0;
    int64_t wanted = self->table.columns ? self->table.columns : bound->count;
    if (!bound->keys) {
        PyErr_NoMemory();
    } else if (!bound->count || bound->count != wanted) {
        PyErr_Format(PyExc_ValueError, "a JoinTable with keys of %lld columns got %zd", (long long)wanted,
                     bound->count);
    } else {
        Py_ssize_t i = 0;
        while (i < bound->count && key_column(&bound->keys[i], &bound->bound[i].column) == 0) i++;
        if (i == bound->count) return 0;
        PyErr_Format(PyExc_ValueError, "column %zd of kind '%c' and itemsize %u cannot be a key", i,
                     bound->bound[i].column.kind, (unsigned)bound->bound[i].column.itemsize);
    }
    keys_unbind(bound);
    return -1;
}

/* survey(columns) -> None */
static PyObject *join_table_survey(JoinTable *self, PyObject *columns) {
    bound_keys_t bound;
    if (keys_bind(self, columns, &bound) < 0) return NULL;
    if (self->table.columns) PyErr_SetString(PyExc_ValueError, "a JoinTable takes no survey once rows have been added");
    else join_survey(&self->table, bound.keys, bound.count, bound.rows);
    keys_unbind(&bound);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* add(columns) -> None */
static PyObject *join_table_add(JoinTable *self, PyObject *columns) {
    bound_keys_t bound;
    if (keys_bind(self, columns, &bound) < 0) return NULL;
    int numbers = 1;
    for (Py_ssize_t i = 0; i < bound.count; i++) numbers &= key_is_word(&bound.keys[i]);
    if (self->table.columns && self->table.mode != JOIN_ANY && !numbers) {
        PyErr_SetString(PyExc_ValueError, "a JoinTable of numbers takes only numbers, dates and spans");
    } else {
        int status = join_add(&self->table, bound.keys, bound.count, bound.rows);
        if (status == JOIN_NO_MEMORY) PyErr_NoMemory();
        else if (status == JOIN_FULL)
            PyErr_SetString(PyExc_OverflowError, "a JoinTable holds at most 4,294,967,295 rows");
        else if (status == JOIN_UNSURVEYED)
            PyErr_SetString(PyExc_ValueError, "a JoinTable with a survey takes only rows that were surveyed");
    }
    keys_unbind(&bound);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* probe(columns, row, link, outer, probe_out, build_out) -> (pairs, row, link, is_run) */
static PyObject *join_table_probe(JoinTable *self, PyObject *args) {
    PyObject *columns, *probe_out, *build_out;
    long long row, link;
    int outer;
    if (!PyArg_ParseTuple(args, "OLLpOO:probe", &columns, &row, &link, &outer, &probe_out, &build_out)) return NULL;
    bound_keys_t bound;
    Py_buffer probe, build;
    if (keys_bind(self, columns, &bound) < 0) return NULL;
    PyObject *result = NULL;
    if (PyObject_GetBuffer(probe_out, &probe, PyBUF_WRITABLE) < 0) goto unbind;
    if (PyObject_GetBuffer(build_out, &build, PyBUF_WRITABLE) < 0) goto release;
    join_pairs_t pairs = {probe.buf, build.buf, 0, (probe.len < build.len ? probe.len : build.len) / 8, 1};
    join_place_t place = {row, link};
    if (row < 0 || link >= self->table.rows || link < -1 || !pairs.room) {
        PyErr_Format(PyExc_ValueError, "no probe goes on at row %lld with build row %lld and room for %lld pairs", row,
                     link, (long long)pairs.room);
    } else {
        join_probe(&self->table, bound.keys, bound.rows, outer, &pairs, &place);
        result = Py_BuildValue("(LLLO)", (long long)pairs.count, (long long)place.row, (long long)place.link,
                               pairs.is_run ? Py_True : Py_False);
    }
    PyBuffer_Release(&build);
release:
    PyBuffer_Release(&probe);
unbind:
    keys_unbind(&bound);
    return result;
}

/* contains(columns, out) -> None */
static PyObject *join_table_contains(JoinTable *self, PyObject *args) {
    PyObject *columns, *out_buffer;
    Py_buffer out;
    bound_keys_t bound;
    if (!PyArg_ParseTuple(args, "OO:contains", &columns, &out_buffer) || keys_bind(self, columns, &bound) < 0)
        return NULL;
    PyObject *result = NULL;
    if (PyObject_GetBuffer(out_buffer, &out, PyBUF_WRITABLE) < 0) goto unbind;
    if (out.len != bound.rows) {
        PyErr_Format(PyExc_ValueError, "out must have a byte for each of %lld rows, got %zd", (long long)bound.rows,
                     out.len);
    } else {
        join_contains(&self->table, bound.keys, bound.rows, out.buf);
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&out);
unbind:
    keys_unbind(&bound);
    return result;
}

static Py_ssize_t join_table_length(JoinTable *self) { return (Py_ssize_t)self->table.rows; }

static PyObject *join_table_keys(JoinTable *self, void *closure) {
    (void)closure;
    return PyLong_FromLongLong(self->table.used);
}

static PyObject *join_table_nbytes(JoinTable *self, void *closure) {
    (void)closure;
    return PyLong_FromSize_t(join_memory(&self->table));
}

static PyObject *join_table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":JoinTable", names)) return NULL;
    JoinTable *self = PyObject_New(JoinTable, type);
    if (!self) return NULL;
    if (join_open(&self->table) == JOIN_OK) return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return PyErr_NoMemory();
}

static void join_table_dealloc(JoinTable *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    join_close(&self->table);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef join_table_methods[] = {
    {"survey", (PyCFunction)join_table_survey, METH_O, "survey(columns) -> None: note keys that will be added"},
    {"add", (PyCFunction)join_table_add, METH_O, "add(columns) -> None: add rows; they get the next numbers"},
    {"probe", (PyCFunction)join_table_probe, METH_VARARGS,
     "probe(columns, row, link, outer, probe_out, build_out) -> (pairs, row, link, is_run): a step of finding pairs "
     "of equal keys"},
    {"contains", (PyCFunction)join_table_contains, METH_VARARGS,
     "contains(columns, out) -> None: whether each key is there"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef join_table_getset[] = {
    {"keys", (getter)join_table_keys, NULL, "Distinct keys.", NULL},
    {"nbytes", (getter)join_table_nbytes, NULL, "Bytes of memory.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot join_table_slots[] = {
    {Py_tp_new, join_table_new},         {Py_tp_dealloc, join_table_dealloc}, {Py_tp_methods, join_table_methods},
    {Py_tp_getset, join_table_getset},   {Py_sq_length, join_table_length},
    {Py_tp_doc, "JoinTable(): row numbers by their keys."},
    {0, NULL},
};

static PyType_Spec join_table_spec = {"shmjet._native._columns.JoinTable", sizeof(JoinTable), 0, Py_TPFLAGS_DEFAULT,
                                      join_table_slots};

PyMethodDef columns_join_methods[] = {
    {NULL, NULL, 0, NULL},
};

int columns_join_exec(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &join_table_spec, NULL);
    if (!type) return -1;
    int status = PyModule_AddObjectRef(module, "JoinTable", type);
    Py_DECREF(type);
    return status;
}
