/* Several operators over columns of int64, float64 and bools, block by block. No Python in here.
 *
 * A program is a list of instructions over registers. A register is a column that is read, a value for all rows, a
 * column that is written, or room for a block. Blocks are so short that the registers of an expression stay in a core's
 * first caches; a result is written once, where it stays. Each instruction is a loop that becomes vector code.
 *
 * Where a mask chooses rows, a block first brings together what stays of the columns, so the instructions see these
 * rows alone, and nothing is written on the way.
 *
 * A result of integers that leaves the type ends the program: the caller then computes it in its slow and exact way.
 */
#ifndef SHMJET_NUMBER_PROGRAM_H
#define SHMJET_NUMBER_PROGRAM_H

#include "columns/keep.h"
#include "columns/program_call.h"

#define PROGRAM_ROWS 512
#define PROGRAM_ROOM (PROGRAM_ROWS + KEEP_SLACK) /* words of a register's block */
#define PROGRAM_PART 256                         /* rows whose chosen ones are brought together at once */
#define PROGRAM_CHOSEN 16384                     /* rows for which another program chooses at once */

#define PROGRAM_LOOP(name, type, result, expression)                                                                  \
    SIMD_CLONES static void program_##name(const type *restrict a, const type *restrict b, result *restrict to,       \
                                           int64_t rows) {                                                            \
        for (int64_t i = 0; i < rows; i++) to[i] = (result)(expression);                                              \
    }

