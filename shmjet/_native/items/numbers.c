/* NumberSorter: ints of 64 bits, or floats, gathered without their objects and made anew in order (numbers.h). */
#include "items/number_key.h"
#include "items/numbers.h"

typedef struct {
    PyObject_HEAD
    numbers_t numbers;
    uint64_t flip;      /* all ones in descending order */
    PyTypeObject *kind; /* PyLong_Type or PyFloat_Type, NULL before the first number; both live for ever */
    const object_layout_t *layout;
} NumberSorter;

/* Fills the keys of a list; 0 when an item is not of the type of the first, or its number cannot be made anew. */
static int keys_of(NumberSorter *self, PyObject *items, Py_ssize_t count, PyTypeObject *kind, uint64_t *keys) {
    const uint64_t zero = kind == &PyFloat_Type ? radix_of_float(0.0) : UINT64_MAX;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = layout_get_list(self->layout, items, i);
        if (!word_of(item, kind, &keys[i])) return 0;
        /* -0.0 equals 0.0, but is another */
        if (keys[i] == zero && __builtin_signbit(PyFloat_AsDouble(item))) return 0;
        keys[i] ^= self->flip;
    }
    return 1;
}

static PyObject *sorter_add(NumberSorter *self, PyObject *items) {
    if (!PyList_CheckExact(items)) return PyErr_SetString(PyExc_TypeError, "add(items: list)"), NULL;
    if (self->numbers.is_merging) return PyErr_SetString(PyExc_ValueError, "add() after take()"), NULL;
    Py_ssize_t count = PyList_Size(items);
    if (count == 0) Py_RETURN_TRUE;
    PyTypeObject *kind = self->kind ? self->kind : Py_TYPE(layout_get_list(self->layout, items, 0));
    if (!is_number_type(kind)) Py_RETURN_FALSE;
    uint64_t *keys = PyMem_Malloc((size_t)count * sizeof *keys);
    if (!keys) return PyErr_NoMemory();
    int known = keys_of(self, items, count, kind, keys);
    size_t added = known ? numbers_add(&self->numbers, keys, (size_t)count) : 0;
    PyMem_Free(keys);
    if (!known) Py_RETURN_FALSE;
    if (added < (size_t)count) return PyErr_NoMemory();
    self->kind = kind;
    Py_RETURN_TRUE;
}

static PyObject *number_of(const NumberSorter *self, uint64_t key) {
    key ^= self->flip;
    return self->kind == &PyLong_Type ? PyLong_FromLongLong(int_of_radix(key))
                                      : PyFloat_FromDouble(float_of_radix(key));
}

static PyObject *sorter_take(NumberSorter *self, PyObject *argument) {
    Py_ssize_t limit = PyLong_AsSsize_t(argument);
    if (limit == -1 && PyErr_Occurred()) return NULL;
    if (limit < 1) return PyErr_Format(PyExc_ValueError, "take(limit): at least 1, got %zd", limit);
    const uint64_t *keys = NULL;
    size_t count = numbers_next(&self->numbers, (size_t)limit, &keys);
    if (count == SIZE_MAX) return PyErr_NoMemory();
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *number = number_of(self, keys[i]);
        if (!number) {
            Py_CLEAR(list);
            break;
        }
        layout_set_list(self->layout, list, (Py_ssize_t)i, number);
    }
    return list;
}

static Py_ssize_t sorter_length(NumberSorter *self) { return (Py_ssize_t)self->numbers.left; }

static PyObject *sorter_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"reverse", NULL};
    int reverse = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p:NumberSorter", names, &reverse)) return NULL;
    native_state_t *state = native_state(type);
    NumberSorter *self = state ? PyObject_New(NumberSorter, type) : NULL;
    if (!self) return NULL;
    numbers_init(&self->numbers);
    self->flip = reverse ? UINT64_MAX : 0;
    self->kind = NULL;
    self->layout = &state->layout;
    return (PyObject *)self;
}

static void sorter_dealloc(NumberSorter *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    numbers_free(&self->numbers);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef sorter_methods[] = {
    {"add", (PyCFunction)sorter_add, METH_O,
     "add(items) -> bool: False when they are not all numbers of one kind; then none is taken"},
    {"take", (PyCFunction)sorter_take, METH_O, "take(limit) -> list: the next numbers in order, none at the end"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sorter_slots[] = {
    {Py_tp_new, sorter_new},         {Py_tp_dealloc, sorter_dealloc},
    {Py_tp_methods, sorter_methods}, {Py_sq_length, sorter_length},
    {Py_tp_doc, "NumberSorter(reverse=False): ints of 64 bits, or floats, given back in order."},
    {0, NULL},
};

PyType_Spec number_sorter_spec = {"shmjet._native._core.NumberSorter", sizeof(NumberSorter), 0, Py_TPFLAGS_DEFAULT,
                                  sorter_slots};
