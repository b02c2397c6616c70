/* Bindings of arithmetic.h, keep.h and number_program.h. */
#include "columns/arithmetic.h"

#include "columns/columns.h"
#include "columns/number_program.h"

/* What a call works on: an array each, of `rows` values or of one. */
typedef struct {
    Py_buffer views[3];
    int held;
} arrays_t;

static int hold(arrays_t *arrays, PyObject *object, int writable) {
    int flags = writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (PyObject_GetBuffer(object, &arrays->views[arrays->held], flags) < 0) return -1;
    arrays->held++;
    return 0;
}

static PyObject *released(arrays_t *arrays, PyObject *result) {
    while (arrays->held > 0) PyBuffer_Release(&arrays->views[--arrays->held]);
    return result;
}

#define CASE(letter, size, type)                                                                                    \
    if (*kind == letter && itemsize == size)                                                                        \
        return released(&arrays, PyBool_FromLong(arithmetic_##type(*symbol, a, step_a, b, step_b, to, rows)));

/* checked_arithmetic(symbol, kind, itemsize, one, two, out) -> bool: a result has left the type */
static PyObject *checked_arithmetic(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *symbol, *kind;
    Py_ssize_t itemsize;
    PyObject *one, *two, *out;
    if (!PyArg_ParseTuple(args, "ssnOOO:checked_arithmetic", &symbol, &kind, &itemsize, &one, &two, &out)) return NULL;
    arrays_t arrays = {.held = 0};
    if (hold(&arrays, one, 0) < 0 || hold(&arrays, two, 0) < 0 || hold(&arrays, out, 1) < 0)
        return released(&arrays, NULL);
    Py_ssize_t size = arrays.views[2].len;
    if (itemsize < 1 || size % itemsize || !strchr("+-*", *symbol) || !*symbol) goto unfit;
    for (int i = 0; i < 2; i++)
        if (arrays.views[i].len != size && arrays.views[i].len != itemsize) goto unfit;
    int64_t rows = size / itemsize;
    int step_a = arrays.views[0].len == size, step_b = arrays.views[1].len == size;
    const void *a = arrays.views[0].buf, *b = arrays.views[1].buf;
    void *to = arrays.views[2].buf;
    CASE('i', 1, int8_t)
    CASE('i', 2, int16_t)
    CASE('i', 4, int32_t)
    CASE('i', 8, int64_t)
    CASE('u', 1, uint8_t)
    CASE('u', 2, uint16_t)
    CASE('u', 4, uint32_t)
    CASE('u', 8, uint64_t)
unfit:
    PyErr_SetString(PyExc_ValueError, "arrays of one integer type are needed, of equal length or of one value");
    return released(&arrays, NULL);
}

/* keep_rows(values, itemsize, mask, out) -> int: the values kept */
static PyObject *keep_rows(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *values, *mask, *out;
    Py_ssize_t itemsize;
    if (!PyArg_ParseTuple(args, "OnOO:keep_rows", &values, &itemsize, &mask, &out)) return NULL;
    arrays_t arrays = {.held = 0};
    if (hold(&arrays, values, 0) < 0 || hold(&arrays, mask, 0) < 0 || hold(&arrays, out, 1) < 0)
        return released(&arrays, NULL);
    int64_t rows = arrays.views[1].len, kept;
    const void *from = arrays.views[0].buf;
    const uint8_t *marks = arrays.views[1].buf;
    void *to = arrays.views[2].buf;
    int64_t chosen = marked_rows(marks, rows), room = chosen < rows ? chosen + 1 : rows;
    if (itemsize > 8 || arrays.views[0].len < rows * itemsize || arrays.views[2].len < room * itemsize) goto unfit;
    if (itemsize == 1) kept = keep_uint8_t(from, marks, rows, to);
    else if (itemsize == 2) kept = keep_uint16_t(from, marks, rows, to);
    else if (itemsize == 4) kept = keep_uint32_t(from, marks, rows, to);
    else if (itemsize == 8) kept = keep_words(from, marks, rows, to, arrays.views[2].len / itemsize);
    else goto unfit;
    return released(&arrays, PyLong_FromLongLong(kept));
unfit:
    PyErr_SetString(PyExc_ValueError,
                    "values of 1, 2, 4 or 8 bytes, a mask for them and room for one more than it chooses are needed");
    return released(&arrays, NULL);
}

/* -- programs ------------------------------------------------------------------------------------------------------ */

typedef struct {
    Py_buffer views[PROGRAM_REGISTERS + 3];
    int held;
    operand_t registers[PROGRAM_REGISTERS];
    int count;         /* of registers that columns and values are in */
    int written;       /* the first register that may be written */
    int columns;       /* of these, the first ones, which are read */
    uint64_t *room;    /* a block for each register */
} program_t;

static void program_release(program_t *program) {
    while (program->held > 0) PyBuffer_Release(&program->views[--program->held]);
    PyMem_Free(program->room);
}

static Py_buffer *program_hold(program_t *program, PyObject *object, int flags) {
    Py_buffer *view = &program->views[program->held];
    if (!object || PyObject_GetBuffer(object, view, flags) < 0) return NULL;
    program->held++;
    return view;
}

/* Takes the columns that are read or written: bools have one byte for each row. */
static int hold_columns(program_t *program, PyObject *columns, int64_t rows, int is_written) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(columns); i++) {
        if (program->count >= PROGRAM_REGISTERS) return PyErr_SetString(PyExc_ValueError, "too many columns"), -1;
        int flags = is_written ? PyBUF_WRITABLE : PyBUF_SIMPLE;
        Py_buffer *view = program_hold(program, PyTuple_GetItem(columns, i), flags);
        if (!view) return -1;
        int64_t width = view->len == rows ? 1 : 8;
        if (view->len != width * rows || (width == 8 && (uintptr_t)view->buf % 8))
            return PyErr_SetString(PyExc_ValueError, "columns are aligned and of 8 bytes, or of bools"), -1;
        program->registers[program->count++] = (operand_t){view->buf, width};
    }
    return 0;
}

