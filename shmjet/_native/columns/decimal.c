/* Binding of the kernels in decimal.h. Buffers are contiguous; a decimal has 8 or 16 bytes, its width. */
#include "columns/columns.h"

#include "columns/decimal.h"

typedef struct {
    Py_buffer views[4];
    int count;
} buffers_t;

static void release(buffers_t *held) {
    while (held->count > 0) PyBuffer_Release(&held->views[--held->count]);
}

/* The memory of an object, at least so many bytes; NULL with an exception set. */
static uint8_t *memory(buffers_t *held, PyObject *object, int flags, int64_t least) {
    Py_buffer *view = &held->views[held->count];
    if (PyObject_GetBuffer(object, view, flags) < 0) return NULL;
    held->count++;
    if (view->len >= least) return view->buf ? view->buf : (uint8_t *)"";
    PyErr_Format(PyExc_ValueError, "a buffer has %zd bytes, but needs %lld", view->len, (long long)least);
    return NULL;
}

/* Reads (data, width, is single, shift). */
static int read_operand(PyObject *given, int64_t rows, buffers_t *held, decimal_operand_t *operand) {
    PyObject *data;
    int width, single, shift;
    if (!PyArg_ParseTuple(given, "Oipi", &data, &width, &single, &shift)) return -1;
    if ((width != 8 && width != 16) || shift < 0 || shift > MOST_DIGITS) {
        PyErr_SetString(PyExc_ValueError, "a decimal has 8 or 16 bytes, and is shifted by 0 to 38 digits");
        return -1;
    }
    operand->data = memory(held, data, PyBUF_SIMPLE, single ? width : rows * width);
    operand->width = width;
    operand->stride = single ? 0 : width;
    operand->shift = shift;
    return operand->data ? 0 : -1;
}

static const uint8_t *read_valid(PyObject *given, int64_t rows, buffers_t *held, int *failed) {
    if (given == Py_None) return NULL;
    const uint8_t *valid = memory(held, given, PyBUF_SIMPLE, rows);
    *failed |= valid == NULL;
    return valid;
}

static int in_range(int width, int digits, int64_t rows) {
    if ((width == 8 || width == 16) && digits >= 1 && digits <= MOST_DIGITS && rows >= 0 && rows < INT64_MAX >> 5)
        return 1;
    PyErr_SetString(PyExc_ValueError, "a decimal has 8 or 16 bytes and 1 to 38 digits");
    return 0;
}

/* decimal_arithmetic(symbol, one, two, valid, rows, digits, out, width) -> row */
static PyObject *arithmetic(PyObject *module, PyObject *args) {
    (void)module;
    const char *symbol;
    PyObject *first, *second, *mask, *target;
    long long rows;
    int digits, width, failed = 0;
    if (!PyArg_ParseTuple(args, "sOOOLiOi", &symbol, &first, &second, &mask, &rows, &digits, &target, &width))
        return NULL;
    if (!in_range(width, digits, rows)) return NULL;
    buffers_t held = {.count = 0};
    decimal_operand_t one, two;
    PyObject *result = NULL;
    uint8_t *out;
    if (read_operand(first, rows, &held, &one) == 0 && read_operand(second, rows, &held, &two) == 0 &&
        (out = memory(&held, target, PyBUF_WRITABLE, rows * width))) {
        const uint8_t *valid = read_valid(mask, rows, &held, &failed);
        if (!failed)
            result = PyLong_FromLongLong(
                *symbol == '/' || *symbol == '%'
                    ? decimal_divide(*symbol == '%', &one, &two, valid, rows, digits, out, width)
                    : decimal_combine(*symbol, &one, &two, valid, rows, digits, out, width));
    }
    release(&held);
    return result;
}

