/* The functions about keys and numbers that the module offers. */
#ifndef SHMJET_ITEMS_H
#define SHMJET_ITEMS_H

#include "binding.h"

HIDDEN PyObject *ordering_sort_numbers(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *ordering_sort_texts(PyObject *, PyObject *const *, Py_ssize_t);
/* Whether a list of ASCII text ascends: 1 or 0; -1 when it has something else. */
HIDDEN int ordering_texts_ascend(const object_layout_t *, PyObject *);
HIDDEN PyObject *ordering_ascends(PyObject *, PyObject *);
HIDDEN PyObject *nans_unify(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *totals_add_up(PyObject *, PyObject *const *, Py_ssize_t);

#endif
