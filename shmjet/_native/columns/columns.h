/* A column of a batch as the kernels see it, and how a kernel gets it from Python. Included first by every columns_*.c.
 *
 * The kernels themselves (hash.h, scatter.h, group.h, text.h, sort.h, join.h) contain no Python and take a `column_t`.
 */
#ifndef SHMJET_COLUMNS_H
#define SHMJET_COLUMNS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "columns/column.h"

#define HIDDEN __attribute__((visibility("hidden")))
#define FAST(name, function, doc) {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, doc}

/* A column and the buffers that keep its memory. */
typedef struct {
    column_t column;
    Py_buffer views[3];
    int view_count;
} bound_column_t;

/* Reads a descriptor: the tuple (kind: str of one character, itemsize: int, rows: int, data, offsets or None, valid or
 * None). Buffers may have any alignment. Checks that they are long enough, that offsets ascend and lie in the data.
 * Returns 0, or -1 with an exception set and nothing held. */
HIDDEN int column_bind(PyObject *descriptor, bound_column_t *bound);
HIDDEN void column_unbind(bound_column_t *bound);

/* Binds each descriptor of a tuple or list; all columns must have the same number of rows. The caller frees with
 * columns_unbind(). Returns NULL with an exception set. */
HIDDEN bound_column_t *columns_bind(PyObject *descriptors, Py_ssize_t *count);
HIDDEN void columns_unbind(bound_column_t *bound, Py_ssize_t count);

/* One table of functions for each kernel; columns/module.c adds them all. A kernel that has types adds them in
 * its `*_exec` function. */
extern HIDDEN PyMethodDef columns_hash_methods[], columns_scatter_methods[], columns_group_methods[],
    columns_text_methods[], columns_sort_methods[], columns_join_methods[], columns_rows_methods[],
    columns_csv_methods[], columns_csv_write_methods[], columns_text_functions_methods[], columns_arithmetic_methods[],
    columns_decimal_methods[], columns_number_program_methods[];
HIDDEN int columns_group_exec(PyObject *module);
HIDDEN int columns_text_exec(PyObject *module);
HIDDEN int columns_sort_exec(PyObject *module);
HIDDEN int columns_join_exec(PyObject *module);
HIDDEN int columns_csv_exec(PyObject *module);

#endif
