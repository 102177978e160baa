// Values of the host: numbers, sequences, NumPy's arrays and everything that speaks DLPack.
#include <nanobind/ndarray.h>

#include <cstring>
#include <limits>

#include "python/door/door.h"

namespace door {

namespace {

using Array = nb::ndarray<nb::ro, nb::device::cpu>;

nb::module_ numpy() {
  return nb::module_::import_("numpy");
}

// The dtype in which an array of these elements is kept.
rw::DType kept_as(nb::dlpack::dtype t) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(t.code);
  if (code == Code::Bool) return rw::DType::u8;
  if (code == Code::UInt && t.bits == 8) return rw::DType::u8;
  if (code == Code::Int || code == Code::UInt) return rw::DType::i32;
  if (code == Code::Float) return t.bits == 16 ? rw::DType::f16 : rw::DType::f32;
  if (code == Code::Bfloat) return rw::DType::bf16;
  rw::fail<rw::DTypeError>("tensor", "complex numbers and records have no tensors, got {} bits",
                           int{t.bits});
}

// Calls body(offset in elements) for each element in row-major order.
template <class F>
void each_element(const Array& a, F&& body) {
  const size_t rank = a.ndim();
  std::vector<int64_t> at(rank, 0);
  int64_t offset = 0;
  for (size_t n = a.size(); n > 0; --n) {
    body(offset);
    for (size_t i = rank; i-- > 0;) {
      offset += a.stride(i);
      if (++at[i] < static_cast<int64_t>(a.shape(i))) break;
      offset -= a.stride(i) * at[i];
      at[i] = 0;
    }
  }
}

template <class From, class To>
std::vector<std::byte> converted(const Array& a) {
  std::vector<std::byte> bytes(a.size() * sizeof(To));
  const auto* from = static_cast<const From*>(a.data());
  auto* to = reinterpret_cast<To*>(bytes.data());
  each_element(a, [&](int64_t i) {
    if constexpr (std::is_integral_v<From> && std::is_same_v<To, int32_t>) {
      rw::check(std::in_range<int32_t>(from[i]), "tensor", "integers are i32, got {}", from[i]);
    }
    *to++ = static_cast<To>(from[i]);
  });
  return bytes;
}

std::vector<std::byte> values_of(const Array& a) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(a.dtype().code);
  const int bits = a.dtype().bits;
  if (code == Code::Float && bits == 64) return converted<double, float>(a);
  if (code == Code::Float && bits == 32) return converted<float, float>(a);
  if (code == Code::Int) {
    if (bits == 64) return converted<int64_t, int32_t>(a);
    if (bits == 32) return converted<int32_t, int32_t>(a);
    if (bits == 16) return converted<int16_t, int32_t>(a);
    return converted<int8_t, int32_t>(a);
  }
  if (code == Code::UInt && bits == 64) return converted<uint64_t, int32_t>(a);
  if (code == Code::UInt && bits == 32) return converted<uint32_t, int32_t>(a);
  if (code == Code::UInt && bits == 16) return converted<uint16_t, int32_t>(a);
  if (bits == 16) return converted<uint16_t, uint16_t>(a);  // f16, bf16
  return converted<uint8_t, uint8_t>(a);
}

bool is_row_major(const Array& a) {
  int64_t step = 1;
  for (size_t i = a.ndim(); i-- > 0;) {
    if (a.shape(i) != 1 && a.stride(i) != step) return false;
    step *= static_cast<int64_t>(a.shape(i));
  }
  return true;
}

rw::Tensor tensor_of(const Array& a) {
  rw::Shape shape;
  for (size_t i = 0; i < a.ndim(); ++i) shape.push_back(static_cast<int64_t>(a.shape(i)));
  const rw::DType dtype = kept_as(a.dtype());
  rw::Tensor t = rw::empty(shape, dtype);
  if (a.size() == 0) return t;
  const bool as_it_is =
      size_t{a.dtype().bits} == 8 * rw::size_of(dtype) && is_row_major(a) &&
      static_cast<nb::dlpack::dtype_code>(a.dtype().code) != nb::dlpack::dtype_code::UInt;
  if (as_it_is || (dtype == rw::DType::u8 && is_row_major(a))) {
    rw::write_elements(t, 0, t.numel(), a.data());
    return t;
  }
  const std::vector<std::byte> bytes = values_of(a);
  rw::write_elements(t, 0, t.numel(), bytes.data());
  return t;
}

