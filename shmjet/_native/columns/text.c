/* Binding of the text kernels: text_split.h, text_case.h, text_prefix.h, word_count.h, word_walk.h. */
#include "columns/columns.h"
#include "columns/text_case.h"
#include "columns/text_prefix.h"
#include "columns/text_split.h"
#include "columns/word_count.h"
#include "columns/word_walk.h"

static int bind_text(PyObject *descriptor, bound_column_t *bound) {
    if (column_bind(descriptor, bound) < 0) return -1;
    if (bound->column.kind == 't') return 0;
    PyErr_Format(PyExc_TypeError, "a column of text is needed (kind 't'), got kind '%c'", bound->column.kind);
    column_unbind(bound);
    return -1;
}

/* A buffer of at least so many bytes. */
static int get_room(PyObject *object, Py_buffer *view, int writable, int64_t least, const char *what) {
    if (PyObject_GetBuffer(object, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) return -1;
    if (view->len >= least) return 0;
    PyErr_Format(PyExc_ValueError, "%s has %zd bytes, but needs %lld", what, view->len, (long long)least);
    PyBuffer_Release(view);
    return -1;
}

static int set_error(int status) {
    if (status == -1) PyErr_NoMemory();
    if (status == -2) PyErr_SetString(PyExc_OverflowError, "the count of a word does not fit 64 bits");
    return status;
}

/* text_split_size(text) -> (words, bytes) */
static PyObject *split_size(PyObject *Py_UNUSED(module), PyObject *descriptor) {
    bound_column_t bound;
    if (bind_text(descriptor, &bound) < 0) return NULL;
    text_piece_t piece;
    text_words_t words = {0, 0, NULL, NULL, NULL, NULL};
    text_split_column(&piece, &bound.column, &words);
    column_unbind(&bound);
    return Py_BuildValue("(LL)", (long long)words.words, (long long)words.bytes);
}

/* text_split(text, data, ends, rows) -> None */
static PyObject *split_into(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *objects[3], *result = NULL;
    if (!PyArg_ParseTuple(args, "OOOO:text_split", &descriptor, &objects[0], &objects[1], &objects[2])) return NULL;
    bound_column_t bound;
    if (bind_text(descriptor, &bound) < 0) return NULL;
    text_piece_t piece;
    text_words_t needed = {0, 0, NULL, NULL, NULL, NULL};
    Py_buffer views[3];
    static const char *const names[] = {"data", "ends", "rows"};
    int held = 0;
    text_split_column(&piece, &bound.column, &needed);
    for (; held < 3; held++)
        if (get_room(objects[held], &views[held], 1, held ? 8 * needed.words : needed.bytes, names[held]) < 0)
            goto done;
    if (needed.words) {
        uint8_t *data = views[0].buf;
        text_words_t words = {0, 0, data, data + needed.bytes, views[1].buf, views[2].buf};
        text_split_column(&piece, &bound.column, &words);
    }
    result = Py_NewRef(Py_None);
done:
    while (held > 0) PyBuffer_Release(&views[--held]);
    column_unbind(&bound);
    return result;
}

/* text_lower(text, data, other) -> int */
static PyObject *lower_into(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *descriptor, *data, *other, *result = NULL;
    if (!PyArg_ParseTuple(args, "OOO:text_lower", &descriptor, &data, &other)) return NULL;
    bound_column_t bound;
    if (bind_text(descriptor, &bound) < 0) return NULL;
    const column_t *column = &bound.column;
    Py_buffer to, marks;
    int64_t bytes = column_offset(column, column->rows) - column_offset(column, 0);
    if (get_room(data, &to, 1, bytes, "data") == 0) {
        if (get_room(other, &marks, 1, column->rows, "other") == 0) {
            result = PyLong_FromLongLong(text_lower_column(column, to.buf, marks.buf));
            PyBuffer_Release(&marks);
        }
        PyBuffer_Release(&to);
    }
    column_unbind(&bound);
    return result;
}

/* text_prefix(offsets, data, out) -> int */
static PyObject *prefix_into(PyObject *Py_UNUSED(module), PyObject *args) {
    static const char *const names[] = {"offsets", "data", "out"};
    PyObject *objects[3];
    if (!PyArg_ParseTuple(args, "OOO:text_prefix", &objects[0], &objects[1], &objects[2])) return NULL;
    Py_buffer views[3];
    int held = 0;
    int64_t written = 0;
    for (; held < 3; held++)
        if (get_room(objects[held], &views[held], held == 2, held ? 0 : 8, names[held]) < 0) {
            written = -3;
            goto done;
        }
    column_t column = {.kind = 't', .rows = views[0].len / 8 - 1, .data = views[1].buf, .offsets = views[0].buf};
    written = text_prefix_column(&column, views[1].len, views[2].buf, views[2].len);
    if (written == -1) PyErr_SetString(PyExc_ValueError, "offsets leave the data, or there is not enough room in out");
    if (written == -2) PyErr_SetString(PyExc_OverflowError, "a value has more than 2**31 - 1 bytes");
done:
    while (held > 0) PyBuffer_Release(&views[--held]);
    return written < 0 ? NULL : PyLong_FromLongLong(written);
}

/* text_resume(buffer, begin, position, stop) -> int */
static PyObject *resume(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *buffer, *result = NULL;
    Py_ssize_t begin, position, stop;
    if (!PyArg_ParseTuple(args, "Onnn:text_resume", &buffer, &begin, &position, &stop)) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0) return NULL;
    if (begin < 0 || begin > position || position > stop || stop > view.len) {
        PyErr_Format(PyExc_ValueError, "no place %zd between %zd and %zd of %zd bytes", position, begin, stop,
                     view.len);
    } else {
        text_piece_t piece;
        const uint8_t *data = view.buf ? view.buf : (const uint8_t *)"";
        result = PyLong_FromSsize_t(text_resume(&piece, data + begin, data + position, data + stop) - data);
    }
    PyBuffer_Release(&view);
    return result;
}

