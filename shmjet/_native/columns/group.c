/* Binding of the kernels in group.h. */
#include "columns/columns.h"

#include "columns/group.h"
#include "columns/group_computed.h"

typedef struct {
    PyObject_HEAD
    group_table_t table;
    group_capture_t *captured; /* of a captured table: its memory is that of this */
    PyObject *origin;          /* ... and the table that it is copied from, while blocks wait */
} GroupTable;

static const char *const FUNCTIONS[] = {"", "count", "sum", "min", "max", "mean", "first", "last", "var"};

static int set_error(int status) {
    switch (status) {
    case GROUP_OK: return 0;
    case GROUP_ERRNO: PyErr_SetFromErrno(PyExc_OSError); break;
    case GROUP_FULL: PyErr_SetString(PyExc_ValueError, "a GroupTable holds at most 4 billion groups"); break;
    case GROUP_LONG_TEXT: PyErr_SetString(PyExc_ValueError, "a GroupTable holds no text of 4 GiB or more"); break;
    }
    return -1;
}

static GroupTable *new_object(PyTypeObject *type) {
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    GroupTable *self = (GroupTable *)allocate(type, 0);
    if (self) self->table.memory.fd = -1;
    return self;
}

/* Reads (function, class) pairs. */
static Py_ssize_t read_aggregates(PyObject *given, uint8_t *functions, char *classes) {
    PyObject *listed = PySequence_Tuple(given);
    if (!listed) return -1;
    Py_ssize_t count = PyTuple_Size(listed);
    if (count > GROUP_MAX_AGGREGATES) {
        PyErr_Format(PyExc_ValueError, "a GroupTable has at most %d aggregates, got %zd", GROUP_MAX_AGGREGATES, count);
        goto fail;
    }
    for (Py_ssize_t a = 0; a < count; a++) {
        const char *function, *class;
        if (!PyArg_ParseTuple(PyTuple_GetItem(listed, a), "ss:aggregate", &function, &class)) goto fail;
        functions[a] = 0;
        classes[a] = *class;
        for (uint8_t f = COUNT; f <= VAR; f++)
            if (!strcmp(function, FUNCTIONS[f])) functions[a] = f;
        int parts;
        if (!functions[a] || !*class || class[1] || !aggregate_shape(functions[a], *class, &parts)) {
            PyErr_Format(PyExc_ValueError, "there is no aggregate %s of class '%s'", function, class);
            goto fail;
        }
    }
    Py_DECREF(listed);
    return count;
fail:
    Py_DECREF(listed);
    return -1;
}

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"keys", "aggregates", NULL};
    const char *keys;
    Py_ssize_t key_count;
    PyObject *given;
    uint8_t functions[GROUP_MAX_AGGREGATES];
    char classes[GROUP_MAX_AGGREGATES];
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s#O:GroupTable", names, &keys, &key_count, &given)) return NULL;
    Py_ssize_t count = read_aggregates(given, functions, classes);
    if (count < 0) return NULL;
    if (key_count > GROUP_MAX_KEYS || strspn(keys, "ift") != (size_t)key_count)
        return PyErr_Format(PyExc_ValueError, "keys are at most %d letters of i, f and t, got %s", GROUP_MAX_KEYS,
                            keys);
    GroupTable *self = new_object(type);
    if (!self) return NULL;
    int status = group_open(&self->table, keys, (uint32_t)key_count, functions, classes, (uint32_t)count);
    if (set_error(status) == 0) return (PyObject *)self;
    self->table.memory.fd = -1;
    Py_DECREF((PyObject *)self);
    return NULL;
}

/* Ends the copying of a captured table. */
static void leave_origin(GroupTable *self) {
    PyObject *origin = self->origin;
    if (!origin) return;
    self->origin = NULL;
    ((GroupTable *)origin)->table.capture = NULL;
    Py_DECREF(origin);
}

