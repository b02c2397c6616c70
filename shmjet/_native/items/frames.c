/* Events by the frame that their timestamps are in: the loop of every window over items.
 *
 * A frame is named by its end, the first multiple of the slide (plus the offset) after the timestamp. Events come
 * nearly in order, so the frame of the last one is tried first. */
#include "items/items.h"

typedef struct {
    int64_t slide, offset, lowest;
    int64_t start, end; /* of the frame of the last event that was not late; start == end: none yet */
    PyObject *group;    /* its items, borrowed */
    PyObject *groups, *late;
} cut_t;

/* The end of an event's frame, within 64 bits. */
static int64_t end_of(const cut_t *cut, int64_t stamp) {
    int64_t past, end;
    if (__builtin_sub_overflow(stamp, cut->offset, &past)) past = stamp; /* far outside of all calendars */
    past %= cut->slide;
    if (past < 0) past += cut->slide;
    return __builtin_add_overflow(stamp, cut->slide - past, &end) ? INT64_MAX : end;
}

/* Makes the frame of a timestamp the current one. */
static int turn_to(cut_t *cut, int64_t stamp) {
    int64_t end = end_of(cut, stamp);
    PyObject *key = PyLong_FromLongLong(end);
    if (!key) return -1;
    PyObject *group = PyDict_GetItemWithError(cut->groups, key);
    if (!group && !PyErr_Occurred()) {
        group = PyList_New(0);
        if (group && PyDict_SetItem(cut->groups, key, group) < 0) Py_CLEAR(group);
        Py_XDECREF(group); /* the dict's */
    }
    Py_DECREF(key);
    if (!group || PyErr_Occurred()) return -1;
    cut->group = group;
    cut->end = end;
    cut->start = end < INT64_MIN + cut->slide ? INT64_MIN : end - cut->slide;
    return 0;
}

static int put(cut_t *cut, PyObject *stamp, PyObject *bare, PyObject *item) {
    int overflow = 0;
    long long time = PyLong_CheckExact(stamp) ? PyLong_AsLongLongAndOverflow(stamp, &overflow) : 0;
    if (UNLIKELY(overflow || !PyLong_CheckExact(stamp))) {
        PyErr_Format(PyExc_TypeError, "a timestamp must be an int of 64 bits, got %R", stamp);
        return -1;
    }
    if (LIKELY(cut->start <= time && time < cut->end)) return PyList_Append(cut->group, bare);
    if (end_of(cut, time) < cut->lowest) return PyList_Append(cut->late, item);
    if (turn_to(cut, time) < 0) return -1;
    return PyList_Append(cut->group, bare);
}

/* cut_frames(items, stamps, slide, offset, lowest) -> (dict of lists, list). Without stamps (None) items are pairs
 * (timestamp, item), of which the inner items are grouped. */
PyObject *frames_cut(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 5 || !PyList_CheckExact(args[0]) || !(args[1] == Py_None || PyList_CheckExact(args[1])) ||
        (args[1] != Py_None && PyList_Size(args[1]) != PyList_Size(args[0])))
        return PyErr_SetString(PyExc_TypeError, "cut_frames(items: list, stamps: list | None, slide, offset, lowest)"),
               NULL;
    PyObject *items = args[0], *stamps = args[1];
    cut_t cut = {.slide = PyLong_AsLongLong(args[2]),
                 .offset = PyLong_AsLongLong(args[3]),
                 .lowest = PyLong_AsLongLong(args[4])};
    if (PyErr_Occurred()) return NULL;
    if (cut.slide < 1) return PyErr_SetString(PyExc_ValueError, "the slide must be at least 1"), NULL;
    cut.groups = PyDict_New();
    cut.late = PyList_New(0);
    int status = cut.groups && cut.late ? 0 : -1;
    for (Py_ssize_t i = 0, size = PyList_Size(items); status == 0 && i < size; i++) {
        PyObject *item = layout_get_list(layout, items, i);
        if (stamps != Py_None) {
            status = put(&cut, layout_get_list(layout, stamps, i), item, item);
        } else if (LIKELY(PyTuple_CheckExact(item) && PyTuple_Size(item) == 2)) {
            status = put(&cut, layout_get_tuple(layout, item, 0), layout_get_tuple(layout, item, 1), item);
        } else {
            PyErr_Format(PyExc_TypeError, "expected a timed item, a pair (timestamp, item), got %R", item);
            status = -1;
        }
    }
    if (status == 0) return Py_BuildValue("(NN)", cut.groups, cut.late);
    Py_XDECREF(cut.groups);
    Py_XDECREF(cut.late);
    return NULL;
}

