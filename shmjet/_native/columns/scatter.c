/* Binding of the kernels in scatter.h. */
#include "columns/columns_key.h"

#include "columns/scatter.h"

/* Borrows a buffer of at least `least` bytes whose start is a multiple of `alignment`. */
static int borrow(PyObject *object, int flags, int64_t least, unsigned alignment, const char *what, Py_buffer *view) {
    if (PyObject_GetBuffer(object, view, flags) < 0) return -1;
    if (view->len >= least && (uintptr_t)view->buf % alignment == 0) return 0;
    PyErr_Format(PyExc_ValueError, "%s must have at least %lld bytes at a multiple of %u, got %zd", what,
                 (long long)least, alignment, view->len);
    PyBuffer_Release(view);
    return -1;
}

/* --- assign ------------------------------------------------------------------------------------------------------- */

static int check_table(const int32_t *table, int64_t partitions, int64_t consumers) {
    for (int64_t i = 0; i < partitions; i++)
        if (table[i] < 0 || table[i] >= consumers) {
            PyErr_Format(PyExc_ValueError, "partition %lld goes to consumer %d of %lld", (long long)i, (int)table[i],
                         (long long)consumers);
            return -1;
        }
    return 0;
}

static PyObject *columns_assign(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count < 4 || count > 5) {
        PyErr_SetString(PyExc_TypeError, "assign(columns, table, assigned, counts, forms=None)");
        return NULL;
    }
    bound_key_t bound;
    Py_buffer views[3];
    int held = 0;
    PyObject *result = NULL;
    if (key_bind(args[0], count > 4 ? args[4] : Py_None, &bound) < 0) return NULL;
    if (borrow(args[1], PyBUF_SIMPLE, 4, 4, "table", &views[0]) < 0) goto done;
    held++;
    if (borrow(args[2], PyBUF_WRITABLE, 2 * bound.rows, 2, "assigned", &views[1]) < 0) goto done;
    held++;
    if (args[3] != Py_None) {
        if (borrow(args[3], PyBUF_WRITABLE, 0, 8, "counts", &views[2]) < 0) goto done;
        held++;
    }
    int64_t partitions = views[0].len / 4, consumers = held > 2 ? views[2].len / 8 : UINT16_MAX + 1;
    if (check_table(views[0].buf, partitions, consumers < UINT16_MAX + 1 ? consumers : UINT16_MAX + 1) < 0) goto done;
    assign_rows(&bound.key, bound.rows, views[0].buf, (uint32_t)partitions, views[1].buf,
                held > 2 ? views[2].buf : NULL);
    result = Py_NewRef(Py_None);
done:
    while (held > 0) PyBuffer_Release(&views[--held]);
    key_unbind(&bound);
    return result;
}

/* --- scatter ------------------------------------------------------------------------------------------------------ */

/* What scatter() holds while it runs. */
typedef struct {
    scatter_t scatter;
    bound_column_t *bound;
    Py_ssize_t bound_count;
    Py_buffer assigned, filled;
    int has_assigned, has_filled;
    Py_buffer *views; /* of the builders' memory: up to three a column */
    int view_count;
} scatter_call_t;

static uint8_t *borrow_memory(scatter_call_t *call, PyObject *memory, int64_t least, unsigned alignment,
                              const char *what) {
    Py_buffer *view = &call->views[call->view_count];
    if (borrow(memory, PyBUF_WRITABLE, least, alignment, what, view) < 0) return NULL;
    call->view_count++;
    return view->buf;
}

/* Reads the tuple (values, ends or None, valid or None) of one column. */
static int read_builder(scatter_call_t *call, PyObject *memory, const column_t *column, builder_t *builder) {
    const scatter_t *scatter = &call->scatter;
    const int64_t places = scatter->consumers * scatter->stride;
    if (!PyTuple_Check(memory) || PyTuple_Size(memory) != 3) {
        PyErr_SetString(PyExc_TypeError, "the memory of a column is (values, ends or None, valid or None)");
        return -1;
    }
    PyObject *ends = PyTuple_GetItem(memory, 1), *valid = PyTuple_GetItem(memory, 2);
    builder->column = *column;
    if ((ends != Py_None) != column_is_variable(column) || (column->valid && valid == Py_None)) {
        PyErr_SetString(PyExc_ValueError, "a column of text needs ends, a column with nulls needs valid");
        return -1;
    }
    int64_t least = column_is_variable(column) ? scatter->consumers : places * column->itemsize;
    if (!(builder->values = borrow_memory(call, PyTuple_GetItem(memory, 0), least, 1, "values"))) return -1;
    builder->text_room = call->views[call->view_count - 1].len / scatter->consumers;
    if (ends != Py_None && !(builder->ends = borrow_memory(call, ends, 8 * places, 8, "ends"))) return -1;
    if (valid != Py_None && !(builder->valid = borrow_memory(call, valid, places, 1, "valid"))) return -1;
    return 0;
}

