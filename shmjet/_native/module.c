/* The binding's module object: types, functions, constants. Everything it offers is typed and described in
 * _core.pyi. */
#include "ring/native.h"

#include "codec/codec.h"
#include "codec/crc32.h"
#include "items/items.h"
#include "memory_reserve.h"
#include "ring/claims.h"
#include "ring/slab.h"

#include <alloca.h>
#include <sys/mman.h>
#include <sys/resource.h>

extern PyType_Spec doorbell_spec, poller_spec, producer_spec, consumer_spec, codec_spec, tally_spec, totals_spec,
    slab_writer_spec, slab_reader_spec, slot_spec, claims_spec, number_sorter_spec,
    edge_flow_spec, packet_writer_spec, packet_reader_spec, link_loop_spec, coalescer_spec;

static int module_exec(PyObject *module);

/* Bytes of `count` rings that lie side by side; raises ValueError and returns -1 when there can be no such rings. */
static Py_ssize_t bytes_of_rings(long long capacity, Py_ssize_t count) {
    Py_ssize_t size = (Py_ssize_t)RING_HEADER_SIZE + (Py_ssize_t)capacity;
    if (count >= 1 && count <= PY_SSIZE_T_MAX / size) return size * count;
    PyErr_Format(PyExc_ValueError, "count must be at least 1 and not too many, got %zd", count);
    return -1;
}

static int is_ring_capacity(long long capacity) {
    if (capacity >= 0 && ring_capacity_is_valid((uint64_t)capacity)) return 1;
    PyErr_Format(PyExc_ValueError, "ring capacity must be a power of two from %u to %llu, got %lld", RING_MIN_CAPACITY,
                 (unsigned long long)RING_MAX_CAPACITY, capacity);
    return 0;
}

static PyObject *module_ring_format(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 4 && count != 5) {
        PyErr_SetString(PyExc_TypeError, "ring_format(buffer, offset, capacity, queue_size, count=1)");
        return NULL;
    }
    Py_ssize_t offset = PyLong_AsSsize_t(args[1]);
    if (offset == -1 && PyErr_Occurred()) return NULL;
    long long capacity = PyLong_AsLongLong(args[2]);
    if (capacity == -1 && PyErr_Occurred()) return NULL;
    long long queue_size = PyLong_AsLongLong(args[3]);
    if (queue_size == -1 && PyErr_Occurred()) return NULL;
    if (!is_ring_capacity(capacity)) return NULL;
    if (queue_size < 1 || queue_size > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "queue_size must be at least 1 and fit in 32 bits, got %lld", queue_size);
        return NULL;
    }
    Py_ssize_t rings = count == 5 ? PyLong_AsSsize_t(args[4]) : 1;
    if (rings == -1 && PyErr_Occurred()) return NULL;
    Py_ssize_t size = bytes_of_rings(capacity, rings);
    if (size < 0) return NULL;
    Py_buffer view;
    uint8_t *memory;
    if (native_map(args[0], offset, size, &view, &memory) < 0) return NULL;
    for (Py_ssize_t i = 0; i < rings; i++)
        ring_format(memory + (size_t)i * (RING_HEADER_SIZE + (size_t)capacity), (uint64_t)capacity,
                    (uint64_t)queue_size);
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static uint64_t items_in_ring(const ring_shared_t *shared) {
    uint64_t items_out = atomic_load_explicit(&shared->items_out, memory_order_acquire);
    uint64_t items_in = atomic_load_explicit(&shared->items_in, memory_order_acquire), queued = items_in - items_out;
    return queued < shared->queue_size ? queued : shared->queue_size;
}

/* Items in `count` rings side by side, and bytes ever written to them: metrics of an edge. */
static PyObject *module_ring_totals(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "ring_totals(buffer, offset, capacity, count)");
        return NULL;
    }
    Py_ssize_t offset = PyLong_AsSsize_t(args[1]);
    if (offset == -1 && PyErr_Occurred()) return NULL;
    long long capacity = PyLong_AsLongLong(args[2]);
    if (capacity == -1 && PyErr_Occurred()) return NULL;
    Py_ssize_t rings = PyLong_AsSsize_t(args[3]);
    if (rings == -1 && PyErr_Occurred()) return NULL;
    if (!is_ring_capacity(capacity)) return NULL;
    Py_ssize_t size = bytes_of_rings(capacity, rings);
    if (size < 0) return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) return NULL;
    const uint8_t *memory = view.buf;
    int is_there = offset >= 0 && size <= view.len && offset <= view.len - size &&
                   (uintptr_t)(memory + offset) % RING_ALIGNMENT == 0;
    uint64_t items = 0, bytes = 0;
    for (Py_ssize_t i = 0; is_there && i < rings; i++) {
        const void *at = memory + offset + (size_t)i * (RING_HEADER_SIZE + (size_t)capacity);
        const ring_shared_t *shared = at;
        is_there = shared->magic == RING_MAGIC;
        items += items_in_ring(shared);
        bytes += atomic_load_explicit(&shared->tail, memory_order_relaxed);
    }
    PyBuffer_Release(&view);
    if (is_there) return Py_BuildValue("KK", items, bytes);
    PyErr_SetString(PyExc_ValueError, "the buffer has no such rings there");
    return NULL;
}

