/* Where batches from one peer are put: the slab of each execution that has one. */
#ifndef SHMJET_SLAB_TARGET_H
#define SHMJET_SLAB_TARGET_H

#include "ring/slab_writer.h"

typedef struct {
    uint64_t execution;
    SlabWriter *slab;
    PyObject *arena;     /* a memoryview of the execution's memory, in which the slab lies */
    uint64_t lane_bytes; /* of batches, if they are more than two, that lie in slots before one consumer at most */
    uint32_t number;     /* the slab's */
} slab_target_t;

typedef struct {
    slab_target_t *all;
    uint32_t count, room;
} slab_targets_t;

static inline const slab_target_t *slab_targets_find(const slab_targets_t *targets, uint64_t execution) {
    for (uint32_t i = 0; i < targets->count; i++)
        if (targets->all[i].execution == execution) return &targets->all[i];
    return NULL;
}

/* Adds one with new references. 0, or -1 with an exception. */
static inline int slab_targets_add(slab_targets_t *targets, const slab_target_t *target) {
    if (slab_targets_find(targets, target->execution)) {
        PyErr_SetString(PyExc_ValueError, "this execution has a slab already");
        return -1;
    }
    if (targets->count == targets->room) {
        uint32_t room = targets->room ? 2 * targets->room : 4;
        slab_target_t *larger = PyMem_Realloc(targets->all, room * sizeof *larger);
        if (!larger) return PyErr_NoMemory(), -1;
        targets->all = larger;
        targets->room = room;
    }
    Py_INCREF((PyObject *)target->slab);
    Py_INCREF(target->arena);
    targets->all[targets->count++] = *target;
    return 0;
}

/* Removes that of an execution, or all. */
static inline void slab_targets_remove(slab_targets_t *targets, int all, uint64_t execution) {
    uint32_t kept = 0, count = targets->count;
    for (uint32_t i = 0; i < count; i++) {
        slab_target_t target = targets->all[i];
        if (all || target.execution == execution) {
            Py_DECREF((PyObject *)target.slab);
            Py_DECREF(target.arena);
        } else {
            targets->all[kept++] = target;
        }
    }
    targets->count = kept;
}

#endif
