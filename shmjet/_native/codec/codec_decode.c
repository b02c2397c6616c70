/* Columns back to lists of values.
 *
 * Every length is checked against what is left before it is used, and each value takes at least a byte of the frame, so
 * that a damaged count cannot make us allocate more than a frame's worth of pointers. */
#include "codec/codec.h"

typedef struct {
    const uint8_t *at, *end;
} reader_t;

static int decode_column(Codec *codec, reader_t *in, Py_ssize_t count, PyObject **out, int depth);

static int damaged(void) {
    PyErr_SetString(PyExc_ValueError, "the frame of columns is damaged");
    return -1;
}

static inline int has(const reader_t *in, uint64_t size) { return size <= (uint64_t)(in->end - in->at); }

static void drop(PyObject **values, Py_ssize_t count) {
    while (count > 0) Py_DECREF(values[--count]);
}

/* A small int is made once, as the interpreter does with the smallest. */
static inline PyObject *int_of(const Codec *codec, uint64_t value) {
    if (value >= KEPT_INTS) return PyLong_FromLongLong((int64_t)value);
    PyObject *known = codec->ints[value];
    if (UNLIKELY(!known) && !(known = codec->ints[value] = PyLong_FromLongLong((int64_t)value))) return NULL;
    Py_INCREF(known);
    return known;
}

static int decode_ints(const Codec *codec, reader_t *in, uint8_t width, Py_ssize_t count, PyObject **out) {
    int64_t base;
    if ((width != 1 && width != 2 && width != 4 && width != 8) || !has(in, sizeof base + (uint64_t)count * width))
        return damaged();
    memcpy(&base, in->at, sizeof base);
    const uint8_t *from = in->at + sizeof base;
    in->at = from + (uint64_t)count * width;
#define WIDEN(type)                                                                                                    \
    for (Py_ssize_t i = 0; i < count; i++) {                                                                           \
        type narrow;                                                                                                   \
        memcpy(&narrow, from + i * (Py_ssize_t)sizeof narrow, sizeof narrow);                                          \
        if (UNLIKELY(!(out[i] = int_of(codec, (uint64_t)base + narrow)))) return drop(out, i), -1;                     \
    }                                                                                                                  \
    return 0
    switch (width) {
    case 1: WIDEN(uint8_t);
    case 2: WIDEN(uint16_t);
    case 4: WIDEN(uint32_t);
    default: WIDEN(uint64_t);
    }
#undef WIDEN
}

static int decode_floats(reader_t *in, Py_ssize_t count, PyObject **out) {
    if (!has(in, 8 * (uint64_t)count)) return damaged();
    for (Py_ssize_t i = 0; i < count; i++) {
        double number;
        memcpy(&number, in->at, sizeof number);
        in->at += sizeof number;
        if (UNLIKELY(!(out[i] = PyFloat_FromDouble(number)))) return drop(out, i), -1;
    }
    return 0;
}

static int decode_flags(reader_t *in, Py_ssize_t count, PyObject **out) {
    if (!has(in, (uint64_t)count)) return damaged();
    for (Py_ssize_t i = 0; i < count; i++) {
        uint8_t flag = *in->at++;
        if (flag > CLASS_NONE) return drop(out, i), damaged();
        out[i] = flag == CLASS_NONE ? Py_None : flag == CLASS_TRUE ? Py_True : Py_False;
        Py_INCREF(out[i]);
    }
    return 0;
}

static inline uint32_t length_at(const uint8_t *lengths, uint8_t width, Py_ssize_t i) {
    if (width == 1) return lengths[i];
    if (width == 2) {
        uint16_t narrow;
        memcpy(&narrow, lengths + 2 * i, sizeof narrow);
        return narrow;
    }
    uint32_t length;
    memcpy(&length, lengths + 4 * i, sizeof length);
    return length;
}

#define TAKEN 0x80000000u /* in the hash of every string, so that 0 is that of no string */