/* Items in the ring whose control block lies at the start of a buffer: a metric, read by processes that map the
 * arena. */
static PyObject *module_ring_items(PyObject *module, PyObject *header) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(header, &view, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *result = NULL;
    const ring_shared_t *shared = view.buf;
    if (view.len < (Py_ssize_t)RING_HEADER_SIZE || (uintptr_t)view.buf % RING_ALIGNMENT ||
        shared->magic != RING_MAGIC) {
        PyErr_SetString(PyExc_ValueError, "the buffer does not start with the control block of a ring");
    } else {
        result = PyLong_FromUnsignedLongLong(items_in_ring(shared));
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *module_clock_ns(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return PyLong_FromLongLong(monotonic_ns());
}

/* short_slice(ns): asks the scheduler for short turns, which come soon after a wake-up. The slice of an ordinary
 * process can be chosen since Linux 6.12; before that the field is ignored. */
static PyObject *module_short_slice(PyObject *module, PyObject *nanoseconds) {
    (void)module;
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {.size = sizeof attributes};
    attributes.runtime = PyLong_AsUnsignedLongLong(nanoseconds);
    if (PyErr_Occurred()) return NULL;
    errno = 0;
    attributes.nice = getpriority(PRIO_PROCESS, 0); /* as it is */
    return PyBool_FromLong(errno == 0 && syscall(SYS_sched_setattr, 0, &attributes, 0) == 0);
}

/* Touches the byte that lies `size` bytes down the stack: the kernel maps all that lies between. */
static __attribute__((noinline)) void touch_stack(size_t size) {
    volatile char *lowest = alloca(size);
    *lowest = 0;
}

/* grow_stack(size): the stack grows by faults. A process that has no address space left (RLIMIT_AS) then dies of a
 * signal, in whatever it does, where every other lack of memory is an error. */
static PyObject *module_grow_stack(PyObject *module, PyObject *argument) {
    (void)module;
    size_t size = PyLong_AsSize_t(argument);
    if (PyErr_Occurred()) return NULL;
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) < 0 || size > limit.rlim_cur / 4) Py_RETURN_FALSE;
    void *room = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) Py_RETURN_FALSE;
    munmap(room, size);
    touch_stack(size);
    Py_RETURN_TRUE;
}

/* hold_reserve(size), release_reserve() */
static PyObject *module_hold_reserve(PyObject *module, PyObject *argument) {
    (void)module;
    size_t size = PyLong_AsSize_t(argument);
    if (PyErr_Occurred()) return NULL;
    if (!size) {
        PyErr_SetString(PyExc_ValueError, "a reserve has at least 1 byte");
        return NULL;
    }
    return PyBool_FromLong(memory_reserve_hold(size));
}

static PyObject *module_release_reserve(PyObject *module, PyObject *nothing) {
    (void)module, (void)nothing;
    memory_reserve_release();
    Py_RETURN_NONE;
}

#define FAST(name, function, doc) {name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, doc}

