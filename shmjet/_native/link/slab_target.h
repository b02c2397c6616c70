/* Where batches from one peer are put: the slab of each execution that has one. */
#ifndef SHMJET_BERTHS_H
#define SHMJET_BERTHS_H

#include "ring/slab_writer.h"

typedef struct {
    uint64_t execution;
    SlabWriter *slab;
    PyObject *arena;     /* a memoryview of the execution's memory, in which the slab lies */
    uint64_t lane_bytes; /* of batches, if they are more than two, that lie in slots before one consumer at most */
    uint32_t number;     /* the slab's */
} berth_t;

typedef struct {
    berth_t *all;
    uint32_t count, room;
} berths_t;

static inline const berth_t *berths_find(const berths_t *berths, uint64_t execution) {
    for (uint32_t i = 0; i < berths->count; i++)
        if (berths->all[i].execution == execution) return &berths->all[i];
    return NULL;
}

/* Adds one with new references. 0, or -1 with an exception. */
static inline int berths_add(berths_t *berths, const berth_t *berth) {
    if (berths_find(berths, berth->execution)) {
        PyErr_SetString(PyExc_ValueError, "this execution has a slab already");
        return -1;
    }
    if (berths->count == berths->room) {
        uint32_t room = berths->room ? 2 * berths->room : 4;
        berth_t *larger = PyMem_Realloc(berths->all, room * sizeof *larger);
        if (!larger) return PyErr_NoMemory(), -1;
        berths->all = larger;
        berths->room = room;
    }
    Py_INCREF((PyObject *)berth->slab);
    Py_INCREF(berth->arena);
    berths->all[berths->count++] = *berth;
    return 0;
}

/* Removes that of an execution, or all. */
static inline void berths_remove(berths_t *berths, int all, uint64_t execution) {
    uint32_t kept = 0, count = berths->count;
    for (uint32_t i = 0; i < count; i++) {
        berth_t berth = berths->all[i];
        if (all || berth.execution == execution) {
            Py_DECREF((PyObject *)berth.slab);
            Py_DECREF(berth.arena);
        } else {
            berths->all[kept++] = berth;
        }
    }
    berths->count = kept;
}

#endif