static inline uint32_t hash_of_short(const char *bytes, uint32_t length) {
    uint64_t first = 0, last = 0;
    if (length >= 8) {
        uint64_t middle;
        memcpy(&first, bytes, 8);
        memcpy(&last, bytes + length - 8, 8);
        memcpy(&middle, bytes + (length - 8) / 2, 8);
        first ^= middle * 0xff51afd7ed558ccdull;
    } else if (length >= 4) {
        uint32_t head, tail;
        memcpy(&head, bytes, 4);
        memcpy(&tail, bytes + length - 4, 4);
        first = head;
        last = tail;
    } else if (length > 0) {
        first = (uint8_t)bytes[0];
        last = (uint64_t)(uint8_t)bytes[length / 2] << 8 | (uint8_t)bytes[length - 1];
    }
    uint64_t mixed = (first * 0x9e3779b97f4a7c15ull) ^ ((last + length) * 0xc4ceb9fe1a85ec53ull);
    return (uint32_t)((mixed ^ (mixed >> 29)) * 0x9e3779b97f4a7c15ull >> 32) | TAKEN;
}

/* A str that was decoded before is handed out again: cheaper than a new one, and its hash is known already. */
/* Where a string with this hash lies in its set, or STRING_WAYS. Without a branch: which way it is cannot be
 * foreseen. */
static inline uint32_t way_of(const string_set_t *set, uint32_t hash) {
    uint32_t found = 1u << STRING_WAYS;
    for (uint32_t way = 0; way < STRING_WAYS; way++) found |= (uint32_t)(set->hashes[way] == hash) << way;
    return (uint32_t)__builtin_ctz(found);
}

/* A str that was decoded before is handed out again: cheaper than a new one, and its hash is known already. `way` is
 * where it was a moment ago. */
static PyObject *string_from_cache(Codec *codec, const char *bytes, uint32_t length, uint32_t hash, uint32_t way) {
    string_set_t *set = &codec->strings[hash % STRING_SETS];
    codec->lookups++;
    if (UNLIKELY(way == STRING_WAYS || set->hashes[way] != hash)) way = way_of(set, hash);
    if (LIKELY(way < STRING_WAYS)) {
        PyObject *known = set->strings[way];
        Py_ssize_t size;
        const char *utf8 = PyUnicode_AsUTF8AndSize(known, &size);
        if (UNLIKELY(!utf8)) return NULL;
        if (LIKELY(size == (Py_ssize_t)length && memcmp(utf8, bytes, length) == 0)) {
            codec->hits++;
            Py_INCREF(known);
            return known;
        }
    }
    PyObject *string = PyUnicode_FromStringAndSize(bytes, (Py_ssize_t)length);
    if (!string) return NULL;
    Py_XDECREF(set->strings[STRING_WAYS - 1]);
    memmove(set->hashes + 1, set->hashes, (STRING_WAYS - 1) * sizeof *set->hashes);
    memmove(set->strings + 1, set->strings, (STRING_WAYS - 1) * sizeof *set->strings);
    Py_INCREF(string);
    set->hashes[0] = hash;
    set->strings[0] = string;
    return string;
}

/* Strings that hardly ever repeat would only pay for the cache: it then rests, and is tried again later. */
static void judge_cache(Codec *codec) {
    if (codec->lookups < 2048) return;
    if (codec->hits < codec->lookups / 8) codec->sleep = 32768;
    codec->lookups = codec->hits = 0;
}

/* Strings of which many may be known. The cache is larger than what is near the core, so a group of strings is looked
 * up in steps, each of which fetches what the next one needs: sets, then strings. */
