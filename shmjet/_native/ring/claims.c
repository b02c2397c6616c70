/* Claims: the binding of claims.h. */
#include "ring/native.h"

#include "ring/claims.h"

typedef struct {
    PyObject_HEAD
    Py_buffer view;
    int is_open;
    claims_t *claims; /* NULL once closed */
    uint64_t cells;
} Claims;

static PyObject *claims_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"buffer", "offset", "cells", NULL};
    PyObject *buffer;
    Py_ssize_t offset, cells;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Onn:Claims", names, &buffer, &offset, &cells)) return NULL;
    if (cells < 1 || cells > (Py_ssize_t)1 << 24)
        return PyErr_Format(PyExc_ValueError, "there must be from 1 to 2**24 cells, got %zd", cells);
    Claims *self = PyObject_New(Claims, type);
    if (!self) return NULL;
    self->is_open = 0;
    self->claims = NULL;
    self->cells = (uint64_t)cells;
    uint8_t *memory;
    if (native_map(buffer, offset, (Py_ssize_t)CLAIMS_HEADER_SIZE + 8 * cells, &self->view, &memory) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    self->is_open = 1;
    self->claims = (claims_t *)(void *)memory;
    return (PyObject *)self;
}

static void claims_let_go(Claims *self) {
    self->claims = NULL;
    if (self->is_open) PyBuffer_Release(&self->view);
    self->is_open = 0;
}

static void claims_dealloc(Claims *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    claims_let_go(self);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* The number of a task, or 0 with an error set. */
static uint64_t number_of(const Claims *self, PyObject *value) {
    if (!self->claims) return PyErr_SetString(PyExc_ValueError, "the claims are closed"), 0;
    unsigned long long number = PyLong_AsUnsignedLongLong(value);
    if (number == (unsigned long long)-1 && PyErr_Occurred()) return 0;
    if (number == 0 || number >> 62) return PyErr_SetString(PyExc_ValueError, "tasks are numbered from 1"), 0;
    return number;
}

static PyObject *claims_put_py(Claims *self, PyObject *value) {
    uint64_t number = number_of(self, value);
    if (!number) return NULL;
    claims_put(self->claims, self->cells, number);
    Py_RETURN_NONE;
}

static PyObject *claims_put_several(Claims *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2) return PyErr_SetString(PyExc_TypeError, "put_several(first, count)"), NULL;
    uint64_t first = number_of(self, args[0]);
    if (!first) return NULL;
    unsigned long long tasks = PyLong_AsUnsignedLongLong(args[1]);
    if (tasks == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
    if (tasks > self->cells)
        return PyErr_Format(PyExc_ValueError, "%llu tasks do not fit into %llu cells", tasks,
                            (unsigned long long)self->cells);
    for (uint64_t i = 0; i < tasks; i++) claims_put(self->claims, self->cells, first + i);
    Py_RETURN_NONE;
}

static PyObject *claims_take_py(Claims *self, PyObject *value) {
    uint64_t number = number_of(self, value);
    return number ? PyBool_FromLong(claims_take(self->claims, self->cells, number, monotonic_ns())) : NULL;
}

static PyObject *claims_revoke_py(Claims *self, PyObject *value) {
    uint64_t number = number_of(self, value);
    return number ? PyBool_FromLong(claims_revoke(self->claims, self->cells, number)) : NULL;
}

static PyObject *claims_done_py(Claims *self, PyObject *none) {
    (void)none;
    if (!self->claims) return PyErr_SetString(PyExc_ValueError, "the claims are closed"), NULL;
    return PyLong_FromLongLong(claims_done(self->claims, monotonic_ns()));
}

static PyObject *claims_running(Claims *self, PyObject *none) {
    (void)none;
    if (!self->claims) return PyErr_SetString(PyExc_ValueError, "the claims are closed"), NULL;
    unsigned long long current = atomic_load_explicit(&self->claims->current, memory_order_acquire);
    long long started = atomic_load_explicit(&self->claims->started, memory_order_relaxed);
    return Py_BuildValue("(KL)", current, started);
}

static PyObject *claims_close(Claims *self, PyObject *none) {
    (void)none;
    claims_let_go(self);
    Py_RETURN_NONE;
}

static PyMethodDef claims_methods[] = {
    {"put", (PyCFunction)claims_put_py, METH_O, "put(number) -> None: this task is queued now"},
    {"put_several", (PyCFunction)(void (*)(void))claims_put_several, METH_FASTCALL,
     "put_several(first, count) -> None: so many tasks are queued now"},
    {"take", (PyCFunction)claims_take_py, METH_O, "take(number) -> bool: begin the task, if it may still be begun"},
    {"revoke", (PyCFunction)claims_revoke_py, METH_O,
     "revoke(number) -> bool: take the task back, if it has not begun"},
    {"done", (PyCFunction)claims_done_py, METH_NOARGS, "done() -> int: the task is over; the ns it took"},
    {"running", (PyCFunction)claims_running, METH_NOARGS, "running() -> (number or 0, ns at which it began)"},
    {"close", (PyCFunction)claims_close, METH_NOARGS, "close() -> None: let go of the memory"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot claims_slots[] = {
    {Py_tp_new, claims_new},
    {Py_tp_dealloc, claims_dealloc},
    {Py_tp_methods, claims_methods},
    {Py_tp_doc, "Claims(buffer, offset, cells): which side may have a task that is queued."},
    {0, NULL},
};

PyType_Spec claims_spec = {"shmjet._native._core.Claims", sizeof(Claims), 0, Py_TPFLAGS_DEFAULT, claims_slots};
