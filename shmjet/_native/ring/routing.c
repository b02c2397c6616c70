/* Finding special items in a list, hashing keys, dealing a list over consumers by key. Key bytes:
 * docs/formats/codec.md. */
#include "ring/native.h"

#include "codec/codec.h"

static int wrong_arguments(const char *signature) {
    PyErr_SetString(PyExc_TypeError, signature);
    return -1;
}

PyObject *routing_index_of_special(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 3 || !PyList_Check(args[0]) || !PyType_Check(args[2])) {
        wrong_arguments("index_of_special(items: list, start: int, special_type: type)");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]);
    if (start == -1 && PyErr_Occurred()) return NULL;
    PyObject *items = args[0], *none = Py_None;
    PyTypeObject *special = (PyTypeObject *)args[2], *harmless = NULL;
    Py_ssize_t size = PyList_Size(items);
    for (Py_ssize_t i = start < 0 ? 0 : start; i < size; i++) {
        PyObject *item = layout_get_list(layout, items, i);
        PyTypeObject *type = Py_TYPE(item);
        if (LIKELY(type == harmless)) continue;
        if (item == none || type == special || PyType_IsSubtype(type, special)) return PyLong_FromSsize_t(i);
        harmless = type;
    }
    return PyLong_FromLong(-1);
}

PyObject *routing_murmur3_32(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count < 1 || count > 2) {
        wrong_arguments("murmur3_32(data, seed=0)");
        return NULL;
    }
    unsigned long seed = count == 2 ? PyLong_AsUnsignedLongMask(args[1]) : 0;
    if (seed == (unsigned long)-1 && PyErr_Occurred()) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) return NULL;
    uint32_t hash = murmur3_32(view.buf, (size_t)view.len, (uint32_t)seed);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(hash);
}

static uint32_t hash_of_int(int64_t value) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)value >> (8 * i));
    return murmur3_32(bytes, sizeof bytes, 0);
}

static uint32_t hash_of_float(double value) {
    /* A float that is a whole number of 64 bits meets the int that it equals; there is one NaN. */
    if (value >= -9223372036854775808.0 && value < 9223372036854775808.0 && (double)(int64_t)value == value)
        return hash_of_int((int64_t)value);
    int64_t bits = 0x7ff8000000000000;
    if (value == value) memcpy(&bits, &value, sizeof bits);
    return hash_of_int(bits);
}

/* The hash of a key's canonical bytes. 1 = done, 0 = not a type known here, -1 = exception. */
static int hash_of_key(PyObject *key, uint32_t *hash) {
    PyTypeObject *type = Py_TYPE(key);
    if (type == &PyUnicode_Type) {
        Py_ssize_t length;
        const char *utf8 = PyUnicode_AsUTF8AndSize(key, &length);
        if (!utf8) {
            PyErr_Clear(); /* a lone surrogate: the fallback says what it thinks of it */
            return 0;
        }
        *hash = murmur3_32(utf8, (size_t)length, 0);
        return 1;
    }
    if (type == &PyLong_Type || type == &PyBool_Type) {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(key, &overflow);
        if (overflow) return 0;
        *hash = hash_of_int(value);
        return 1;
    }
    if (type == &PyFloat_Type) {
        *hash = hash_of_float(PyFloat_AsDouble(key));
        return 1;
    }
    if (type == &PyBytes_Type) {
        char *bytes;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(key, &bytes, &length) < 0) return -1;
        *hash = murmur3_32(bytes, (size_t)length, 0);
        return 1;
    }
    return 0;
}

static int hash_by_fallback(PyObject *key, PyObject *fallback, uint32_t *hash) {
    Py_INCREF(key);
    PyObject *bytes = PyObject_CallFunctionObjArgs(fallback, key, NULL);
    Py_DECREF(key);
    if (!bytes) return -1;
    Py_buffer view;
    int status = PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE);
    if (status == 0) {
        *hash = murmur3_32(view.buf, (size_t)view.len, 0);
        PyBuffer_Release(&view);
    }
    Py_DECREF(bytes);
    return status;
}

static int partition_hash(PyObject *key, PyObject *fallback, uint32_t *hash) {
    int known = hash_of_key(key, hash);
    if (known) return known < 0 ? -1 : 0;
    return hash_by_fallback(key, fallback, hash);
}

static int partition_count(PyObject *object, uint32_t *count) {
    long long value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred()) return -1;
    if (value < 1 || value > 65536) {
        PyErr_Format(PyExc_ValueError, "the partition count must be from 1 to 65536, got %lld", value);
        return -1;
    }
    *count = (uint32_t)value;
    return 0;
}

PyObject *routing_partition_of(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    uint32_t partitions, hash;
    if (count != 3) {
        wrong_arguments("partition_of(key, count, fallback)");
        return NULL;
    }
    if (partition_count(args[1], &partitions) < 0 || partition_hash(args[0], args[2], &hash) < 0) return NULL;
    return PyLong_FromUnsignedLong(hash % partitions);
}

static int list_changed(void) {
    PyErr_SetString(PyExc_RuntimeError, "the list was changed while its keys were converted");
    return -1;
}

