/* Writing: capsules of what Python code describes. The memory is shared: an array keeps Python's buffers until its
 * consumer releases it, from any thread and in any order of parts.
 *
 * Each node of a schema or an array owns what it needs and nothing else, because a consumer may move a child out of its
 * parent and release the parent first.
 */
#include "arrow/arrow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/metadata.h"

/* -- schemas ------------------------------------------------------------------------------------------------------- */

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++) {
        struct ArrowSchema *child = schema->children[i];
        if (child && child->release) child->release(child);
        free(child);
    }
    if (schema->dictionary) {
        if (schema->dictionary->release) schema->dictionary->release(schema->dictionary);
        free(schema->dictionary);
    }
    free(schema->children);
    free((char *)schema->format);
    free((char *)schema->name);
    free((char *)schema->metadata);
    schema->release = NULL;
}

static char *copied_text(PyObject *text) {
    Py_ssize_t size;
    const char *start = PyUnicode_AsUTF8AndSize(text, &size);
    if (!start) return NULL;
    if ((size_t)size != strlen(start)) {
        PyErr_Format(PyExc_ValueError, "Arrow's names end at a NUL character, and %R has one", text);
        return NULL;
    }
    char *copy = strdup(start);
    if (!copy) PyErr_NoMemory();
    return copy;
}

static int fill_schema(struct ArrowSchema *schema, PyObject *tree, int depth);

static struct ArrowSchema *new_schema(PyObject *tree, int depth) {
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    if (!schema) {
        PyErr_NoMemory();
        return NULL;
    }
    if (fill_schema(schema, tree, depth) == 0) return schema;
    free(schema);
    return NULL;
}

/* Fills a structure from the tuple that `read_schema` gives. On failure nothing is left in it. */
static int fill_schema(struct ArrowSchema *schema, PyObject *tree, int depth) {
    PyObject *format, *name, *metadata, *children, *dictionary;
    long long flags;
    memset(schema, 0, sizeof *schema);
    schema->release = release_schema;
    if (depth > ARROW_DEEPEST) {
        PyErr_Format(PyExc_ValueError, "a type is nested deeper than %d levels", ARROW_DEEPEST);
        goto fail;
    }
    if (!PyArg_ParseTuple(tree, "UUOLO!O:schema", &format, &name, &metadata, &flags, &PyTuple_Type, &children,
                          &dictionary))
        goto fail;
    schema->flags = flags;
    if (!(schema->format = copied_text(format)) || !(schema->name = copied_text(name))) goto fail;
    if (metadata != Py_None) {
        Py_ssize_t size = PyBytes_Size(metadata);
        if (size < 0) goto fail;
        if (size < 4 || metadata_size(PyBytes_AsString(metadata)) != size) {
            PyErr_SetString(PyExc_ValueError, "metadata is not as long as its lengths say");
            goto fail;
        }
        char *copy = malloc((size_t)size);
        if (copy) memcpy(copy, PyBytes_AsString(metadata), (size_t)size);
        if (!(schema->metadata = copy)) goto memory;
    }
    Py_ssize_t count = PyTuple_Size(children);
    if (!(schema->children = calloc((size_t)count + 1, sizeof *schema->children))) goto memory;
    for (schema->n_children = 0; schema->n_children < count; schema->n_children++)
        if (!(schema->children[schema->n_children] =
                  new_schema(PyTuple_GetItem(children, schema->n_children), depth + 1)))
            goto fail;
    if (dictionary != Py_None && !(schema->dictionary = new_schema(dictionary, depth + 1))) goto fail;
    return 0;
memory:
    PyErr_NoMemory();
fail:
    release_schema(schema);
    return -1;
}

static void close_schema_capsule(PyObject *capsule) {
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, SCHEMA_CAPSULE);
    if (schema->release) schema->release(schema);
    free(schema);
}

static PyObject *schema_capsule(PyObject *Py_UNUSED(module), PyObject *tree) {
    struct ArrowSchema *schema = new_schema(tree, 0);
    if (!schema) return NULL;
    PyObject *capsule = PyCapsule_New(schema, SCHEMA_CAPSULE, close_schema_capsule);
    if (!capsule) {
        schema->release(schema);
        free(schema);
    }
    return capsule;
}

/* -- arrays -------------------------------------------------------------------------------------------------------- */

/* What a node of an array holds on to. */
typedef struct {
    int64_t held;       /* how many of the views are */
    const void **start; /* of each buffer */
    Py_buffer views[];
} held_buffers_t;

static void release_array(struct ArrowArray *array) {
    held_buffers_t *held = array->private_data;
    for (int64_t i = 0; i < array->n_children; i++) {
        struct ArrowArray *child = array->children[i];
        if (child && child->release) child->release(child);
        free(child);
    }
    if (array->dictionary) {
        if (array->dictionary->release) array->dictionary->release(array->dictionary);
        free(array->dictionary);
    }
    free(array->children);
    array->release = NULL;
    if (!held) return;
    if (held->held && Py_IsInitialized()) { /* else the process ends, and its memory with it */
        PyGILState_STATE state = PyGILState_Ensure();
        for (int64_t i = 0; i < held->held; i++)
            if (held->views[i].obj) PyBuffer_Release(&held->views[i]);
        PyGILState_Release(state);
    }
    free(held->start);
    free(held);
}

static int fill_array(struct ArrowArray *array, PyObject *tree, int depth);

static struct ArrowArray *new_array(PyObject *tree, int depth) {
    struct ArrowArray *array = calloc(1, sizeof *array);
    if (!array) {
        PyErr_NoMemory();
        return NULL;
    }
    if (fill_array(array, tree, depth) == 0) return array;
    free(array);
    return NULL;
}

