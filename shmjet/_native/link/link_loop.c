/* LinkLoop: the inner loop of a link. It moves packets between rings and sockets, and sleeps, without Python, until
 * there is something that only Python can do: an event on a descriptor that it does not know, a packet for Python,
 * room for what waits there, a broken connection, or a timer.
 *
 * It sleeps in poll, on its connections and on an epoll descriptor that stands for all else. A connection in epoll
 * would run epoll's callback for each segment that comes, asleep or not; poll leaves nothing behind once it has
 * returned. Workers that fill a ring write an eventfd while the link says that it sleeps (doorbell.h); that is in
 * epoll, watched edge by edge, so it need not be read. */
#define _GNU_SOURCE /* ppoll */
#include "link/packet_reader.h"
#include "link/packet_writer.h"
#include "ring/poller.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

#define MOST_EVENTS 64

typedef struct {
    PacketWriter *writer;
    PacketReader *reader;
    int fd;
    int blocked; /* the socket has refused: nothing is sent until it takes more */
} connection_t;

typedef struct {
    PyObject_HEAD
    Doorbell *bell; /* NULL for none */
    int epoll;
    connection_t *connections;
    struct pollfd *polled; /* all else, then the connections in their order */
    uint32_t count, room;
    int current; /* the descriptor of the connection that is being looked at */
    int busy;
} LinkLoop;

static connection_t *find(const LinkLoop *self, int fd) {
    for (uint32_t i = 0; i < self->count; i++)
        if (self->connections[i].fd == fd) return &self->connections[i];
    return NULL;
}

/* Sends what all connections take. 1 when there is more to be sent at once, 0, or -1 with an exception. */
static int send_all(LinkLoop *self) {
    int more = 0;
    for (uint32_t i = 0; i < self->count; i++) {
        connection_t *connection = &self->connections[i];
        if (connection->blocked) continue;
        self->current = connection->fd;
        int status = packet_writer_flush(connection->writer, connection->fd);
        if (status < 0) return -1;
        more |= status == WRITER_MORE;
        if (status == WRITER_BLOCKED) connection->blocked = 1;
    }
    return more;
}

/* Reads from a connection that is ready. 1, 0 when it has ended, -1 with an exception. */
static int serve(LinkLoop *self, connection_t *connection, short events) {
    self->current = connection->fd;
    if (events & (POLLOUT | POLLERR | POLLHUP)) connection->blocked = 0;
    return events & ~POLLOUT ? packet_reader_receive(connection->reader, connection->fd) : 1;
}

/* ---- sleeping ---- */

static int anything_ready(const LinkLoop *self, PyObject *pollers, Py_ssize_t count) {
    for (uint32_t i = 0; i < self->count; i++)
        if (!self->connections[i].blocked && packet_writer_is_ready(self->connections[i].writer)) return 1;
    return pollers_any_ready(pollers, count);
}

static int any_fence_free(const LinkLoop *self, PyObject *pollers, Py_ssize_t count) {
    for (uint32_t i = 0; i < self->count; i++)
        if (!self->connections[i].blocked && packet_writer_is_fence_free(self->connections[i].writer)) return 1;
    return pollers_any_fence_free(pollers, count);
}

/* Waits for any descriptor. Returns how many are ready, -1 with errno. */
static int wait_for(LinkLoop *self, int64_t timeout_ns) {
    int64_t patience_ns = INT64_MAX;
    self->polled[0] = (struct pollfd){self->epoll, POLLIN, 0};
    for (uint32_t i = 0; i < self->count; i++) {
        const connection_t *connection = &self->connections[i];
        self->polled[1 + i] = (struct pollfd){connection->fd, (short)(POLLIN | (connection->blocked ? POLLOUT : 0)), 0};
        int64_t own_ns = connection->reader->patience_ns;
        if (own_ns && own_ns < patience_ns) patience_ns = own_ns;
    }
    int is_short = patience_ns < timeout_ns;
    if (is_short) timeout_ns = patience_ns;
    struct timespec timeout = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};
    int found = ppoll(self->polled, 1 + self->count, &timeout, NULL);
    for (uint32_t i = 0; found == 0 && is_short && i < self->count; i++)
        if (self->connections[i].reader->patience_ns) self->polled[1 + i].revents = POLLIN;
    return found || !is_short ? found : (int)self->count;
}

