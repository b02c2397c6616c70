/* Sorting a list of Python objects by keys that are ints of 64 bits, or floats; whether a list ascends. */
#include "items/items.h"
#include "items/number_key.h"

/* Fills the pairs, 0 when a key is not of the type of the first. */
static int keys_of(const object_layout_t *layout, PyObject *items, PyObject *keys, Py_ssize_t count, uint64_t flip,
                   radix_pair_t *pairs) {
    PyTypeObject *type = Py_TYPE(layout_get_list(layout, keys, 0));
    if (!is_number_type(type)) return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint64_t word;
        if (!word_of(layout_get_list(layout, keys, i), type, &word)) return 0;
        pairs[i] = (radix_pair_t){word ^ flip, layout_get_list(layout, items, i)};
    }
    return 1;
}

/* sort_numbers(items, keys, reverse) -> bool. No Python code runs between reading the references and writing them
 * back. */
PyObject *ordering_sort_numbers(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 3 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || !PyBool_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "sort_numbers(items: list, keys: list, reverse: bool)");
        return NULL;
    }
    Py_ssize_t size = PyList_Size(args[0]);
    if (PyList_Size(args[1]) != size)
        return PyErr_Format(PyExc_ValueError, "%zd items, but %zd keys", size, PyList_Size(args[1]));
    if (size == 0) Py_RETURN_TRUE;
    PyObject **references = layout_list(layout, args[0]);
    if (!references) Py_RETURN_FALSE;
    radix_pair_t *pairs = PyMem_Malloc(2 * (size_t)size * sizeof *pairs);
    if (!pairs) return PyErr_NoMemory();
    int known = keys_of(layout, args[0], args[1], size, args[2] == Py_True ? UINT64_MAX : 0, pairs);
    if (known) {
        const radix_pair_t *sorted = radix_sort(pairs, pairs + size, (size_t)size);
        for (Py_ssize_t i = 0; i < size; i++) references[i] = sorted[i].item;
    }
    PyMem_Free(pairs);
    return PyBool_FromLong(known);
}

/* ascends(keys) -> bool | None. */
PyObject *ordering_ascends(PyObject *module, PyObject *keys) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (!PyList_CheckExact(keys)) return PyErr_SetString(PyExc_TypeError, "ascends(keys: list)"), NULL;
    Py_ssize_t size = PyList_Size(keys);
    if (size == 0) Py_RETURN_TRUE;
    PyTypeObject *type = Py_TYPE(layout_get_list(layout, keys, 0));
    int ascends = 1;
    if (type == &PyUnicode_Type) {
        ascends = ordering_texts_ascend(layout, keys);
        if (ascends < 0) Py_RETURN_NONE;
        return PyBool_FromLong(ascends);
    }
    if (!is_number_type(type)) Py_RETURN_NONE;
    uint64_t last = 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        uint64_t word;
        if (!word_of(layout_get_list(layout, keys, i), type, &word)) Py_RETURN_NONE;
        ascends &= last <= word;
        last = word;
    }
    return PyBool_FromLong(ascends);
}
