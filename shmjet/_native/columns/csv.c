/* Binding of the kernels in csv.h and lines.h. */
#include "columns/columns.h"
#include "columns/csv.h"
#include "columns/lines.h"

enum { BUFFERS = 3, FIRST_PARITY = 1 << 1 | '\n' << 8 };

typedef struct {
    csv_plan_t plan;
    Py_buffer *views;
    Py_ssize_t view_count;
    csv_token_t *nulls;
} csv_call_t;

static int slow_float(const uint8_t *text, size_t length, double *value) {
    char small[400], *copy = small;
    if (length >= sizeof small && !(copy = PyMem_Malloc(length + 1))) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(copy, text, length);
    copy[length] = 0;
    *value = PyOS_string_to_double(copy, NULL, NULL);
    if (copy != small) PyMem_Free(copy);
    if (*value != -1.0 || !PyErr_Occurred()) return 0;
    PyErr_Clear();
    return -1;
}

static void call_end(csv_call_t *call) {
    while (call->view_count > 0) PyBuffer_Release(&call->views[--call->view_count]);
    PyMem_Free(call->views);
    PyMem_Free(call->plan.columns);
    PyMem_Free(call->nulls);
}

/* Reads the five arguments (data, position, size, delimiter, quote or -1). Holds `view` on success. */
static int text_bind(PyObject *const *args, Py_buffer *view, csv_text_t *text, int64_t *position) {
    long long at = PyLong_AsLongLong(args[1]), size = PyLong_AsLongLong(args[2]);
    long delimiter = PyLong_AsLong(args[3]), quote = PyLong_AsLong(args[4]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], view, PyBUF_SIMPLE) < 0) return -1;
    if (at < 0 || size < at || size > view->len || delimiter < 0 || delimiter > 255 || quote < -1 || quote > 255) {
        PyErr_Format(PyExc_ValueError,
                     "position %lld and size %lld must ascend in %zd bytes, delimiter %ld and quote %ld be bytes", at,
                     size, view->len, delimiter, quote);
        PyBuffer_Release(view);
        return -1;
    }
    text->data = view->buf ? view->buf : (const uint8_t *)"";
    text->size = size;
    text->at_end = 0;
    text->delimiter = (uint8_t)delimiter;
    text->has_quote = quote >= 0;
    text->quote = (uint8_t)(quote < 0 ? delimiter : quote);
    *position = at;
    return 0;
}

static uint8_t *bind_output(csv_call_t *call, PyObject *buffer, int64_t least, int64_t *size) {
    Py_buffer *view = &call->views[call->view_count];
    if (PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE) < 0) return NULL;
    call->view_count++;
    if (view->len < least) {
        PyErr_Format(PyExc_ValueError, "a column's memory has %zd bytes, but needs %lld", view->len, (long long)least);
        return NULL;
    }
    if (size) *size = view->len;
    return view->buf ? view->buf : (uint8_t *)"";
}

