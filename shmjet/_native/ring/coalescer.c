/* Coalescer: coalescer.h as a Python object, which also takes the watermarks of many rings in one call. */
#include "ring/native.h"

#include "ring/coalescer.h"
#include "ring/ring_run.h"

typedef struct {
    PyObject_HEAD
    coalescer_t state;
    PyObject *error;
    PyTypeObject *consumer_type;
} Coalescer;

static PyObject *coalescer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"input_count", "error", NULL};
    Py_ssize_t count;
    PyObject *error;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "nO:Coalescer", names, &count, &error)) return NULL;
    native_state_t *module = native_state(type);
    if (!module) return NULL;
    if (count < 0 || count > 1 << 24 || !PyExceptionClass_Check(error)) {
        PyErr_SetString(PyExc_ValueError, "Coalescer(input_count: int from 0 to 2**24, error: type[Exception])");
        return NULL;
    }
    Coalescer *self = PyObject_New(Coalescer, type);
    if (!self) return NULL;
    self->consumer_type = module->consumer;
    self->state.values = PyMem_Malloc((size_t)(count ? count : 1) * sizeof(int64_t));
    self->state.states = PyMem_Malloc((size_t)(count ? count : 1));
    Py_INCREF(error);
    self->error = error;
    if (!self->state.values || !self->state.states) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    coalescer_start(&self->state, count);
    return (PyObject *)self;
}

static void coalescer_dealloc(Coalescer *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyMem_Free(self->state.values);
    PyMem_Free(self->state.states);
    Py_XDECREF(self->error);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *number_or_none(int64_t value) {
    if (value == COALESCER_NONE) Py_RETURN_NONE;
    return PyLong_FromLongLong(value);
}

static int input_of(Coalescer *self, PyObject *number, int64_t *input) {
    *input = PyLong_AsLongLong(number);
    if (*input == -1 && PyErr_Occurred()) return -1;
    if (*input >= 0 && *input < self->state.count) return 0;
    PyErr_Format(PyExc_IndexError, "there is no input %lld of %lld", (long long)*input, (long long)self->state.count);
    return -1;
}

static PyObject *raise_ended(Coalescer *self, int64_t input, const char *what) {
    PyErr_Format(self->error, "input %lld has ended, yet %s", (long long)input, what);
    return NULL;
}

/* Notes a watermark; -1 with an exception. */
static int observe(Coalescer *self, int64_t input, int64_t timestamp, int64_t *out) {
    int64_t previous = self->state.values[input];
    int status = coalescer_watermark(&self->state, input, timestamp, out);
    if (LIKELY(status == COALESCER_OK)) return 0;
    if (status == COALESCER_ENDED)
        PyErr_Format(self->error, "input %lld has ended, yet Watermark(timestamp=%lld) came on it", (long long)input,
                     (long long)timestamp);
    else
        PyErr_Format(self->error, "watermarks must rise: input %lld brought %lld after %lld", (long long)input,
                     (long long)timestamp, (long long)previous);
    return -1;
}

static PyObject *coalescer_observe_event(Coalescer *self, PyObject *number) {
    int64_t input;
    if (input_of(self, number, &input) < 0) return NULL;
    if (coalescer_event(&self->state, input) < 0) return raise_ended(self, input, "an item came on it");
    Py_RETURN_NONE;
}

static PyObject *coalescer_observe_watermark(Coalescer *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2) return PyErr_SetString(PyExc_TypeError, "observe_watermark(input, timestamp)"), NULL;
    int64_t input, out;
    if (input_of(self, args[0], &input) < 0) return NULL;
    long long timestamp = PyLong_AsLongLong(args[1]);
    if (timestamp == -1 && PyErr_Occurred()) return NULL;
    return observe(self, input, timestamp, &out) < 0 ? NULL : number_or_none(out);
}

static PyObject *coalescer_input_done(Coalescer *self, PyObject *number) {
    int64_t input, out;
    if (input_of(self, number, &input) < 0) return NULL;
    if (coalescer_done(&self->state, input, &out) < 0) return raise_ended(self, input, "its end came once more");
    return number_or_none(out);
}

static PyObject *coalescer_take_pending(Coalescer *self, PyObject *none) {
    (void)none;
    return number_or_none(coalescer_pending(&self->state));
}

/* Takes the watermarks at the head of one ring until one is to be passed on. 1 = something else lies behind them, 0 =
 * nothing does, -1 = exception. */
