/* Marks to many rings in one call. */
#include "ring/producer.h"

/* push_marks(producers, kind, value, flags): a mark into each ring, but not into a ring that its owner has reserved.
 * Returns the indexes of the rings that have not got it; where there was no room a wake mark was left. */
PyObject *producers_push_marks(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const native_state_t *state = PyModule_GetState(module);
    if (!state) return NULL;
    if (count != 4 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "push_marks(producers: list[RingProducer], kind, value, flags)");
        return NULL;
    }
    long kind = PyLong_AsLong(args[1]), flags = PyLong_AsLong(args[3]);
    long long value = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred()) return NULL;
    if (kind < KIND_WATERMARK || kind > KIND_DONE || flags < 0 || flags > 65535) {
        PyErr_Format(PyExc_ValueError, "no mark has kind %ld and flags %ld", kind, flags);
        return NULL;
    }
    const record_header_t header = {sizeof value, (uint8_t)kind, 0, (uint16_t)flags, 0, 0};
    Py_ssize_t size = PyList_Size(args[0]);
    PyObject *left = PyList_New(0);
    for (Py_ssize_t i = 0; left && i < size; i++) {
        RingProducer *producer = (RingProducer *)PyList_GetItem(args[0], i);
        if (Py_TYPE((PyObject *)producer) != state->producer) {
            PyErr_SetString(PyExc_TypeError, "a RingProducer is needed");
            Py_CLEAR(left);
            break;
        }
        ring_claim_t claim;
        int written = producer_check(producer) < 0 ? -1
                      : producer->reserved         ? 0
                                                   : producer_claim(producer, sizeof value, 0, &claim);
        if (written > 0) {
            memcpy(claim.record + RECORD_HEADER_SIZE, &value, sizeof value);
            producer_publish(producer, &claim, &header, 0);
            continue;
        }
        PyObject *index = written < 0 ? NULL : PyLong_FromSsize_t(i);
        if (!index || PyList_Append(left, index) < 0) Py_CLEAR(left);
        Py_XDECREF(index);
    }
    return left;
}
