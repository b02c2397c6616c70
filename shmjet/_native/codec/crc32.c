/* The checksum of saved state. */
#include "binding.h"

#include "codec/codec.h"
#include "codec/crc32.h"

PyObject *codec_crc32(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count < 1 || count > 2) return PyErr_SetString(PyExc_TypeError, "crc32(data, value=0)"), NULL;
    unsigned long value = count == 2 ? PyLong_AsUnsignedLongMask(args[1]) : 0;
    if (value == (unsigned long)-1 && PyErr_Occurred()) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) return NULL;
    uint32_t crc;
    Py_BEGIN_ALLOW_THREADS crc = crc32_of((uint32_t)value, view.buf, (size_t)view.len);
    Py_END_ALLOW_THREADS PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}
