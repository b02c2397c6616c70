/* Doorbell and Poller: sleeping until there is something to do, without losing a wake-up. Protocol in doorbell.h. */
#include "native.h"

#define LOOKS_PER_CLOCK 16
#define MOST_PAUSES 8

typedef struct {
    PyObject_HEAD
    RingConsumer **consumers;
    RingProducer **producers;
    Py_ssize_t consumer_count, producer_count;
    int inputs;
} Poller;

/* ---- Doorbell ---- */

static void clear(Doorbell *self) {
    self->is_open = 0;
    self->bell = NULL;
    self->owner = NULL;
    self->targets = NULL;
    self->target_count = 0;
    self->eventfd = BELL_NO_EVENTFD;
}

static PyObject *doorbell_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"buffer", "offset", "eventfd", NULL};
    PyObject *buffer;
    Py_ssize_t offset;
    int eventfd = BELL_NO_EVENTFD;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "On|i:Doorbell", names, &buffer, &offset, &eventfd)) return NULL;
    Doorbell *self = PyObject_New(Doorbell, type);
    if (!self) return NULL;
    clear(self);
    self->eventfd = eventfd < 0 ? BELL_NO_EVENTFD : eventfd;
    uint8_t *memory;
    if (native_map(buffer, offset, DOORBELL_SIZE_BYTES, &self->view, &memory) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    self->is_open = 1;
    self->bell = (doorbell_t *)memory;
    return (PyObject *)self;
}

static void doorbell_release(Doorbell *self) {
    for (uint32_t i = 0; i < self->target_count; i++) Py_DECREF((PyObject *)self->targets[i]);
    PyMem_Free(self->targets);
    if (self->is_open) PyBuffer_Release(&self->view);
    clear(self);
}

/* Doorbell.of_owner(buffer, offset, bells): the word at the offset says which of the bells it is. */
static PyObject *doorbell_of_owner(PyObject *type, PyObject *args) {
    PyObject *buffer, *bells;
    Py_ssize_t offset;
    if (!PyArg_ParseTuple(args, "OnO:of_owner", &buffer, &offset, &bells)) return NULL;
    if (!PyList_Check(bells)) return PyErr_SetString(PyExc_TypeError, "of_owner() takes a list of Doorbell"), NULL;
    Doorbell *self = PyObject_New(Doorbell, (PyTypeObject *)type);
    if (!self) return NULL;
    clear(self);
    Py_ssize_t count = PyList_Size(bells);
    self->targets = PyMem_Calloc(count ? (size_t)count : 1, sizeof *self->targets);
    if (!self->targets) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *bell = PyList_GetItem(bells, i);
        if (Py_TYPE(bell) != (PyTypeObject *)type || ((Doorbell *)bell)->owner) {
            PyErr_SetString(PyExc_TypeError, "of_owner() takes a list of Doorbell, each of one process");
            goto failed;
        }
        Py_INCREF(bell);
        self->targets[self->target_count++] = (Doorbell *)bell;
    }
    if (PyObject_GetBuffer(buffer, &self->view, PyBUF_WRITABLE) < 0) goto failed;
    self->is_open = 1;
    if (offset < 0 || offset % 4 || offset > self->view.len - 4) {
        PyErr_Format(PyExc_ValueError, "there is no 32-bit word at %zd in a buffer of %zd bytes", offset, self->view.len);
        goto failed;
    }
    self->owner = (_Atomic uint32_t *)(void *)((uint8_t *)self->view.buf + offset);
    return (PyObject *)self;
failed:
    Py_DECREF((PyObject *)self);
    return NULL;
}

static PyObject *doorbell_get_owner(Doorbell *self, void *closure) {
    (void)closure;
    if (!self->owner) Py_RETURN_NONE;
    return PyLong_FromUnsignedLong(atomic_load_explicit(self->owner, memory_order_seq_cst));
}

static int doorbell_set_owner(Doorbell *self, PyObject *value, void *closure) {
    (void)closure;
    unsigned long owner = value ? PyLong_AsUnsignedLong(value) : 0;
    if (PyErr_Occurred()) return -1;
    if (!self->owner || !value || owner >= self->target_count) {
        PyErr_SetString(PyExc_ValueError, "only a bell of of_owner() has an owner, and it is one of its bells");
        return -1;
    }
    atomic_store_explicit(self->owner, (uint32_t)owner, memory_order_seq_cst);
    return 0;
}

