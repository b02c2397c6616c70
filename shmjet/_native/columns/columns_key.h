/* How the binding reads the description of a key, for all kernels that hash one. */
#ifndef SHMJET_COLUMNS_KEY_H
#define SHMJET_COLUMNS_KEY_H

#include "columns/columns.h"

#include "columns/column_hash.h"

/* A key and the buffers of its columns. */
typedef struct {
    bound_column_t *bound;
    key_node_t *nodes;
    Py_ssize_t count;
    row_key_t key;
    int64_t rows;
} bound_key_t;

/* Reads the columns of a key, and their forms: None, or for each column None, the tuple (tag, times, least, most,
 * scale, add) of a date or duration, the tuple ('D', scale) of a decimal, or an int, the number of fields of a
 * structured column. Returns 0, or -1 with an exception set and nothing held. */
HIDDEN int key_bind(PyObject *columns, PyObject *forms, bound_key_t *bound);
HIDDEN void key_unbind(bound_key_t *bound);

#endif
