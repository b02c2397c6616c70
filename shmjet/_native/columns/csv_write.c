/* Binding of the kernel in csv_write.h. */
#include "columns/columns.h"
#include "columns/csv_write.h"

static int slow_float(double value, uint8_t *out) {
    char *text = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (!text) return -1;
    size_t length = strlen(text);
    memcpy(out, text, length);
    PyMem_Free(text);
    return (int)length;
}

/* Returns whether there is a way to write the column; `unit` is one of csv_format.UNITS. */
static int put_column(put_column_t *source, const column_t *column, char unit) {
    static const struct {
        char unit;
        put_form_t form;
        int64_t steps;
        int digits;
    } dates[] = {
        {'Y', PUT_YEAR, 0, 0}, {'M', PUT_MONTH, 0, 0}, {'W', PUT_DAY, 7, 0}, {'D', PUT_DAY, 1, 0},
        {'h', PUT_HOUR, 24, 0}, {'m', PUT_MINUTE, 1440, 0}, {'s', PUT_SECOND, 86400, 0},
        {'i', PUT_SECOND, 86400 * INT64_C(1000), 3}, {'u', PUT_SECOND, 86400 * INT64_C(1000000), 6},
        {'n', PUT_SECOND, 86400 * INT64_C(1000000000), 9},
    };
    uint32_t size = column->itemsize;
    *source = (put_column_t){.column = *column};
    switch (column->kind) {
    case 't':
    case 'y': source->form = PUT_TEXT; return 1;
    case 'i': source->form = PUT_INT; return size == 1 || size == 2 || size == 4 || size == 8;
    case 'u': source->form = PUT_UINT; return size == 1 || size == 2 || size == 4 || size == 8;
    case 'f': source->form = PUT_FLOAT; return size == 2 || size == 4 || size == 8;
    case 'b': source->form = PUT_BOOL; return size == 1 || size == 8; /* as row_values() writes them */
    case 'm': source->form = PUT_SPAN; return size == 8;
    case 'M':
        for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) {
            if (dates[i].unit != unit) continue;
            source->form = dates[i].form;
            source->steps = dates[i].steps;
            source->digits = dates[i].digits;
            return size == 8;
        }
    }
    return 0;
}

static PyObject *write_records(const put_plan_t *plan, int64_t rows) {
    uint8_t *memory = PyMem_Malloc((size_t)put_most_bytes(plan, rows) + 1);
    if (!memory) return PyErr_NoMemory();
    int64_t length = csv_write(plan, rows, memory);
    PyObject *result = NULL;
    if (length >= 0)
        result = PyBytes_FromStringAndSize((const char *)memory, (Py_ssize_t)length);
    else if (length == PUT_REFUSED)
        result = Py_NewRef(Py_None);
    PyMem_Free(memory);
    return result;
}

static PyObject *write_columns(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    (void)module;
    if (given != 5) return PyErr_Format(PyExc_TypeError, "csv_write() takes 5 arguments, got %zd", given);
    char *units, *null;
    Py_ssize_t unit_count, null_length, count;
    long delimiter = PyLong_AsLong(args[2]), quote = PyLong_AsLong(args[3]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[1], &units, &unit_count) < 0 ||
        PyBytes_AsStringAndSize(args[4], &null, &null_length) < 0)
        return NULL;
    bound_column_t *bound = columns_bind(args[0], &count);
    if (!bound) return NULL;
    PyObject *result = NULL;
    put_column_t *sources = NULL;
    if (!count || unit_count != count || delimiter < 0 || delimiter > 127 || quote < -1 || quote > 127) {
        PyErr_Format(PyExc_ValueError, "%zd columns with %zd units, delimiter %ld and quote %ld: they must be ASCII",
                     count, unit_count, delimiter, quote);
        goto done;
    }
    if (!(sources = PyMem_Calloc((size_t)count, sizeof *sources))) {
        PyErr_NoMemory();
        goto done;
    }
    put_plan_t plan = {sources, count, (uint8_t)delimiter, (uint8_t)(quote < 0 ? 0 : quote), quote >= 0,
                       (const uint8_t *)null, null_length, slow_float};
    Py_ssize_t ready = 0;
    while (ready < count && put_column(&sources[ready], &bound[ready].column, units[ready])) ready++;
    result = ready == count ? write_records(&plan, bound->column.rows) : Py_NewRef(Py_None);
done:
    PyMem_Free(sources);
    columns_unbind(bound, count);
    return result;
}

PyMethodDef columns_csv_write_methods[] = {
    FAST("csv_write", write_columns, "Write columns as records."),
    {NULL, NULL, 0, NULL},
};
