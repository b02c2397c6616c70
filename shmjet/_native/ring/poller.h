/* What a doorbell asks of pollers before its owner sleeps. */
#ifndef SHMJET_POLLER_H
#define SHMJET_POLLER_H

#include "ring/native.h"

/* A tuple of the pollers in a list, which other threads may change; NULL with an exception when there is anything
 * else. */
HIDDEN PyObject *pollers_of(const native_state_t *state, PyObject *list);
/* Whether one of them has something for its owner. Only sequentially consistent loads. */
HIDDEN int pollers_any_ready(PyObject *pollers, Py_ssize_t count);
/* Whether a ring that is waited for may have been published to without a fence. */
HIDDEN int pollers_any_fence_free(PyObject *pollers, Py_ssize_t count);

#endif
