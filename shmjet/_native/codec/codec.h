/* The column codec: lists of plain Python values to bytes and back. See docs/formats/codec.md for the layout.
 *
 * Exact types only, and a few classes of named tuples. Another subclass, a numpy scalar, an int beyond 64 bits or a str
 * with a lone surrogate is "not columns";
 * the caller then pickles. Encoding runs no Python code; decoding switches the cyclic collector off, so that none runs
 * either.
 */
#ifndef SHMJET_CODEC_H
#define SHMJET_CODEC_H

#include "binding.h"

enum { COLUMNS_NO_ROOM = -1, COLUMNS_REFUSED = -2, COLUMNS_ERROR = -3 };

/* The first byte of a column. */
enum {
    COLUMN_INT = 1,    /* base (8 bytes), then unsigned differences of `width` bytes */
    COLUMN_FLOAT = 2,  /* IEEE doubles */
    COLUMN_STR = 3,    /* lengths of `width` bytes, then UTF-8 */
    COLUMN_BYTES = 4,  /* lengths of `width` bytes, then the bytes */
    COLUMN_FLAGS = 5,  /* a byte each: 0 False, 1 True, 2 None */
    COLUMN_TUPLE = 6,  /* `extra` fields, each a column */
    COLUMN_DICT = 7,   /* a column of `extra` keys, then as many columns of values */
    COLUMN_LISTS = 8,  /* lengths, then one column of all elements */
    COLUMN_TUPLES = 9, /* the same for tuples of different lengths */
    COLUMN_MIXED = 10, /* a class byte each, then a column for each class present */
    COLUMN_EMPTY = 11, /* tuples or dicts without fields: a filler byte each; `width` 0 tuple, 1 dict */
    COLUMN_NAMED = 12, /* named tuples of class `width`: `extra` fields, each a column */
};

/* The class bytes of a mixed column; the first three are also the values of COLUMN_FLAGS. */
enum {
    CLASS_FALSE,
    CLASS_TRUE,
    CLASS_NONE,
    CLASS_INT,
    CLASS_FLOAT,
    CLASS_STR,
    CLASS_BYTES,
    CLASS_TUPLE,
    CLASS_LIST,
    CLASS_DICT,
    CLASS_COUNT,
};

#define COLUMN_HEADER_SIZE 8u
#define CODEC_MAX_DEPTH 6
#define CODEC_SCRATCH_SIZE (256u * 1024u)
#define STRING_SETS 2048u
#define STRING_WAYS 4u
#define STRING_CACHE_MAX_LENGTH 40u
#define KEPT_INTS 4096u

typedef struct scratch_block {
    struct scratch_block *next;
} scratch_block_t;

/* Strings whose hashes agree in their low bits: one cache line. The newest comes first and pushes the oldest out. */
typedef struct {
    uint32_t hashes[STRING_WAYS];
    PyObject *strings[STRING_WAYS];
    uint8_t pad[64 - STRING_WAYS * (sizeof(uint32_t) + sizeof(PyObject *))];
} string_set_t;

_Static_assert(sizeof(string_set_t) == 64, "a set is a cache line");

typedef struct {
    PyObject_HEAD
    object_layout_t layout;
    const named_tuple_t *named; /* NAMED_TUPLES of them, the module's */
    uint8_t *scratch; /* bump allocator, emptied after each frame */
    size_t used;
    scratch_block_t *overflow;
    string_set_t *strings; /* STRING_SETS of them */
    PyObject **ints;       /* 0 .. KEPT_INTS - 1, each from when it is first decoded */
    uint32_t lookups, hits, sleep; /* the cache rests for `sleep` strings when hardly any repeats */
} Codec;

HIDDEN void *scratch_alloc(Codec *codec, size_t size);
HIDDEN void scratch_reset(Codec *codec);

/* Encodes items[start : start + count] to at most `room` bytes at `out`. Returns the bytes written or COLUMNS_*. */
HIDDEN int64_t columns_encode(Codec *codec, PyObject *items, Py_ssize_t start, Py_ssize_t count, uint8_t *out,
                              uint64_t room);

/* Decodes `count` values to out[], new references. 0, or -1 with an exception and nothing in out[]. */
HIDDEN int columns_decode(Codec *codec, const uint8_t *data, uint64_t size, Py_ssize_t count, PyObject **out);

/* The module's function name_tuples(number, type). */
HIDDEN PyObject *codec_name_tuples(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* The module's function crc32(data, value). */
HIDDEN PyObject *codec_crc32(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* Builds a list and gives it the references in values[]. */
HIDDEN PyObject *list_from(const Codec *codec, PyObject **values, Py_ssize_t count);

#endif