/* Reads (kind, unit, itemsize, data, offsets or None, valid), or None for a field that is not wanted. */
static int bind_column(csv_call_t *call, PyObject *given, csv_column_t *column, int64_t rows) {
    if (given == Py_None) return 0;
    if (!PyTuple_Check(given) || PyTuple_Size(given) != 6) {
        PyErr_SetString(PyExc_TypeError, "a column is (kind, unit, itemsize, data, offsets or None, valid)");
        return -1;
    }
    int64_t limit = call->plan.row_limit, used;
    long kind = PyLong_AsLong(PyTuple_GetItem(given, 0)), unit = PyLong_AsLong(PyTuple_GetItem(given, 1)),
         itemsize = PyLong_AsLong(PyTuple_GetItem(given, 2));
    if (PyErr_Occurred()) return -1;
    PyObject *offsets = PyTuple_GetItem(given, 4);
    int variable = kind == 't' || kind == 'y';
    int fits = variable                        ? itemsize == 0
               : kind == 'i' || kind == 'u'    ? itemsize == 1 || itemsize == 2 || itemsize == 4 || itemsize == 8
               : kind == 'f'                   ? itemsize == 4 || itemsize == 8
               : kind == 'b'                   ? itemsize == 1
               : (kind == 'M' || kind == 'm' || kind == 'd' || kind == 'Z') && itemsize == 8;
    if (kind == 'd') fits = fits && unit >> 5 >= 1 && unit >> 5 <= 18 && (unit & 31) <= unit >> 5;
    if (!fits || variable != (offsets != Py_None)) {
        PyErr_Format(PyExc_ValueError, "no CSV field becomes a column of kind %ld and itemsize %ld", kind, itemsize);
        return -1;
    }
    column->kind = (char)kind;
    column->unit = (int16_t)unit;
    column->itemsize = (uint32_t)itemsize;
    if (!(column->data = bind_output(call, PyTuple_GetItem(given, 3), limit * itemsize, &column->room))) return -1;
    if (variable) {
        if (!(column->offsets = bind_output(call, offsets, 8 * (limit + 1), NULL))) return -1;
        memcpy(&used, column->offsets + 8 * rows, 8);
        if (used < 0 || used > column->room) {
            PyErr_Format(PyExc_ValueError, "the text ends at %lld of %lld bytes", (long long)used,
                         (long long)column->room);
            return -1;
        }
    }
    column->valid = bind_output(call, PyTuple_GetItem(given, 5), limit, NULL);
    return column->valid ? 0 : -1;
}

static int bind_nulls(csv_call_t *call, PyObject *nulls) {
    Py_ssize_t count = PyTuple_Size(nulls);
    if (count < 0 || !(call->nulls = PyMem_Calloc((size_t)count + 1, sizeof *call->nulls))) return -1;
    call->plan.nulls = call->nulls;
    call->plan.null_count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        char *bytes;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(nulls, i), &bytes, &length) < 0) return -1;
        call->nulls[i] = (csv_token_t){(const uint8_t *)bytes, length};
        call->plan.null_lengths |= (uint64_t)1 << (length < 63 ? length : 63);
    }
    return 0;
}

static int call_begin(csv_call_t *call, PyObject *columns, PyObject *nulls, PyObject *allowed, int64_t rows,
                      int64_t limit) {
    memset(call, 0, sizeof *call);
    Py_ssize_t count = PyTuple_Size(columns);
    if (count < 0) return -1;
    if (rows < 0 || limit < rows || limit > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "rows %lld and the limit %lld must ascend from 0", (long long)rows,
                     (long long)limit);
        return -1;
    }
    call->plan.slow = slow_float;
    call->plan.row_limit = limit;
    call->plan.column_count = count;
    call->plan.columns = PyMem_Calloc((size_t)count + 1, sizeof *call->plan.columns);
    call->views = PyMem_Calloc((size_t)count * BUFFERS + 1, sizeof *call->views);
    if (!call->plan.columns || !call->views) {
        PyErr_NoMemory();
        goto fail;
    }
    if (bind_nulls(call, nulls) < 0) goto fail;
    if (allowed != Py_None) {
        char *bytes;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(allowed, &bytes, &length) < 0) goto fail;
        if (length != 256) {
            PyErr_Format(PyExc_ValueError, "there are 256 bytes that may be allowed, got %zd", length);
            goto fail;
        }
        call->plan.allowed = (const uint8_t *)bytes;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (bind_column(call, PyTuple_GetItem(columns, i), &call->plan.columns[i], rows) < 0) goto fail;
    return 0;
fail:
    call_end(call);
    return -1;
}

static int count_arguments(const char *name, Py_ssize_t count, Py_ssize_t wanted) {
    if (count == wanted) return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, got %zd", name, wanted, count);
    return -1;
}