/* The end of a result of a frame, a tuple (start, end, ...). */
static int end_of_result(const object_layout_t *layout, PyObject *item, Py_ssize_t fields, int64_t *end) {
    int overflow = 1;
    if (PyTuple_Check(item) && PyTuple_Size(item) >= fields) {
        PyObject *number = layout_get_tuple(layout, item, 1);
        if (PyLong_CheckExact(number)) *end = PyLong_AsLongLongAndOverflow(number, &overflow);
    }
    if (!overflow) return 0;
    PyErr_Format(PyExc_TypeError, "expected a result of a frame, as accumulate_by_frame makes them, got %R", item);
    return -1;
}

/* A pair of a key and an accumulator for the current frame. */
static int put_pair(const object_layout_t *layout, cut_t *cut, PyObject *item, int keyed) {
    PyObject *pair = PyTuple_New(2);
    if (!pair) return -1;
    layout_set_tuple(layout, pair, 0, Py_NewRef(keyed ? layout_get_tuple(layout, item, 2) : Py_None));
    layout_set_tuple(layout, pair, 1, Py_NewRef(layout_get_tuple(layout, item, keyed ? 3 : 2)));
    int status = PyList_Append(cut->group, pair);
    Py_DECREF(pair);
    return status;
}

/* cut_results(items, keyed, lowest) -> (dict of lists of pairs, list of late items): results of frames, by their
 * ends. */
PyObject *frames_cut_results(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 3 || !PyList_CheckExact(args[0]))
        return PyErr_SetString(PyExc_TypeError, "cut_results(items: list, keyed, lowest)"), NULL;
    int keyed = PyObject_IsTrue(args[1]);
    cut_t cut = {.slide = 1, .offset = 0, .lowest = PyLong_AsLongLong(args[2])};
    if (PyErr_Occurred()) return NULL;
    cut.groups = PyDict_New();
    cut.late = PyList_New(0);
    int status = cut.groups && cut.late ? 0 : -1;
    for (Py_ssize_t i = 0, size = PyList_Size(args[0]); status == 0 && i < size; i++) {
        PyObject *item = layout_get_list(layout, args[0], i);
        int64_t end = 0;
        status = end_of_result(layout, item, keyed ? 4 : 3, &end);
        if (status < 0) break;
        if (end < cut.lowest) {
            status = PyList_Append(cut.late, item);
            continue;
        }
        if (!cut.group || end != cut.end) status = turn_to(&cut, end > INT64_MIN ? end - 1 : end);
        if (status == 0) status = put_pair(layout, &cut, item, keyed);
    }
    if (status == 0) return Py_BuildValue("(NN)", cut.groups, cut.late);
    Py_XDECREF(cut.groups);
    Py_XDECREF(cut.late);
    return NULL;
}

/* keyed_results(type, start, end, pairs, is_early, stamp) -> list: a named tuple (start, end, key, result, is_early) of
 * each pair (key, result), in a pair with the stamp unless that is None. */
PyObject *frames_keyed_results(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    const object_layout_t *layout = &((native_state_t *)PyModule_GetState(module))->layout;
    if (count != 6 || !PyType_Check(args[0]) || !PyType_IsSubtype((PyTypeObject *)args[0], &PyTuple_Type) ||
        !PyList_CheckExact(args[3]))
        return PyErr_SetString(PyExc_TypeError, "keyed_results(type, start, end, pairs, is_early, stamp)"), NULL;
    PyObject *pairs = args[3], *stamp = args[5], *results = PyList_New(0);
    for (Py_ssize_t i = 0, size = PyList_Size(pairs); results && i < size; i++) {
        PyObject *pair = layout_get_list(layout, pairs, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2) {
            PyErr_Format(PyExc_TypeError, "expected a pair of a key and a result, got %R", pair);
            Py_CLEAR(results);
            break;
        }
        PyObject *key = layout_get_tuple(layout, pair, 0), *value = layout_get_tuple(layout, pair, 1);
        PyObject *result = layout_new_named(layout, (PyTypeObject *)args[0], 5), *item = result;
        if (result) {
            PyObject *fields[5] = {args[1], args[2], key, value, args[4]};
            for (Py_ssize_t k = 0; k < 5; k++) layout_set_tuple(layout, result, k, Py_NewRef(fields[k]));
            int atomic = is_atom(key) && is_atom(value);
            if (atomic) PyObject_GC_UnTrack(result); /* it can be part of no cycle */
            if (stamp != Py_None && (item = PyTuple_New(2))) {
                layout_set_tuple(layout, item, 0, Py_NewRef(stamp));
                layout_set_tuple(layout, item, 1, Py_NewRef(result));
                if (atomic) PyObject_GC_UnTrack(item);
            }
            if (item != result) Py_DECREF(result);
        }
        if (!item || PyList_Append(results, item) < 0) Py_CLEAR(results);
        Py_XDECREF(item);
    }
    return results;
}