static void table_dealloc(GroupTable *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    leave_origin(self);
    if (self->captured)
        group_capture_close(self->captured);
    else if (self->table.memory.fd >= 0)
        group_close(&self->table);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

/* -- adding -------------------------------------------------------------------------------------------------------- */

static int fits(char class, const column_t *column) {
    int is_variable = column_is_variable(column), is_word = !is_variable && column->itemsize <= 8;
    switch (class) {
    case 'i': return is_word && strchr("biumM", column->kind);
    case 'u': return is_word && column->kind == 'u';
    case 'd': return is_word && strchr("mM", column->kind);
    case 'f': return is_word && column->kind == 'f' && column->itemsize != 1;
    case 't': return is_variable || column->kind == 'S' || column->kind == 'U';
    case 'U': return column->kind == 'U' && column->itemsize % 4 == 0;
    case 'x': return !is_variable;
    default: return 1;
    }
}

/* What a part of a state is when it comes from another table. */
static char class_of_part(const group_field_t *field, int part) {
    switch (field->function) {
    case COUNT: return 'i';
    case SUM: return (char)field->class;
    case MEAN: return part == 2 ? 'i' : (char)field->class;
    case VAR: return part == 0 || (field->class == 'i' && part < 3) ? 'i' : 'f';
    default: return field->class != 'm' ? (char)field->class : part == 0 ? 'f' : 'i';
    }
}

static int check_column(char class, const column_t *column, int64_t rows, const char *what, long long place) {
    if (column->rows == rows && fits(class, column)) return 0;
    PyErr_Format(PyExc_ValueError,
                 "%s %lld is a column of kind '%c', itemsize %u and %lld rows; expected class '%c' and %lld rows", what,
                 place, column->kind, column->itemsize, (long long)column->rows, class, (long long)rows);
    return -1;
}

/* Binds the columns of the aggregates; a None stays NULL. Room for GROUP_MAX_AGGREGATES * 3. */
static int bind_inputs(PyObject *given, bound_column_t *bound, const column_t **columns, Py_ssize_t wanted) {
    if (PyTuple_Size(given) != wanted) {
        PyErr_Format(PyExc_ValueError, "expected %zd columns for the aggregates, got %zd", wanted, PyTuple_Size(given));
        return -1;
    }
    for (Py_ssize_t c = 0; c < wanted; c++) {
        PyObject *descriptor = PyTuple_GetItem(given, c);
        columns[c] = NULL;
        if (descriptor == Py_None) continue;
        if (column_bind(descriptor, &bound[c]) < 0) return -1;
        columns[c] = &bound[c].column;
    }
    return 0;
}

/* Whether the words of the state can be compared with those of a column that has a word for each value. */
static int is_comparable(const group_field_t *field, const column_t *column) {
    return (field->function != MIN && field->function != MAX) || field->class != 'i' ||
           (!is_uint64(column) && !strchr("mM", column->kind));
}

static int check_inputs(const group_header_t *header, const column_t *const *columns, int is_merge, int64_t rows) {
    for (uint32_t a = 0, c = 0; a < header->aggregates; a++) {
        const group_field_t *field = &header->aggregate_fields[a];
        for (int part = 0; part < (is_merge ? field->parts : 1); part++, c++) {
            if (!is_merge && field->class == '-' && !columns[c]) continue;
            char class = is_merge ? class_of_part(field, part) : (char)field->class;
            if (class == 'm') return PyErr_SetString(PyExc_ValueError, "mixed columns can only be merged"), -1;
            if (!columns[c]) return PyErr_Format(PyExc_ValueError, "aggregate %u needs a column", a), -1;
            if (check_column(class, columns[c], rows, "aggregate", a) < 0) return -1;
            if (is_comparable(field, columns[c])) continue;
            return PyErr_Format(PyExc_ValueError, "aggregate %u compares int64, not kind '%c'", a, columns[c]->kind),
                   -1;
        }
    }
    return 0;
}

static PyObject *update(GroupTable *self, PyObject *const *args, Py_ssize_t count, int is_merge, int is_load) {
    if (count != 3 && count != 4)
        return PyErr_SetString(PyExc_TypeError, "expected keys, columns, the number of rows and a buffer"), NULL;
    if (self->captured) return PyErr_SetString(PyExc_ValueError, "a captured GroupTable takes no rows"), NULL;
    const group_header_t *header = self->table.memory.header;
    long long rows = PyLong_AsLongLong(args[2]);
    if (rows < 0)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "rows must be at least 0, got %lld", rows);
    Py_ssize_t key_count = 0, wanted = 0;
    for (uint32_t a = 0; a < header->aggregates; a++) wanted += is_merge ? header->aggregate_fields[a].parts : 1;
    PyObject *inputs = PySequence_Tuple(args[1]), *result = NULL;
    if (!inputs) return NULL;
    bound_column_t *keys = columns_bind(args[0], &key_count), *bound = PyMem_Calloc((size_t)wanted + 1, sizeof *bound);
    const column_t **columns = PyMem_Calloc((size_t)(wanted + GROUP_MAX_KEYS) + 1, sizeof *columns);
    if (!keys) goto done;
    if (!bound || !columns) {
        PyErr_NoMemory();
        goto done;
    }
    if (key_count != (Py_ssize_t)header->keys) {
        PyErr_Format(PyExc_ValueError, "expected %u key columns, got %zd", header->keys, key_count);
        goto done;
    }
    Py_buffer numbers = {0};
    if (count == 4) {
        if (PyObject_GetBuffer(args[3], &numbers, PyBUF_WRITABLE) < 0) goto done;
        if (numbers.len < 4 * rows || (uintptr_t)numbers.buf % 4) {
            PyErr_Format(PyExc_ValueError, "numbers must be an aligned uint32 array of %lld elements", rows);
            goto release;
        }
    }
    const column_t **key_columns = columns + wanted;
    for (Py_ssize_t k = 0; k < key_count; k++) {
        key_columns[k] = &keys[k].column;
        if (check_column((char)header->key_fields[k].class, key_columns[k], rows, "key", k) < 0) goto release;
    }
    if (bind_inputs(inputs, bound, columns, wanted) < 0 || check_inputs(header, columns, is_merge, rows) < 0)
        goto release;
    int status = group_update(&self->table, key_columns, columns, is_merge, rows, count == 4 ? numbers.buf : NULL,
                              is_load);
    if (set_error(status) == 0) result = Py_NewRef(Py_None);
release:
    if (count == 4) PyBuffer_Release(&numbers);
done:
    if (keys) columns_unbind(keys, key_count);
    if (bound) columns_unbind(bound, wanted);
    PyMem_Free(columns);
    Py_DECREF(inputs);
    return result;
}