typedef struct {
    PyObject_HEAD
    word_counter_t counter;
} WordTable;

static PyObject *word_table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"lower", "seed", NULL};
    int lower = 1;
    unsigned long long seed = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|pK:WordTable", names, &lower, &seed)) return NULL;
    WordTable *self = PyObject_New(WordTable, type);
    if (!self) return NULL;
    word_counter_init(&self->counter, lower, seed);
    return (PyObject *)self;
}

static void word_table_dealloc(WordTable *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    word_counter_free(&self->counter);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *table_add(WordTable *self, PyObject *descriptor) {
    bound_column_t bound;
    if (bind_text(descriptor, &bound) < 0) return NULL;
    text_piece_t piece;
    int status = set_error(word_count_column(&self->counter, &piece, &bound.column));
    column_unbind(&bound);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *table_add_block(WordTable *self, PyObject *args) {
    PyObject *buffer;
    Py_ssize_t start, limit, stop;
    int last;
    if (!PyArg_ParseTuple(args, "Onnnp:add_block", &buffer, &start, &limit, &stop, &last)) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *result = NULL;
    if (start < 0 || start > stop || limit > stop || stop > view.len) {
        PyErr_Format(PyExc_ValueError, "no text from %zd to %zd, limit %zd, in a buffer of %zd bytes", start, stop,
                     limit, view.len);
    } else {
        text_piece_t piece;
        const uint8_t *data = view.buf ? view.buf : (const uint8_t *)"", *next = data + start;
        if (start < limit) next = word_count_text(&self->counter, &piece, next, data + limit, data + stop, last);
        if (next) result = PyLong_FromSsize_t(next - data);
        else PyErr_NoMemory();
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *table_merge(WordTable *self, PyObject *args) {
    PyObject *descriptor, *counts, *result = NULL;
    if (!PyArg_ParseTuple(args, "OO:merge", &descriptor, &counts)) return NULL;
    bound_column_t bound;
    if (bind_text(descriptor, &bound) < 0) return NULL;
    Py_buffer view;
    if (get_room(counts, &view, 0, 8 * bound.column.rows, "counts") == 0) {
        if (set_error(word_count_merge(&self->counter, &bound.column, view.buf)) == 0) result = Py_NewRef(Py_None);
        PyBuffer_Release(&view);
    }
    column_unbind(&bound);
    return result;
}

/* The words from `walk` on: how many of them stay within the limits, and their bytes. At least one, if there is one. */
static Py_ssize_t measure_words(word_walk_t walk, Py_ssize_t rows, Py_ssize_t most, Py_ssize_t *bytes) {
    const word_slot_t *slot;
    Py_ssize_t count = 0;
    *bytes = 0;
    while (count < rows && (slot = word_next(&walk))) {
        size_t size;
        word_bytes(&slot->word, &size);
        if (count && *bytes + (Py_ssize_t)size > most) break;
        *bytes += (Py_ssize_t)size;
        count++;
    }
    return count;
}

/* export(position, rows, bytes, share, shares) -> (data, offsets, counts, next position or -1) */
static PyObject *table_export(WordTable *self, PyObject *args) {
    long long position;
    Py_ssize_t rows, most, bytes;
    unsigned int share = 0, shares = 1;
    if (!PyArg_ParseTuple(args, "Lnn|II:export", &position, &rows, &most, &share, &shares)) return NULL;
    if (position < 0 || rows < 1 || share >= shares) {
        PyErr_Format(PyExc_ValueError, "no share %u of %u from position %lld on, %zd rows at once", share, shares,
                     position, rows);
        return NULL;
    }
    word_walk_t walk = word_walk(&self->counter.words, (uint64_t)position, share, shares);
    Py_ssize_t count = measure_words(walk, rows, most, &bytes);
    PyObject *data = PyBytes_FromStringAndSize(NULL, bytes),
             *offsets = PyBytes_FromStringAndSize(NULL, 8 * (count + 1)),
             *counts = PyBytes_FromStringAndSize(NULL, 8 * count);
    if (!data || !offsets || !counts) {
        Py_XDECREF(data);
        Py_XDECREF(offsets);
        Py_XDECREF(counts);
        return NULL;
    }
    char *to = PyBytes_AsString(data), *ends = PyBytes_AsString(offsets), *amounts = PyBytes_AsString(counts);
    int64_t end = 0;
    memcpy(ends, &end, 8);
    for (Py_ssize_t i = 0; i < count; i++) {
        const word_slot_t *slot = word_next(&walk);
        size_t size;
        const uint8_t *word = word_bytes(&slot->word, &size);
        memcpy(to + end, word, size);
        end += (int64_t)size;
        memcpy(ends + 8 * (i + 1), &end, 8);
        memcpy(amounts + 8 * i, &slot->count, 8);
    }
    word_walk_t rest = walk;
    long long next = count && word_next(&rest) ? (long long)walk.position : -1;
    return Py_BuildValue("(NNNL)", data, offsets, counts, next);
}

static PyObject *table_take_raw(WordTable *self, PyObject *Py_UNUSED(none)) {
    WordTable *taken = PyObject_New(WordTable, Py_TYPE((PyObject *)self));
    if (!taken) return NULL;
    taken->counter = self->counter;
    taken->counter.words = self->counter.raw;
    taken->counter.total = 0;
    word_table_t *const fresh[] = {&taken->counter.raw, &self->counter.raw};
    for (int i = 0; i < 2; i++) {
        word_table_init(fresh[i], 0);
        memcpy(fresh[i]->seeds, self->counter.words.seeds, sizeof fresh[i]->seeds);
    }
    return (PyObject *)taken;
}

static PyObject *table_raw(WordTable *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->counter.raw.distinct);
}

static PyObject *table_total(WordTable *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->counter.total);
}

static Py_ssize_t table_length(WordTable *self) { return (Py_ssize_t)self->counter.words.distinct; }

static PyMethodDef table_methods[] = {
    {"add", (PyCFunction)table_add, METH_O, "add(text) -> None: count the words of each value"},
    {"add_block", (PyCFunction)table_add_block, METH_VARARGS, "add_block(buffer, start, limit, stop, last) -> int"},
    {"merge", (PyCFunction)table_merge, METH_VARARGS, "merge(words, counts) -> None: add counts of whole words"},
    {"export", (PyCFunction)table_export, METH_VARARGS, "export(position, rows, bytes, share=0, shares=1) -> tuple"},
    {"take_raw", (PyCFunction)table_take_raw, METH_NOARGS, "take_raw() -> WordTable of the words still to be folded"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef table_fields[] = {
    {"raw", (getter)table_raw, NULL, "distinct words that are still to be folded", NULL},
    {"total", (getter)table_total, NULL, "words met in text so far", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_new, word_table_new},      {Py_tp_dealloc, word_table_dealloc}, {Py_tp_methods, table_methods},
    {Py_tp_getset, table_fields},     {Py_mp_length, table_length},
    {Py_tp_doc, "WordTable(lower=True, seed=0): counts the words of text."},
    {0, NULL},
};

static PyType_Spec table_spec = {"shmjet._native._columns.WordTable", sizeof(WordTable), 0, Py_TPFLAGS_DEFAULT,
                                 table_slots};

PyMethodDef columns_text_methods[] = {
    {"text_split_size", split_size, METH_O, "text_split_size(text) -> (words, bytes of them)"},
    {"text_split", split_into, METH_VARARGS, "text_split(text, data, ends, rows) -> None"},
    {"text_prefix", prefix_into, METH_VARARGS, "text_prefix(offsets, data, out) -> int: bytes written"},
    {"text_resume", resume, METH_VARARGS, "text_resume(buffer, begin, position, stop) -> int"},
    {"text_lower", lower_into, METH_VARARGS, "text_lower(text, data, other) -> int: values left to the caller"},
    {NULL, NULL, 0, NULL},
};

int columns_text_exec(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &table_spec, NULL);
    if (!type) return -1;
    int status = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return status;
}