static PyMethodDef module_methods[] = {
    FAST("ring_format", module_ring_format, "ring_format(buffer, offset, capacity, queue_size, count=1) -> None"),
    FAST("ring_totals", module_ring_totals, "ring_totals(buffer, offset, capacity, count) -> (items, bytes written)"),
    {"ring_items", module_ring_items, METH_O, "ring_items(header) -> int: items published and not yet released"},
    FAST("push_marks", producers_push_marks, "push_marks(producers, kind, value, flags) -> list[int]: those left out"),
    FAST("index_of_special", routing_index_of_special, "index_of_special(items, start, special_type) -> int"),
    FAST("murmur3_32", routing_murmur3_32, "murmur3_32(data, seed=0) -> int"),
    FAST("partition_of", routing_partition_of, "partition_of(key, count, fallback) -> int"),
    FAST("add_up", totals_add_up, "add_up(start, numbers) -> start + numbers[0] + numbers[1] + ..."),
    FAST("sort_numbers", ordering_sort_numbers, "sort_numbers(items, keys, reverse) -> bool: whether keys are numbers"),
    FAST("sort_texts", ordering_sort_texts, "sort_texts(items, keys, reverse) -> bool: whether keys are ASCII text"),
    {"ascends", ordering_ascends, METH_O,
     "ascends(keys) -> bool | None: whether numbers or ASCII text do; None: it has others"},
    FAST("unify_nans", nans_unify, "unify_nans(keys, nan) -> list: every NaN, in tuples too, is this one"),
    FAST("crc32", codec_crc32, "crc32(data, value=0) -> int: as zlib.crc32"),
    FAST("name_tuples", codec_name_tuples, "name_tuples(number, type) -> None: the codec knows them by this number"),
    FAST("cut_frames", frames_cut,
         "cut_frames(items, stamps, slide, offset, lowest) -> (dict[end, items], late items)"),
    FAST("cut_results", frames_cut_results, "cut_results(items, keyed, lowest) -> (dict[end, pairs], late items)"),
    FAST("keyed_results", frames_keyed_results, "keyed_results(type, start, end, pairs, is_early, stamp) -> list"),
    {"journal_parts", journal_parts, METH_O,
     "journal_parts(events) -> (packed entries, moments, dict[partition, sequence that follows])"},
    FAST("journal_events", journal_events, "journal_events(type, names, events, parts) -> list: an event for each"),
    FAST("survey_entries", entries_survey,
         "survey_entries(entries, mark, back, code) -> (runs, prefix, size, longest key, longest value, is marked, "
         "are plain)"),
    FAST("move_entries", entries_move, "move_entries(entries, cut, prefix) -> list"),
    FAST("plain_entries", entries_plain, "plain_entries(pairs, heads, most_key, most_value) -> list[list] | None"),
    FAST("place_entries", entries_place, "place_entries(partitions, tails, values, heads) -> list[list]"),
    FAST("split", routing_split, "split(items, keys, count, table, consumers, fallback) -> list[list | None]"),
    FAST("split_entries", routing_split_entries,
         "split_entries(entries, count, table, consumers, fallback, special_type) -> list[list | None] | None"),
    {"short_slice", module_short_slice, METH_O, "short_slice(nanoseconds) -> bool: whether the scheduler takes it"},
    {"grow_stack", module_grow_stack, METH_O, "grow_stack(size) -> bool: whether there is room for that"},
    {"hold_reserve", module_hold_reserve, METH_O, "hold_reserve(size) -> bool: whether both parts are held"},
    {"release_reserve", module_release_reserve, METH_NOARGS, "release_reserve() -> None"},
    {"clock_ns", module_clock_ns, METH_NOARGS, "clock_ns() -> int: CLOCK_MONOTONIC in nanoseconds"},
    {NULL, NULL, 0, NULL},
};

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    native_state_t *state = PyModule_GetState(module);
    Py_VISIT((PyObject *)state->codec);
    Py_VISIT((PyObject *)state->doorbell);
    Py_VISIT((PyObject *)state->producer);
    Py_VISIT((PyObject *)state->consumer);
    Py_VISIT((PyObject *)state->poller);
    Py_VISIT((PyObject *)state->slot);
    Py_VISIT((PyObject *)state->edge_flow);
    Py_VISIT((PyObject *)state->packet_writer);
    Py_VISIT((PyObject *)state->packet_reader);
    Py_VISIT((PyObject *)state->slab_writer);
    Py_VISIT(state->corrupt_error);
    for (int i = 0; i < NAMED_TUPLES; i++) Py_VISIT((PyObject *)state->named[i].type);
    return 0;
}