static PyObject *table_add(GroupTable *self, PyObject *const *args, Py_ssize_t count) {
    return update(self, args, count, 0, 0);
}

static PyObject *table_merge(GroupTable *self, PyObject *const *args, Py_ssize_t count) {
    return update(self, args, count, 1, 0);
}

static PyObject *table_load(GroupTable *self, PyObject *const *args, Py_ssize_t count) {
    return update(self, args, count, 1, 1);
}

/* Whether the values that a program gives fit the aggregates of a table. */
static int check_values(const group_header_t *header, const program_t *program, const computed_value_t *values) {
    for (uint32_t a = 0; a < header->aggregates; a++) {
        const group_field_t *field = &header->aggregate_fields[a];
        const computed_value_t *value = &values[a];
        int counts = field->function == COUNT;
        column_t column = {.kind = (char)value->kind, .itemsize = 8};
        int is_there = value->value < PROGRAM_REGISTERS && program->registers[value->value].step != 1;
        int tells = value->known == NO_REGISTER ||
                    (value->known < PROGRAM_REGISTERS && program->registers[value->known].step != 8);
        if (tells && (counts || (is_there && (column.kind == 'i' || column.kind == 'f')))) {
            if (counts || fits((char)field->class, &column)) continue;
        }
        return PyErr_Format(PyExc_ValueError, "the registers of aggregate %u do not fit", a), -1;
    }
    return 0;
}

/* Takes what chooses the rows: (code, columns, values, register of bools). */
static int bind_chooser(program_t *program, program_t *chooser, PyObject *given, PyObject *results) {
    PyObject *code, *columns, *words;
    if (!PyArg_ParseTuple(given, "OO!Oi:chooser", &code, &PyTuple_Type, &columns, &words, &program->choice) ||
        program_bind(chooser, code, columns, words, results, program->rows, Py_None) < 0)
        return -1;
    program->chooser = chooser;
    if (program->choice >= 0 && program->choice < PROGRAM_REGISTERS && chooser->registers[program->choice].step != 8)
        return 0;
    return PyErr_SetString(PyExc_ValueError, "the register that chooses rows does not fit"), -1;
}