static int hold_buffers(struct ArrowArray *array, PyObject *buffers) {
    Py_ssize_t count = PyTuple_Size(buffers);
    held_buffers_t *held = calloc(1, sizeof *held + (size_t)count * sizeof *held->views);
    if (!held || !(held->start = calloc((size_t)count + 1, sizeof *held->start))) {
        free(held);
        PyErr_NoMemory();
        return -1;
    }
    array->private_data = held;
    array->buffers = held->start;
    for (array->n_buffers = 0; array->n_buffers < count; array->n_buffers++) {
        PyObject *buffer = PyTuple_GetItem(buffers, array->n_buffers);
        Py_buffer *view = &held->views[array->n_buffers];
        if (buffer != Py_None && PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE) < 0) return -1;
        held->held = array->n_buffers + 1;
        held->start[array->n_buffers] = buffer == Py_None ? NULL : view->buf ? view->buf : "";
    }
    return 0;
}

/* Fills a structure from (length, null_count, buffers, children, dictionary or None); a buffer is None or anything with
 * the buffer protocol. On failure nothing is left in it. */
static int fill_array(struct ArrowArray *array, PyObject *tree, int depth) {
    PyObject *buffers, *children, *dictionary;
    long long length, null_count;
    memset(array, 0, sizeof *array);
    array->release = release_array;
    if (depth > ARROW_DEEPEST) {
        PyErr_Format(PyExc_ValueError, "a type is nested deeper than %d levels", ARROW_DEEPEST);
        goto fail;
    }
    if (!PyArg_ParseTuple(tree, "LLO!O!O:array", &length, &null_count, &PyTuple_Type, &buffers, &PyTuple_Type,
                          &children, &dictionary))
        goto fail;
    array->length = length;
    array->null_count = null_count;
    if (hold_buffers(array, buffers) < 0) goto fail;
    Py_ssize_t count = PyTuple_Size(children);
    if (!(array->children = calloc((size_t)count + 1, sizeof *array->children))) {
        PyErr_NoMemory();
        goto fail;
    }
    for (array->n_children = 0; array->n_children < count; array->n_children++)
        if (!(array->children[array->n_children] =
                  new_array(PyTuple_GetItem(children, array->n_children), depth + 1)))
            goto fail;
    if (dictionary != Py_None && !(array->dictionary = new_array(dictionary, depth + 1))) goto fail;
    return 0;
fail:
    release_array(array);
    return -1;
}

/* -- streams ------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *schema; /* a tree */
    PyObject *arrays; /* an iterator of trees */
    char *error;      /* of the last call that failed */
} source_t;

/* Keeps the text of Python's exception for the consumer. */
static int keep_error(source_t *source) {
    PyObject *type, *value, *traceback, *text = NULL, *name = NULL;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value) text = PyObject_Str(value);
    if (type) name = PyType_GetName((PyTypeObject *)type);
    PyObject *message = text && name ? PyUnicode_FromFormat("%U: %U", name, text) : NULL;
    const char *bytes = message ? PyUnicode_AsUTF8AndSize(message, NULL) : NULL;
    free(source->error);
    source->error = bytes ? strdup(bytes) : NULL;
    PyErr_Clear();
    Py_XDECREF(message);
    Py_XDECREF(name);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return EINVAL;
}

static int stream_get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    source_t *source = stream->private_data;
    PyGILState_STATE state = PyGILState_Ensure();
    int status = fill_schema(out, source->schema, 0) < 0 ? keep_error(source) : 0;
    PyGILState_Release(state);
    return status;
}

static int stream_get_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    source_t *source = stream->private_data;
    int status = 0;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *tree = PyIter_Next(source->arrays);
    if (tree) {
        if (fill_array(out, tree, 0) < 0) status = keep_error(source);
        Py_DECREF(tree);
    } else if (PyErr_Occurred())
        status = keep_error(source);
    else
        memset(out, 0, sizeof *out);
    PyGILState_Release(state);
    return status;
}

static const char *stream_get_last_error(struct ArrowArrayStream *stream) {
    return ((source_t *)stream->private_data)->error;
}

static void release_stream(struct ArrowArrayStream *stream) {
    source_t *source = stream->private_data;
    stream->release = NULL;
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();
        Py_XDECREF(source->schema);
        Py_XDECREF(source->arrays);
        PyGILState_Release(state);
    }
    free(source->error);
    free(source);
}

static void close_stream_capsule(PyObject *capsule) {
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, STREAM_CAPSULE);
    if (stream->release) stream->release(stream);
    free(stream);
}

/* stream_capsule(schema, arrays) -> capsule */
static PyObject *stream_capsule(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *schema, *arrays, *capsule;
    struct ArrowSchema trial;
    if (!PyArg_ParseTuple(args, "OO:stream_capsule", &schema, &arrays)) return NULL;
    if (fill_schema(&trial, schema, 0) < 0) return NULL; /* an error here has a traceback, later it is a text */
    trial.release(&trial);
    struct ArrowArrayStream *stream = calloc(1, sizeof *stream);
    source_t *source = calloc(1, sizeof *source);
    if (!stream || !source) {
        free(stream);
        free(source);
        return PyErr_NoMemory();
    }
    if (!(source->arrays = PyObject_GetIter(arrays))) {
        free(stream);
        free(source);
        return NULL;
    }
    source->schema = Py_NewRef(schema);
    *stream = (struct ArrowArrayStream){stream_get_schema, stream_get_next, stream_get_last_error, release_stream,
                                        source};
    if (!(capsule = PyCapsule_New(stream, STREAM_CAPSULE, close_stream_capsule))) {
        release_stream(stream);
        free(stream);
    }
    return capsule;
}

PyMethodDef arrow_write_methods[] = {
    {"schema_capsule", schema_capsule, METH_O, NULL},
    {"stream_capsule", stream_capsule, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