static int sleep_for(LinkLoop *self, PyObject *pollers, Py_ssize_t count, int64_t timeout_ns) {
    doorbell_t *bell = self->bell ? self->bell->bell : NULL;
    if (bell) {
        bell_prepare(bell);
        if (any_fence_free(self, pollers, count)) timeout_ns = sleeper_fence(timeout_ns);
    }
    if (anything_ready(self, pollers, count)) timeout_ns = 0;
    int found;
    Py_BEGIN_ALLOW_THREADS
    found = wait_for(self, timeout_ns);
    Py_END_ALLOW_THREADS
    if (bell) bell_stay(bell);
    return found;
}

/* ---- the loop ---- */

static int append_event(PyObject *list, int fd, uint32_t mask) {
    PyObject *event = Py_BuildValue("(iI)", fd, (unsigned int)mask);
    int status = event ? PyList_Append(list, event) : -1;
    Py_XDECREF(event);
    return status;
}

/* Appends what has happened on descriptors that are not ours. */
static int take_others(const LinkLoop *self, PyObject *others) {
    struct epoll_event events[MOST_EVENTS];
    int found = epoll_wait(self->epoll, events, MOST_EVENTS, 0);
    for (int i = 0; i < found; i++) {
        if (self->bell && events[i].data.fd == self->bell->eventfd) continue;
        if (append_event(others, events[i].data.fd, events[i].events) < 0) return -1;
    }
    if (found < 0 && errno != EINTR) return PyErr_SetFromErrno(PyExc_OSError), -1;
    return 0;
}

/* Deals with what has happened; the events of others, and the ends of connections with mask 0, are appended. */
static int take_events(LinkLoop *self, PyObject *others) {
    if (self->polled[0].revents && take_others(self, others) < 0) return -1;
    for (uint32_t i = 0; i < self->count; i++) {
        short events = self->polled[1 + i].revents;
        int status = events ? serve(self, &self->connections[i], events) : 1;
        if (status < 0) return -1;
        if (status == 0 && append_event(others, self->connections[i].fd, 0) < 0) return -1;
    }
    return 0;
}

/* How often Python has been asked by readers. */
static uint64_t calls_of(const LinkLoop *self) {
    uint64_t calls = 0;
    for (uint32_t i = 0; i < self->count; i++) calls += self->connections[i].reader->calls;
    return calls;
}

static int carry(LinkLoop *self, PyObject *pollers, int64_t timeout_ns, PyObject *others) {
    Py_ssize_t count = PyTuple_Size(pollers);
    int64_t left = timeout_ns, end = timeout_ns > 0 ? monotonic_ns() + timeout_ns : 0;
    uint64_t calls = calls_of(self);
    for (;;) {
        int more = send_all(self), found;
        if (more < 0) return -1;
        if (end) left = end - monotonic_ns();
        found = more || left <= 0 ? wait_for(self, 0) : sleep_for(self, pollers, count, left);
        if (found < 0 && errno != EINTR) return PyErr_SetFromErrno(PyExc_OSError), -1;
        if (found < 0 && PyErr_CheckSignals() < 0) return -1;
        if (found > 0 && take_events(self, others) < 0) return -1;
        if (PyList_Size(others) || calls_of(self) != calls || pollers_any_ready(pollers, count)) return 0;
        if (!end || monotonic_ns() >= end) return 0;
    }
}

static PyObject *link_loop_carry(LinkLoop *self, PyObject *args) {
    PyObject *list;
    long long timeout_ns;
    if (!PyArg_ParseTuple(args, "OL:carry", &list, &timeout_ns)) return NULL;
    if (self->busy || (self->bell && !self->bell->bell)) {
        PyErr_SetString(PyExc_ValueError, self->busy ? "the link_loop is under way" : "the doorbell is closed");
        return NULL;
    }
    PyObject *pollers = pollers_of(native_state(Py_TYPE((PyObject *)self)), list);
    PyObject *others = pollers ? PyList_New(0) : NULL;
    if (others) {
        self->busy = 1;
        self->current = -1;
        if (carry(self, pollers, timeout_ns, others) < 0) Py_CLEAR(others);
        self->busy = 0;
    }
    Py_XDECREF(pollers);
    return others;
}

/* ---- connections ---- */