static int decode_known(Codec *codec, reader_t *in, const uint8_t *lengths, uint8_t width, Py_ssize_t count,
                        PyObject **out) {
    enum { GROUP = 16 };
    for (Py_ssize_t i = 0; i < count;) {
        const char *bytes[GROUP];
        uint32_t lengths_here[GROUP], hashes[GROUP], ways[GROUP];
        int group = count - i < GROUP ? (int)(count - i) : GROUP;
        for (int k = 0; k < group; k++) {
            uint32_t length = lengths_here[k] = length_at(lengths, width, i + k);
            if (UNLIKELY(!has(in, length))) return drop(out, i), damaged();
            bytes[k] = (const char *)in->at;
            in->at += length;
            hashes[k] = hash_of_short(bytes[k], length);
            __builtin_prefetch(&codec->strings[hashes[k] % STRING_SETS]);
        }
        for (int k = 0; k < group; k++) {
            const string_set_t *set = &codec->strings[hashes[k] % STRING_SETS];
            ways[k] = way_of(set, hashes[k]);
            __builtin_prefetch(set->strings[ways[k] % STRING_WAYS], 1);
        }
        for (int k = 0; k < group; k++, i++) {
            out[i] = lengths_here[k] <= STRING_CACHE_MAX_LENGTH
                         ? string_from_cache(codec, bytes[k], lengths_here[k], hashes[k], ways[k])
                         : PyUnicode_FromStringAndSize(bytes[k], (Py_ssize_t)lengths_here[k]);
            if (UNLIKELY(!out[i])) return drop(out, i), -1;
        }
    }
    judge_cache(codec);
    return 0;
}

static int decode_spans(Codec *codec, reader_t *in, uint8_t width, Py_ssize_t count, PyObject **out, int of_text) {
    if ((width != 1 && width != 2 && width != 4) || !has(in, (uint64_t)count * width)) return damaged();
    const uint8_t *lengths = in->at;
    in->at += (uint64_t)count * width;
    if (of_text && codec->sleep == 0) return decode_known(codec, in, lengths, width, count, out);
    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t length = length_at(lengths, width, i);
        if (UNLIKELY(!has(in, length))) return drop(out, i), damaged();
        const char *bytes = (const char *)in->at;
        in->at += length;
        out[i] = of_text ? PyUnicode_FromStringAndSize(bytes, (Py_ssize_t)length)
                         : PyBytes_FromStringAndSize(bytes, (Py_ssize_t)length);
        if (UNLIKELY(!out[i])) return drop(out, i), -1;
    }
    if (of_text) codec->sleep = codec->sleep > (uint32_t)count ? codec->sleep - (uint32_t)count : 0;
    return 0;
}

static int decode_empty(reader_t *in, uint8_t of_dicts, Py_ssize_t count, PyObject **out) {
    if (!has(in, (uint64_t)count)) return damaged();
    in->at += count;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!(out[i] = of_dicts ? PyDict_New() : PyTuple_New(0))) return drop(out, i), -1;
    return 0;
}

/* Whether the values of the next column can be part of no cycle. */
static inline int is_atomic(const reader_t *in) {
    return in->at < in->end && *in->at >= COLUMN_INT && *in->at <= COLUMN_FLAGS;
}

/* Whether they are tuples of one shape, all of which the collector looks at, or none. */
static inline int is_of_tuples(const reader_t *in) {
    return in->at < in->end && (*in->at == COLUMN_TUPLE || *in->at == COLUMN_NAMED);
}

/* The columns of a tuple or dict, one behind the other in a new array; NULL with an exception. `atomic` says whether
 * none of them has containers. */
static PyObject **decode_fields(Codec *codec, reader_t *in, uint32_t fields, Py_ssize_t count, int depth, int *atomic) {
    if (fields == 0 || !has(in, (uint64_t)fields * (uint64_t)count)) return damaged(), NULL;
    PyObject **values = scratch_alloc(codec, (size_t)fields * (size_t)count * sizeof *values);
    *atomic = 1;
    for (uint32_t k = 0; values && k < fields; k++) {
        PyObject **column = values + (size_t)k * (size_t)count;
        int of_atoms = is_atomic(in), of_tuples = is_of_tuples(in);
        if (decode_column(codec, in, count, column, depth + 1) < 0) {
            drop(values, (Py_ssize_t)k * count);
            return NULL;
        }
        *atomic &= of_atoms || (of_tuples && !PyObject_GC_IsTracked(column[0]));
    }
    return values;
}

