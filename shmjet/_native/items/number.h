/* A Python value that is an int of 64 bits or a float most of the time, and then needs no object.
 *
 * Arithmetic and comparison give what Python's give: an int that leaves 64 bits becomes an object (and a number again
 * when it comes back), an int meets a float by rounding to the nearest even, and all else is asked of the objects. */
#ifndef SHMJET_NUMBER_H
#define SHMJET_NUMBER_H

#include "items/nan.h"
#include "binding.h"

enum { NUMBER_NONE, NUMBER_INT, NUMBER_FLOAT, NUMBER_OBJECT };

typedef struct {
    union {
        int64_t i;
        double d;
        PyObject *o; /* owned */
    } value;
    int kind;
} number_t;

/* Takes a value without keeping a reference: an object that is neither int nor float stays the caller's. */
static inline number_t number_borrow(PyObject *value) {
    number_t number = {.kind = NUMBER_OBJECT};
    if (PyLong_CheckExact(value)) {
        int overflow;
        long long i = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (LIKELY(!overflow)) {
            number.value.i = i;
            number.kind = NUMBER_INT;
            return number;
        }
    } else if (PyFloat_CheckExact(value)) {
        number.value.d = PyFloat_AsDouble(value);
        number.kind = NUMBER_FLOAT;
        return number;
    }
    number.value.o = value;
    return number;
}

/* The value as a new reference; NULL with an exception set. */
static inline PyObject *number_object(const number_t *number) {
    switch (number->kind) {
    case NUMBER_INT: return PyLong_FromLongLong(number->value.i);
    case NUMBER_FLOAT: return PyFloat_FromDouble(number->value.d);
    default: {
        PyObject *object = number->kind == NUMBER_OBJECT ? number->value.o : Py_None;
        Py_INCREF(object);
        return object;
    }
    }
}

static inline void number_clear(number_t *number) {
    int kind = number->kind;
    number->kind = NUMBER_NONE;
    if (kind == NUMBER_OBJECT) Py_DECREF(number->value.o);
}

/* Sets a value; an object in `value` is borrowed. */
static inline void number_set(number_t *number, number_t value) {
    number_t before = *number;
    if (value.kind == NUMBER_OBJECT) Py_INCREF(value.value.o);
    *number = value;
    number_clear(&before);
}

/* total += value, as Python adds; -1 with an exception set. */
static inline int number_add(number_t *total, number_t value) {
    if (LIKELY(total->kind == NUMBER_INT && value.kind == NUMBER_INT)) {
        int64_t sum;
        if (LIKELY(!__builtin_add_overflow(total->value.i, value.value.i, &sum))) {
            total->value.i = sum;
            return 0;
        }
    } else if (total->kind == NUMBER_FLOAT && value.kind == NUMBER_FLOAT) {
        total->value.d += value.value.d;
        return 0;
    } else if (total->kind == NUMBER_INT && value.kind == NUMBER_FLOAT) {
        total->value.d = (double)total->value.i + value.value.d;
        total->kind = NUMBER_FLOAT;
        return 0;
    } else if (total->kind == NUMBER_FLOAT && value.kind == NUMBER_INT) {
        total->value.d += (double)value.value.i;
        return 0;
    }
    PyObject *a = number_object(total), *b = number_object(&value);
    PyObject *sum = a && b ? PyNumber_Add(a, b) : NULL;
    Py_XDECREF(a);
    Py_XDECREF(b);
    if (!sum) return -1;
    number_set(total, number_borrow(sum));
    Py_DECREF(sum);
    return 0;
}

static inline int number_is_nan(const number_t *number) {
    if (number->kind == NUMBER_FLOAT) return isnan(number->value.d);
    return number->kind == NUMBER_OBJECT && object_is_nan(number->value.o);
}

/* Whether a is less than b (or greater, with Py_GT), as Python compares, and NaN is the greatest; -1 with an exception
 * set. */
static inline int number_beats(const number_t *a, const number_t *b, int operation) {
    int less = operation == Py_LT;
    if (LIKELY(a->kind == NUMBER_INT && b->kind == NUMBER_INT))
        return less ? a->value.i < b->value.i : a->value.i > b->value.i;
    if (a->kind == NUMBER_FLOAT && b->kind == NUMBER_FLOAT)
        return less ? a->value.d < b->value.d || (isnan(b->value.d) && !isnan(a->value.d))
                    : a->value.d > b->value.d || (isnan(a->value.d) && !isnan(b->value.d));
    int a_is_nan = number_is_nan(a), b_is_nan = number_is_nan(b);
    if (UNLIKELY(a_is_nan || b_is_nan)) return less ? !a_is_nan : !b_is_nan;
    PyObject *left = number_object(a), *right = number_object(b);
    PyObject *answer = left && right ? PyObject_RichCompare(left, right, operation) : NULL;
    Py_XDECREF(left);
    Py_XDECREF(right);
    if (!answer) return -1;
    int beats = PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return beats;
}

#endif