static void doorbell_dealloc(Doorbell *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    doorbell_release(self);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static int doorbell_check(Doorbell *self) {
    if (LIKELY(self->bell != NULL)) return 0;
    PyErr_SetString(PyExc_ValueError, "the doorbell is closed");
    return -1;
}

static PyObject *doorbell_ring(Doorbell *self, PyObject *none) {
    (void)none;
    if (doorbell_check(self) < 0) return NULL;
    bell_ring_by(self->bell, self->eventfd);
    Py_RETURN_NONE;
}

static PyObject *doorbell_post(Doorbell *self, PyObject *none) {
    (void)none;
    if (doorbell_check(self) < 0) return NULL;
    bell_post_by(self->bell, self->eventfd);
    Py_RETURN_NONE;
}

static PyObject *doorbell_close(Doorbell *self, PyObject *none) {
    (void)none;
    doorbell_release(self);
    Py_RETURN_NONE;
}

static PyObject *doorbell_commands(Doorbell *self, void *closure) {
    (void)closure;
    if (doorbell_check(self) < 0) return NULL;
    return PyLong_FromUnsignedLongLong(atomic_load_explicit(&self->bell->commands, memory_order_seq_cst));
}

static PyObject *doorbell_sleeping(Doorbell *self, void *closure) {
    (void)closure;
    if (doorbell_check(self) < 0) return NULL;
    return PyBool_FromLong(atomic_load_explicit(&self->bell->sleeping, memory_order_seq_cst) != 0);
}

/* ---- Poller ---- */

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

/* Whether a ring that is waited for may have been published to without a fence. */
static int any_light(PyObject *pollers, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        const Poller *self = (Poller *)PyTuple_GetItem(pollers, i);
        for (Py_ssize_t k = 0; self->inputs && k < self->consumer_count; k++) {
            const RingConsumer *consumer = self->consumers[k];
            if (consumer->enabled && consumer->ring.shared && ring_is_light(&consumer->ring)) return 1;
        }
    }
    return 0;
}

/* Whether anything is there to be done. Only sequentially consistent loads: the check before sleeping. */
static int anything_ready(const doorbell_t *bell, PyObject *pollers, Py_ssize_t count, uint64_t seen_commands) {
    if (atomic_load_explicit(&bell->commands, memory_order_seq_cst) != seen_commands) return 1;
    for (Py_ssize_t i = 0; i < count; i++)
        if (poller_is_ready((Poller *)PyTuple_GetItem(pollers, i))) return 1;
    return 0;
}

/* Looks again and again for spin_ns. The pauses double up to a fraction of a microsecond, so that the lines which the
 * other side writes are left alone a little and small records arrive in company. */
static int spin_until_ready(const doorbell_t *bell, PyObject *pollers, Py_ssize_t count, uint64_t seen_commands,
                            int64_t spin_ns) {
    int64_t end = monotonic_ns() + spin_ns;
    int pauses = 1;
    do {
        for (int looks = 0; looks < LOOKS_PER_CLOCK; looks++) {
            if (anything_ready(bell, pollers, count, seen_commands)) return 1;
            for (int i = 0; i < pauses; i++) spin_pause();
            if (pauses < MOST_PAUSES) pauses *= 2;
        }
    } while (monotonic_ns() < end);
    return 0;
}

