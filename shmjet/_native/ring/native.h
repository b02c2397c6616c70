/* The ring's Python objects, and what the C files about rings and links share. Included first by all of them. */
#ifndef SHMJET_NATIVE_H
#define SHMJET_NATIVE_H

#include "binding.h"
#include "codec/hash.h"
#include "ring/doorbell.h"
#include "ring/fence_free.h"
#include "ring/ring.h"

/* Kinds of record and codecs that C itself must tell apart; shmjet/ring/frames.py has the whole list. */
enum { KIND_ITEMS = 1, KIND_WATERMARK = 2, KIND_BARRIER = 3, KIND_DONE = 4 };
enum { CODEC_COLUMNS = 1, CODEC_SLOT = 5 };

/* Either one process' doorbell, or, with `owner`, that of whichever process the word in shared memory names. `eventfd`
 * is what that process sleeps on, BELL_NO_EVENTFD for the futex; it belongs to the code that made the object. */
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

/* The doorbell to ring now, or NULL when it is closed. Who publishes and then reads the owner meets who writes the
 * owner and then looks for what was published: both are sequentially consistent, so one of them sees the other. */
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

/* Fills `view` with a writable buffer and checks that [offset, offset + size) lies in it, aligned to 64 bytes. */
HIDDEN int native_map(PyObject *buffer, Py_ssize_t offset, Py_ssize_t size, Py_buffer *view, uint8_t **memory);

HIDDEN PyObject *producers_push_marks(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *routing_index_of_special(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *routing_murmur3_32(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *routing_partition_of(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *routing_split(PyObject *, PyObject *const *, Py_ssize_t);
HIDDEN PyObject *routing_split_entries(PyObject *, PyObject *const *, Py_ssize_t);

#endif