static int is_entry(PyObject *item) { return PyTuple_CheckExact(item) && PyTuple_Size(item) > 0; }

/* Which consumer each key goes to, and how many each gets. With `of_entries` keys are the first elements of the tuples
 * in the list. The fallback may run any code, also such as changes the list. */
static int assign(const object_layout_t *layout, PyObject *keys, int of_entries, Py_ssize_t size, uint32_t partitions,
                  const uint8_t *table, Py_ssize_t consumers, PyObject *fallback, uint16_t *target,
                  Py_ssize_t *counts) {
    for (Py_ssize_t i = 0; i < size; i++) {
        uint32_t hash;
        PyObject *key = layout_get_list(layout, keys, i);
        if (of_entries) {
            if (UNLIKELY(!is_entry(key))) return list_changed();
            key = layout_get_tuple(layout, key, 0);
        }
        int known = hash_of_key(key, &hash);
        if (UNLIKELY(known <= 0)) {
            if (known < 0 || hash_by_fallback(key, fallback, &hash) < 0) return -1;
            if (PyList_Size(keys) != size) return list_changed();
        }
        uint16_t consumer;
        memcpy(&consumer, table + 2 * (hash % partitions), sizeof consumer);
        if (UNLIKELY(consumer >= consumers)) {
            PyErr_Format(PyExc_ValueError, "the table sends partition %u to consumer %u of %zd", hash % partitions,
                         consumer, consumers);
            return -1;
        }
        target[i] = consumer;
        counts[consumer]++;
    }
    return 0;
}

/* The lists themselves. New lists are collector-tracked objects, so that a collection, hence Python code, may run
 * between them: all are made before the first item is looked at. */
static PyObject *deal(const object_layout_t *layout, PyObject *items, Py_ssize_t size, Py_ssize_t consumers,
                      const uint16_t *target, Py_ssize_t *counts) {
    PyObject *result = PyList_New(consumers);
    if (!result) return NULL;
    for (Py_ssize_t i = 0; i < consumers; i++) {
        PyObject *list;
        if (counts[i] == 0) {
            Py_INCREF(Py_None);
            list = Py_None;
        } else if (!(list = PyList_New(counts[i])))
            goto failed;
        PyList_SetItem(result, i, list);
        counts[i] = 0;
    }
    if (PyList_Size(items) != size) {
        list_changed();
        goto failed;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = layout_get_list(layout, items, i);
        Py_INCREF(item);
        layout_set_list(layout, layout_get_list(layout, result, target[i]), counts[target[i]]++, item);
    }
    return result;
failed:
    Py_DECREF(result);
    return NULL;
}

/* Deals items by keys, which are as many, or by the first elements of the items themselves (`keys` NULL); `args` are
 * the other arguments: count, table, consumers, fallback. */
static PyObject *split_by(const object_layout_t *layout, PyObject *items, PyObject *keys, PyObject *const *args) {
    uint32_t partitions;
    if (partition_count(args[0], &partitions) < 0) return NULL;
    Py_ssize_t consumers = PyLong_AsSsize_t(args[2]);
    if (consumers == -1 && PyErr_Occurred()) return NULL;
    Py_ssize_t size = PyList_Size(items);
    if ((keys && PyList_Size(keys) != size) || consumers < 1 || consumers > 65536) {
        PyErr_SetString(PyExc_ValueError, "split() needs a key for each item and 1 to 65536 consumers");
        return NULL;
    }
    Py_buffer table;
    if (PyObject_GetBuffer(args[1], &table, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *result = NULL;
    uint16_t *target = NULL;
    Py_ssize_t *counts = NULL;
    if (table.len < (Py_ssize_t)(2 * partitions)) {
        PyErr_Format(PyExc_ValueError, "the table has %zd bytes, %u partitions need %u", table.len, partitions,
                     2 * partitions);
    } else if (!(target = PyMem_Malloc(size ? (size_t)size * sizeof *target : 1)) ||
               !(counts = PyMem_Calloc((size_t)consumers, sizeof *counts))) {
        PyErr_NoMemory();
    } else if (assign(layout, keys ? keys : items, !keys, size, partitions, table.buf, consumers, args[3], target,
                      counts) == 0) {
        result = deal(layout, items, size, consumers, target, counts);
    }
    PyMem_Free(target);
    PyMem_Free(counts);
    PyBuffer_Release(&table);
    return result;
}

PyObject *routing_split(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 6 || !PyList_Check(args[0]) || !PyList_Check(args[1])) {
        wrong_arguments("split(items: list, keys: list, count, table, consumers, fallback)");
        return NULL;
    }
    return split_by(layout, args[0], args[1], args + 2);
}

PyObject *routing_split_entries(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 6 || !PyList_Check(args[0])) {
        wrong_arguments("split_entries(entries: list, count, table, consumers, fallback, special_type)");
        return NULL;
    }
    Py_ssize_t size = PyList_Size(args[0]);
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *entry = layout_get_list(layout, args[0], i);
        if (!is_entry(entry) || (PyObject *)Py_TYPE(layout_get_tuple(layout, entry, 0)) == args[5]) Py_RETURN_NONE;
    }
    return split_by(layout, args[0], NULL, args + 1);
}
