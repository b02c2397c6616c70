/* The functions about keys, numbers and times that the module offers. */
#ifndef SHMJET_ITEMS_H
#define SHMJET_ITEMS_H

#include "binding.h"

HIDDEN PyObject *ordering_sort_numbers(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *ordering_sort_texts(PyObject *, PyObject *const *, Py_ssize_t);
/* Whether a list of ASCII text ascends: 1 or 0; -1 when it has something else. */
HIDDEN int ordering_texts_ascend(const object_layout_t *, PyObject *);
HIDDEN PyObject *ordering_ascends(PyObject *, PyObject *);
HIDDEN PyObject *frames_cut(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *frames_cut_results(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *frames_keyed_results(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *nans_unify(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *totals_add_up(PyObject *, PyObject *const *, Py_ssize_t);

#endif