static PyObject *parse(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer view;
    csv_text_t text;
    csv_call_t call;
    csv_result_t result = {0};
    if (count_arguments("csv_parse", count, 13) < 0) return NULL;
    int at_end = PyObject_IsTrue(args[5]), lenient = PyObject_IsTrue(args[10]);
    long long stop = PyLong_AsLongLong(args[6]), rows = PyLong_AsLongLong(args[11]),
              limit = PyLong_AsLongLong(args[12]);
    if (PyErr_Occurred() || text_bind(args, &view, &text, &result.position) < 0) return NULL;
    text.at_end = at_end;
    PyObject *answer = NULL;
    if (call_begin(&call, args[7], args[8], args[9], rows, limit) < 0) goto done;
    call.plan.lenient = lenient;
    result.rows = rows;
    csv_status_t status = csv_parse(&call.plan, &text, stop, &result);
    call_end(&call);
    answer = Py_BuildValue("iLLL(LLLLLi)", (int)status, (long long)result.position, (long long)result.rows,
                           (long long)result.odd, (long long)result.record, (long long)result.field,
                           (long long)result.fields, (long long)result.begin, (long long)result.end, result.reason);
done:
    PyBuffer_Release(&view);
    return answer;
}

static PyObject *split(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer view;
    csv_text_t text;
    int64_t position;
    if (count_arguments("csv_split", count, 6) < 0) return NULL;
    int at_end = PyObject_IsTrue(args[5]), reason = 0;
    if (at_end < 0 || text_bind(args, &view, &text, &position) < 0) return NULL;
    text.at_end = at_end;
    PyObject *answer = NULL, *values = PyList_New(0);
    csv_cursor_t cursor = csv_cursor(&text, position);
    csv_ending_t ending = CSV_BETWEEN;
    while (values && ending == CSV_BETWEEN) {
        csv_span_t span;
        ending = csv_field(&cursor, position, 0, &span);
        if (ending == CSV_CUT) break;
        if (ending == CSV_UNCLOSED) {
            reason = CSV_BAD_UNCLOSED;
            span.end = span.next = text.size;
        } else if (span.trailing && !reason) {
            reason = CSV_BAD_TRAILING;
        }
        PyObject *value = PyBytes_FromStringAndSize(NULL, span.end - span.begin), *pair = NULL;
        if (value) {
            char *bytes = PyBytes_AsString(value);
            int64_t length =
                csv_copy((uint8_t *)bytes, text.data + span.begin, span.end - span.begin, span.doubled, text.quote);
            pair = Py_BuildValue("(y#O)", bytes, (Py_ssize_t)length, span.quoted ? Py_True : Py_False);
        }
        if (!pair || PyList_Append(values, pair) < 0) Py_CLEAR(values);
        Py_XDECREF(value);
        Py_XDECREF(pair);
        position = span.next;
    }
    if (values && ending == CSV_CUT) {
        answer = Py_NewRef(Py_None);
    } else if (values) {
        answer = Py_BuildValue("OLi", values, (long long)position, reason);
    }
    Py_XDECREF(values);
    PyBuffer_Release(&view);
    return answer;
}

static PyObject *skip(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer view;
    csv_text_t text;
    int64_t position;
    if (count_arguments("csv_skip", count, 6) < 0) return NULL;
    int at_end = PyObject_IsTrue(args[5]);
    if (at_end < 0 || text_bind(args, &view, &text, &position) < 0) return NULL;
    text.at_end = at_end;
    position = csv_skip(&text, position);
    PyBuffer_Release(&view);
    return PyLong_FromLongLong(position);
}

static PyObject *follow(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer view;
    csv_text_t text;
    int64_t position;
    if (count_arguments("csv_follow", count, 6) < 0) return NULL;
    long state = PyLong_AsLong(args[5]);
    if ((state == -1 && PyErr_Occurred()) || text_bind(args, &view, &text, &position) < 0) return NULL;
    csv_parity_t parity = {{state & 1, state >> 1 & 1}, {state >> 2 & 1, state >> 3 & 1}, (uint8_t)(state >> 8)};
    csv_follow(&parity, &text, position);
    PyBuffer_Release(&view);
    return PyLong_FromLong(parity.inside[0] | parity.inside[1] << 1 | parity.closing[0] << 2 | parity.closing[1] << 3 |
                           parity.last << 8);
}