/* add_computed(code, columns, values, registers, rows, chosen) -> bool: a result has left its type */
static PyObject *table_add_computed(GroupTable *self, PyObject *args) {
    PyObject *code, *columns, *words, *results, *chosen = Py_None, *has_left = NULL;
    const char *registers;
    Py_ssize_t length;
    long long rows;
    if (!PyArg_ParseTuple(args, "OO!Oy#L|O:add_computed", &code, &PyTuple_Type, &columns, &words, &registers, &length,
                          &rows, &chosen))
        return NULL;
    const group_header_t *header = self->table.memory.header;
    if (self->captured) return PyErr_SetString(PyExc_ValueError, "a captured GroupTable takes no rows"), NULL;
    if (header->keys || header->groups != 1 || length != (Py_ssize_t)(header->aggregates * sizeof(computed_value_t)))
        return PyErr_SetString(PyExc_ValueError, "computed values need a table of one group, without keys"), NULL;
    if (!(results = PyTuple_New(0))) return NULL;
    program_t program, chooser = {.held = 0};
    const computed_value_t *values = (const computed_value_t *)(const void *)registers;
    int by_program = PyTuple_Check(chosen);
    if (program_bind(&program, code, columns, words, results, rows, by_program ? Py_None : chosen) == 0 &&
        (!by_program || bind_chooser(&program, &chooser, chosen, results) == 0) &&
        check_values(header, &program, values) == 0) {
        int status = group_add_computed(&self->table, &program, values);
        if (status == PROGRAM_LEFT || set_error(status) == 0) has_left = PyBool_FromLong(status == PROGRAM_LEFT);
    }
    program_release(&program);
    program_release(&chooser);
    Py_DECREF(results);
    return has_left;
}

/* -- reading ------------------------------------------------------------------------------------------------------- */

/* Releases the positions of a range, if it has any. */
static void release_range(group_range_t *range, Py_buffer *positions) {
    if (range->chosen) PyBuffer_Release(positions);
    range->chosen = NULL;
}

/* Borrows an array of positions. */
static int borrow_positions(PyObject *given, uint64_t groups, group_range_t *range, Py_buffer *positions) {
    if (PyObject_GetBuffer(given, positions, PyBUF_SIMPLE) < 0) return -1;
    range->chosen = positions->buf;
    if (positions->len < 4 * (Py_ssize_t)range->count || (uintptr_t)positions->buf % 4) {
        PyErr_Format(PyExc_ValueError, "positions must be an aligned uint32 array of %llu elements",
                     (unsigned long long)range->count);
        return -1;
    }
    uint32_t most = 0;
    for (uint64_t i = 0; i < range->count; i++) most = range->chosen[i] > most ? range->chosen[i] : most;
    if (!range->count || most < groups) return 0;
    PyErr_Format(PyExc_ValueError, "there is no group %lu; there are %llu", (unsigned long)most,
                 (unsigned long long)groups);
    return -1;
}

/* Parses field, positions and count, and checks them. `positions` is the first of `count`, or an array of them. The
 * range has to be released. */
static int parse_reading(GroupTable *self, PyObject *const *args, int is_text, group_reading_t *reading,
                         group_range_t *range, Py_buffer *positions) {
    int has_array = !PyLong_Check(args[1]);
    long long field = PyLong_AsLongLong(args[0]), position = has_array ? 0 : PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred()) return -1;
    long long count = PyLong_AsLongLong(args[2]), groups = (long long)self->table.memory.header->groups;
    if (PyErr_Occurred()) return -1;
    *range = (group_range_t){0};
    if (self->origin) {
        PyErr_SetString(PyExc_ValueError, "a captured GroupTable is read when all of it has been copied");
        return -1;
    }
    if (field < 0 || !group_reading(&self->table, (uint64_t)field, reading) || reading->is_text != is_text) {
        PyErr_Format(PyExc_ValueError, "there is no %s field %lld", is_text ? "text" : "word", field);
        return -1;
    }
    if (position < 0 || count < 0 || position > groups || (!has_array && count > groups - position)) {
        PyErr_Format(PyExc_ValueError, "there are no %lld groups from %lld on; there are %lld", count, position,
                     groups);
        return -1;
    }
    range->position = (uint64_t)position;
    range->count = (uint64_t)count;
    if (!has_array || borrow_positions(args[1], (uint64_t)groups, range, positions) == 0) return 0;
    release_range(range, positions);
    return -1;
}

