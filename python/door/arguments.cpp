// How objects of Python become arguments of ops.
#include "python/door/arguments.h"

#include <cmath>
#include <cstring>
#include <string_view>

#include "python/door/door.h"

namespace door {

PyTypeObject* tensor_type = nullptr;

namespace {

// The number as a tensor of the dtype that it has beside t, as PyTorch promotes.
rw::Tensor element(const rw::Scalar& s, const rw::Tensor& t) {
  if (rw::is_float(t.dtype()))
    return rw::full({}, static_cast<float>(s.value), t.dtype(), t.device().shared_from_this());
  if (!s.is_whole)
    return rw::full({}, static_cast<float>(s.value), rw::DType::f32, t.device().shared_from_this());
  const bool is_byte = t.dtype() == rw::DType::u8 && s.value >= 0 && s.value <= 255;
  if (is_byte)
    return rw::full({}, static_cast<float>(s.value), rw::DType::u8, t.device().shared_from_this());
  const rw::DeviceScope scope(t.device().shared_from_this());
  const std::array value = {static_cast<int64_t>(s.value)};
  return rw::tensor(std::span<const int64_t>(value), {});
}

// Takes a name apart from what NumPy, PyTorch and Python call a dtype.
std::optional<rw::DType> dtype_named(std::string_view name) {
  if (const size_t dot = name.rfind('.'); dot != std::string_view::npos)
    name.remove_prefix(dot + 1);
  if (name == "f32" || name == "float32" || name == "float" || name == "float64" ||
      name == "double")
    return rw::DType::f32;
  if (name == "f16" || name == "float16" || name == "half") return rw::DType::f16;
  if (name == "bf16" || name == "bfloat16") return rw::DType::bf16;
  if (name == "i32" || name == "int32" || name == "int64" || name == "int" || name == "long")
    return rw::DType::i32;
  if (name == "u8" || name == "uint8" || name == "bool") return rw::DType::u8;
  return {};
}

}  // namespace

void check_one(const Operand& a, const Operand& b) {
  rw::check<rw::DTypeError>(!a.number || !b.number, "op",
                            "one operand must be a tensor, got {} and {}",
                            a.number ? a.number->value : 0, b.number ? b.number->value : 0);
}

void beside(Operand& a, Operand& b) {
  check_one(a, b);
  if (a.number) a.tensor = element(*a.number, b.tensor);
  if (b.number) b.tensor = element(*b.number, a.tensor);
}

rw::Shape reshaped(const rw::Tensor& x, const Sizes& sizes) {
  std::vector<int64_t> all = sizes.values;
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != -1) {
      known *= all[i];
      continue;
    }
    rw::check<rw::ShapeError>(open < 0, "reshape", "only one size may be -1, got {}",
                              static_cast<int64_t>(i));
    open = static_cast<int64_t>(i);
  }
  if (open >= 0) {
    rw::check<rw::ShapeError>(known > 0 && x.numel() % known == 0, "reshape",
                              "the sizes must divide {} elements, got {}", x.numel(), known);
    all[static_cast<size_t>(open)] = x.numel() / known;
  }
  return rw::Shape(std::span<const int64_t>(all));
}

rw::Shape expanded(const rw::Tensor& x, const Sizes& sizes) {
  std::vector<int64_t> all = sizes.values;
  for (size_t i = 0; i < all.size(); ++i) {
    const int axis = static_cast<int>(i) - static_cast<int>(all.size()) + x.rank();
    if (all[i] == -1 && axis >= 0) all[i] = x.size(axis);
  }
  return rw::Shape(std::span<const int64_t>(all));
}

bool read_integers(nb::handle object, std::vector<int64_t>& into) noexcept {
  const auto read = [&](PyObject* item) {
    if (PyFloat_Check(item)) return false;
    PyObject* number = PyNumber_Index(item);
    if (!number) return PyErr_Clear(), false;
    const int64_t value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    if (value == -1 && PyErr_Occurred()) return PyErr_Clear(), false;
    into.push_back(value);
    return true;
  };
  into.clear();
  if (PyLong_Check(object.ptr())) return read(object.ptr());
  if (PyUnicode_Check(object.ptr()) || object.is_none()) return false;
  PyObject* list = PySequence_Check(object.ptr()) && !tensor_in(object)
                       ? PySequence_Fast(object.ptr(), "")
                       : nullptr;
  if (!list) {
    PyErr_Clear();
    return PyIndex_Check(object.ptr()) && read(object.ptr());
  }
  bool ok = true;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list) && ok; ++i)
    ok = read(PySequence_Fast_GET_ITEM(list, i));
  Py_DECREF(list);
  return ok;
}

bool read_number(nb::handle object, std::optional<rw::Scalar>& into) noexcept {
  PyObject* p = object.ptr();
  if (PyBool_Check(p)) {
    into = rw::Scalar(p == Py_True ? 1 : 0);
  } else if (PyLong_Check(p)) {
    const double value = PyLong_AsDouble(p);
    if (value == -1 && PyErr_Occurred()) return PyErr_Clear(), false;
    rw::Scalar s(0);
    s.value = value;
    into = s;
  } else if (PyFloat_Check(p)) {
    into = rw::Scalar(PyFloat_AS_DOUBLE(p));
  } else {
    return false;
  }
  return true;
}

// Slow, so it comes last.
bool read_array(nb::handle object, rw::Tensor& into) noexcept {
  if (object.is_none() || PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr()) ||
      PyUnicode_Check(object.ptr()) || PyTuple_Check(object.ptr()) || PyList_Check(object.ptr()))
    return false;
  if (!PyObject_HasAttrString(object.ptr(), "__array__") &&
      !PyObject_HasAttrString(object.ptr(), "__dlpack__"))
    return false;
  try {
    into = tensor_from(object, {});
    return true;
  } catch (nb::python_error& e) {
    e.restore();
    PyErr_Clear();
  } catch (...) {
  }
  return false;
}

bool read_dtype(nb::handle object, rw::DType& into) noexcept {
  try {
    if (nb::try_cast(object, into)) return true;
    std::string name;
    if (nb::isinstance<nb::str>(object))
      name = nb::cast<std::string>(object);
    else if (nb::hasattr(object, "__name__"))  // float, int, bool, numpy.float32
      name = nb::cast<std::string>(object.attr("__name__"));
    else if (nb::hasattr(object, "name"))  // numpy.dtype("float32")
      name = nb::cast<std::string>(object.attr("name"));
    else
      name = nb::cast<std::string>(nb::str(object));  // torch.float32
    const std::optional<rw::DType> found = dtype_named(name);
    if (found) into = *found;
    return found.has_value();
  } catch (...) {
    PyErr_Clear();
    return false;
  }
}

int place_of_name(nb::handle object, const char* const* names, int count) noexcept {
  if (!PyUnicode_Check(object.ptr())) return -1;
  const char* text = PyUnicode_AsUTF8(object.ptr());
  if (!text) return PyErr_Clear(), -1;
  std::string name = text;
  std::replace(name.begin(), name.end(), '-', '_');
  const bool known = std::any_of(names, names + count, [&](const char* n) { return name == n; });
  // PyTorch names the linear and the cubic mode for each rank, and zero padding by the value.
  if (!known && name.ends_with("linear")) name = "linear";
  if (!known && name == "bicubic") name = "cubic";
  if (!known && name == "constant") name = "zeros";
  for (int i = 0; i < count; ++i)
    if (name == names[i]) return i;
  return -1;
}

}  // namespace door
