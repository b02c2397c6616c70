/* Bindings of number_program.h. */
#include "columns/number_program.h"

#include <stddef.h>

void program_release(program_t *program) {
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
        program->registers[program->count++] = (operand_t){view->buf, width, 0};
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
        program->registers[program->count++] = (operand_t){(uint8_t *)block, 0, 1};
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

int program_bind(program_t *program, PyObject *code, PyObject *columns, PyObject *values, PyObject *results,
                 long long rows, PyObject *mask) {
    memset(program, 0, offsetof(program_t, views));
    program->held = 0;
    if (rows < 2) return PyErr_SetString(PyExc_ValueError, "a program needs two rows"), -1;
    Py_buffer *given = program_hold(program, code, PyBUF_SIMPLE);
    Py_buffer *words = given ? program_hold(program, values, PyBUF_SIMPLE) : NULL;
    Py_buffer *marks = words && mask != Py_None ? program_hold(program, mask, PyBUF_SIMPLE) : NULL;
    if (!words || (mask != Py_None && !marks)) return -1;
    if (marks && marks->len != rows)
        return PyErr_SetString(PyExc_ValueError, "a mask has a byte for each row"), -1;
    program->rows = rows;
    program->marks = marks ? marks->buf : NULL;
    program->kept = marks ? marked_rows(marks->buf, rows) : rows;
    if (program->kept < 2)
        return PyErr_SetString(PyExc_ValueError, "a program needs two rows"), -1;
    if (hold_columns(program, columns, rows, 0) < 0) return -1;
    program->columns = program->count;
    if (make_room(program, words) < 0) return -1;
    program->written = program->count;
    if (hold_columns(program, results, program->kept, 1) < 0) return -1;
    for (int i = program->count; i < PROGRAM_REGISTERS; i++)
        program->registers[i] = (operand_t){(uint8_t *)(program->room + i * PROGRAM_ROOM), 0, 0};
    program->code = given->buf;
    program->length = given->len / (int64_t)sizeof(instruction_t);
    return check_code(program, program->code, program->length);
}

int program_blocks(const program_t *program, program_taker_t *take, void *taker) {
    if (program->marks || program->chooser) return program_run_chosen(program, take, taker);
    return program_run(program, take, taker);
}

/* run_numbers(code, columns, values, results, rows, mask) -> bool: a result has left its type */
static PyObject *run_numbers(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *code, *columns, *values, *results, *mask = Py_None;
    long long rows;
    if (!PyArg_ParseTuple(args, "OO!OO!L|O:run_numbers", &code, &PyTuple_Type, &columns, &values, &PyTuple_Type,
                          &results, &rows, &mask))
        return NULL;
    program_t program;
    int status = program_bind(&program, code, columns, values, results, rows, mask);
    PyObject *has_left = status < 0 ? NULL : PyBool_FromLong(program_blocks(&program, NULL, NULL));
    program_release(&program);
    return has_left;
}

PyMethodDef columns_number_program_methods[] = {
    {"run_numbers", run_numbers, METH_VARARGS,
     "run_numbers(code, columns, values, results, rows, mask) -> bool: a result has left its type"},
    {NULL, NULL, 0, NULL},
};