static int read_filled(scatter_call_t *call, PyObject *filled) {
    scatter_t *scatter = &call->scatter;
    if (borrow(filled, PyBUF_WRITABLE, 8, 8, "filled", &call->filled) < 0) return -1;
    call->has_filled = 1;
    scatter->filled = call->filled.buf;
    scatter->consumers = call->filled.len / 8;
    if (scatter->capacity < 1 || scatter->stride <= scatter->capacity ||
        scatter->stride > UINT32_MAX / scatter->consumers) {
        PyErr_Format(PyExc_ValueError, "no builders for %lld consumers have capacity %lld and stride %lld",
                     (long long)scatter->consumers, (long long)scatter->capacity, (long long)scatter->stride);
        return -1;
    }
    for (int64_t i = 0; i < scatter->consumers; i++)
        if (scatter->filled[i] < 0 || scatter->filled[i] > scatter->capacity) {
            PyErr_Format(PyExc_ValueError, "consumer %lld cannot have %lld rows", (long long)i,
                         (long long)scatter->filled[i]);
            return -1;
        }
    return 0;
}

static int read_builders(scatter_call_t *call, PyObject *memories) {
    int status = -1;
    PyObject *sequence = PySequence_Tuple(memories);
    if (!sequence) return -1;
    if (PyTuple_Size(sequence) != call->bound_count) {
        PyErr_SetString(PyExc_ValueError, "each column needs memory to go to");
        goto done;
    }
    call->views = PyMem_Calloc(3 * (size_t)call->bound_count + 1, sizeof *call->views);
    call->scatter.builders = PyMem_Calloc((size_t)call->bound_count + 1, sizeof *call->scatter.builders);
    if (!call->views || !call->scatter.builders) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < call->bound_count; i++)
        if (read_builder(call, PyTuple_GetItem(sequence, i), &call->bound[i].column, &call->scatter.builders[i]) < 0)
            goto done;
    status = 0;
done:
    Py_DECREF(sequence);
    return status;
}

static void release(scatter_call_t *call) {
    while (call->view_count > 0) PyBuffer_Release(&call->views[--call->view_count]);
    PyMem_Free(call->views);
    PyMem_Free(call->scatter.builders);
    if (call->has_assigned) PyBuffer_Release(&call->assigned);
    if (call->has_filled) PyBuffer_Release(&call->filled);
    if (call->bound) columns_unbind(call->bound, call->bound_count);
}

static PyObject *columns_scatter(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "scatter(columns, assigned, start, builders, filled, capacity, stride)");
        return NULL;
    }
    scatter_call_t call = {0};
    PyObject *result = NULL;
    int64_t start = PyLong_AsLongLong(args[2]);
    if (start == -1 && PyErr_Occurred()) return NULL;
    call.scatter.capacity = PyLong_AsLongLong(args[5]);
    if (call.scatter.capacity == -1 && PyErr_Occurred()) return NULL;
    call.scatter.stride = PyLong_AsLongLong(args[6]);
    if (call.scatter.stride == -1 && PyErr_Occurred()) return NULL;
    if (!(call.bound = columns_bind(args[0], &call.bound_count))) return NULL;
    int64_t rows = call.bound_count ? call.bound[0].column.rows : 0;
    if (start < 0 || start > rows) {
        PyErr_Format(PyExc_ValueError, "there is no row %lld in %lld", (long long)start, (long long)rows);
        goto done;
    }
    if (borrow(args[1], PyBUF_SIMPLE, 2 * rows, 2, "assigned", &call.assigned) < 0) goto done;
    call.has_assigned = 1;
    call.scatter.assigned = call.assigned.buf;
    if (read_filled(&call, args[4]) < 0 || read_builders(&call, args[3]) < 0) goto done;
    call.scatter.columns = (int)call.bound_count;
    int64_t next = scatter_rows(&call.scatter, start, rows);
    if (next < rows && call.scatter.assigned[next] >= call.scatter.consumers)
        PyErr_Format(PyExc_ValueError, "row %lld is assigned to consumer %u of %lld", (long long)next,
                     call.scatter.assigned[next], (long long)call.scatter.consumers);
    else
        result = PyLong_FromLongLong(next);
done:
    release(&call);
    return result;
}

/* --- buckets ------------------------------------------------------------------------------------------------------ */

/* bucket_rows(buckets, start, count, places, out) */
static PyObject *columns_bucket_rows(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer views[3];
    int held = 0;
    PyObject *result = NULL;
    if (count != 5) return PyErr_SetString(PyExc_TypeError, "bucket_rows(buckets, start, count, places, out)"), NULL;
    long long start = PyLong_AsLongLong(args[1]), rows = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred()) return NULL;
    if (borrow(args[0], PyBUF_SIMPLE, 0, 4, "buckets", &views[held]) < 0) goto done;
    held++;
    if (borrow(args[3], PyBUF_WRITABLE, 0, 4, "next", &views[held]) < 0) goto done;
    held++;
    if (borrow(args[4], PyBUF_WRITABLE, 0, 4, "out", &views[held]) < 0) goto done;
    held++;
    long long all = views[0].len / 4;
    if (start < 0 || rows < 0 || start > all || rows > all - start || all > UINT32_MAX)
        PyErr_Format(PyExc_ValueError, "there are no %lld rows from %lld on among %lld", rows, start, all);
    else if (bucket_rows(views[0].buf, (uint64_t)start, (uint64_t)rows, views[1].buf, (uint64_t)views[1].len / 4,
                         views[2].buf, (uint64_t)views[2].len / 4) < 0)
        PyErr_SetString(PyExc_ValueError, "a row belongs to a bucket or a place that does not exist");
    else
        result = Py_NewRef(Py_None);
