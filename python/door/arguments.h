// Arguments of ops: how an object of Python becomes one of C++.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <rewind/ops/network/conv.h>
#include <rewind/rewind.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace door {

extern PyTypeObject* tensor_type;  // of rw.Tensor

// Returns the tensor in an object of rw.Tensor or of a class derived from it, else null.
inline rw::Tensor* tensor_in(nanobind::handle object) {
  PyTypeObject* type = Py_TYPE(object.ptr());
  if (type != tensor_type && !PyType_IsSubtype(type, tensor_type)) return nullptr;
  return nanobind::inst_ptr<rw::Tensor>(object);
}

// A tensor: an rw.Tensor, or any array.
struct Given {
  rw::Tensor tensor;
  operator rw::Tensor&&() && { return std::move(tensor); }
};
// The same, or None: an undefined tensor.
struct Maybe {
  rw::Tensor tensor;
  operator rw::Tensor&&() && { return std::move(tensor); }
};
// A tensor or a number, which becomes a tensor beside others.
struct Operand {
  rw::Tensor tensor;
  std::optional<rw::Scalar> number;
};
// Makes tensors of numbers, of the dtype that a number has beside the other operand.
void beside(Operand& a, Operand& b);
// TypeError unless one of them is a tensor.
void check_one(const Operand& a, const Operand& b);
// The library's arithmetic with a tensor or a number on either side. DTypeError for two numbers.
rw::Tensor add(Operand a, Operand b);
rw::Tensor sub(Operand a, Operand b);
rw::Tensor mul(Operand a, Operand b);
rw::Tensor div(Operand a, Operand b);
rw::Tensor pow(Operand a, Operand b);

// One integer or several.
struct Sizes {
  std::vector<int64_t> values;
  operator std::vector<int64_t>() const { return values; }
  operator rw::Shape() const { return rw::Shape(std::span<const int64_t>(values)); }
};
// The sizes with which x is reshaped, one of which may be -1, and expanded, where -1 keeps one.
rw::Shape reshaped(const rw::Tensor& x, const Sizes& sizes);
rw::Shape expanded(const rw::Tensor& x, const Sizes& sizes);

// Axes: None (all of them), one or several.
struct AxesGiven {
  rw::Axes axes;
  operator const rw::Axes&() const { return axes; }
};

// A dtype, or its name, or what NumPy and Python use for one.
struct DTypeGiven {
  rw::DType dtype = rw::DType::f32;
  operator rw::DType() const { return dtype; }
};

// Reads integers from an int or a sequence of them.
bool read_integers(nanobind::handle object, std::vector<int64_t>& into) noexcept;
// Reads an array that is not ours.
bool read_array(nanobind::handle object, rw::Tensor& into) noexcept;
// Reads a tensor, or any array.
inline bool read_tensor(nanobind::handle object, rw::Tensor& into) noexcept {
  const rw::Tensor* t = tensor_in(object);
  if (!t) return read_array(object, into);
  into = *t;
  return true;
}
bool read_number(nanobind::handle object, std::optional<rw::Scalar>& into) noexcept;
bool read_dtype(nanobind::handle object, rw::DType& into) noexcept;

// The names of an enumeration's values, in order: made of the list of ops.
template <class E>
struct EnumNames;
// Returns the place of the name that the object is among these, or -1.
int place_of_name(nanobind::handle object, const char* const* names, int count) noexcept;

}  // namespace door

namespace nanobind::detail {

template <>
struct type_caster<door::Given> {
  NB_TYPE_CASTER(door::Given, const_name("rewind.Tensor"))
  bool from_python(handle object, uint32_t, cleanup_list*) noexcept {
    return door::read_tensor(object, value.tensor);
  }
};

template <>
struct type_caster<door::Maybe> {
  NB_TYPE_CASTER(door::Maybe, const_name("rewind.Tensor | None"))
  bool from_python(handle object, uint32_t, cleanup_list*) noexcept {
    if (object.is_none()) return true;
    return door::read_tensor(object, value.tensor);
  }
};

template <>
struct type_caster<door::Operand> {
  NB_TYPE_CASTER(door::Operand, const_name("rewind.Tensor | float"))
  bool from_python(handle object, uint32_t, cleanup_list*) noexcept {
    return door::read_number(object, value.number) || door::read_tensor(object, value.tensor);
  }
};

template <>
struct type_caster<door::Sizes> {
  NB_TYPE_CASTER(door::Sizes, const_name("int | collections.abc.Sequence[int]"))
  bool from_python(handle object, uint32_t, cleanup_list*) noexcept {
    return door::read_integers(object, value.values);
  }
};

template <>
struct type_caster<door::AxesGiven> {
  NB_TYPE_CASTER(door::AxesGiven, const_name("int | collections.abc.Sequence[int] | None"))
  bool from_python(handle object, uint32_t, cleanup_list*) noexcept {
    std::vector<int64_t> axes;
    if (!object.is_none() && !door::read_integers(object, axes)) return false;
    value.axes.assign(axes.begin(), axes.end());
    return true;
  }
};

template <>
struct type_caster<rw::TensorList> {
  NB_TYPE_CASTER(rw::TensorList, const_name("collections.abc.Sequence[rewind.Tensor]"))
  bool from_python(handle object, uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<std::vector<door::Given>> list;
    if (!list.from_python(object, flags, cleanup)) return false;
    value.clear();
    for (door::Given& t : list.value) value.push_back(std::move(t.tensor));
    return true;
  }
};

template <>
struct type_caster<door::DTypeGiven> {
  NB_TYPE_CASTER(door::DTypeGiven, const_name("rewind.dtype | str"))
  bool from_python(handle object, uint32_t, cleanup_list*) noexcept {
    return door::read_dtype(object, value.dtype);
  }
};

// Sizes of a window: one for all axes, or one for each.
template <class T, size_t... axis>
struct size_caster {
  using Value = T;
  template <class U>
  using Cast = movable_cast_t<U>;
  template <class U>
  static constexpr bool can_cast() {
    return true;
  }
  static constexpr auto Name = const_name("int | collections.abc.Sequence[int]");
  T value{0};
  explicit operator T*() { return &value; }
  explicit operator T&() { return value; }
  explicit operator T&&() { return std::move(value); }
  bool from_python(handle object, uint32_t, cleanup_list*) noexcept {
    std::vector<int64_t> sizes;
    if (!door::read_integers(object, sizes)) return false;
    if (sizes.size() == 1) sizes.resize(sizeof...(axis), sizes[0]);
    if (sizes.size() != sizeof...(axis)) return false;
    value = T(static_cast<int>(sizes[axis])...);
    return true;
  }
};
template <>
struct type_caster<rw::Size2d> : size_caster<rw::Size2d, 0, 1> {};
template <>
struct type_caster<rw::Size3d> : size_caster<rw::Size3d, 0, 1, 2> {};

// Enumerations are strings in Python, as PyTorch has them.
template <class E>
struct name_caster {
  NB_TYPE_CASTER(E, const_name("str"))
  bool from_python(handle object, uint32_t, cleanup_list*) noexcept {
    using Names = door::EnumNames<E>;
    const int place = door::place_of_name(object, Names::names, Names::count);
    value = static_cast<E>(place);
    return place >= 0;
  }
  static handle from_cpp(E e, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_FromString(door::EnumNames<E>::names[static_cast<int>(e)]);
  }
};

}  // namespace nanobind::detail