static PyObject *link_loop_add(LinkLoop *self, PyObject *args) {
    PyObject *writer, *reader;
    int fd;
    if (!PyArg_ParseTuple(args, "iOO:add", &fd, &writer, &reader)) return NULL;
    native_state_t *state = native_state(Py_TYPE((PyObject *)self));
    if (Py_TYPE(writer) != state->packet_writer || Py_TYPE(reader) != state->packet_reader || self->busy ||
        find(self, fd)) {
        PyErr_SetString(PyExc_TypeError, "add(fd, PacketWriter, PacketReader): a descriptor that is not known yet");
        return NULL;
    }
    if (self->count == self->room) {
        uint32_t room = self->room ? 2 * self->room : 4;
        connection_t *larger = PyMem_Realloc(self->connections, room * sizeof *larger);
        if (!larger) return PyErr_NoMemory();
        self->connections = larger;
        struct pollfd *polled = PyMem_Realloc(self->polled, (1 + room) * sizeof *polled);
        if (!polled) return PyErr_NoMemory();
        self->polled = polled;
        self->room = room;
    }
    Py_INCREF(writer);
    Py_INCREF(reader);
    self->connections[self->count++] = (connection_t){(PacketWriter *)writer, (PacketReader *)reader, fd, 0};
    Py_RETURN_NONE;
}

static void forget(const connection_t *connection) {
    Py_DECREF((PyObject *)connection->writer);
    Py_DECREF((PyObject *)connection->reader);
}

static PyObject *link_loop_remove(LinkLoop *self, PyObject *descriptor) {
    long fd = PyLong_AsLong(descriptor);
    if (fd == -1 && PyErr_Occurred()) return NULL;
    connection_t *connection = find(self, (int)fd);
    if (self->busy) return PyErr_SetString(PyExc_ValueError, "the link_loop is under way"), NULL;
    if (!connection) Py_RETURN_NONE;
    forget(connection);
    *connection = self->connections[--self->count];
    Py_RETURN_NONE;
}

/* ---- the type ---- */

static PyObject *link_loop_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"epoll", "bell", NULL};
    int epoll;
    PyObject *bell;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iO:LinkLoop", names, &epoll, &bell)) return NULL;
    native_state_t *state = native_state(type);
    if (!state || (bell != Py_None && Py_TYPE(bell) != state->doorbell)) {
        PyErr_SetString(PyExc_TypeError, "bell must be a Doorbell or None");
        return NULL;
    }
    LinkLoop *self = PyObject_New(LinkLoop, type);
    if (!self) return NULL;
    self->bell = NULL;
    self->epoll = epoll;
    self->connections = NULL;
    self->count = self->room = 0;
    self->polled = PyMem_Calloc(1, sizeof *self->polled);
    if (!self->polled) {
        self->bell = NULL;
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    self->busy = 0;
    self->current = -1;
    if (bell != Py_None) {
        Py_INCREF(bell);
        self->bell = (Doorbell *)bell;
    }
    return (PyObject *)self;
}

static void link_loop_dealloc(LinkLoop *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (uint32_t i = 0; i < self->count; i++) forget(&self->connections[i]);
    PyMem_Free(self->connections);
    PyMem_Free(self->polled);
    Py_XDECREF((PyObject *)self->bell);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *link_loop_current(LinkLoop *self, void *closure) {
    (void)closure;
    return PyLong_FromLong(self->current);
}

static PyMethodDef link_loop_methods[] = {
    {"add", (PyCFunction)link_loop_add, METH_VARARGS, "add(fd, writer, reader) -> None"},
    {"remove", (PyCFunction)link_loop_remove, METH_O, "remove(fd) -> None"},
    {"carry", (PyCFunction)link_loop_carry, METH_VARARGS, "carry(pollers, timeout_ns) -> list[tuple[int, int]]"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef link_loop_getset[] = {
    {"current", (getter)link_loop_current, NULL, "descriptor of the connection that the last exception is about", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot link_loop_slots[] = {
    {Py_tp_new, link_loop_new},         {Py_tp_dealloc, link_loop_dealloc},
    {Py_tp_methods, link_loop_methods}, {Py_tp_getset, link_loop_getset},
    {Py_tp_doc, "LinkLoop(epoll, bell): moves packets between rings and sockets, and sleeps."},
    {0, NULL},
};

PyType_Spec link_loop_spec = {"shmjet._native._core.LinkLoop", sizeof(LinkLoop), 0, Py_TPFLAGS_DEFAULT,
                              link_loop_slots};
