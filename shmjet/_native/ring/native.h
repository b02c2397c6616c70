/* What the C files of the binding share: object layouts, the module's state, small tools. Included first everywhere. */
#ifndef SHMJET_NATIVE_H
#define SHMJET_NATIVE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "ring/doorbell.h"
#include "codec/hash.h"
#include "ring/layout.h"
#include "ring/fence_free.h"
#include "ring/ring.h"

#define HIDDEN __attribute__((visibility("hidden")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Kinds of record and codecs that C itself must tell apart; shmjet/ring/frames.py has the whole list. */
enum { KIND_ITEMS = 1, KIND_WATERMARK = 2, KIND_BARRIER = 3, KIND_DONE = 4 };
enum { CODEC_COLUMNS = 1, CODEC_SLOT = 5 };

/* There are no C globals: types and the error class live in the module. */
typedef struct {
    PyTypeObject *codec, *doorbell, *producer, *consumer, *poller, *slot, *edge_flow, *packet_writer, *packet_reader,
        *slab_writer;
    PyObject *corrupt_error;
    object_layout_t layout;
} native_state_t;

/* Either one process' doorbell, or, with `owner`, that of whichever process the word in shared memory names. `eventfd` is
 * what that process sleeps on, BELL_NO_EVENTFD for the futex; it belongs to the code that made the object. */
typedef struct Doorbell {
    PyObject_HEAD
    Py_buffer view;
    int is_open;
    doorbell_t *bell; /* NULL once closed, and with `owner` */
    _Atomic uint32_t *owner;
    struct Doorbell **targets;
    uint32_t target_count;
    int eventfd;
} Doorbell;

/* The doorbell to ring now, or NULL when it is closed. Who publishes and then reads the owner meets who writes the owner and then looks
 * for what was published: both are sequentially consistent, so one of them sees the other. */
static inline const Doorbell *bell_now(const Doorbell *self) {
    if (!self) return NULL;
    if (UNLIKELY(self->owner != NULL)) {
        uint32_t owner = atomic_load_explicit(self->owner, memory_order_seq_cst);
        if (owner >= self->target_count) return NULL;
        self = self->targets[owner];
    }
    return LIKELY(self->bell != NULL) ? self : NULL;
}

typedef struct {
    PyObject_HEAD
    Py_buffer view;
    int is_open;
    ring_producer_t ring; /* ring.shared is NULL once closed */
    Doorbell *bell;       /* the consumer's; may be NULL */
    PyTypeObject *codec_type;
    PyObject *corrupt_error;
    double item_bytes; /* learned mean size of an encoded item */
    int blocked;
    int reserved; /* the owner keeps something back that goes first, so nothing else may be put meanwhile */
} RingProducer;

typedef struct {
    PyObject_HEAD
    Py_buffer view;
    int is_open;
    ring_consumer_t ring;
    Doorbell *bell; /* the producer's; may be NULL */
    PyTypeObject *codec_type;
    PyObject *corrupt_error;
    ring_record_t held; /* the record handed out as a memoryview */
    int is_holding, is_relaying;
    Py_ssize_t exports;
    int enabled;
} RingConsumer;

/* Frees what has been read; wakes the producer if it waits for that. */
HIDDEN void consumer_give_back(RingConsumer *self);
/* Raises what a negative status of ring_run.h means; returns -1. */
HIDDEN int consumer_damaged(RingConsumer *self, int status);

HIDDEN native_state_t *native_state(PyTypeObject *type);
HIDDEN PyObject *native_type(PyObject *module, PyType_Spec *spec);

/* Fills `view` with a writable buffer and checks that [offset, offset + size) lies in it, aligned to 64 bytes. */
HIDDEN int native_map(PyObject *buffer, Py_ssize_t offset, Py_ssize_t size, Py_buffer *view, uint8_t **memory);

extern PyType_Spec doorbell_spec, poller_spec, producer_spec, consumer_spec, codec_spec, tally_spec, totals_spec,
    slab_writer_spec, slab_reader_spec, slot_spec, claims_spec, number_sorter_spec,
    edge_flow_spec, packet_writer_spec, packet_reader_spec, link_loop_spec;

HIDDEN PyObject *ordering_sort_numbers(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *ordering_sort_texts(PyObject *, PyObject *const *, Py_ssize_t);
/* Whether a list of ASCII text ascends: 1 or 0; -1 when it has something else. */
HIDDEN int ordering_texts_ascend(const object_layout_t *, PyObject *);
HIDDEN PyObject *ordering_ascends(PyObject *, PyObject *);
HIDDEN PyObject *nans_unify(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *totals_add_up(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *routing_index_of_special(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *routing_murmur3_32(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *routing_partition_of(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *routing_split(PyObject *, PyObject *const *, Py_ssize_t);

#endif
