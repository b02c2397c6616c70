/* Sorting a list of Python objects by keys that are text.
 *
 * A text is looked at in pieces of 7 bytes, each a word whose order is theirs (as order.h has it for columns): its
 * lowest byte says how many bytes there were, 8 when more follow. Words are sorted by digits (radix.h); what has equal
 * words, and goes on, is sorted by the next piece, and a few texts by comparing them whole. Texts that differ early
 * are so sorted without a comparison, and without a look at more than their first bytes. UTF-8 has the order of code
 * points. */
#include "items/items.h"
#include "items/radix.h"

#define PIECE 7
#define FOLLOWED 8
#define FEW 24 /* so many texts are sorted by insertion */

typedef struct {
    const uint8_t *bytes;
    size_t length;
} text_t;

/* A key is known to have UTF-8 that needs no memory of its own. */
static inline text_t text_of(void *key) {
    Py_ssize_t length;
    const char *bytes = PyUnicode_AsUTF8AndSize((PyObject *)key, &length);
    return (text_t){(const uint8_t *)bytes, (size_t)length};
}

static inline uint64_t piece_of(text_t text, size_t at) {
    uint64_t word = 0;
    if (text.length >= at + 8) {
        memcpy(&word, text.bytes + at, 8);
        return (__builtin_bswap64(word) & ~UINT64_C(0xff)) | FOLLOWED;
    }
    if (text.length <= at) return 0;
    size_t left = text.length - at;
    for (size_t i = 0; i < left; i++) word |= (uint64_t)text.bytes[at + i] << (56 - 8 * i);
    return word | left;
}

static inline int compare(text_t a, text_t b, size_t at) {
    size_t shorter = a.length < b.length ? a.length : b.length;
    int order = shorter > at ? memcmp(a.bytes + at, b.bytes + at, shorter - at) : 0;
    return order ? order : (a.length > b.length) - (a.length < b.length);
}

/* An element whose key was read once has its place in `items`: keys and items are told apart by it. */
typedef struct {
    PyObject **keys; /* by place */
    uint64_t flip;   /* all ones in descending order */
} texts_t;

static inline text_t text_at(const texts_t *texts, const radix_pair_t *pair) {
    return text_of(texts->keys[(uintptr_t)pair->item]);
}

static void sort_few(const texts_t *texts, radix_pair_t *pairs, size_t count, size_t at) {
    for (size_t i = 1; i < count; i++) {
        radix_pair_t moving = pairs[i];
        text_t text = text_at(texts, &moving);
        size_t to = i;
        for (; to > 0; to--) {
            int order = compare(text_at(texts, &pairs[to - 1]), text, at);
            if (texts->flip ? order >= 0 : order <= 0) break;
            pairs[to] = pairs[to - 1];
        }
        pairs[to] = moving;
    }
}

/* How many bytes from the start all texts have in common, at least `at`. */
static size_t common_bytes(const texts_t *texts, const radix_pair_t *pairs, size_t count, size_t at) {
    text_t first = text_at(texts, &pairs[0]);
    size_t common = first.length;
    for (size_t i = 1; i < count && common > at; i++) {
        text_t other = text_at(texts, &pairs[i]);
        size_t most = other.length < common ? other.length : common, same = at;
        while (same < most && first.bytes[same] == other.bytes[same]) same++;
        common = same;
    }
    return common > at ? common : at;
}

/* Sorts texts that agree in their first `at` bytes. */
static void sort_texts(const texts_t *texts, radix_pair_t *pairs, radix_pair_t *scratch, size_t count, size_t at) {
    if (count < FEW) {
        sort_few(texts, pairs, count, at);
        return;
    }
    if (at) at = common_bytes(texts, pairs, count, at); /* so each level tells some apart, and there are not many */
    for (size_t i = 0; i < count; i++) pairs[i].key = piece_of(text_at(texts, &pairs[i]), at) ^ texts->flip;
    const radix_pair_t *sorted = radix_sort(pairs, scratch, count);
    if (sorted != pairs) memcpy(pairs, sorted, count * sizeof *pairs);
    for (size_t start = 0, end; start < count; start = end) {
        uint64_t key = pairs[start].key;
        for (end = start + 1; end < count && pairs[end].key == key;) end++;
        if (end - start > 1 && ((key ^ texts->flip) & 0xff) == FOLLOWED)
            sort_texts(texts, pairs + start, scratch + start, end - start, at + PIECE);
    }
}

/* Whether a list has nothing but ASCII text. A text that has other characters would get a second copy of itself. */
static int are_texts(const object_layout_t *layout, PyObject *keys, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = layout_get_list(layout, keys, i);
        Py_ssize_t length;
        if (Py_TYPE(key) != &PyUnicode_Type) return 0;
        if (!PyUnicode_AsUTF8AndSize(key, &length)) {
            PyErr_Clear();
            return 0;
        }
        if (length != PyUnicode_GetLength(key)) return 0;
    }
    return 1;
}

int ordering_texts_ascend(const object_layout_t *layout, PyObject *keys) {
    Py_ssize_t count = PyList_Size(keys);
    if (!are_texts(layout, keys, count)) return -1;
    for (Py_ssize_t i = 1; i < count; i++)
        if (compare(text_of(layout_get_list(layout, keys, i - 1)), text_of(layout_get_list(layout, keys, i)), 0) > 0)
            return 0;
    return 1;
}

/* sort_texts(items, keys, reverse) -> bool. No Python code runs between reading the references and writing them
 * back. */
PyObject *ordering_sort_texts(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 3 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) || !PyBool_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "sort_texts(items: list, keys: list, reverse: bool)");
        return NULL;
    }
    Py_ssize_t size = PyList_Size(args[0]);
    if (PyList_Size(args[1]) != size)
        return PyErr_Format(PyExc_ValueError, "%zd items, but %zd keys", size, PyList_Size(args[1]));
    if (size == 0) Py_RETURN_TRUE;
    PyObject **items = layout_list(layout, args[0]), **keys = layout_list(layout, args[1]);
    if (!items || !are_texts(layout, args[1], size)) Py_RETURN_FALSE;
    radix_pair_t *pairs = PyMem_Malloc(2 * (size_t)size * sizeof *pairs);
    PyObject **sorted = PyMem_Malloc((size_t)size * sizeof *sorted);
    if (!pairs || !sorted) {
        PyMem_Free(pairs);
        PyMem_Free(sorted);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < size; i++) pairs[i].item = (void *)(uintptr_t)i;
    const texts_t texts = {keys, args[2] == Py_True ? UINT64_MAX : 0};
    sort_texts(&texts, pairs, pairs + size, (size_t)size, 0);
    for (Py_ssize_t i = 0; i < size; i++) sorted[i] = items[(uintptr_t)pairs[i].item];
    memcpy(items, sorted, (size_t)size * sizeof *sorted);
    PyMem_Free(pairs);
    PyMem_Free(sorted);
    Py_RETURN_TRUE;
}
