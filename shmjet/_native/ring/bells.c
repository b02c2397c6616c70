/* Doorbell: sleeping until there is something to do, without losing a wake-up. Protocol in doorbell.h. */
#include "ring/poller.h"

#define LOOKS_PER_CLOCK 16
#define MOST_PAUSES 8

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
        PyErr_Format(PyExc_ValueError, "there is no 32-bit word at %zd in a buffer of %zd bytes", offset,
                     self->view.len);
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

/* Whether anything is there to be done. Only sequentially consistent loads: the check before sleeping. */
static int anything_ready(const doorbell_t *bell, PyObject *pollers, Py_ssize_t count, uint64_t seen_commands) {
    return atomic_load_explicit(&bell->commands, memory_order_seq_cst) != seen_commands ||
           pollers_any_ready(pollers, count);
}

/* Looks repeatedly for spin_ns. The pauses double up to a fraction of a microsecond, so that the lines which the
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
    if (pollers_any_fence_free(pollers, count)) timeout_ns = sleeper_fence(timeout_ns);
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
    PyObject *pollers = pollers_of(native_state(Py_TYPE((PyObject *)self)), args[0]);
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
