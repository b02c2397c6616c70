/* The layout of an EdgeFlow, for the kernels that count into it. */
#ifndef SHMJET_EDGE_FLOW_H
#define SHMJET_EDGE_FLOW_H

#include "ring/native.h"
#include "link/packet.h"

typedef struct {
    PyObject_HEAD
    unsigned long long bytes, acked, items;
    unsigned long long renew_at; /* what may have been taken before the sender has to be told how far it may go now */
    PyObject *due;               /* list that this is put into then, or NULL */
    int limit;
    int bounded; /* whether `limit` counts */
    int has_words;
    Py_buffer words; /* two 64-bit words for others to read, items and bytes, if there are any */
} EdgeFlow;

static inline int edge_flow_is_open(const EdgeFlow *self) {
    return !self->bounded || packet_window_is_open(self->bytes, self->limit);
}

/* Notes for others what goes or has come, before others can see it, so that nothing is missing at the end. */
static inline void edge_flow_note(const EdgeFlow *self, uint64_t items, uint64_t bytes) {
    if (!self->has_words) return;
    uint64_t *words = self->words.buf;
    words[0] += items;
    words[1] += bytes;
}

/* Counts what rings have taken. 1 when the sender has to be told, 0, or -1 with an exception. */
static inline int edge_flow_took(EdgeFlow *self, uint64_t items, uint64_t bytes) {
    self->acked += bytes;
    self->items += items;
    if (LIKELY(self->acked < self->renew_at)) return 0;
    self->renew_at = UINT64_MAX;
    return self->due && PyList_Append(self->due, (PyObject *)self) < 0 ? -1 : 1;
}

#endif