/* `named` is NULL for plain tuples. */
static int decode_tuples(Codec *codec, reader_t *in, uint32_t arity, Py_ssize_t count, PyObject **out, int depth,
                         PyTypeObject *named) {
    int atomic;
    PyObject **values = decode_fields(codec, in, arity, count, depth, &atomic);
    if (!values) return -1;
    Py_ssize_t made = 0;
    for (; made < count; made++) {
        PyObject *tuple = LIKELY(!named) ? PyTuple_New((Py_ssize_t)arity)
                                         : layout_new_named(&codec->layout, named, (Py_ssize_t)arity);
        if (UNLIKELY(!tuple)) break;
        for (uint32_t k = 0; k < arity; k++)
            layout_set_tuple(&codec->layout, tuple, k, values[(size_t)k * (size_t)count + (size_t)made]);
        if (atomic) PyObject_GC_UnTrack(tuple); /* as the collector does when it meets one: it need not look at them */
        out[made] = tuple;
    }
    if (LIKELY(made == count)) return 0;
    for (uint32_t k = 0; k < arity; k++)
        for (Py_ssize_t i = made; i < count; i++) Py_DECREF(values[(size_t)k * (size_t)count + (size_t)i]);
    drop(out, made);
    return -1;
}

static int decode_named(Codec *codec, reader_t *in, uint8_t number, uint32_t arity, Py_ssize_t count, PyObject **out,
                        int depth) {
    const named_tuple_t *named = number < NAMED_TUPLES ? &codec->named[number] : NULL;
    if (!named || !named->type || named->fields != (Py_ssize_t)arity) return damaged();
    return decode_tuples(codec, in, arity, count, out, depth, named->type);
}

static int decode_dicts(Codec *codec, reader_t *in, uint32_t size, Py_ssize_t count, PyObject **out, int depth) {
    if (size == 0 || !has(in, size)) return damaged();
    PyObject **keys = scratch_alloc(codec, (size_t)size * sizeof *keys), **values;
    if (!keys || decode_column(codec, in, (Py_ssize_t)size, keys, depth + 1) < 0) return -1;
    int status = 0, atomic;
    if (!(values = decode_fields(codec, in, size, count, depth, &atomic))) {
        drop(keys, (Py_ssize_t)size);
        return -1;
    }
    Py_ssize_t made = 0;
    for (; status == 0 && made < count; made++) {
        if (!(out[made] = PyDict_New())) {
            status = -1;
            break;
        }
        for (uint32_t k = 0; status == 0 && k < size; k++)
            status = PyDict_SetItem(out[made], keys[k], values[(size_t)k * (size_t)count + (size_t)made]);
    }
    drop(values, (Py_ssize_t)size * count);
    drop(keys, (Py_ssize_t)size);
    if (status < 0) drop(out, made);
    return status;
}