static int writable(PyObject *buffer, Py_buffer *view, uint64_t least) {
    if (PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE) < 0) return -1;
    if ((uint64_t)view->len >= least) return 0;
    PyErr_Format(PyExc_ValueError, "a buffer of %zd bytes is too short, %llu are needed", view->len,
                 (unsigned long long)least);
    PyBuffer_Release(view);
    return -1;
}

/* read_words and read_offsets: (field, positions, count, out, valid) -> whether any is null */
static PyObject *read_plain(GroupTable *self, PyObject *const *args, Py_ssize_t count, int is_text) {
    group_reading_t reading;
    group_range_t range;
    Py_buffer out, valid, positions;
    PyObject *result = NULL;
    if (count != 5) return PyErr_SetString(PyExc_TypeError, "expected field, positions, count, out, valid"), NULL;
    if (parse_reading(self, args, is_text, &reading, &range, &positions) < 0) return NULL;
    if (writable(args[3], &out, 8 * (range.count + (uint64_t)is_text)) < 0) goto done;
    if (writable(args[4], &valid, range.count) < 0) {
        PyBuffer_Release(&out);
        goto done;
    }
    int any = group_read_valid(&self->table, &reading, &range, valid.buf);
    if (is_text)
        group_read_offsets(&self->table, &reading, &range, out.buf);
    else
        group_read_words(&self->table, &reading, &range, valid.buf, out.buf);
    PyBuffer_Release(&valid);
    PyBuffer_Release(&out);
    result = PyBool_FromLong(any);
done:
    release_range(&range, &positions);
    return result;
}

static PyObject *table_read_words(GroupTable *self, PyObject *const *args, Py_ssize_t count) {
    return read_plain(self, args, count, 0);
}

static PyObject *table_read_offsets(GroupTable *self, PyObject *const *args, Py_ssize_t count) {
    return read_plain(self, args, count, 1);
}

