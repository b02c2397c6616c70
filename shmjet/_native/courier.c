/* Courier: the inner loop of a link. It moves packets between rings and sockets, and sleeps, without Python, until there is
 * something that only Python can do: an event on a descriptor that it does not know, a packet for Python, room for what
 * waits there, a broken connection, or a timer.
 *
 * It sleeps in epoll. Workers that fill a ring write its eventfd while it says that it sleeps (doorbell.h); that descriptor is
 * watched edge by edge, so it need not be read. */
#include "packet_reader.h"
#include "packet_writer.h"
#include "poller.h"

#include <errno.h>
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
    uint32_t count, room;
    int current; /* the descriptor of the connection that is being looked at */
    int busy;
} Courier;

static connection_t *find(const Courier *self, int fd) {
    for (uint32_t i = 0; i < self->count; i++)
        if (self->connections[i].fd == fd) return &self->connections[i];
    return NULL;
}

static int watch(const Courier *self, const connection_t *connection, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (connection->blocked ? (uint32_t)EPOLLOUT : 0u), .data.fd = connection->fd};
    if (epoll_ctl(self->epoll, operation, connection->fd, &event) == 0) return 0;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

/* Sends what all connections take. 1 when there is more to be sent at once, 0, or -1 with an exception. */
static int send_all(Courier *self) {
    int more = 0;
    for (uint32_t i = 0; i < self->count; i++) {
        connection_t *connection = &self->connections[i];
        if (connection->blocked) continue;
        self->current = connection->fd;
        int status = packet_writer_flush(connection->writer, connection->fd);
        if (status < 0) return -1;
        more |= status == WRITER_MORE;
        if (status == WRITER_BLOCKED) {
            connection->blocked = 1;
            if (watch(self, connection, EPOLL_CTL_MOD) < 0) return -1;
        }
    }
    return more;
}

/* Reads from a connection. 1, 0 when it has ended, -1 with an exception. */
static int serve(Courier *self, connection_t *connection, uint32_t events) {
    self->current = connection->fd;
    if (connection->blocked && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))) {
        connection->blocked = 0;
        if (watch(self, connection, EPOLL_CTL_MOD) < 0) return -1;
    }
    return events & ~(uint32_t)EPOLLOUT ? packet_reader_receive(connection->reader, connection->fd) : 1;
}

/* ---- sleeping ---- */

static int anything_ready(const Courier *self, PyObject *pollers, Py_ssize_t count) {
    for (uint32_t i = 0; i < self->count; i++)
        if (!self->connections[i].blocked && packet_writer_is_ready(self->connections[i].writer)) return 1;
    return pollers_any_ready(pollers, count);
}

static int any_light(const Courier *self, PyObject *pollers, Py_ssize_t count) {
    for (uint32_t i = 0; i < self->count; i++)
        if (!self->connections[i].blocked && packet_writer_is_light(self->connections[i].writer)) return 1;
    return pollers_any_light(pollers, count);
}

