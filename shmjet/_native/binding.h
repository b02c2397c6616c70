/* What all C files of the binding share: the module's state and small tools. Included first everywhere, by itself or by
 * another header. The rooms stand on each other in the order codec, items, ring, link; module.c is above all of
 * them. */
#ifndef SHMJET_BINDING_H
#define SHMJET_BINDING_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "layout.h"

#define HIDDEN __attribute__((visibility("hidden")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Classes of named tuples that the codec knows by a number; see name_tuples() in codec/codec.c. */
#define NAMED_TUPLES 8

typedef struct {
    PyTypeObject *type; /* NULL: none has this number */
    Py_ssize_t fields;
} named_tuple_t;

/* There are no C globals: types and the error class live in the module. */
typedef struct {
    PyTypeObject *codec, *doorbell, *producer, *consumer, *poller, *slot, *edge_flow, *packet_writer, *packet_reader,
        *slab_writer;
    PyObject *corrupt_error;
    object_layout_t layout;
    named_tuple_t named[NAMED_TUPLES];
} native_state_t;

HIDDEN native_state_t *native_state(PyTypeObject *type);

#endif