static int decode_ragged(Codec *codec, reader_t *in, uint8_t width, Py_ssize_t count, PyObject **out, int depth,
                         int lists) {
    if ((width != 1 && width != 2 && width != 4) || !has(in, (uint64_t)count * width)) return damaged();
    const uint8_t *lengths = in->at;
    in->at += (uint64_t)count * width;
    uint64_t total = 0;
    /* read once: the frame lies in shared memory */
    uint32_t *sizes = scratch_alloc(codec, (size_t)count * sizeof *sizes);
    if (!sizes) return -1;
    for (Py_ssize_t i = 0; i < count; i++) total += sizes[i] = length_at(lengths, width, i);
    if (!has(in, total)) return damaged();
    PyObject **elements = scratch_alloc(codec, (size_t)(total ? total : 1) * sizeof *elements);
    if (!elements || (total && decode_column(codec, in, (Py_ssize_t)total, elements, depth + 1) < 0)) return -1;
    uint64_t used = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = lists ? PyList_New((Py_ssize_t)sizes[i]) : PyTuple_New((Py_ssize_t)sizes[i]);
        if (!value) {
            while (used < total) Py_DECREF(elements[used++]);
            return drop(out, i), -1;
        }
        for (uint32_t k = 0; k < sizes[i]; k++) {
            if (lists)
                layout_set_list(&codec->layout, value, k, elements[used++]);
            else
                layout_set_tuple(&codec->layout, value, k, elements[used++]);
        }
        out[i] = value;
    }
    return 0;
}

static int decode_mixed(Codec *codec, reader_t *in, Py_ssize_t count, PyObject **out, int depth) {
    if (!has(in, (uint64_t)count)) return damaged();
    uint8_t *classes = scratch_alloc(codec, (size_t)count);
    PyObject **values = scratch_alloc(codec, (size_t)count * sizeof *values);
    if (!classes || !values) return -1;
    memcpy(classes, in->at, (size_t)count);
    in->at += count;
    PyObject **of_class[CLASS_COUNT] = {NULL};
    Py_ssize_t counts[CLASS_COUNT] = {0}, decoded = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (classes[i] >= CLASS_COUNT) return damaged();
        counts[classes[i]]++;
    }
    for (int class = CLASS_INT; class < CLASS_COUNT; class++) {
        if (counts[class] == 0) continue;
        of_class[class] = values + decoded;
        if (decode_column(codec, in, counts[class], of_class[class], depth + 1) < 0) return drop(values, decoded), -1;
        decoded += counts[class];
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (classes[i] >= CLASS_INT) {
            out[i] = *of_class[classes[i]]++;
        } else {
            out[i] = classes[i] == CLASS_NONE ? Py_None : classes[i] == CLASS_TRUE ? Py_True : Py_False;
            Py_INCREF(out[i]);
        }
    }
    return 0;
}

static int decode_column(Codec *codec, reader_t *in, Py_ssize_t count, PyObject **out, int depth) {
    uint32_t extra;
    if (depth > CODEC_MAX_DEPTH || !has(in, COLUMN_HEADER_SIZE)) return damaged();
    uint8_t type = in->at[0], width = in->at[1];
    memcpy(&extra, in->at + 4, sizeof extra);
    in->at += COLUMN_HEADER_SIZE;
    switch (type) {
    case COLUMN_INT: return decode_ints(codec, in, width, count, out);
    case COLUMN_FLOAT: return decode_floats(in, count, out);
    case COLUMN_STR: return decode_spans(codec, in, width, count, out, 1);
    case COLUMN_BYTES: return decode_spans(codec, in, width, count, out, 0);
    case COLUMN_FLAGS: return decode_flags(in, count, out);
    case COLUMN_TUPLE: return decode_tuples(codec, in, extra, count, out, depth, NULL);
    case COLUMN_DICT: return decode_dicts(codec, in, extra, count, out, depth);
    case COLUMN_LISTS: return decode_ragged(codec, in, width, count, out, depth, 1);
    case COLUMN_TUPLES: return decode_ragged(codec, in, width, count, out, depth, 0);
    case COLUMN_MIXED: return decode_mixed(codec, in, count, out, depth);
    case COLUMN_EMPTY: return decode_empty(in, width, count, out);
    case COLUMN_NAMED: return decode_named(codec, in, width, extra, count, out, depth);
    default: return damaged();
    }
}

int columns_decode(Codec *codec, const uint8_t *data, uint64_t size, Py_ssize_t count, PyObject **out) {
    reader_t reader = {data, data + size};
    if (count < 1) return damaged();
    return decode_column(codec, &reader, count, out, 0);
}