static int take_head(Coalescer *self, RingConsumer *consumer, int64_t input, int64_t *out, int *took) {
    ring_consumer_t *ring = &consumer->ring;
    while (ring->shared && !consumer->is_holding && !consumer->is_relaying && ring_has_data(ring)) {
        uint64_t position = ring->position, seen = ring->items_seen;
        ring_record_t record;
        int status = ring_next_counted(ring, &record);
        if (status == RUN_NONE) return 0;
        int64_t timestamp;
        if (status < 0 || record.header.kind != KIND_WATERMARK || record.header.length != sizeof timestamp) {
            ring_unread(ring, position); /* the next pull meets it again, damage included */
            ring->items_seen = seen;
            if (status > 0 && record.header.kind != KIND_BARRIER && record.header.kind != KIND_DONE)
                coalescer_event(&self->state, input); /* items have come: the input holds the others back */
            return 1;
        }
        memcpy(&timestamp, record.payload, sizeof timestamp);
        consumer_give_back(consumer);
        *took = 1;
        if (observe(self, input, timestamp, out) < 0) return -1;
        if (*out != COALESCER_NONE) return ring_has_data(ring);
    }
    return ring->shared && ring_has_data(ring);
}

/* take(consumers, inputs, first): goes round the enabled consumers, from the first whose input is not below `first`. */
static PyObject *coalescer_take(Coalescer *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyList_Check(args[0]) || !PyList_Check(args[1]) ||
        PyList_Size(args[0]) != PyList_Size(args[1])) {
        PyErr_SetString(PyExc_TypeError, "take(consumers: list[RingConsumer], inputs: list[int], first: int)");
        return NULL;
    }
    Py_ssize_t size = PyList_Size(args[0]), first = PyLong_AsSsize_t(args[2]), start = 0;
    if (first == -1 && PyErr_Occurred()) return NULL;
    while (start < size && PyLong_AsSsize_t(PyList_GetItem(args[1], start)) < first) start++;
    if (PyErr_Occurred()) return NULL;
    PyObject *ready = PyList_New(0);
    int64_t out = COALESCER_NONE, input = 0;
    int took = 0;
    for (Py_ssize_t n = 0; ready && n < size && out == COALESCER_NONE; n++) {
        Py_ssize_t at = start + n < size ? start + n : start + n - size;
        PyObject *object = PyList_GetItem(args[0], at), *number = PyList_GetItem(args[1], at);
        if (Py_TYPE(object) != self->consumer_type) {
            PyErr_SetString(PyExc_TypeError, "a RingConsumer is needed");
            Py_CLEAR(ready);
            break;
        }
        RingConsumer *consumer = (RingConsumer *)object;
        if (!consumer->enabled || !consumer->ring.shared || !ring_has_data(&consumer->ring)) continue;
        int more = input_of(self, number, &input) < 0 ? -1 : take_head(self, consumer, input, &out, &took);
        if (more < 0 || (more && out == COALESCER_NONE && PyList_Append(ready, number) < 0)) Py_CLEAR(ready);
    }
    if (!ready) return NULL;
    if (out == COALESCER_NONE) return Py_BuildValue("(NOOn)", ready, Py_None, took ? Py_True : Py_False, first);
    return Py_BuildValue("(NLOn)", ready, (long long)out, Py_True, (Py_ssize_t)(input + 1));
}

/* follow(consumer, input): the watermarks at the head of one ring. */
static PyObject *coalescer_follow(Coalescer *self, PyObject *const *args, Py_ssize_t count) {
    int64_t input, out = COALESCER_NONE;
    int took = 0;
    if (count != 2 || Py_TYPE(args[0]) != self->consumer_type)
        return PyErr_SetString(PyExc_TypeError, "follow(consumer: RingConsumer, input: int)"), NULL;
    if (input_of(self, args[1], &input) < 0) return NULL;
    if (take_head(self, (RingConsumer *)args[0], input, &out, &took) < 0) return NULL;
    return number_or_none(out);
}

static PyObject *coalescer_slowest_input(Coalescer *self, void *closure) {
    (void)closure;
    int64_t lowest = COALESCER_NONE, input = coalescer_slowest(&self->state, &lowest);
    return Py_BuildValue("(LN)", (long long)input, number_or_none(lowest));
}

static PyObject *coalescer_number(Coalescer *self, void *closure) {
    return number_or_none(*(const char *)closure == 't' ? self->state.top : self->state.last);
}

