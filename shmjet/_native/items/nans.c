/* NaN in keys: every NaN becomes one object, which a dict finds by its identity. No NaN equals another, so without
 * that a key would be found again or not depending on whether its object was copied on the way. */
#include "items/nan.h"
#include "items/items.h"

/* Whether a key is surely none and has none inside: the quick answer for nearly all keys. */
static int is_plain(const object_layout_t *layout, PyObject *key, int depth) {
    PyTypeObject *type = Py_TYPE(key);
    if (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyBytes_Type) return 1;
    if (type == &PyFloat_Type) return !isnan(PyFloat_AsDouble(key));
    PyObject **parts = type == &PyTuple_Type && depth > 0 ? layout_tuple(layout, key) : NULL;
    if (!parts) return 0;
    for (Py_ssize_t i = 0, size = Py_SIZE(key); i < size; i++)
        if (!is_plain(layout, parts[i], depth - 1)) return 0;
    return 1;
}

static PyObject *without_nans(PyObject *key, PyObject *nan);

/* A tuple with other parts, of the same class; the tuple itself when no part changes. A new reference. */
static PyObject *tuple_without_nans(PyObject *tuple, PyObject *nan) {
    Py_ssize_t size = PyTuple_Size(tuple);
    PyObject *changed = NULL;
    if (Py_TYPE(tuple) != &PyTuple_Type && PyObject_HasAttrString(tuple, "__dict__")) return Py_NewRef(tuple);
    if (Py_EnterRecursiveCall(" in a key")) return NULL;
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *part = PyTuple_GetItem(tuple, i), *now = without_nans(part, nan);
        if (!now) {
            Py_CLEAR(changed);
            Py_LeaveRecursiveCall();
            return NULL;
        }
        if (now != part && !changed) changed = PySequence_List(tuple);
        if (now == part || !changed) {
            Py_DECREF(now);
            if (now != part) break; /* no memory for the list */
        } else {
            PyList_SetItem(changed, i, now);
        }
    }
    Py_LeaveRecursiveCall();
    if (PyErr_Occurred()) return Py_XDECREF(changed), NULL;
    if (!changed) return Py_NewRef(tuple);
    PyObject *made = PyList_AsTuple(changed);
    Py_DECREF(changed);
    if (made && Py_TYPE(tuple) != &PyTuple_Type) {
        PyObject *named = PyObject_CallMethod((PyObject *)&PyTuple_Type, "__new__", "OO", Py_TYPE(tuple), made);
        Py_DECREF(made);
        made = named;
    }
    return made;
}

static PyObject *without_nans(PyObject *key, PyObject *nan) {
    if (PyTuple_Check(key)) return tuple_without_nans(key, nan);
    return Py_NewRef(object_is_nan(key) ? nan : key);
}

/* unify_nans(keys, nan) -> list: the same list when there is none. */
PyObject *nans_unify(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 2 || !PyList_CheckExact(args[0]))
        return PyErr_SetString(PyExc_TypeError, "unify_nans(keys: list, nan)"), NULL;
    PyObject *keys = args[0], *changed = NULL;
    for (Py_ssize_t i = 0; i < PyList_Size(keys); i++) {
        PyObject *key = layout_get_list(layout, keys, i);
        if (is_plain(layout, key, 4)) continue;
        Py_INCREF(key); /* what a class of the user's runs may change the list */
        PyObject *now = without_nans(key, args[1]);
        int same = now == key;
        Py_DECREF(key);
        if (now && !same && !changed) changed = PyList_GetSlice(keys, 0, PyList_Size(keys));
        if (!now || (!same && !changed)) {
            Py_XDECREF(now);
            Py_XDECREF(changed);
            return NULL;
        }
        if (same)
            Py_DECREF(now);
        else if (PyList_SetItem(changed, i, now) < 0)
            return Py_DECREF(changed), NULL;
    }
    return changed ? changed : Py_NewRef(keys);
}