/* decimal_compare(one, two, rows, out): -1, 0 or 1 in each int8 of out. */
static PyObject *compare(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *first, *second, *target, *result = NULL;
    long long rows;
    if (!PyArg_ParseTuple(args, "OOLO", &first, &second, &rows, &target)) return NULL;
    if (!in_range(8, 1, rows)) return NULL;
    buffers_t held = {.count = 0};
    decimal_operand_t one, two;
    uint8_t *out;
    if (read_operand(first, rows, &held, &one) == 0 && read_operand(second, rows, &held, &two) == 0 &&
        (out = memory(&held, target, PyBUF_WRITABLE, rows))) {
        decimal_compare(&one, &two, rows, (int8_t *)out);
        result = Py_NewRef(Py_None);
    }
    release(&held);
    return result;
}

/* decimal_compare_floats(one, floats, is_single, rows, out): one's shift is its scale; 2 stands for NaN. */
static PyObject *compare_floats(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *first, *second, *target, *result = NULL;
    long long rows;
    int single;
    if (!PyArg_ParseTuple(args, "OOpLO", &first, &second, &single, &rows, &target)) return NULL;
    if (!in_range(8, 1, rows)) return NULL;
    buffers_t held = {.count = 0};
    decimal_operand_t one;
    const uint8_t *floats;
    uint8_t *out;
    if (read_operand(first, rows, &held, &one) == 0 &&
        (floats = memory(&held, second, PyBUF_SIMPLE, single ? 8 : 8 * rows)) &&
        (out = memory(&held, target, PyBUF_WRITABLE, rows))) {
        for (int64_t row = 0; row < rows; row++)
            out[row] = (uint8_t)compare_with_float(units_at(&one, one.width, row), one.shift,
                                                   load_f64(floats + (single ? 0 : 8 * row)));
        result = Py_NewRef(Py_None);
    }
    release(&held);
    return result;
}

/* decimal_rescale(one, valid, rows, down, rounds, digits, out, width) -> row: one's shift is upwards; downwards the
 * rest is an error (rounds = 0), is rounded half away from 0 (1) or is cut off (2). */
