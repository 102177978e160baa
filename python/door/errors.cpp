// The library's errors as exceptions of Python, each of which is one of Python's own kinds, too.
#include <array>

#include "python/door/door.h"

namespace door {

namespace {

struct Kind {
  const char* name;
  PyObject** base;  // of Python
  const char* doc;
  PyObject* type = nullptr;
};

std::array kinds = {
    Kind{"ShapeError", &PyExc_ValueError, "Shapes, ranks or axes do not fit."},
    Kind{"DTypeError", &PyExc_TypeError, "An element type does not fit."},
    Kind{"DeviceError", &PyExc_RuntimeError, "Drivers, devices, tensors of two devices."},
    Kind{"ValueError", &PyExc_ValueError, "An option or a number is wrong."},
    Kind{"FileError", &PyExc_OSError, "A file is missing, truncated or malformed."},
    Kind{"AutogradError", &PyExc_RuntimeError, "Misuse of the tape, segments or gradients."},
    Kind{"NumericsError", &PyExc_ArithmeticError,
         "NaN or infinite where a finite value is needed."},
    Kind{"OutOfMemory", &PyExc_MemoryError,
         "Device memory or a limit is exhausted; the message says what would help."},
    Kind{"RankError", &PyExc_RuntimeError, "Processes that train one model do not agree."},
};
PyObject* base_error = nullptr;

template <class E>
bool set_if(const std::exception& e, int kind) {
  if (!dynamic_cast<const E*>(&e)) return false;
  PyErr_SetString(kinds[static_cast<size_t>(kind)].type, e.what());
  return true;
}

void translate(const std::exception_ptr& p, void*) {
  try {
    std::rethrow_exception(p);
  } catch (const rw::Interrupted&) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
  } catch (const rw::Error& e) {
    const bool known = set_if<rw::ShapeError>(e, 0) || set_if<rw::DTypeError>(e, 1) ||
                       set_if<rw::DeviceError>(e, 2) || set_if<rw::ValueError>(e, 3) ||
                       set_if<rw::FileError>(e, 4) || set_if<rw::AutogradError>(e, 5) ||
                       set_if<rw::NumericsError>(e, 6) || set_if<rw::OutOfMemory>(e, 7) ||
                       set_if<rw::RankError>(e, 8);
    if (!known) PyErr_SetString(base_error, e.what());
  }
}

}  // namespace

void bind_errors(nb::module_& m) {
  base_error = PyErr_NewExceptionWithDoc("rewind.Error", "The base of all errors of the library.",
                                         PyExc_Exception, nullptr);
  m.attr("Error") = nb::borrow(base_error);
  for (Kind& kind : kinds) {
    const nb::tuple bases = nb::make_tuple(nb::borrow(base_error), nb::borrow(*kind.base));
    const std::string name = std::string("rewind.") + kind.name;
    kind.type = PyErr_NewExceptionWithDoc(name.c_str(), kind.doc, bases.ptr(), nullptr);
    if (!kind.type) nb::raise_python_error();
    m.attr(kind.name) = nb::borrow(kind.type);
  }
  nb::register_exception_translator(translate);
}

}  // namespace door