nb::dlpack::dtype exchanged(rw::DType t) {
  using Code = nb::dlpack::dtype_code;
  const Code code = t == rw::DType::i32    ? Code::Int
                    : t == rw::DType::u8   ? Code::UInt
                    : t == rw::DType::bf16 ? Code::Bfloat
                                           : Code::Float;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * rw::size_of(t)), 1};
}

// Where the values lie in memory of the host: the tensor's own where the device works on that (and
// they do not overlap), unless a copy is wanted, else a copy. `is_own` tells which. Throws
// `refused` if a copy is needed and not wanted.
using Refusal = nb::builtin_exception (*)(const char*);
std::shared_ptr<std::byte> host_values(const rw::Tensor& t, std::optional<bool> copies,
                                       Refusal refused, bool& is_own) {
  const nb::gil_scoped_release release;
  const bool overlaps = std::ranges::count(t.strides(), 0) > 0;
  std::shared_ptr<std::byte> memory;
  if (!copies.value_or(overlaps) && t.numel() > 0) memory = rw::host_memory(t);
  is_own = memory != nullptr;
  if (is_own) return memory;
  if (copies == false && t.numel() > 0)
    throw refused("the values must be copied, since the device has them in memory of its own");
  auto bytes = std::make_shared<std::vector<std::byte>>(rw::read_bytes(t));
  bytes->reserve(1);  // an array of no elements has an address, too
  return {bytes, bytes->data()};
}

template <class Out>
nb::object host_array(const rw::Tensor& t, std::optional<bool> copies, Refusal refused) {
  bool is_own = false;
  auto memory =
      std::make_unique<std::shared_ptr<std::byte>>(host_values(t, copies, refused, is_own));
  std::array<size_t, rw::Shape::max_rank> shape{};
  std::array<int64_t, rw::Shape::max_rank> strides{};
  std::copy(t.shape().begin(), t.shape().end(), shape.begin());
  std::copy(t.strides().begin(), t.strides().end(), strides.begin());
  std::byte* const values = memory->get();
  const nb::capsule owner(memory.release(), [](void* p) noexcept {
    delete static_cast<std::shared_ptr<std::byte>*>(p);
  });
  return nb::cast(Out(values, static_cast<size_t>(t.rank()), shape.data(), owner,
                      is_own ? strides.data() : nullptr, exchanged(t.dtype())));
}

nb::object to_numpy(const rw::Tensor& t, std::optional<bool> copies = {}) {
  using Numpy = nb::ndarray<nb::numpy>;
  if (t.dtype() != rw::DType::bf16) return host_array<Numpy>(t, copies, nb::value_error);
  if (copies == false) throw nb::value_error("NumPy has no bf16: the values must be copied");
  const rw::NoGrad no_grad;
  return host_array<Numpy>(rw::cast(t, rw::DType::f32), {}, nb::value_error);
}

// A tensor on the memory of an array; undefined where the values must be copied: they are of
// another dtype, or scattered, or may not be written.
rw::Tensor tensor_on(nb::handle data) {
  ensure_device();
  nb::ndarray<nb::device::cpu, nb::c_contig> array;
  if (tensor_in(data) || !nb::try_cast(data, array, false) || array.size() == 0) {
    PyErr_Clear();
    return {};
  }
  const rw::DType dtype = kept_as(array.dtype());
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(array.dtype().code);
  const bool is_kept = size_t{array.dtype().bits} == 8 * rw::size_of(dtype) && code != Code::Bool &&
                       (code != Code::UInt || dtype == rw::DType::u8);
  if (!is_kept) return {};  // bool, too: of whose values only 0 and 1 mean something
  rw::Shape shape;
  for (size_t i = 0; i < array.ndim(); ++i) shape.push_back(static_cast<int64_t>(array.shape(i)));
  auto* const values = static_cast<std::byte*>(array.data());
  const auto kept = std::make_shared<Reference>(nb::capsule(
      new nb::ndarray<nb::device::cpu, nb::c_contig>(std::move(array)), [](void* p) noexcept {
        delete static_cast<nb::ndarray<nb::device::cpu, nb::c_contig>*>(p);
      }));
  return rw::from_memory({kept, values}, shape, dtype);
}

}  // namespace