static PyObject *table_read_data(GroupTable *self, PyObject *const *args, Py_ssize_t count) {
    group_reading_t reading;
    group_range_t range;
    Py_buffer data, positions;
    if (count != 5) return PyErr_SetString(PyExc_TypeError, "read_data(field, positions, count, data, itemsize)"), NULL;
    long long itemsize = PyLong_AsLongLong(args[4]);
    if (itemsize < 0 || itemsize > INT32_MAX)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no itemsize: %lld", itemsize);
    if (parse_reading(self, args, 1, &reading, &range, &positions) < 0) return NULL;
    int status = writable(args[3], &data, 0);
    if (status == 0) {
        status = group_read_data(&self->table, &reading, &range, (uint32_t)itemsize, data.buf, (uint64_t)data.len);
        PyBuffer_Release(&data);
        if (status < 0) PyErr_SetString(PyExc_ValueError, "the texts do not fit the buffer or the itemsize");
    }
    release_range(&range, &positions);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* -- handing over -------------------------------------------------------------------------------------------------- */

/* Makes the index of loaded rows before another process or a copy has them. Returns -1 with an error. */
static int settle(GroupTable *self) { return set_error(group_settle(&self->table)); }

static PyObject *table_fileno(GroupTable *self, PyObject *none) {
    (void)none;
    if (settle(self) < 0) return NULL;
    return PyLong_FromLong(self->table.memory.fd);
}

static PyObject *attached(PyTypeObject *type, int fd) {
    GroupTable *self = new_object(type);
    if (!self) return NULL;
    if (group_attach(&self->table, fd) == GROUP_OK) return (PyObject *)self;
    self->table.memory.fd = -1;
    if (errno == EINVAL)
        PyErr_Format(PyExc_ValueError, "descriptor %d is not that of a GroupTable, or its contents are damaged", fd);
    else
        PyErr_SetFromErrno(PyExc_OSError);
    Py_DECREF((PyObject *)self);
    return NULL;
}

static PyObject *table_attach(PyObject *type, PyObject *number) {
    long fd = PyLong_AsLong(number);
    if (fd == -1 && PyErr_Occurred()) return NULL;
    return attached((PyTypeObject *)type, (int)fd);
}

static PyObject *table_reduce(GroupTable *self, PyObject *none) {
    (void)none;
    if (self->captured) return PyErr_SetString(PyExc_ValueError, "a captured GroupTable stays in its process"), NULL;
    if (settle(self) < 0) return NULL;
    PyObject *regions = PyTuple_New(GROUP_REGIONS);
    if (!regions) return NULL;
    for (int region = 0; region < GROUP_REGIONS; region++) {
        const char *base = (const char *)self->table.memory.base[region];
        PyObject *bytes = PyBytes_FromStringAndSize(base, (Py_ssize_t)group_used(&self->table, region));
        if (!bytes || PyTuple_SetItem(regions, region, bytes) < 0) {
            Py_DECREF(regions);
            return NULL;
        }
    }
    PyObject *restore = PyObject_GetAttrString((PyObject *)Py_TYPE((PyObject *)self), "restored");
    if (!restore) {
        Py_DECREF(regions);
        return NULL;
    }
    return Py_BuildValue("(N(N))", restore, regions);
}

/* Copies the regions of a pickled table into a new memory; then they are attached and checked like any other. */
static PyObject *table_restored(PyObject *type, PyObject *regions) {
    group_memory_t memory;
    PyObject *result = NULL;
    if (!PyTuple_Check(regions) || PyTuple_Size(regions) != GROUP_REGIONS)
        return PyErr_Format(PyExc_ValueError, "a GroupTable has %d regions", GROUP_REGIONS);
    if (group_create(&memory) < 0) return PyErr_SetFromErrno(PyExc_OSError);
    uint64_t allocated[GROUP_REGIONS];
    for (int region = 0; region < GROUP_REGIONS; region++) {
        Py_buffer view;
        if (PyObject_GetBuffer(PyTuple_GetItem(regions, region), &view, PyBUF_SIMPLE) < 0) goto done;
        int status = group_reserve(&memory, region, (size_t)view.len);
        allocated[region] = memory.header->allocated[region];
        if (status == 0 && region == REGION_DIRECTORY && view.len < GROUP_DIRECTORY_OFFSET) {
            PyErr_SetString(PyExc_ValueError, "the header of a GroupTable is longer");
            status = -1;
        } else if (status < 0)
            PyErr_SetFromErrno(PyExc_OSError);
        else if (view.len && region == REGION_DIRECTORY) {
            memcpy(memory.base[region], view.buf, (size_t)view.len);
            memset(memory.header->allocated, 0, sizeof memory.header->allocated);
        } else if (view.len)
            memcpy(memory.base[region], view.buf, (size_t)view.len);
        PyBuffer_Release(&view);
        if (status < 0) goto done;
    }
    memcpy(memory.header->allocated, allocated, sizeof allocated);
    result = attached((PyTypeObject *)type, memory.fd);
done:
    group_unmap(&memory);
    return result;
}

/* -- capturing ----------------------------------------------------------------------------------------------------- */

static PyObject *table_capture(GroupTable *self, PyObject *none) {
    (void)none;
    if (self->captured || self->table.capture)
        return PyErr_SetString(PyExc_ValueError, "this GroupTable is captured, or is being captured already"), NULL;
    GroupTable *made = new_object(Py_TYPE((PyObject *)self));
    if (!made) return NULL;
    made->captured = group_capture_open(&self->table.memory);
    if (!made->captured) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF((PyObject *)made);
        return NULL;
    }
    made->table.memory = made->captured->copy;
    if (group_capture_waits(made->captured)) {
        self->table.capture = made->captured;
        made->origin = Py_NewRef((PyObject *)self);
    }
    return (PyObject *)made;
}

static PyObject *table_copy_on(GroupTable *self, PyObject *number) {
    long long blocks = PyLong_AsLongLong(number);
    if (blocks == -1 && PyErr_Occurred()) return NULL;
    if (blocks < 1) return PyErr_Format(PyExc_ValueError, "blocks must be at least 1, got %lld", blocks);
    if (!self->origin) Py_RETURN_FALSE;
    if (group_copy_on(&((GroupTable *)self->origin)->table.memory, self->captured, (uint64_t)blocks)) Py_RETURN_TRUE;
    leave_origin(self);
    Py_RETURN_FALSE;
}

