/* A program of numbers as a kernel calls it: what it runs over, and who takes its blocks. number_program.h runs it. */
#ifndef SHMJET_PROGRAM_CALL_H
#define SHMJET_PROGRAM_CALL_H

#include "columns/columns.h"

#define PROGRAM_REGISTERS 64

/* `kind` is that of the operands: i int64, f float64, b bools. Operators are `+ - * /`, `< > = !`, l (<=), g (>=),
 * `& | ^`; c, which makes floats of integers and looks at `one` alone; ?, which takes `one` where `by` is true. */
typedef struct {
    uint8_t symbol, kind, one, two, to, by;
} instruction_t;

typedef struct {
    uint8_t *data;  /* of the row that a block starts with */
    int64_t step;   /* bytes of a row; 0: the same for each block */
    int is_value;   /* all rows are the same */
} operand_t;

typedef struct program {
    const instruction_t *code;
    int64_t length;                         /* instructions */
    int64_t rows, kept;                     /* of the columns; how many of them are computed at most */
    const uint8_t *marks;                   /* the rows that are computed; NULL: all, or what is chosen */
    const struct program *chooser;          /* it gives the rows that are computed, of the same rows; or NULL */
    int choice;                             /* its register that does */
    operand_t registers[PROGRAM_REGISTERS]; /* columns that are read, values, columns that are written, then rooms */
    int columns;                            /* registers that are read and have a value for each row */
    int written;                            /* the first register that may be written */
    int count;                              /* registers in front of the rooms */
    uint64_t *room;                         /* a block for each register */
    Py_buffer views[PROGRAM_REGISTERS + 3];
    int held;
} program_t;

/* Gets the registers of a block whose rows are computed: row i of a register is at data + step * (start + i), or at
 * data + width * i where step is 0. What it returns, unless it is 0, ends the program. */
typedef int program_taker_t(void *taker, const operand_t *registers, int64_t start, int64_t rows);

#define PROGRAM_LEFT 1 /* a result of integers has left its type */

/* Takes what Python gives, as run_numbers() has it. Returns -1 with an exception; released in any case. A mask that
 * leaves fewer than two rows is one. */
HIDDEN int program_bind(program_t *program, PyObject *code, PyObject *columns, PyObject *values, PyObject *results,
                        long long rows, PyObject *mask);
HIDDEN void program_release(program_t *program);

/* Runs it. Returns 0, PROGRAM_LEFT, or what `take` (which may be NULL) has returned. */
HIDDEN int program_blocks(const program_t *program, program_taker_t *take, void *taker);

#endif
