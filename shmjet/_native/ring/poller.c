/* Poller: what one tasklet waits for, consumers with data and producers with room, scanned in C. */
#include "ring/poller.h"

typedef struct {
    PyObject_HEAD
    RingConsumer **consumers;
    RingProducer **producers;
    Py_ssize_t consumer_count, producer_count;
    int inputs;
} Poller;

static int poller_is_ready(const Poller *self) {
    if (self->inputs)
        for (Py_ssize_t i = 0; i < self->consumer_count; i++) {
            const RingConsumer *consumer = self->consumers[i];
            if (consumer->enabled && consumer->ring.shared && ring_has_data(&consumer->ring)) return 1;
        }
    for (Py_ssize_t i = 0; i < self->producer_count; i++) {
        const RingProducer *producer = self->producers[i];
        if (producer->blocked && producer->ring.shared && ring_wake_mark_reached(&producer->ring)) return 1;
    }
    return 0;
}

int pollers_any_ready(PyObject *pollers, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (poller_is_ready((Poller *)PyTuple_GetItem(pollers, i))) return 1;
    return 0;
}

PyObject *pollers_of(const native_state_t *state, PyObject *list) {
    PyObject *pollers = state ? PyList_AsTuple(list) : NULL;
    Py_ssize_t count = pollers ? PyTuple_Size(pollers) : 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (Py_TYPE(PyTuple_GetItem(pollers, i)) != state->poller) {
            PyErr_SetString(PyExc_TypeError, "what is waited for is a list of Poller");
            Py_DECREF(pollers);
            return NULL;
        }
    return pollers;
}

int pollers_any_fence_free(PyObject *pollers, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        const Poller *self = (Poller *)PyTuple_GetItem(pollers, i);
        for (Py_ssize_t k = 0; self->inputs && k < self->consumer_count; k++) {
            const RingConsumer *consumer = self->consumers[k];
            if (consumer->enabled && consumer->ring.shared && ring_is_fence_free(&consumer->ring)) return 1;
        }
    }
    return 0;
}

/* Copies the objects of a list, checked for their type, into an array of new references. */
static int copy_objects(PyObject *list, PyTypeObject *type, PyObject ***array, Py_ssize_t *count) {
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "Poller(consumers: list[RingConsumer], producers: list[RingProducer])");
        return -1;
    }
    Py_ssize_t size = PyList_Size(list);
    *array = PyMem_Calloc(size ? (size_t)size : 1, sizeof(PyObject *));
    if (!*array) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PyList_GetItem(list, i);
        if (Py_TYPE(item) != type) {
            PyErr_SetString(PyExc_TypeError, "Poller(consumers: list[RingConsumer], producers: list[RingProducer])");
            return -1;
        }
        Py_INCREF(item);
        (*array)[(*count)++] = item;
    }
    return 0;
}

static PyObject *poller_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"consumers", "producers", NULL};
    PyObject *consumers, *producers;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Poller", names, &consumers, &producers)) return NULL;
    native_state_t *state = native_state(type);
    if (!state) return NULL;
    Poller *self = PyObject_New(Poller, type);
    if (!self) return NULL;
    self->consumers = NULL;
    self->producers = NULL;
    self->consumer_count = self->producer_count = 0;
    self->inputs = 1;
    if (copy_objects(consumers, state->consumer, (PyObject ***)&self->consumers, &self->consumer_count) < 0 ||
        copy_objects(producers, state->producer, (PyObject ***)&self->producers, &self->producer_count) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static void poller_dealloc(Poller *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (Py_ssize_t i = 0; i < self->consumer_count; i++) Py_DECREF((PyObject *)self->consumers[i]);
    for (Py_ssize_t i = 0; i < self->producer_count; i++) Py_DECREF((PyObject *)self->producers[i]);
    PyMem_Free(self->consumers);
    PyMem_Free(self->producers);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *poller_ready(Poller *self, PyObject *none) {
    (void)none;
    return PyBool_FromLong(poller_is_ready(self));
}

static PyObject *poller_ready_inputs(Poller *self, PyObject *none) {
    (void)none;
    PyObject *result = PyList_New(0);
    for (Py_ssize_t i = 0; result && i < self->consumer_count; i++) {
        const RingConsumer *consumer = self->consumers[i];
        if (!consumer->enabled || !consumer->ring.shared || !ring_has_data(&consumer->ring)) continue;
        PyObject *index = PyLong_FromSsize_t(i);
        if (!index || PyList_Append(result, index) < 0) Py_CLEAR(result);
        Py_XDECREF(index);
    }
    return result;
}

static PyObject *poller_get_inputs(Poller *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(self->inputs);
}

static int poller_set_inputs(Poller *self, PyObject *value, void *closure) {
    (void)closure;
    int truth = value ? PyObject_IsTrue(value) : 0;
    if (truth < 0) return -1;
    self->inputs = truth;
    return 0;
}

static PyMethodDef poller_methods[] = {
    {"ready", (PyCFunction)poller_ready, METH_NOARGS, "ready() -> bool"},
    {"ready_inputs", (PyCFunction)poller_ready_inputs, METH_NOARGS, "ready_inputs() -> list[int]"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef poller_getset[] = {
    {"inputs", (getter)poller_get_inputs, (setter)poller_set_inputs, "whether the consumers count", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot poller_slots[] = {
    {Py_tp_new, poller_new},         {Py_tp_dealloc, poller_dealloc},
    {Py_tp_methods, poller_methods}, {Py_tp_getset, poller_getset},
    {Py_tp_doc, "Poller(consumers, producers): what one tasklet waits for, scanned in C."},
    {0, NULL},
};

PyType_Spec poller_spec = {"shmjet._native._core.Poller", sizeof(Poller), 0, Py_TPFLAGS_DEFAULT, poller_slots};
