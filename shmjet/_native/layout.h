/* Where lists and tuples keep their items, found out when the module is loaded.
 *
 * The stable ABI reaches them only by a function call for each item, which costs the codec 15-25 %. Every CPython so
 * far keeps a list's items behind a pointer after the variable-size header, and a tuple's inside the object at the
 * type's basic size (24 bytes until 3.13, 32 from 3.14 on). Both are probed on real objects; where a probe fails, the
 * offset stays 0 and the functions are called. So one binary serves every version and never relies on a layout that it
 * has not seen. */
#ifndef SHMJET_LAYOUT_H
#define SHMJET_LAYOUT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    Py_ssize_t list_items;  /* offset of the pointer to the items; 0 = unknown */
    Py_ssize_t tuple_items; /* offset of the first item; 0 = unknown */
} object_layout_t;

static inline Py_ssize_t layout_basic_size(PyTypeObject *type) {
    PyObject *size = PyObject_GetAttrString((PyObject *)type, "__basicsize__");
    Py_ssize_t value = size ? PyLong_AsSsize_t(size) : -1;
    Py_XDECREF(size);
    PyErr_Clear();
    return value;
}

static inline void layout_probe(object_layout_t *layout) {
    PyObject *probes[3] = {Py_None, Py_True, Py_False};
    PyObject *tuple = PyTuple_Pack(3, probes[0], probes[1], probes[2]);
    PyObject *list = tuple ? PySequence_List(tuple) : NULL;
    layout->list_items = layout->tuple_items = 0;
    Py_ssize_t offset = layout_basic_size(&PyTuple_Type);
    if (tuple && offset >= (Py_ssize_t)sizeof(PyVarObject) && offset <= 64 && offset % sizeof(void *) == 0 &&
        memcmp((char *)tuple + offset, probes, sizeof probes) == 0)
        layout->tuple_items = offset;
    offset = (Py_ssize_t)sizeof(PyVarObject);
    if (list && layout_basic_size(&PyList_Type) == offset + 2 * (Py_ssize_t)sizeof(void *)) {
        PyObject **items;
        memcpy(&items, (char *)list + offset, sizeof items);
        if (items && (uintptr_t)items % sizeof(void *) == 0 && memcmp(items, probes, sizeof probes) == 0)
            layout->list_items = offset;
    }
    PyErr_Clear();
    Py_XDECREF(list);
    Py_XDECREF(tuple);
}

/* The items of a list or tuple as an array, or NULL when the layout is unknown. */
static inline PyObject **layout_list(const object_layout_t *layout, PyObject *list) {
    return layout->list_items ? *(PyObject ***)((char *)list + layout->list_items) : NULL;
}

static inline PyObject **layout_tuple(const object_layout_t *layout, PyObject *tuple) {
    return layout->tuple_items ? (PyObject **)((char *)tuple + layout->tuple_items) : NULL;
}

/* Gives a new list or tuple a reference. */
static inline void layout_set_list(const object_layout_t *layout, PyObject *list, Py_ssize_t i, PyObject *item) {
    PyObject **items = layout_list(layout, list);
    if (items)
        items[i] = item;
    else
        PyList_SetItem(list, i, item);
}

static inline void layout_set_tuple(const object_layout_t *layout, PyObject *tuple, Py_ssize_t i, PyObject *item) {
    PyObject **items = layout_tuple(layout, tuple);
    if (items)
        items[i] = item;
    else
        PyTuple_SetItem(tuple, i, item);
}

static inline PyObject *layout_get_list(const object_layout_t *layout, PyObject *list, Py_ssize_t i) {
    PyObject **items = layout_list(layout, list);
    return items ? items[i] : PyList_GetItem(list, i);
}

static inline PyObject *layout_get_tuple(const object_layout_t *layout, PyObject *tuple, Py_ssize_t i) {
    PyObject **items = layout_tuple(layout, tuple);
    return items ? items[i] : PyTuple_GetItem(tuple, i);
}

/* A tuple without items of a class of named tuples. As tuple.__new__ makes it: what lies between the head of the object
 * and its items is the cached hash (from 3.14 on), which is -1 until it is known. */
static inline PyObject *layout_new_named(const object_layout_t *layout, PyTypeObject *type, Py_ssize_t arity) {
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *tuple = alloc(type, arity);
    if (tuple && layout->tuple_items)
        memset((char *)tuple + sizeof(PyVarObject), 0xff, (size_t)layout->tuple_items - sizeof(PyVarObject));
    return tuple;
}

#endif