static int module_clear(PyObject *module) {
    native_state_t *state = PyModule_GetState(module);
    Py_CLEAR(state->codec);
    Py_CLEAR(state->doorbell);
    Py_CLEAR(state->producer);
    Py_CLEAR(state->consumer);
    Py_CLEAR(state->poller);
    Py_CLEAR(state->slot);
    Py_CLEAR(state->edge_flow);
    Py_CLEAR(state->packet_writer);
    Py_CLEAR(state->packet_reader);
    Py_CLEAR(state->slab_writer);
    Py_CLEAR(state->corrupt_error);
    for (int i = 0; i < NAMED_TUPLES; i++) Py_CLEAR(state->named[i].type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "shmjet._native._core",
    .m_doc = "Rings in shared memory, doorbells, the column codec, routing.",
    .m_size = sizeof(native_state_t),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

native_state_t *native_state(PyTypeObject *type) { return PyType_GetModuleState(type); }

int native_map(PyObject *buffer, Py_ssize_t offset, Py_ssize_t size, Py_buffer *view, uint8_t **memory) {
    if (PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE) < 0) return -1;
    if (offset < 0 || size > view->len || offset > view->len - size) {
        PyErr_Format(PyExc_ValueError, "[%zd, %zd) does not lie in a buffer of %zd bytes", offset, offset + size,
                     view->len);
        PyBuffer_Release(view);
        return -1;
    }
    *memory = (uint8_t *)view->buf + offset;
    if ((uintptr_t)*memory % RING_ALIGNMENT) {
        PyErr_Format(PyExc_ValueError, "offset %zd is not aligned to %u bytes in memory", offset, RING_ALIGNMENT);
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (!type) return NULL;
    if (PyModule_AddType(module, (PyTypeObject *)type) < 0) {
        Py_DECREF(type);
        return NULL;
    }
    return (PyTypeObject *)type;
}

static int module_exec(PyObject *module) {
    native_state_t *state = PyModule_GetState(module);
    layout_probe(&state->layout);
    state->corrupt_error = PyErr_NewExceptionWithDoc("shmjet._native.RingCorruptError",
                                                     "A word in shared memory has a value that no ring writes.",
                                                     PyExc_RuntimeError, NULL);
    if (!state->corrupt_error || PyModule_AddObjectRef(module, "RingCorruptError", state->corrupt_error) < 0) return -1;
    PyTypeObject *tally, *totals, *slab_reader, *claims, *number_sorter, *link_loop, *coalescer;
    if (!(state->codec = add_type(module, &codec_spec)) || !(state->doorbell = add_type(module, &doorbell_spec)) ||
        !(state->producer = add_type(module, &producer_spec)) ||
        !(state->consumer = add_type(module, &consumer_spec)) || !(state->poller = add_type(module, &poller_spec)) ||
        !(tally = add_type(module, &tally_spec)) || !(totals = add_type(module, &totals_spec)) ||
        !(state->slot = add_type(module, &slot_spec)) || !(state->slab_writer = add_type(module, &slab_writer_spec)) ||
        !(slab_reader = add_type(module, &slab_reader_spec)) || !(claims = add_type(module, &claims_spec)) ||
        !(number_sorter = add_type(module, &number_sorter_spec)) ||
        !(state->edge_flow = add_type(module, &edge_flow_spec)) ||
        !(state->packet_writer = add_type(module, &packet_writer_spec)) ||
        !(state->packet_reader = add_type(module, &packet_reader_spec)) ||
        !(link_loop = add_type(module, &link_loop_spec)) || !(coalescer = add_type(module, &coalescer_spec)))
        return -1;
    Py_DECREF((PyObject *)tally); /* the module's dict holds these */
    Py_DECREF((PyObject *)totals);
    Py_DECREF((PyObject *)slab_reader);
    Py_DECREF((PyObject *)claims);
    Py_DECREF((PyObject *)number_sorter);
    Py_DECREF((PyObject *)link_loop);
    Py_DECREF((PyObject *)coalescer);
    if (PyModule_AddIntConstant(module, "RING_HEADER", RING_HEADER_SIZE) < 0 ||
        PyModule_AddIntConstant(module, "RING_ALIGNMENT", RING_ALIGNMENT) < 0 ||
        PyModule_AddIntConstant(module, "RING_MIN_CAPACITY", RING_MIN_CAPACITY) < 0 ||
        PyModule_AddIntConstant(module, "RECORD_HEADER", RECORD_HEADER_SIZE) < 0 ||
        PyModule_AddIntConstant(module, "DOORBELL_SIZE", DOORBELL_SIZE_BYTES) < 0 ||
        PyModule_AddIntConstant(module, "SLAB_UNIT", SLAB_UNIT) < 0 ||
        PyModule_AddIntConstant(module, "CLAIMS_HEADER", CLAIMS_HEADER_SIZE) < 0 ||
        PyModule_AddIntConstant(module, "CRC32_IS_FAST", crc32_is_fast()) < 0)
        return -1;
    return 0;
}

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module_definition); }
