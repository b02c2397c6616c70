/* Python's ints of 64 bits and floats as words in their order. */
#ifndef SHMJET_NUMBER_KEY_H
#define SHMJET_NUMBER_KEY_H

#include "binding.h"
#include "items/radix.h"

/* Whether objects of a type can be words. */
static inline int is_number_type(const PyTypeObject *type) { return type == &PyLong_Type || type == &PyFloat_Type; }

/* The word that stands for a number; 0 when it is not of the type, has more than 64 bits or is NaN. */
static inline int word_of(PyObject *number, PyTypeObject *type, uint64_t *word) {
    if (UNLIKELY(Py_TYPE(number) != type)) return 0;
    if (type == &PyLong_Type) {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
        if (overflow) return 0;
        *word = radix_of_int(value);
    } else {
        double value = PyFloat_AsDouble(number);
        if (value != value) return 0;
        *word = radix_of_float(value);
    }
    return 1;
}

#endif