static int sleep_for(const Courier *self, PyObject *pollers, Py_ssize_t count, struct epoll_event *events, int64_t timeout_ns) {
    doorbell_t *bell = self->bell ? self->bell->bell : NULL;
    if (bell) {
        bell_prepare(bell);
        if (any_light(self, pollers, count)) timeout_ns = light_fence(timeout_ns);
        if (anything_ready(self, pollers, count)) timeout_ns = 0;
    }
    int found;
    Py_BEGIN_ALLOW_THREADS
    found = epoll_wait(self->epoll, events, MOST_EVENTS, (int)((timeout_ns + 999999) / 1000000));
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

/* Deals with events; those of others, and the ends of connections with mask 0, are appended. */
static int take_events(Courier *self, PyObject *others, const struct epoll_event *events, int found) {
    for (int i = 0; i < found; i++) {
        int fd = events[i].data.fd;
        if (self->bell && fd == self->bell->eventfd) continue;
        connection_t *connection = find(self, fd);
        int status = connection ? serve(self, connection, events[i].events) : append_event(others, fd, events[i].events);
        if (status < 0) return -1;
        if (connection && status == 0 && append_event(others, fd, 0) < 0) return -1;
    }
    return 0;
}

/* How often Python has been asked by readers. */
static uint64_t calls_of(const Courier *self) {
    uint64_t calls = 0;
    for (uint32_t i = 0; i < self->count; i++) calls += self->connections[i].reader->calls;
    return calls;
}

static int carry(Courier *self, PyObject *pollers, int64_t timeout_ns, PyObject *others) {
    Py_ssize_t count = PyTuple_Size(pollers);
    struct epoll_event events[MOST_EVENTS];
    int64_t left = timeout_ns, end = timeout_ns > 0 ? monotonic_ns() + timeout_ns : 0;
    uint64_t calls = calls_of(self);
    for (;;) {
        int more = send_all(self), found;
        if (more < 0) return -1;
        if (end) left = end - monotonic_ns();
        if (more || left <= 0)
            found = epoll_wait(self->epoll, events, MOST_EVENTS, 0);
        else
            found = sleep_for(self, pollers, count, events, left);
        if (found < 0 && errno != EINTR) return PyErr_SetFromErrno(PyExc_OSError), -1;
        if (found < 0 && PyErr_CheckSignals() < 0) return -1;
        if (take_events(self, others, events, found) < 0) return -1;
        if (PyList_Size(others) || calls_of(self) != calls || pollers_any_ready(pollers, count)) return 0;
        if (!end || monotonic_ns() >= end) return 0;
    }
}

static PyObject *courier_carry(Courier *self, PyObject *args) {
    PyObject *list;
    long long timeout_ns;
    if (!PyArg_ParseTuple(args, "OL:carry", &list, &timeout_ns)) return NULL;
    if (self->busy || (self->bell && !self->bell->bell)) {
        PyErr_SetString(PyExc_ValueError, self->busy ? "the courier is under way" : "the doorbell is closed");
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

static PyObject *courier_add(Courier *self, PyObject *args) {
    PyObject *writer, *reader;
    int fd;
    if (!PyArg_ParseTuple(args, "iOO:add", &fd, &writer, &reader)) return NULL;
    native_state_t *state = native_state(Py_TYPE((PyObject *)self));
    if (Py_TYPE(writer) != state->packet_writer || Py_TYPE(reader) != state->packet_reader || self->busy || find(self, fd)) {
        PyErr_SetString(PyExc_TypeError, "add(fd, PacketWriter, PacketReader): a descriptor that is not known yet");
        return NULL;
    }
    if (self->count == self->room) {
        uint32_t room = self->room ? 2 * self->room : 4;
        connection_t *larger = PyMem_Realloc(self->connections, room * sizeof *larger);
        if (!larger) return PyErr_NoMemory();
        self->connections = larger;
        self->room = room;
    }
    connection_t connection = {(PacketWriter *)writer, (PacketReader *)reader, fd, 0};
    if (watch(self, &connection, EPOLL_CTL_ADD) < 0) return NULL;
    Py_INCREF(writer);
    Py_INCREF(reader);
    self->connections[self->count++] = connection;
    Py_RETURN_NONE;
}

static void forget(const connection_t *connection) {
    Py_DECREF((PyObject *)connection->writer);
    Py_DECREF((PyObject *)connection->reader);
}

static PyObject *courier_remove(Courier *self, PyObject *descriptor) {
    long fd = PyLong_AsLong(descriptor);
    if (fd == -1 && PyErr_Occurred()) return NULL;
    connection_t *connection = find(self, (int)fd);
    if (self->busy) return PyErr_SetString(PyExc_ValueError, "the courier is under way"), NULL;
    if (!connection) Py_RETURN_NONE;
    epoll_ctl(self->epoll, EPOLL_CTL_DEL, (int)fd, NULL);
    forget(connection);
    *connection = self->connections[--self->count];
    Py_RETURN_NONE;
}

/* ---- the type ---- */

static PyObject *courier_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"epoll", "bell", NULL};
    int epoll;
    PyObject *bell;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iO:Courier", names, &epoll, &bell)) return NULL;
    native_state_t *state = native_state(type);
    if (!state || (bell != Py_None && Py_TYPE(bell) != state->doorbell)) {
        PyErr_SetString(PyExc_TypeError, "bell must be a Doorbell or None");
        return NULL;
    }
    Courier *self = PyObject_New(Courier, type);
    if (!self) return NULL;
    self->bell = NULL;
    self->epoll = epoll;
    self->connections = NULL;
    self->count = self->room = 0;
    self->busy = 0;
    self->current = -1;
    if (bell != Py_None) {
        Py_INCREF(bell);
        self->bell = (Doorbell *)bell;
    }
    return (PyObject *)self;
}

static void courier_dealloc(Courier *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (uint32_t i = 0; i < self->count; i++) forget(&self->connections[i]);
    PyMem_Free(self->connections);
    Py_XDECREF((PyObject *)self->bell);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *courier_current(Courier *self, void *closure) {
    (void)closure;
    return PyLong_FromLong(self->current);
}

static PyMethodDef courier_methods[] = {
    {"add", (PyCFunction)courier_add, METH_VARARGS, "add(fd, writer, reader) -> None"},
    {"remove", (PyCFunction)courier_remove, METH_O, "remove(fd) -> None"},
    {"carry", (PyCFunction)courier_carry, METH_VARARGS, "carry(pollers, timeout_ns) -> list[tuple[int, int]]"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef courier_getset[] = {
    {"current", (getter)courier_current, NULL, "descriptor of the connection that the last exception is about", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot courier_slots[] = {
    {Py_tp_new, courier_new},         {Py_tp_dealloc, courier_dealloc},
    {Py_tp_methods, courier_methods}, {Py_tp_getset, courier_getset},
    {Py_tp_doc, "Courier(epoll, bell): moves packets between rings and sockets, and sleeps."},
    {0, NULL},
};

PyType_Spec courier_spec = {"shmjet._native._core.Courier", sizeof(Courier), 0, Py_TPFLAGS_DEFAULT, courier_slots};
