/* Reading: what a capsule of another library holds, as tuples (schemas) and as objects with views of buffers (arrays).
 *
 * Nothing is copied, and nothing in a structure is believed that can be checked: the interface gives no sizes of
 * buffers, so a buffer that is shorter than its array's length says cannot be told. Meaning is given by Python code;
 * here are memory and lifetimes only.
 */
#include "arrow/arrow.h"

#include <errno.h>
#include <string.h>

#include "arrow/metadata.h"

void *capsule_content(PyObject *capsule, const char *name) {
    if (!PyCapsule_IsValid(capsule, name)) {
        if (PyCapsule_CheckExact(capsule)) {
            const char *found = PyCapsule_GetName(capsule);
            PyErr_Format(PyExc_ValueError, "a capsule named '%s' is needed, got one named '%.80s'", name,
                         found ? found : "");
        } else
            PyErr_Format(PyExc_ValueError, "a capsule named '%s' is needed, got %R", name, Py_TYPE(capsule));
        return NULL;
    }
    return PyCapsule_GetPointer(capsule, name);
}

/* -- schemas ------------------------------------------------------------------------------------------------------- */

static PyObject *text_of(const char *given, const char *what) {
    PyObject *text = PyUnicode_DecodeUTF8(given, (Py_ssize_t)strlen(given), "strict");
    if (text) return text;
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "the %s of a field is not valid UTF-8", what);
    return NULL;
}

static int check_children(int64_t count, const void *children, const char *what) {
    if (count >= 0 && count <= ARROW_MOST_CHILDREN && (count == 0 || children)) return 0;
    PyErr_Format(PyExc_ValueError, "%s has %lld children%s", what, (long long)count,
                 count > 0 && !children ? ", and no list of them" : "");
    return -1;
}

/* (format, name, metadata or None, flags, children, dictionary or None) */
static PyObject *schema_tree(const struct ArrowSchema *schema, int depth) {
    PyObject *format = NULL, *name = NULL, *metadata = NULL, *children = NULL, *dictionary = NULL, *tree = NULL;
    if (depth > ARROW_DEEPEST) {
        PyErr_Format(PyExc_ValueError, "a type is nested deeper than %d levels", ARROW_DEEPEST);
        return NULL;
    }
    if (!schema || !schema->release) {
        PyErr_SetString(PyExc_ValueError, schema ? "a schema has been released" : "a field is missing in a schema");
        return NULL;
    }
    if (!schema->format) {
        PyErr_SetString(PyExc_ValueError, "a field has no format");
        return NULL;
    }
    if (check_children(schema->n_children, schema->children, "a schema") < 0) return NULL;
    if (!(format = text_of(schema->format, "format"))) goto done;
    if (!(name = text_of(schema->name ? schema->name : "", "name"))) goto done;
    if (schema->metadata) {
        int64_t size = metadata_size(schema->metadata);
        if (size < 0) {
            PyErr_Format(PyExc_ValueError, "the metadata of field %R has negative lengths", name);
            goto done;
        }
        metadata = PyBytes_FromStringAndSize(schema->metadata, size);
    } else
        metadata = Py_NewRef(Py_None);
    if (!metadata || !(children = PyTuple_New(schema->n_children))) goto done;
    for (int64_t i = 0; i < schema->n_children; i++) {
        PyObject *child = schema_tree(schema->children[i], depth + 1);
        if (!child || PyTuple_SetItem(children, i, child) < 0) goto done;
    }
    dictionary = schema->dictionary ? schema_tree(schema->dictionary, depth + 1) : Py_NewRef(Py_None);
    if (!dictionary) goto done;
    tree = Py_BuildValue("(OOOLOO)", format, name, metadata, (long long)schema->flags, children, dictionary);
done:
    Py_XDECREF(format);
    Py_XDECREF(name);
    Py_XDECREF(metadata);
    Py_XDECREF(children);
    Py_XDECREF(dictionary);
    return tree;
}

static PyObject *read_schema(PyObject *Py_UNUSED(module), PyObject *capsule) {
    struct ArrowSchema *schema = capsule_content(capsule, SCHEMA_CAPSULE);
    return schema ? schema_tree(schema, 0) : NULL;
}

/* -- buffers ------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *root;
    const void *start;
    Py_ssize_t size;
} buffer_t;

static int buffer_get(buffer_t *self, Py_buffer *view, int flags) {
    return PyBuffer_FillInfo(view, (PyObject *)self, (void *)self->start, self->size, 1, flags);
}

static void buffer_dealloc(buffer_t *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF(self->root);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot buffer_slots[] = {
    {Py_tp_dealloc, buffer_dealloc},
    {Py_bf_getbuffer, buffer_get},
    {Py_tp_doc, "Memory of an array, read-only; keeps the whole array."},
    {0, NULL},
};

static PyType_Spec buffer_spec = {
    .name = "shmjet._native._arrow.Buffer",
    .basicsize = sizeof(buffer_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = buffer_slots,
};

/* -- arrays -------------------------------------------------------------------------------------------------------- */