static PyObject *wait_for(Doorbell *self, PyObject *pollers, Py_ssize_t count, uint64_t seen_commands, int64_t spin_ns,
                          int64_t timeout_ns) {
    doorbell_t *bell = self->bell;
    if (anything_ready(bell, pollers, count, seen_commands)) Py_RETURN_TRUE;
    if (spin_ns > 0 && spin_until_ready(bell, pollers, count, seen_commands, spin_ns)) Py_RETURN_TRUE;
    if (timeout_ns <= 0) Py_RETURN_FALSE;
    uint32_t seen = bell_prepare(bell);
    if (any_light(pollers, count)) timeout_ns = light_fence(timeout_ns);
    if (anything_ready(bell, pollers, count, seen_commands)) {
        bell_stay(bell);
        Py_RETURN_TRUE;
    }
    /* Other threads may run now; an own reference keeps the mapping whatever they close. */
    Py_buffer pinned;
    if (PyObject_GetBuffer(self->view.obj, &pinned, PyBUF_WRITABLE) < 0) {
        bell_stay(bell);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    bell_sleep(bell, seen, timeout_ns);
    Py_END_ALLOW_THREADS
    int ready = anything_ready(bell, pollers, count, seen_commands);
    PyBuffer_Release(&pinned);
    return PyBool_FromLong(ready);
}

/* A tuple of the pollers in a list, which other threads may change; NULL with an exception when there is anything else. */
static PyObject *pollers_of(Doorbell *self, PyObject *list) {
    native_state_t *state = native_state(Py_TYPE((PyObject *)self));
    PyObject *pollers = state ? PyList_AsTuple(list) : NULL;
    Py_ssize_t count = pollers ? PyTuple_Size(pollers) : 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (Py_TYPE(PyTuple_GetItem(pollers, i)) != state->poller) {
            PyErr_SetString(PyExc_TypeError, "wait() and prepare() take a list of Poller");
            Py_DECREF(pollers);
            return NULL;
        }
    return pollers;
}

/* prepare(pollers, timeout_ns): the first half of wait(), for an owner that sleeps elsewhere. */
static PyObject *doorbell_prepare(Doorbell *self, PyObject *args) {
    PyObject *list;
    long long timeout_ns;
    if (doorbell_check(self) < 0 || !PyArg_ParseTuple(args, "OL:prepare", &list, &timeout_ns)) return NULL;
    PyObject *pollers = pollers_of(self, list);
    if (!pollers) return NULL;
    Py_ssize_t count = PyTuple_Size(pollers);
    uint64_t seen = atomic_load_explicit(&self->bell->commands, memory_order_seq_cst);
    bell_prepare(self->bell);
    if (any_light(pollers, count)) timeout_ns = light_fence(timeout_ns);
    if (anything_ready(self->bell, pollers, count, seen)) {
        bell_stay(self->bell);
        timeout_ns = 0;
    }
    Py_DECREF(pollers);
    return PyLong_FromLongLong(timeout_ns);
}

static PyObject *doorbell_stay(Doorbell *self, PyObject *none) {
    (void)none;
    if (doorbell_check(self) < 0) return NULL;
    bell_stay(self->bell);
    Py_RETURN_NONE;
}

static PyObject *doorbell_wait(Doorbell *self, PyObject *const *args, Py_ssize_t count) {
    if (doorbell_check(self) < 0) return NULL;
    if (count != 4 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "wait(pollers: list[Poller], seen_commands, spin_ns, timeout_ns)");
        return NULL;
    }
    unsigned long long seen_commands = PyLong_AsUnsignedLongLong(args[1]);
    if (seen_commands == (unsigned long long)-1 && PyErr_Occurred()) return NULL;
    long long spin_ns = PyLong_AsLongLong(args[2]);
    if (spin_ns == -1 && PyErr_Occurred()) return NULL;
    long long timeout_ns = PyLong_AsLongLong(args[3]);
    if (timeout_ns == -1 && PyErr_Occurred()) return NULL;
    PyObject *pollers = pollers_of(self, args[0]);
    if (!pollers) return NULL;
    PyObject *result = wait_for(self, pollers, PyTuple_Size(pollers), seen_commands, spin_ns, timeout_ns);
    Py_DECREF(pollers);
    return result;
}

#define FAST(name, function, doc) {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, doc}

static PyMethodDef doorbell_methods[] = {
    {"ring", (PyCFunction)doorbell_ring, METH_NOARGS, "ring() -> None: wake the owner, whatever the news"},
    {"post", (PyCFunction)doorbell_post, METH_NOARGS, "post() -> None: count a command and ring"},
    {"close", (PyCFunction)doorbell_close, METH_NOARGS, "close() -> None: let go of the memory"},
    {"of_owner", doorbell_of_owner, METH_VARARGS | METH_CLASS, "of_owner(buffer, offset, bells) -> Doorbell"},
    {"prepare", (PyCFunction)doorbell_prepare, METH_VARARGS, "prepare(pollers, timeout_ns) -> int"},
    {"stay", (PyCFunction)doorbell_stay, METH_NOARGS, "stay() -> None: do not sleep after all, or no longer"},
    FAST("wait", doorbell_wait, "wait(pollers, seen_commands, spin_ns, timeout_ns) -> bool"),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef doorbell_getset[] = {
    {"commands", (getter)doorbell_commands, NULL, "commands posted so far", NULL},
    {"owner", (getter)doorbell_get_owner, (setter)doorbell_set_owner, "index of the bell that is rung now", NULL},
    {"sleeping", (getter)doorbell_sleeping, NULL, "whether the owner sleeps or is about to", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot doorbell_slots[] = {
    {Py_tp_new, doorbell_new},         {Py_tp_dealloc, doorbell_dealloc},
    {Py_tp_methods, doorbell_methods}, {Py_tp_getset, doorbell_getset},
    {Py_tp_doc, "Doorbell(buffer, offset): how one process wakes another."},
    {0, NULL},
};

PyType_Spec doorbell_spec = {"shmjet._native._core.Doorbell", sizeof(Doorbell), 0, Py_TPFLAGS_DEFAULT, doorbell_slots};

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