static PyObject *split_lines(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer view, out[2];
    csv_text_t text;
    lines_t state;
    int held = 0;
    if (count_arguments("split_lines", count, 7) < 0) return NULL;
    long long rows = PyLong_AsLongLong(args[5]), limit = PyLong_AsLongLong(args[6]);
    PyObject *newline = PyLong_FromLong('\n'), *carriage = PyLong_FromLong('\r'), *answer = NULL;
    PyObject *const bound[] = {args[0], args[1], args[2], newline, carriage};
    if (PyErr_Occurred() || text_bind(bound, &view, &text, &state.position) < 0) goto done;
    for (; held < 2; held++)
        if (PyObject_GetBuffer(args[3 + held], &out[held], PyBUF_WRITABLE) < 0) goto release;
    int64_t used = -1;
    if (rows >= 0 && rows <= limit && limit <= INT32_MAX && out[1].len >= 8 * (limit + 1))
        memcpy(&used, (uint8_t *)out[1].buf + 8 * rows, 8);
    if (used < 0 || used > out[0].len || out[0].len - used < text.size - state.position) {
        PyErr_Format(PyExc_ValueError, "%lld rows of at most %lld do not fit into %zd bytes of text and %zd of offsets",
                     rows, limit, out[0].len, out[1].len);
        goto release;
    }
    state.rows = rows;
    lines_split(&text, out[0].buf ? out[0].buf : (uint8_t *)"", out[1].buf, limit, &state);
    answer = Py_BuildValue("LL", (long long)state.position, (long long)state.rows);
release:
    while (held > 0) PyBuffer_Release(&out[--held]);
    PyBuffer_Release(&view);
done:
    Py_XDECREF(newline);
    Py_XDECREF(carriage);
    return answer;
}

static PyObject *count_json_lines(PyObject *module, PyObject *buffer) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0) return NULL;
    long long lines = lines_of_json(view.buf, view.len);
    PyBuffer_Release(&view);
    return PyLong_FromLongLong(lines);
}

static PyObject *is_utf8(PyObject *module, PyObject *buffer) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0) return NULL;
    int good = csv_is_ascii(view.buf, view.len) || csv_is_utf8(view.buf, view.len);
    PyBuffer_Release(&view);
    return PyBool_FromLong(good);
}

static PyObject *power_of_five(PyObject *module, PyObject *exponent) {
    (void)module;
    long q = PyLong_AsLong(exponent);
    if (q == -1 && PyErr_Occurred()) return NULL;
    if (q < CSV_POWER_LOW || q > CSV_POWER_HIGH) return Py_NewRef(Py_None);
    return Py_BuildValue("KK", csv_powers[q - CSV_POWER_LOW][0], csv_powers[q - CSV_POWER_LOW][1]);
}

PyMethodDef columns_csv_methods[] = {
    FAST("csv_parse", parse, "Parse records into columns."),
    FAST("csv_split", split, "Split one record into its values."),
    FAST("csv_skip", skip, "Find the end of the record inside one of whose quoted fields a position lies."),
    FAST("csv_follow", follow, "Follow both ways to read a stretch of CSV: from outside and from inside quotes."),
    FAST("split_lines", split_lines, "Append lines to a text column."),
    {"count_json_lines", count_json_lines, METH_O, "Count the lines of JSON that are not blank."},
    {"is_utf8", is_utf8, METH_O, "Whether bytes are well-formed UTF-8."},
    {"csv_power_of_five", power_of_five, METH_O, "A row of the table of powers of five, for tests."},
    {NULL, NULL, 0, NULL},
};

int columns_csv_exec(PyObject *module) { return PyModule_AddIntConstant(module, "CSV_START", FIRST_PARITY); }