static PyObject *rescale(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *first, *mask, *target, *result = NULL;
    long long rows;
    int down, rounds, digits, width, failed = 0;
    if (!PyArg_ParseTuple(args, "OOLiiiOi", &first, &mask, &rows, &down, &rounds, &digits, &target, &width))
        return NULL;
    if (!in_range(width, digits, rows)) return NULL;
    buffers_t held = {.count = 0};
    decimal_operand_t one;
    uint8_t *out;
    if (down >= 0 && down <= MOST_DIGITS && read_operand(first, rows, &held, &one) == 0 &&
        (out = memory(&held, target, PyBUF_WRITABLE, rows * width))) {
        const uint8_t *valid = read_valid(mask, rows, &held, &failed);
        const units_t limit = power_of_ten(digits), up = power_of_ten(one.shift), divisor = power_of_ten(down);
        int64_t bad = -1;
        for (int64_t row = 0; row < rows && !failed; row++) {
            units_t value = units_at(&one, one.width, row), whole;
            int wrong = __builtin_mul_overflow(value, up, &whole);
            if (divisor > 1) {
                units_t rest = whole % divisor;
                whole /= divisor;
                if (!rounds)
                    wrong |= rest != 0;
                else if (rounds == 1 && size_of(rest) >= size_of(divisor) - size_of(rest))
                    whole += value < 0 ? -1 : 1;
            }
            wrong |= whole >= limit || whole <= -limit;
            if (wrong && bad < 0 && (!valid || valid[row])) bad = row;
            put_units(out, width, row, wrong ? 0 : whole);
        }
        if (!failed) result = PyLong_FromLongLong(bad);
    }
    if (!result && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a decimal is shifted by 0 to 38 digits");
    release(&held);
    return result;
}

/* decimal_sum(one, valid, rows) -> (top, high, low): the sum is top * 2^128 + high * 2^64 + low. */
static PyObject *sum(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *first, *mask, *result = NULL;
    long long rows;
    int failed = 0;
    if (!PyArg_ParseTuple(args, "OOL", &first, &mask, &rows)) return NULL;
    if (!in_range(8, 1, rows)) return NULL;
    buffers_t held = {.count = 0};
    decimal_operand_t one;
    if (read_operand(first, rows, &held, &one) == 0) {
        const uint8_t *valid = read_valid(mask, rows, &held, &failed);
        units_t high = 0, low = 0;
        for (int64_t row = 0; row < rows && !failed; row++) {
            units_t value = valid && !valid[row] ? 0 : units_at(&one, one.width, row);
            high += value >> 64;
            low += (uint64_t)value;
        }
        high += low >> 64;
        if (!failed)
            result = Py_BuildValue("LKK", (long long)(high >> 64), (unsigned long long)(uint64_t)high,
                                   (unsigned long long)(uint64_t)low);
    }
    release(&held);
    return result;
}

/* decimal_extreme(one, valid, rows, is_greatest) -> row, -1 where none is valid. */
static PyObject *extreme(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *first, *mask, *result = NULL;
    long long rows;
    int greatest, failed = 0;
    if (!PyArg_ParseTuple(args, "OOLp", &first, &mask, &rows, &greatest)) return NULL;
    if (!in_range(8, 1, rows)) return NULL;
    buffers_t held = {.count = 0};
    decimal_operand_t one;
    if (read_operand(first, rows, &held, &one) == 0) {
        const uint8_t *valid = read_valid(mask, rows, &held, &failed);
        int64_t found = -1;
        units_t best = 0;
        for (int64_t row = 0; row < rows && !failed; row++) {
            if (valid && !valid[row]) continue;
            units_t value = units_at(&one, one.width, row);
            if (found >= 0 && (greatest ? value <= best : value >= best)) continue;
            best = value;
            found = row;
        }
        if (!failed) result = PyLong_FromLongLong(found);
    }
    release(&held);
    return result;
}

/* decimal_to_floats(one, rows, out): one's shift is its scale. */
static PyObject *to_floats(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *first, *target, *result = NULL;
    long long rows;
    if (!PyArg_ParseTuple(args, "OLO", &first, &rows, &target)) return NULL;
    if (!in_range(8, 1, rows)) return NULL;
    buffers_t held = {.count = 0};
    decimal_operand_t one;
    uint8_t *out;
    if (read_operand(first, rows, &held, &one) == 0 && (out = memory(&held, target, PyBUF_WRITABLE, 8 * rows))) {
        for (int64_t row = 0; row < rows; row++) {
            double value = nearest_float(units_at(&one, one.width, row), one.shift);
            memcpy(out + 8 * row, &value, 8);
        }
        result = Py_NewRef(Py_None);
    }
    release(&held);
    return result;
}

/* decimal_of_floats(floats, valid, rows, scale, digits, out, width) -> row */
static PyObject *of_floats(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *source, *mask, *target, *result = NULL;
    long long rows;
    int scale, digits, width, failed = 0;
    if (!PyArg_ParseTuple(args, "OOLiiOi", &source, &mask, &rows, &scale, &digits, &target, &width)) return NULL;
    if (!in_range(width, digits, rows) || scale < 0 || scale > MOST_DIGITS) return NULL;
    buffers_t held = {.count = 0};
    const uint8_t *floats = memory(&held, source, PyBUF_SIMPLE, 8 * rows);
    uint8_t *out = floats ? memory(&held, target, PyBUF_WRITABLE, rows * width) : NULL;
    if (out) {
        const uint8_t *valid = read_valid(mask, rows, &held, &failed);
        const units_t limit = power_of_ten(digits);
        int64_t bad = -1;
        for (int64_t row = 0; row < rows && !failed; row++) {
            units_t value = 0;
            if (!valid || valid[row]) {
                int right = units_of_float(load_f64(floats + 8 * row), scale, &value);
                if (!right || value >= limit || value <= -limit) {
                    if (bad < 0) bad = row;
                    value = 0;
                }
            }
            put_units(out, width, row, value);
        }
        if (!failed) result = PyLong_FromLongLong(bad);
    }
    release(&held);
    return result;
}

/* decimal_of_text(column, scale, digits, out, width) -> row */
static PyObject *of_text(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *given, *target, *result = NULL;
    int scale, digits, width;
    if (!PyArg_ParseTuple(args, "OiiOi", &given, &scale, &digits, &target, &width)) return NULL;
    if (!in_range(width, digits, 0) || scale < 0 || scale > MOST_DIGITS) return NULL;
    bound_column_t bound;
    if (column_bind(given, &bound) < 0) return NULL;
    const column_t *column = &bound.column;
    buffers_t held = {.count = 0};
    uint8_t *out = NULL;
    if (!column->offsets)
        PyErr_SetString(PyExc_TypeError, "decimal_of_text() takes a column of text");
    else
        out = memory(&held, target, PyBUF_WRITABLE, column->rows * width);
    if (out) {
        const units_t limit = power_of_ten(digits);
        int64_t bad = -1;
        for (int64_t row = 0; row < column->rows; row++) {
            units_t value = 0;
            int64_t first = column_offset(column, row), last = column_offset(column, row + 1);
            if (!column_is_null(column, row) && (!units_of_text(column->data + first, last - first, scale, &value) ||
                                                 value >= limit || value <= -limit)) {
                if (bad < 0) bad = row;
                value = 0;
            }
            put_units(out, width, row, value);
        }
        result = PyLong_FromLongLong(bad);
    }
    release(&held);
    column_unbind(&bound);
    return result;
}

/* decimal_to_text(one, rows, offsets, data) -> bytes: one's shift is its scale; data has 42 bytes a row. */
static PyObject *to_text(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *first, *ends, *target, *result = NULL;
    long long rows;
    if (!PyArg_ParseTuple(args, "OLOO", &first, &rows, &ends, &target)) return NULL;
    if (!in_range(8, 1, rows)) return NULL;
    buffers_t held = {.count = 0};
    decimal_operand_t one;
    uint8_t *offsets, *out;
    if (read_operand(first, rows, &held, &one) == 0 &&
        (offsets = memory(&held, ends, PyBUF_WRITABLE, 8 * (rows + 1))) &&
        (out = memory(&held, target, PyBUF_WRITABLE, 42 * rows))) {
        int64_t end = 0;
        memcpy(offsets, &end, 8);
        for (int64_t row = 0; row < rows; row++) {
            end += text_of_units(units_at(&one, one.width, row), one.shift, out + end);
            memcpy(offsets + 8 * (row + 1), &end, 8);
        }
        result = PyLong_FromLongLong(end);
    }
    release(&held);
    return result;
}

#define VARARGS(name, function, doc) {name, function, METH_VARARGS, doc}

PyMethodDef columns_decimal_methods[] = {
    VARARGS("decimal_arithmetic", arithmetic, "decimal_arithmetic(symbol, one, two, valid, rows, digits, out, width)"),
    VARARGS("decimal_compare", compare, "decimal_compare(one, two, rows, out)"),
    VARARGS("decimal_compare_floats", compare_floats, "decimal_compare_floats(one, floats, is_single, rows, out)"),
    VARARGS("decimal_rescale", rescale, "decimal_rescale(one, valid, rows, down, rounds, digits, out, width)"),
    VARARGS("decimal_sum", sum, "decimal_sum(one, valid, rows)"),
    VARARGS("decimal_extreme", extreme, "decimal_extreme(one, valid, rows, is_greatest)"),
    VARARGS("decimal_to_floats", to_floats, "decimal_to_floats(one, rows, out)"),
    VARARGS("decimal_of_floats", of_floats, "decimal_of_floats(floats, valid, rows, scale, digits, out, width)"),
    VARARGS("decimal_of_text", of_text, "decimal_of_text(column, scale, digits, out, width)"),
    VARARGS("decimal_to_text", to_text, "decimal_to_text(one, rows, offsets, data)"),
    {NULL, NULL, 0, NULL},
};
