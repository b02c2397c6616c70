/* Whether an object is NaN: a float, a Decimal, a number of numpy. */
#ifndef SHMJET_NAN_H
#define SHMJET_NAN_H

#include <Python.h>
#include <math.h>

static inline int object_is_nan(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    if (PyFloat_Check(object)) return isnan(PyFloat_AsDouble(object));
    if (PyLong_Check(object) || !PyType_GetSlot(type, Py_nb_float)) return 0;
    PyObject *number = PyNumber_Float(object); /* numpy's smaller floats, Decimal */
    if (!number) return PyErr_Clear(), 0;
    int found = isnan(PyFloat_AsDouble(number));
    Py_DECREF(number);
    return found;
}

#endif
