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
HIDDEN PyObject *journal_parts(PyObject *, PyObject *);
HIDDEN PyObject *journal_events(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *entries_survey(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *entries_move(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *entries_plain(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *entries_place(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *nans_unify(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *totals_add_up(PyObject *, PyObject *const *, Py_ssize_t);

/* Whether a value can be part of no cycle: a tuple of such values need not be looked at by the collector. */
static inline int is_atom(PyObject *value) {
    return value == Py_None || PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) ||
           PyBytes_CheckExact(value) || PyBool_Check(value);
}

#endif