#define PROGRAM_COMPARISONS(letter, type)                                                                             \
    PROGRAM_LOOP(less_##letter, type, uint8_t, a[i] < b[i])                                                           \
    PROGRAM_LOOP(at_most_##letter, type, uint8_t, a[i] <= b[i])                                                       \
    PROGRAM_LOOP(equal_##letter, type, uint8_t, a[i] == b[i])                                                         \
    PROGRAM_LOOP(unequal_##letter, type, uint8_t, a[i] != b[i])

PROGRAM_LOOP(add, double, double, a[i] + b[i])
PROGRAM_LOOP(subtract, double, double, a[i] - b[i])
PROGRAM_LOOP(multiply, double, double, a[i] * b[i])
PROGRAM_LOOP(divide, double, double, a[i] / b[i])
PROGRAM_LOOP(product, uint64_t, uint64_t, a[i] * b[i])
PROGRAM_LOOP(both, uint8_t, uint8_t, a[i] & b[i])
PROGRAM_LOOP(either, uint8_t, uint8_t, a[i] | b[i])
PROGRAM_LOOP(one_of, uint8_t, uint8_t, a[i] ^ b[i])
PROGRAM_COMPARISONS(i, int64_t)
PROGRAM_COMPARISONS(f, double)

/* What leaves the type shows in the top bit. */
#define PROGRAM_CHECKED(name, symbol, has_left)                                                                       \
    SIMD_CLONES static int program_##name(const int64_t *restrict a, const int64_t *restrict b, int64_t *restrict to, \
                                          int64_t rows) {                                                             \
        uint64_t left = 0;                                                                                            \
        for (int64_t i = 0; i < rows; i++) {                                                                          \
            uint64_t x = (uint64_t)a[i], y = (uint64_t)b[i], made = x symbol y;                                       \
            to[i] = (int64_t)made;                                                                                    \
            left |= has_left;                                                                                         \
        }                                                                                                             \
        return (int)(left >> 63);                                                                                     \
    }

PROGRAM_CHECKED(sum, +, (x ^ made) & (y ^ made))
PROGRAM_CHECKED(difference, -, (x ^ y) & (x ^ made))

static int program_checked_product(const int64_t *a, const int64_t *b, int64_t *to, int64_t rows) {
    int left = 0;
    for (int64_t i = 0; i < rows; i++) left |= __builtin_mul_overflow(a[i], b[i], &to[i]);
    return left;
}

/* Floats of integers. Before AVX-512 no vector instruction does it; here the halves of a word become mantissas, the
 * upper one of 2^84 and the lower one of 2^52, and a single addition rounds, as a conversion does. */
SIMD_CLONES static void program_float(const int64_t *restrict a, double *restrict to, int64_t rows) {
    union {
        uint64_t word;
        double value;
    } low, high;
    for (int64_t i = 0; i < rows; i++) {
        low.word = ((uint64_t)a[i] & UINT32_MAX) | UINT64_C(0x4330000000000000);
        high.word = ((uint64_t)a[i] >> 32) ^ UINT64_C(0x4530000080000000);
        to[i] = high.value - 0x1.00000801p84 + low.value;
    }
}

/* How many bits the values have, without the sign. */
SIMD_CLONES static int program_bits(const int64_t *a, int64_t rows) {
    uint64_t reach = 0;
    for (int64_t i = 0; i < rows; i++) reach |= (uint64_t)(a[i] ^ a[i] >> 63);
    return reach ? 64 - __builtin_clzll(reach) : 0;
}

#define PROGRAM_CHOICE(name, type)                                                                                     \
    SIMD_CLONES static void program_##name(const type *restrict a, const type *restrict b, const uint8_t *restrict by, \
                                           type *restrict to, int64_t rows) {                                          \
        for (int64_t i = 0; i < rows; i++) to[i] = by[i] ? a[i] : b[i];                                                \
    }

PROGRAM_CHOICE(choose_words, uint64_t)
PROGRAM_CHOICE(choose_bools, uint8_t)

/* The bytes that an instruction writes for a row; 0 where there is no such instruction. */
static inline int instruction_width(const instruction_t *instruction) {
    char symbol = (char)instruction->symbol, kind = (char)instruction->kind;
    if (kind == 'b') return symbol == '&' || symbol == '|' || symbol == '^' || symbol == '?';
    if (kind != 'i' && kind != 'f') return 0;
    if (symbol == '<' || symbol == '>' || symbol == '=' || symbol == '!' || symbol == 'l' || symbol == 'g') return 1;
    if (symbol == 'c') return kind == 'i' ? 8 : 0;
    if (symbol == '/') return kind == 'f' ? 8 : 0;
    return symbol == '+' || symbol == '-' || symbol == '*' || symbol == '?' ? 8 : 0;
}

#define PROGRAM_CASE(letter, name, type, result) \
    case letter: program_##name((const type *)a, (const type *)b, (result *)to, rows); return 0;
/* a > b is b < a */
#define PROGRAM_TURNED(letter, name, type, result) \
    case letter: program_##name((const type *)b, (const type *)a, (result *)to, rows); return 0;

/* The first `several` of the operands' rows are all that differ. Returns 1 when a result has left its type. */
static int instruction_run(const instruction_t *instruction, const void *a, const void *b, const uint8_t *by, void *to,
                           int64_t rows, const int64_t several[2]) {
    if (instruction->symbol == '?') {
        if (instruction->kind == 'b') program_choose_bools(a, b, by, to, rows);
        else program_choose_words(a, b, by, to, rows);
        return 0;
    }
    if (instruction->kind == 'f') switch (instruction->symbol) {
            PROGRAM_CASE('+', add, double, double)
            PROGRAM_CASE('-', subtract, double, double)
            PROGRAM_CASE('*', multiply, double, double)
            PROGRAM_CASE('/', divide, double, double)
            PROGRAM_CASE('<', less_f, double, uint8_t)
            PROGRAM_CASE('l', at_most_f, double, uint8_t)
            PROGRAM_TURNED('>', less_f, double, uint8_t)
            PROGRAM_TURNED('g', at_most_f, double, uint8_t)
            PROGRAM_CASE('=', equal_f, double, uint8_t)
            PROGRAM_CASE('!', unequal_f, double, uint8_t)
        }
    if (instruction->kind == 'b') switch (instruction->symbol) {
            PROGRAM_CASE('&', both, uint8_t, uint8_t)
            PROGRAM_CASE('|', either, uint8_t, uint8_t)
            PROGRAM_CASE('^', one_of, uint8_t, uint8_t)
        }
    switch (instruction->symbol) {
        PROGRAM_CASE('<', less_i, int64_t, uint8_t)
        PROGRAM_CASE('l', at_most_i, int64_t, uint8_t)
        PROGRAM_TURNED('>', less_i, int64_t, uint8_t)
        PROGRAM_TURNED('g', at_most_i, int64_t, uint8_t)
        PROGRAM_CASE('=', equal_i, int64_t, uint8_t)
        PROGRAM_CASE('!', unequal_i, int64_t, uint8_t)
    case 'c': program_float(a, to, rows); return 0;
    case '+': return program_sum(a, b, to, rows);
    case '-': return program_difference(a, b, to, rows);
    }
    if (program_bits(a, several[0]) + program_bits(b, several[1]) > 62) return program_checked_product(a, b, to, rows);
    program_product(a, b, to, rows);
    return 0;
}

/* Runs a program over a block, from row `start` of the registers on. Returns 1 when a result has left its type. */
static inline int program_block(const instruction_t *code, int64_t length, const operand_t *registers, int64_t start,
                                int64_t rows) {
    for (int64_t i = 0; i < length; i++) {
        const operand_t *one = &registers[code[i].one], *two = &registers[code[i].two], *to = &registers[code[i].to],
                         *by = &registers[code[i].by];
        const int64_t several[2] = {one->is_value ? 1 : rows, two->is_value ? 1 : rows};
        if (instruction_run(&code[i], one->data + one->step * start, two->data + two->step * start,
                            by->data + by->step * start, to->data + to->step * start, rows, several))
            return 1;
    }
    return 0;
}

/* Writes the marks that another program gives to up to PROGRAM_CHOSEN rows. They are looked at in one go, ahead of what
 * is computed of them: so much of the columns is on its way from memory at once. Returns as program_blocks(). */
static inline int program_choose(const program_t *program, int64_t first, uint8_t *marks) {
    const program_t *chooser = program->chooser;
    const operand_t *choice = &chooser->registers[program->choice];
    int64_t end = program->rows - first < PROGRAM_CHOSEN ? program->rows : first + PROGRAM_CHOSEN;
    for (int64_t start = first; start < end; start += PROGRAM_ROWS) {
        int64_t rows = end - start < PROGRAM_ROWS ? end - start : PROGRAM_ROWS;
        if (program_block(chooser->code, chooser->length, chooser->registers, start, rows)) return PROGRAM_LEFT;
        memcpy(marks + (start - first), choice->data + choice->step * start, (size_t)rows);
    }
    return 0;
}

/* Runs a program over all rows, block by block. Returns as program_blocks(). */
static int program_run(const program_t *program, program_taker_t *take, void *taker) {
    for (int64_t start = 0; start < program->rows; start += PROGRAM_ROWS) {
        int64_t rows = program->rows - start < PROGRAM_ROWS ? program->rows - start : PROGRAM_ROWS;
        if (program_block(program->code, program->length, program->registers, start, rows)) return PROGRAM_LEFT;
        int status = take ? take(taker, program->registers, start, rows) : 0;
        if (status) return status;
    }
    return 0;
}

/* As program_run(), of the rows that are marked, or that another program chooses. */
static int program_run_chosen(const program_t *program, program_taker_t *take, void *taker) {
    operand_t chosen[PROGRAM_REGISTERS];
    const operand_t *registers = program->registers;
    uint8_t choice[PROGRAM_CHOSEN];
    const uint8_t *marks = program->marks;
    uint64_t *room = program->room;
    int columns = program->columns;
    int64_t rows = program->rows, done = 0, filled = 0;
    memcpy(chosen, registers, sizeof chosen);
    for (int i = 0; i < columns; i++) chosen[i] = (operand_t){(uint8_t *)(room + i * PROGRAM_ROOM), 0, 0};
    for (int64_t start = 0; start < rows; start += PROGRAM_PART, marks += PROGRAM_PART) {
        int64_t part = rows - start < PROGRAM_PART ? rows - start : PROGRAM_PART, kept = 0;
        if (program->chooser && start % PROGRAM_CHOSEN == 0) {
            if (program_choose(program, start, choice)) return PROGRAM_LEFT;
            marks = choice;
        }
        for (int i = 0; i < columns; i++) {
            const uint8_t *from = registers[i].data + registers[i].step * start;
            uint64_t *block = room + i * PROGRAM_ROOM;
            kept = registers[i].step == 1 ? keep_uint8_t(from, marks, part, (uint8_t *)block + filled)
                                          : keep_words((const uint64_t *)(const void *)from, marks, part,
                                                       block + filled, PROGRAM_ROOM - filled);
        }
        filled += kept;
        if (filled <= PROGRAM_ROWS - PROGRAM_PART && start + part < rows) continue;
        if (program_block(program->code, program->length, chosen, done, filled)) return PROGRAM_LEFT;
        int status = take && filled ? take(taker, chosen, done, filled) : 0;
        if (status) return status;
        done += filled, filled = 0;
    }
    return 0;
}

#endif