rw::Tensor tensor_from(nb::handle data, std::optional<rw::DType> dtype) {
  ensure_device();
  rw::Tensor t;
  if (const rw::Tensor* given = tensor_in(data)) {
    const rw::NoGrad no_grad;
    return rw::copy_of(*given, dtype.value_or(given->dtype()));
  }
  Array array;
  const bool is_plain = PyList_Check(data.ptr()) || PyTuple_Check(data.ptr()) ||
                        PyLong_Check(data.ptr()) || PyFloat_Check(data.ptr());
  if (!is_plain && nb::try_cast(data, array, false)) {
    t = tensor_of(array);
  } else {
    PyErr_Clear();
    nb::object found = nb::borrow(data);
    if (nb::hasattr(data, "detach") && nb::hasattr(data, "cpu"))  // PyTorch's, with a gradient
      found = found.attr("detach")().attr("cpu")();
    const nb::object copy =
        numpy().attr("array")(found, "order"_a = "C");  // writable: DLPack demands it
    if (!nb::try_cast(copy, array))
      rw::fail<rw::DTypeError>(
          "tensor", "numbers and arrays of numbers make tensors, got {}",
          nb::cast<std::string>(nb::str(nb::handle((PyObject*)Py_TYPE(data.ptr())))));
    t = tensor_of(array);
  }
  if (!dtype || *dtype == t.dtype()) return t;
  const rw::NoGrad no_grad;
  return rw::cast(t, *dtype);
}

void bind_arrays(nb::module_& m, nb::class_<rw::Tensor>& tensor) {
  const auto make = [](nb::handle data, std::optional<DTypeGiven> dtype, bool requires_grad) {
    rw::Tensor t = tensor_from(data, dtype ? std::optional(dtype->dtype) : std::nullopt);
    if (requires_grad) t.set_requires_grad();
    return t;
  };
  tensor.def(
      "__init__",
      [make](rw::Tensor* self, nb::handle data, std::optional<DTypeGiven> dtype,
             bool requires_grad) {
        const rw::Tensor* given = tensor_in(data);
        new (self) rw::Tensor(given && !dtype ? *given : make(data, dtype, false));
        if (requires_grad) self->set_requires_grad();
      },
      "data"_a, "dtype"_a = nb::none(), "requires_grad"_a = false,
      "A handle on the same values as another tensor, or the values of numbers, sequences or an "
      "array.");
  m.def("tensor", make, "data"_a, "dtype"_a = nb::none(), "requires_grad"_a = false,
        "A copy of numbers, nested sequences or an array as a tensor. float64 becomes f32, and "
        "int64 i32 "
        "(ValueError for a number that does not fit).");
  m.def(
      "asarray",
      [make](nb::handle data, std::optional<DTypeGiven> dtype, nb::handle copy) -> rw::Tensor {
        const rw::Tensor* given = tensor_in(data);
        const bool is_right = given && (!dtype || dtype->dtype == given->dtype());
        if (is_right && !(copy.ptr() == Py_True)) return *given;
        return make(data, dtype, false);
      },
      "data"_a, "dtype"_a = nb::none(), "copy"_a.none() = nb::none(),
      "The same, or the tensor itself.");
  for (const char* name : {"from_numpy", "from_dlpack"})
    m.def(
        name,
        [make](nb::handle data) {
          rw::Tensor t = tensor_on(data);
          return t.defined() ? t : make(data, {}, false);
        },
        "array"_a,
        "The values of an array of NumPy, PyTorch, JAX or whatever has __dlpack__: in its memory "
        "where the device works on memory of the host, and the array is C-contiguous, writable "
        "and of a dtype that tensors have, else copied.");
  tensor.def(
      "numpy", [](const rw::Tensor& t) { return to_numpy(t); },
      "The values as an array of NumPy: in the tensor's memory where the device works on memory of "
      "the host, else a copy (bf16 always, as float32). Waits for the device.");
  tensor.def(
      "__array__",
      [](const rw::Tensor& t, nb::handle dtype, std::optional<bool> copy) {
        nb::object array = to_numpy(t, copy);
        return dtype.is_none() ? array : array.attr("astype")(dtype, "copy"_a = false);
      },
      "dtype"_a.none() = nb::none(), "copy"_a.none() = nb::none());
  tensor.def(
      "__dlpack__",
      [](const rw::Tensor& t, nb::handle, nb::handle max_version, nb::handle,
         std::optional<bool> copy) {
        using Plain = nb::ndarray<nb::array_api>;
        return host_array<Plain>(t, copy, nb::buffer_error)
            .attr("__dlpack__")("max_version"_a = max_version);
      },
      nb::kw_only(), "stream"_a.none() = nb::none(), "max_version"_a.none() = nb::none(),
      "dl_device"_a.none() = nb::none(), "copy"_a.none() = nb::none());
  tensor.def("__dlpack_device__",
             [](const rw::Tensor&) { return nb::make_tuple(1, 0); });  // kDLCPU
  tensor.def(
      "tolist", [](const rw::Tensor& t) { return to_numpy(t).attr("tolist")(); },
      "The values as nested lists.");
}

}  // namespace door