static PyObject *table_note_updates(GroupTable *self, PyObject *most) {
    unsigned long long rows = PyLong_AsUnsignedLongLong(most);
    if (PyErr_Occurred()) return NULL;
    if (self->captured) return PyErr_SetString(PyExc_ValueError, "a captured GroupTable takes no rows"), NULL;
    if (group_note(&self->table, rows) < 0) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *table_take_updates(GroupTable *self, PyObject *none) {
    (void)none;
    if (!self->table.updated) Py_RETURN_NONE;
    uint64_t groups = self->table.memory.header->groups, room = self->table.updated_room;
    PyObject *flags = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)groups);
    if (!flags) return NULL;
    uint64_t noted = groups < room ? groups : room - 1;
    memcpy(PyBytes_AsString(flags), self->table.updated + 1, noted);
    memset(PyBytes_AsString(flags) + noted, 0, groups - noted);
    group_note_no_more(&self->table);
    return flags;
}

static PyObject *table_empty(GroupTable *self, PyObject *none) {
    (void)none;
    if (self->captured) return PyErr_SetString(PyExc_ValueError, "a captured GroupTable stays as it is"), NULL;
    return PyBool_FromLong(group_empty(&self->table));
}

static PyObject *table_nbytes(GroupTable *self, void *closure) {
    (void)closure;
    uint64_t bytes = 0;
    for (int region = 0; region < GROUP_REGIONS; region++) bytes += self->table.memory.header->allocated[region];
    return PyLong_FromUnsignedLongLong(bytes);
}

static Py_ssize_t table_length(GroupTable *self) { return (Py_ssize_t)self->table.memory.header->groups; }

static PyMethodDef table_methods[] = {
    FAST("add", table_add, "add(keys, inputs, rows, numbers=None) -> None: group rows and add their values"),
    {"add_computed", (PyCFunction)table_add_computed, METH_VARARGS,
     "add_computed(code, columns, values, registers, rows, chosen) -> bool: a result has left its type"},
    FAST("merge", table_merge, "merge(keys, states, rows, numbers=None) -> None: merge groups of another table"),
    FAST("load", table_load, "load(keys, states, rows) -> None: merge groups none of which is there"),
    FAST("read_words", table_read_words,
         "read_words(field, positions, count, out, valid) -> bool: whether any is null"),
    FAST("read_offsets", table_read_offsets,
         "read_offsets(field, positions, count, offsets, valid) -> bool: whether any is null"),
    FAST("read_data", table_read_data, "read_data(field, positions, count, data, itemsize) -> None"),
    {"fileno", (PyCFunction)table_fileno, METH_NOARGS, "fileno() -> int: the memfd that holds the contents"},
    {"attach", table_attach, METH_O | METH_CLASS, "attach(fd) -> GroupTable: map a table that another process made"},
    {"restored", table_restored, METH_O | METH_CLASS, "restored(regions) -> GroupTable: what __reduce__ took apart"},
    {"capture", (PyCFunction)table_capture, METH_NOARGS, "capture() -> GroupTable: what it holds now"},
    {"copy_on", (PyCFunction)table_copy_on, METH_O, "copy_on(blocks) -> bool: whether more of it wait to be copied"},
    {"note_updates", (PyCFunction)table_note_updates, METH_O,
     "note_updates(most) -> None: begin to note which groups rows are added to, until they are more than that"},
    {"take_updates", (PyCFunction)table_take_updates, METH_NOARGS,
     "take_updates() -> bytes | None: of each group 1 if it got a row, and stop; None: not noted, or too many"},
    {"empty", (PyCFunction)table_empty, METH_NOARGS,
     "empty() -> bool: forget all groups and keep the memory; False: it is being captured, noted or loaded"},
    {"__reduce__", (PyCFunction)table_reduce, METH_NOARGS, "Copies the contents."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef table_properties[] = {
    {"nbytes", (getter)table_nbytes, NULL, "Bytes of memory taken.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_new, table_new},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_methods, table_methods},
    {Py_tp_getset, table_properties},
    {Py_mp_length, table_length},
    {Py_tp_doc, "GroupTable(keys, aggregates): groups rows and keeps their aggregates."},
    {0, NULL},
};

static PyType_Spec table_spec = {"shmjet._native._columns.GroupTable", sizeof(GroupTable), 0, Py_TPFLAGS_DEFAULT,
                                 table_slots};

PyMethodDef columns_group_methods[] = {
    {NULL, NULL, 0, NULL},
};

int columns_group_exec(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &table_spec, NULL);
    if (!type) return -1;
    int status = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return status;
}
