// Everything that the files of the door share: each binds one part of the library into the module.
#pragma once

#include <nanobind/nanobind.h>
#include <rewind/rewind.h>

#include "arguments.h"

namespace door {

namespace nb = nanobind;
using nb::literals::operator""_a;

// Refuses to work in a process that was forked from one with a device: DeviceError.
void check_process();

// Lets other Python threads run while a bound function works.
class Working {
 public:
  Working() : is_ours_((check_process(), true)) {}

 private:
  const bool is_ours_;  // checked before the lock is given up
  const nb::gil_scoped_release release_;
};
using Release = nb::call_guard<Working>;

// Opens the device "auto" if no default device was set. Whatever makes tensors calls it first.
void ensure_device();

// Returns the tensor as an object, and None if it is undefined.
nb::object object_of(rw::Tensor t);

// A tuple whose fields have names, as namedtuple makes them.
nb::object named_tuple(nb::handle type, std::initializer_list<nb::object> values);
nb::object make_named_tuple(const char* name, std::initializer_list<const char*> fields);

// Drops references to Python objects that C++ gave up without the interpreter's lock.
void drop_later(PyObject* object) noexcept;
void drop_dropped();

// A reference that any thread may drop, with or without the interpreter's lock.
class Reference {
 public:
  explicit Reference(nb::object object) : object_(object.release().ptr()) {}
  ~Reference() { drop_later(object_); }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  nb::handle get() const { return object_; }

 private:
  PyObject* object_;
};

// Returns the tensor that values of an object make: a tensor itself, numbers, nested sequences, or
// an array (NumPy, PyTorch, whatever has __array__ or __dlpack__). i64 becomes i32, f64 f32.
rw::Tensor tensor_from(nb::handle data, std::optional<rw::DType> dtype);
// The tensor itself, or what tensor_from() makes of anything else.
inline rw::Tensor as_tensor(nb::handle data) {
  const rw::Tensor* t = tensor_in(data);
  return t ? *t : tensor_from(data, {});
}
// Calls a function of Python, whose error becomes nb::python_error, from any thread.
template <class... Args>
nb::object call_python(const Reference& function, Args&&... arguments) {
  return function.get()(std::forward<Args>(arguments)...);
}

void bind_errors(nb::module_& m);
void bind_dtypes(nb::module_& m);
void bind_devices(nb::module_& m);
void bind_tensor(nb::module_& m);
void bind_operators(nb::class_<rw::Tensor>& tensor);
void bind_shaping(nb::class_<rw::Tensor>& tensor);
void bind_indexing(nb::class_<rw::Tensor>& tensor);
void bind_arrays(nb::module_& m, nb::class_<rw::Tensor>& tensor);
void bind_autograd(nb::module_& m, nb::class_<rw::Tensor>& tensor);
void bind_functions(nb::module_& m);
void bind_modules(nb::module_& m);
void bind_optimizers(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_files(nb::module_& m);
void bind_ops(nb::module_& m, nb::class_<rw::Tensor>& tensor);  // generated

}  // namespace door
