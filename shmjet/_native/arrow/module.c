/* The module of the exchange with other libraries by Arrow's C interfaces: apart from the kernels of columns, so that a
 * job that exchanges nothing does not load it. Everything it offers is typed and described in _arrow.pyi. */
#include "arrow/arrow.h"

static int module_exec(PyObject *module) {
    PyMethodDef *const tables[] = {arrow_read_methods, arrow_write_methods, arrow_text_methods,
                                   arrow_nested_methods};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (PyModule_AddFunctions(module, tables[i]) < 0) return -1;
    return arrow_read_exec(module);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    arrow_state_t *state = PyModule_GetState(module);
    Py_VISIT(state->array);
    Py_VISIT(state->buffer);
    Py_VISIT(state->stream);
    return 0;
}

static int module_clear(PyObject *module) {
    arrow_state_t *state = PyModule_GetState(module);
    Py_CLEAR(state->array);
    Py_CLEAR(state->buffer);
    Py_CLEAR(state->stream);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "shmjet._native._arrow",
    .m_doc = "Arrow's C data and C stream interfaces: what capsules hold, and capsules of what Python has.",
    .m_size = sizeof(arrow_state_t),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__arrow(void) { return PyModuleDef_Init(&module_definition); }
