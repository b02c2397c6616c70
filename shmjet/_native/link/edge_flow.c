/* EdgeFlow: what one edge has moved in one direction between this member and a peer, counted by the packet kernels. */
#include "link/edge_flow.h"

#include <structmember.h>

static PyObject *flow_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"bounded", "words", "due", NULL};
    int bounded = 0;
    PyObject *words = Py_None, *due = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|pOO!:EdgeFlow", names, &bounded, &words, &PyList_Type, &due))
        return NULL;
    EdgeFlow *self = PyObject_New(EdgeFlow, type);
    if (!self) return NULL;
    self->bytes = self->acked = self->items = 0;
    self->renew_at = UINT64_MAX;
    self->limit = 0;
    Py_XINCREF(due);
    self->due = due;
    self->bounded = bounded;
    self->has_words = 0;
    if (words == Py_None) return (PyObject *)self;
    if (PyObject_GetBuffer(words, &self->words, PyBUF_WRITABLE) == 0) {
        self->has_words = 1;
        if (self->words.len == 16 && (uintptr_t)self->words.buf % 8 == 0) return (PyObject *)self;
        PyErr_SetString(PyExc_ValueError, "words are two of 64 bits, aligned");
    }
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void let_go(EdgeFlow *self) {
    if (self->has_words) PyBuffer_Release(&self->words);
    self->has_words = 0;
    Py_CLEAR(self->due);
}

static void flow_dealloc(EdgeFlow *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    let_go(self);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *flow_close(EdgeFlow *self, PyObject *none) {
    (void)none;
    let_go(self);
    Py_RETURN_NONE;
}

static PyObject *flow_note(EdgeFlow *self, PyObject *args) {
    unsigned long long items, bytes;
    if (!PyArg_ParseTuple(args, "KK:note", &items, &bytes)) return NULL;
    edge_flow_note(self, items, bytes);
    Py_RETURN_NONE;
}

static PyObject *flow_took(EdgeFlow *self, PyObject *args) {
    unsigned long long items, bytes;
    if (!PyArg_ParseTuple(args, "KK:took", &items, &bytes) || edge_flow_took(self, items, bytes) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *flow_get_open(EdgeFlow *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(edge_flow_is_open(self));
}

static PyMethodDef flow_methods[] = {
    {"note", (PyCFunction)flow_note, METH_VARARGS, "note(items, bytes) -> None: add to the words"},
    {"took", (PyCFunction)flow_took, METH_VARARGS, "took(items, bytes) -> None: rings have taken these"},
    {"close", (PyCFunction)flow_close, METH_NOARGS, "close() -> None: let go of the words"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef flow_members[] = {
    {"bytes", T_ULONGLONG, offsetof(EdgeFlow, bytes), 0, "bytes of payload that have come or gone"},
    {"acked", T_ULONGLONG, offsetof(EdgeFlow, acked), 0, "bytes that rings have taken"},
    {"items", T_ULONGLONG, offsetof(EdgeFlow, items), 0, "items in them"},
    {"renew_at", T_ULONGLONG, offsetof(EdgeFlow, renew_at), 0, "`acked` at which this is put into `due`, once"},
    {"limit", T_INT, offsetof(EdgeFlow, limit), 0, "the block of 64 KiB up to which a sender may go"},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef flow_getset[] = {
    {"is_open", (getter)flow_get_open, NULL, "whether another packet may be sent now", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot flow_slots[] = {
    {Py_tp_new, flow_new},
    {Py_tp_dealloc, flow_dealloc},
    {Py_tp_methods, flow_methods},
    {Py_tp_members, flow_members},
    {Py_tp_getset, flow_getset},
    {Py_tp_doc, "EdgeFlow(bounded=False, words=None, due=[]): what an edge has moved to or from one peer."},
    {0, NULL},
};

PyType_Spec edge_flow_spec = {"shmjet._native._core.EdgeFlow", sizeof(EdgeFlow), 0, Py_TPFLAGS_DEFAULT, flow_slots};