/* Calls a callback of a producer written in Python, maybe: an exception that is on its way must not meet it. */
#define RELEASE(structure)                                      \
    do {                                                        \
        PyObject *error_type, *error_value, *error_traceback;   \
        PyErr_Fetch(&error_type, &error_value, &error_traceback); \
        (structure)->release(structure);                        \
        PyErr_Restore(error_type, error_value, error_traceback); \
    } while (0)

static void array_dealloc(array_t *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (!self->root && self->own.release) RELEASE(&self->own);
    Py_XDECREF(self->root);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int check_array(const struct ArrowArray *array) {
    if (!array || !array->release) {
        PyErr_SetString(PyExc_ValueError, array ? "an array has been released" : "an array lacks a child");
        return -1;
    }
    if (array->length < 0 || array->offset < 0 || array->length > (INT64_MAX >> 8) ||
        array->offset > (INT64_MAX >> 8)) {
        PyErr_Format(PyExc_ValueError, "an array has length %lld and offset %lld", (long long)array->length,
                     (long long)array->offset);
        return -1;
    }
    if (array->n_buffers < 0 || array->n_buffers > ARROW_MOST_CHILDREN || (array->n_buffers && !array->buffers)) {
        PyErr_Format(PyExc_ValueError, "an array has %lld buffers%s", (long long)array->n_buffers,
                     array->n_buffers > 0 && !array->buffers ? ", and no list of them" : "");
        return -1;
    }
    return check_children(array->n_children, array->children, "an array");
}

/* Moves a structure into an object of its own. It is released in any case. */
static PyObject *array_root(arrow_state_t *state, struct ArrowArray *source) {
    array_t *root = PyObject_New(array_t, state->array);
    if (!root) {
        RELEASE(source);
        return NULL;
    }
    root->own = *source;
    source->release = NULL;
    root->node = &root->own;
    root->root = NULL;
    if (check_array(root->node) < 0) Py_CLEAR(root);
    return (PyObject *)root;
}

static PyObject *array_node(array_t *parent, struct ArrowArray *node) {
    if (check_array(node) < 0) return NULL;
    array_t *child = PyObject_New(array_t, Py_TYPE((PyObject *)parent));
    if (!child) return NULL;
    child->own.release = NULL;
    child->node = node;
    child->root = Py_NewRef(parent->root ? parent->root : (PyObject *)parent);
    return (PyObject *)child;
}

static PyObject *array_length(array_t *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->node->length);
}

static PyObject *array_offset(array_t *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->node->offset);
}

static PyObject *array_null_count(array_t *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->node->null_count);
}

static PyObject *array_buffer_count(array_t *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->node->n_buffers);
}

static PyObject *array_children(array_t *self, void *Py_UNUSED(closure)) {
    PyObject *children = PyTuple_New(self->node->n_children);
    for (int64_t i = 0; children && i < self->node->n_children; i++) {
        PyObject *child = array_node(self, self->node->children[i]);
        if (!child || PyTuple_SetItem(children, i, child) < 0) Py_CLEAR(children);
    }
    return children;
}

static PyObject *array_dictionary(array_t *self, void *Py_UNUSED(closure)) {
    return self->node->dictionary ? array_node(self, self->node->dictionary) : Py_NewRef(Py_None);
}

/* buffer(index, size) -> memoryview or None */
static PyObject *array_buffer(array_t *self, PyObject *args) {
    long long index, size;
    if (!PyArg_ParseTuple(args, "LL:buffer", &index, &size)) return NULL;
    if (index < 0 || index >= self->node->n_buffers || size < 0 || size > PY_SSIZE_T_MAX / 2) {
        PyErr_Format(PyExc_ValueError, "an array of %lld buffers has no buffer %lld of %lld bytes",
                     (long long)self->node->n_buffers, index, size);
        return NULL;
    }
    const void *start = self->node->buffers[index];
    if (!start) return Py_NewRef(Py_None);
    arrow_state_t *state = PyType_GetModuleState(Py_TYPE((PyObject *)self));
    buffer_t *buffer = state ? PyObject_New(buffer_t, state->buffer) : NULL;
    if (!buffer) return NULL;
    buffer->root = Py_NewRef(self->root ? self->root : (PyObject *)self);
    buffer->start = start;
    buffer->size = (Py_ssize_t)size;
    PyObject *view = PyMemoryView_FromObject((PyObject *)buffer);
    Py_DECREF(buffer);
    return view;
}

