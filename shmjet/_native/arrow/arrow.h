/* What the files of the Arrow exchange share. Included first by each. */
#ifndef SHMJET_ARROW_H
#define SHMJET_ARROW_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "arrow/abi.h"

#define HIDDEN __attribute__((visibility("hidden")))

#define SCHEMA_CAPSULE "arrow_schema"
#define ARRAY_CAPSULE "arrow_array"
#define STREAM_CAPSULE "arrow_array_stream"

/* There are no C globals: the types live in the module. */
typedef struct {
    PyTypeObject *array, *buffer, *stream;
} arrow_state_t;

/* A node of what a producer gave: the root owns the structure and releases it when nothing refers to a node or to one
 * of its buffers any more; all others keep the root. */
typedef struct {
    PyObject_HEAD
    struct ArrowArray own;   /* of the root only */
    struct ArrowArray *node; /* &own in the root */
    PyObject *root;          /* NULL in the root */
} array_t;

/* Returns the structure in a capsule of that name, which has not been released; NULL with ValueError set otherwise. */
HIDDEN void *capsule_content(PyObject *capsule, const char *name);

extern HIDDEN PyMethodDef arrow_read_methods[], arrow_write_methods[], arrow_text_methods[], arrow_nested_methods[];
HIDDEN int arrow_read_exec(PyObject *module);

#endif