static PyObject *coalescer_is_pending(Coalescer *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(self->state.idle_pending != 0);
}

static PyObject *coalescer_is_idle(Coalescer *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(self->state.all_idle != 0);
}

/* The state as bytes, for a twin in another process of this host. */
static PyObject *coalescer_getstate(Coalescer *self, PyObject *none) {
    (void)none;
    const coalescer_t *c = &self->state;
    const int64_t words[] = {c->count, c->live, c->active, c->holding, c->last, c->top, c->all_idle, c->idle_pending};
    return Py_BuildValue("(y#y#y#)", (const char *)words, (Py_ssize_t)sizeof words, (const char *)c->values,
                         (Py_ssize_t)c->count * 8, (const char *)c->states, (Py_ssize_t)c->count);
}

static PyObject *coalescer_reduce(Coalescer *self, PyObject *none) {
    PyObject *state = coalescer_getstate(self, none);
    if (!state) return NULL;
    return Py_BuildValue("(O(nO)N)", (PyObject *)Py_TYPE((PyObject *)self), (Py_ssize_t)self->state.count, self->error,
                         state);
}

static PyObject *coalescer_setstate(Coalescer *self, PyObject *state) {
    coalescer_t *c = &self->state;
    const char *words, *values, *states;
    Py_ssize_t size, value_size, state_size;
    int64_t read[8];
    if (!PyTuple_Check(state) ||
        !PyArg_ParseTuple(state, "y#y#y#", &words, &size, &values, &value_size, &states, &state_size))
        return PyErr_Occurred() ? NULL : (PyErr_SetString(PyExc_TypeError, "a state is a tuple"), NULL);
    if (size != sizeof read || (memcpy(read, words, sizeof read), read[0] != c->count) || value_size != c->count * 8 ||
        state_size != c->count) {
        PyErr_SetString(PyExc_ValueError, "this is the state of another number of inputs");
        return NULL;
    }
    memcpy(c->values, values, (size_t)value_size);
    memcpy(c->states, states, (size_t)state_size);
    c->live = read[1], c->active = read[2], c->holding = read[3], c->last = read[4], c->top = read[5];
    c->all_idle = read[6], c->idle_pending = read[7];
    Py_RETURN_NONE;
}

#define FAST(name, function, doc) {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, doc}

static PyMethodDef coalescer_methods[] = {
    {"observe_event", (PyCFunction)coalescer_observe_event, METH_O, "observe_event(input) -> None"},
    FAST("observe_watermark", coalescer_observe_watermark, "observe_watermark(input, timestamp) -> int | None"),
    {"input_done", (PyCFunction)coalescer_input_done, METH_O, "input_done(input) -> int | None"},
    {"pending", (PyCFunction)coalescer_take_pending, METH_NOARGS, "pending() -> int | None"},
    FAST("take", coalescer_take, "take(consumers, inputs, first) -> (ready inputs, int | None, took any, next first)"),
    FAST("follow", coalescer_follow, "follow(consumer, input) -> int | None"),
    {"__reduce__", (PyCFunction)coalescer_reduce, METH_NOARGS, NULL},
    {"__setstate__", (PyCFunction)coalescer_setstate, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef coalescer_getset[] = {
    {"coalesced", (getter)coalescer_number, NULL, "the last watermark passed on, or None", "c"},
    {"top_observed", (getter)coalescer_number, NULL, "the highest watermark seen, or None", "t"},
    {"slowest", (getter)coalescer_slowest_input, NULL, "the active input with the lowest watermark, and that", NULL},
    {"is_idle", (getter)coalescer_is_idle, NULL, "whether the idle message was the last that was passed on", NULL},
    {"is_pending", (getter)coalescer_is_pending, NULL, "whether pending() would return the idle message", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot coalescer_slots[] = {
    {Py_tp_new, coalescer_new},
    {Py_tp_dealloc, coalescer_dealloc},
    {Py_tp_methods, coalescer_methods},
    {Py_tp_getset, coalescer_getset},
    {Py_tp_doc, "Coalescer(input_count, error): what may be passed on after watermarks on several inputs."},
    {0, NULL},
};

PyType_Spec coalescer_spec = {"shmjet._native._core.Coalescer", sizeof(Coalescer), 0, Py_TPFLAGS_DEFAULT,
                              coalescer_slots};