static PyGetSetDef array_getters[] = {
    {"length", (getter)array_length, NULL, NULL, NULL},
    {"offset", (getter)array_offset, NULL, NULL, NULL},
    {"null_count", (getter)array_null_count, NULL, NULL, NULL},
    {"buffer_count", (getter)array_buffer_count, NULL, NULL, NULL},
    {"children", (getter)array_children, NULL, NULL, NULL},
    {"dictionary", (getter)array_dictionary, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef array_methods[] = {
    {"buffer", (PyCFunction)array_buffer, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot array_slots[] = {
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_getset, array_getters},
    {Py_tp_methods, array_methods},
    {Py_tp_doc, "An array that another library gave."},
    {0, NULL},
};

static PyType_Spec array_spec = {
    .name = "shmjet._native._arrow.Array",
    .basicsize = sizeof(array_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = array_slots,
};

static PyObject *take_array(PyObject *module, PyObject *capsule) {
    struct ArrowArray *array = capsule_content(capsule, ARRAY_CAPSULE);
    if (!array) return NULL;
    if (!array->release) {
        PyErr_SetString(PyExc_ValueError, "the array has been released; ask its producer for another");
        return NULL;
    }
    return array_root(PyModule_GetState(module), array);
}

/* -- streams ------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    struct ArrowArrayStream stream;
} stream_t;

static void stream_dealloc(stream_t *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->stream.release) RELEASE(&self->stream);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *take_stream(PyObject *module, PyObject *capsule) {
    struct ArrowArrayStream *source = capsule_content(capsule, STREAM_CAPSULE);
    if (!source) return NULL;
    if (!source->release || !source->get_schema || !source->get_next) {
        PyErr_SetString(PyExc_ValueError, source->release
                                              ? "the stream lacks a callback"
                                              : "the stream has been read already; ask its producer for another");
        return NULL;
    }
    arrow_state_t *state = PyModule_GetState(module);
    stream_t *self = PyObject_New(stream_t, state->stream);
    if (!self) return NULL;
    self->stream = *source;
    source->release = NULL;
    return (PyObject *)self;
}

static PyObject *set_stream_error(stream_t *self, int status) {
    const char *text = self->stream.get_last_error ? self->stream.get_last_error(&self->stream) : NULL;
    PyObject *message = PyUnicode_DecodeUTF8(text ? text : "", text ? (Py_ssize_t)strlen(text) : 0, "replace");
    if (!message) return NULL;
    if (text && *text)
        PyErr_Format(PyExc_ValueError, "the producer failed: %U", message);
    else
        PyErr_Format(PyExc_ValueError, "the producer failed with error %d (%s), and says no more", status,
                     strerror(status > 0 ? status : EIO));
    Py_DECREF(message);
    return NULL;
}

/* Producers run queries in here, whose threads may need the interpreter: it is free in the meantime. */
static PyObject *stream_schema(stream_t *self, PyObject *Py_UNUSED(unused)) {
    struct ArrowSchema schema;
    int status;
    memset(&schema, 0, sizeof schema);
    Py_BEGIN_ALLOW_THREADS
    status = self->stream.get_schema(&self->stream, &schema);
    Py_END_ALLOW_THREADS
    if (status) return set_stream_error(self, status);
    PyObject *tree = schema_tree(&schema, 0);
    if (schema.release) RELEASE(&schema);
    return tree;
}

static PyObject *stream_next(stream_t *self, PyObject *Py_UNUSED(unused)) {
    struct ArrowArray array;
    int status;
    memset(&array, 0, sizeof array);
    Py_BEGIN_ALLOW_THREADS
    status = self->stream.get_next(&self->stream, &array);
    Py_END_ALLOW_THREADS
    if (status) return set_stream_error(self, status);
    if (!array.release) Py_RETURN_NONE;
    return array_root(PyType_GetModuleState(Py_TYPE((PyObject *)self)), &array);
}

static PyMethodDef stream_methods[] = {
    {"schema", (PyCFunction)stream_schema, METH_NOARGS, NULL},
    {"next", (PyCFunction)stream_next, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_methods, stream_methods},
    {Py_tp_doc, "A stream of arrays that another library gives."},
    {0, NULL},
};

static PyType_Spec stream_spec = {
    .name = "shmjet._native._arrow.Stream",
    .basicsize = sizeof(stream_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = stream_slots,
};

PyMethodDef arrow_read_methods[] = {
    {"read_schema", read_schema, METH_O, NULL},
    {"take_array", take_array, METH_O, NULL},
    {"take_stream", take_stream, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, const char *name) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type && PyModule_AddObjectRef(module, name, type) < 0) Py_CLEAR(type);
    return (PyTypeObject *)type;
}

int arrow_read_exec(PyObject *module) {
    arrow_state_t *state = PyModule_GetState(module);
    if (!(state->array = add_type(module, &array_spec, "Array"))) return -1;
    if (!(state->buffer = add_type(module, &buffer_spec, "Buffer"))) return -1;
    return (state->stream = add_type(module, &stream_spec, "Stream")) ? 0 : -1;
}