/* Fills a block of each value, and makes room for what is computed on the way. */
static int make_room(program_t *program, const Py_buffer *values) {
    int64_t count = values->len / 8;
    program->room = PyMem_Malloc((size_t)(PROGRAM_REGISTERS * PROGRAM_ROOM) * 8);
    if (!program->room) return PyErr_NoMemory(), -1;
    if (values->len % 8 || program->count + count > PROGRAM_REGISTERS)
        return PyErr_SetString(PyExc_ValueError, "too many values"), -1;
    for (int64_t i = 0; i < count; i++) {
        uint64_t *block = program->room + program->count * PROGRAM_ROOM;
        for (int row = 0; row < PROGRAM_ROWS; row++) memcpy(block + row, (const char *)values->buf + 8 * i, 8);
        program->registers[program->count++] = (operand_t){(uint8_t *)block, 0};
    }
    return 0;
}

static int check_code(const program_t *program, const instruction_t *code, int64_t length) {
    for (int64_t i = 0; i < length; i++) {
        const instruction_t *each = &code[i];
        int width = instruction_width(each);
        int fits = width && each->one < PROGRAM_REGISTERS && each->two < PROGRAM_REGISTERS &&
                   each->to < PROGRAM_REGISTERS && each->to >= program->written && each->by < PROGRAM_REGISTERS;
        for (int operand = 0; operand < 2 && fits && each->kind != 'b'; operand++)
            fits = program->registers[operand ? each->two : each->one].step != 1;
        int64_t step = fits ? program->registers[each->to].step : 0;
        if (!fits || (step && step != width))
            return PyErr_Format(PyExc_ValueError, "instruction %lld is wrong", (long long)i), -1;
    }
    return 0;
}

/* run_numbers(code, columns, values, results, rows, mask) -> bool: a result has left its type */
static PyObject *run_numbers(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *code, *columns, *values, *results, *mask = Py_None, *found = NULL;
    long long rows;
    if (!PyArg_ParseTuple(args, "OO!OO!L|O:run_numbers", &code, &PyTuple_Type, &columns, &values, &PyTuple_Type,
                          &results, &rows, &mask))
        return NULL;
    program_t program = {.held = 0};
    if (rows < 2) return PyErr_SetString(PyExc_ValueError, "a program needs two rows"), NULL;
    Py_buffer *given = program_hold(&program, code, PyBUF_SIMPLE);
    Py_buffer *words = given ? program_hold(&program, values, PyBUF_SIMPLE) : NULL;
    Py_buffer *marks = words && mask != Py_None ? program_hold(&program, mask, PyBUF_SIMPLE) : NULL;
    if (!words || (mask != Py_None && !marks)) goto done;
    if (marks && marks->len != rows) {
        PyErr_SetString(PyExc_ValueError, "a mask has a byte for each row");
        goto done;
    }
    int64_t kept = marks ? marked_rows(marks->buf, rows) : rows;
    if (kept < 2) {
        PyErr_SetString(PyExc_ValueError, "a program needs two rows");
        goto done;
    }
    if (hold_columns(&program, columns, rows, 0) < 0) goto done;
    program.columns = program.count;
    if (make_room(&program, words) < 0) goto done;
    program.written = program.count;
    if (hold_columns(&program, results, kept, 1) < 0) goto done;
    for (int i = program.count; i < PROGRAM_REGISTERS; i++)
        program.registers[i] = (operand_t){(uint8_t *)(program.room + i * PROGRAM_ROOM), 0};
    int64_t length = given->len / (int64_t)sizeof(instruction_t);
    if (check_code(&program, given->buf, length) < 0) goto done;
    found = PyBool_FromLong(marks ? program_run_chosen(given->buf, length, program.registers, program.columns,
                                                       program.room, marks->buf, rows)
                                  : program_run(given->buf, length, program.registers, rows));
done:
    program_release(&program);
    return found;
}

PyMethodDef columns_arithmetic_methods[] = {
    {"checked_arithmetic", checked_arithmetic, METH_VARARGS,
     "checked_arithmetic(symbol, kind, itemsize, one, two, out) -> bool: a result has left the type"},
    {"keep_rows", keep_rows, METH_VARARGS, "keep_rows(values, itemsize, mask, out) -> int: the values kept"},
    {"run_numbers", run_numbers, METH_VARARGS,
     "run_numbers(code, columns, values, results, rows, mask) -> bool: a result has left its type"},
    {NULL, NULL, 0, NULL},
};