done:
    while (held > 0) PyBuffer_Release(&views[--held]);
    return result;
}

/* number_places(places, first, out) */
static PyObject *columns_number_places(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer places, out;
    PyObject *result = NULL;
    if (count != 3) return PyErr_SetString(PyExc_TypeError, "number_places(places, first, out)"), NULL;
    long long first = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred() || borrow(args[0], PyBUF_SIMPLE, 0, 4, "places", &places) < 0) return NULL;
    if (borrow(args[2], PyBUF_WRITABLE, 0, 4, "out", &out) < 0) goto done;
    if (first < 0 || first > (long long)UINT32_MAX - places.len / 4)
        PyErr_Format(PyExc_ValueError, "%zd numbers from %lld on have more than 32 bits", places.len / 4, first);
    else if (number_places(places.buf, (uint64_t)places.len / 4, (uint32_t)first, out.buf, (uint64_t)out.len / 4) < 0)
        PyErr_SetString(PyExc_ValueError, "a number belongs to a place that does not exist");
    else
        result = Py_NewRef(Py_None);
    PyBuffer_Release(&out);
done:
    PyBuffer_Release(&places);
    return result;
}

/* --- take --------------------------------------------------------------------------------------------------------- */

/* take_text_ends(offsets, data, indices, ends) and take_text(offsets, data, indices, ends, out) */
static PyObject *take(PyObject *const *args, int copies) {
    static const char *const names[] = {"offsets", "data", "indices", "ends", "out"};
    Py_buffer views[5];
    int held = 0;
    PyObject *result = NULL;
    for (; held < 4 + copies; held++) {
        int flags = held == 3 + copies ? PyBUF_WRITABLE : PyBUF_SIMPLE;
        int64_t least = held == 0 ? 8 : held == 3 ? 8 * (views[2].len / 8 + 1) : 0;
        if (borrow(args[held], flags, least, 1, names[held], &views[held]) < 0) goto done;
    }
    int64_t count = views[2].len / 8, bytes = views[1].len;
    column_t column = {.kind = 't', .rows = views[0].len / 8 - 1, .data = views[1].buf, .offsets = views[0].buf};
    if (copies) {
        if (views[4].len < load_i64((const uint8_t *)views[3].buf + 8 * count))
            PyErr_SetString(PyExc_ValueError, "out is shorter than the last of ends says");
        else if (take_text(&column, bytes, views[2].buf, count, views[3].buf, views[4].buf))
            result = Py_NewRef(Py_None);
        else
            PyErr_SetString(PyExc_ValueError, "ends are not those of take_text_ends()");
        goto done;
    }
    int64_t place = take_text_ends(&column, bytes, views[2].buf, count, views[3].buf);
    if (place < 0) {
        result = PyLong_FromLongLong(load_i64((const uint8_t *)views[3].buf + 8 * count));
        goto done;
    }
    int64_t index = load_i64((const uint8_t *)views[2].buf + 8 * place);
    if (index < -column.rows || index >= column.rows)
        PyErr_Format(PyExc_IndexError, "index %lld is out of range in a Text of %lld values", (long long)index,
                     (long long)column.rows);
    else
        PyErr_Format(PyExc_ValueError, "the offsets of value %lld leave the %lld bytes of data", (long long)index,
                     (long long)bytes);
done:
    while (held > 0) PyBuffer_Release(&views[--held]);
    return result;
}

static PyObject *columns_take_text_ends(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count == 4) return take(args, 0);
    PyErr_SetString(PyExc_TypeError, "take_text_ends(offsets, data, indices, ends)");
    return NULL;
}

static PyObject *columns_take_text(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count == 5) return take(args, 1);
    PyErr_SetString(PyExc_TypeError, "take_text(offsets, data, indices, ends, out)");
    return NULL;
}

PyMethodDef columns_scatter_methods[] = {
    FAST("assign", columns_assign, "assign(columns, table, assigned, counts, forms=None)"),
    FAST("scatter", columns_scatter, "scatter(columns, assigned, start, builders, filled, capacity, stride)"),
    FAST("bucket_rows", columns_bucket_rows,
         "bucket_rows(buckets, start, count, places, out) -> None: one step of a counting sort"),
    FAST("number_places", columns_number_places,
         "number_places(places, first, out) -> None: write ascending numbers, each at its place"),
    FAST("take_text_ends", columns_take_text_ends, "take_text_ends(offsets, data, indices, ends)"),
    FAST("take_text", columns_take_text, "take_text(offsets, data, indices, ends, out)"),
    {NULL, NULL, 0, NULL},
};
