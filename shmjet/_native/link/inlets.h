/* The lanes that come from one peer, found by the key that a packet names. */
#ifndef SHMJET_INLETS_H
#define SHMJET_INLETS_H

#include "link/edge_flow.h"
#include "link/packet.h"

typedef struct {
    lane_key_t key;
    RingProducer *ring;
    EdgeFlow *flow;
} inlet_t;

typedef struct {
    inlet_t *all; /* ascending by key */
    uint32_t count, room;
} inlets_t;

/* The place of the first lane whose key is not smaller. */
static inline uint32_t inlets_search(const inlets_t *lanes, const lane_key_t *key) {
    uint32_t low = 0, high = lanes->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (lane_key_compare(&lanes->all[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline const inlet_t *inlets_at(const inlets_t *lanes, const lane_key_t *key) {
    uint32_t at = inlets_search(lanes, key);
    return at < lanes->count && lane_key_compare(&lanes->all[at].key, key) == 0 ? &lanes->all[at] : NULL;
}

static inline const inlet_t *inlets_find(const inlets_t *lanes, const packet_header_t *header) {
    lane_key_t key = packet_lane(header);
    return inlets_at(lanes, &key);
}

/* Adds a lane with new references. 0, or -1 with an exception. */
static inline int inlets_add(inlets_t *lanes, const lane_key_t *key, RingProducer *ring, EdgeFlow *flow) {
    if (inlets_at(lanes, key)) {
        PyErr_SetString(PyExc_ValueError, "this lane has been added already");
        return -1;
    }
    if (lanes->count == lanes->room) {
        uint32_t room = lanes->room ? 2 * lanes->room : 16;
        inlet_t *larger = PyMem_Realloc(lanes->all, room * sizeof *larger);
        if (!larger) return PyErr_NoMemory(), -1;
        lanes->all = larger;
        lanes->room = room;
    }
    uint32_t at = inlets_search(lanes, key);
    memmove(lanes->all + at + 1, lanes->all + at, (lanes->count - at) * sizeof *lanes->all);
    Py_INCREF((PyObject *)ring);
    Py_INCREF((PyObject *)flow);
    lanes->all[at] = (inlet_t){*key, ring, flow};
    lanes->count++;
    return 0;
}

/* Removes the lanes of an execution, or all. */
static inline void inlets_remove(inlets_t *lanes, int all, uint64_t execution) {
    uint32_t kept = 0, count = lanes->count;
    for (uint32_t i = 0; i < count; i++) {
        inlet_t lane = lanes->all[i];
        if (all || lane.key.execution == execution) {
            Py_DECREF((PyObject *)lane.ring);
            Py_DECREF((PyObject *)lane.flow);
        } else {
            lanes->all[kept++] = lane;
        }
    }
    lanes->count = kept;
}

#endif
