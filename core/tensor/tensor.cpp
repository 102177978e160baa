#include "core/tensor/tensor.h"

#include <atomic>
#include <cstring>

#include "core/base/checked.h"
#include "core/base/recycled.h"

namespace rw {

namespace {

std::atomic<uint64_t> next_value_id = 1;

Tensor new_tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Strides& strides,
                  int64_t offset, DType dtype, uint64_t id = next_value_id++) {
  return Tensor(std::allocate_shared<TensorImpl>(Recycled<TensorImpl>(), std::move(storage), shape,
                                                 strides, offset, dtype, id));
}

template <class Values>
void write_as(Tensor& t, const Values& values) {
  if (!values.empty()) write_elements(t, 0, t.numel(), values.data());
}

// Converts as cast() does.
template <class To, class T>
std::vector<To> whole_numbers(std::span<const T> values) {
  std::vector<To> whole;
  whole.reserve(values.size());
  for (const T v : values) whole.push_back(static_cast<To>(to_i32(v)));
  return whole;
}

template <class T>
void write_host(Tensor& t, std::span<const T> values) {
  check<ShapeError>(static_cast<int64_t>(values.size()) == t.numel(), "copy_from",
                    "as many values as elements are needed, got {} values for {}", values.size(),
                    t);
  check<ShapeError>(t.is_contiguous(), "copy_from", "the target must be contiguous, got strides {}",
                    t.strides());
  switch (t.dtype()) {
    case DType::f32:
      if constexpr (std::is_same_v<T, float>)
        return write_as(t, values);
      else
        return write_as(t, std::vector<float>(values.begin(), values.end()));
    case DType::i32:
      return write_as(t, whole_numbers<int32_t>(values));
    case DType::u8:
      return write_as(t, whole_numbers<uint8_t>(values));
    case DType::f16:
    case DType::bf16: {
      std::vector<uint16_t> halves;
      halves.reserve(values.size());
      for (T v : values) halves.push_back(to_16_bits(t.dtype(), static_cast<float>(v)));
      return write_as(t, halves);
    }
  }
}

template <class T>
Tensor from_host(std::span<const T> values, const Shape& shape, DType dtype) {
  check_sizes("tensor", shape, size_of(dtype));
  check<ShapeError>(static_cast<int64_t>(values.size()) == shape.numel(), "tensor",
                    "as many values as elements are needed, got {} values for {}", values.size(),
                    shape);
  Tensor t = empty(shape, dtype);
  t.copy_from(values);
  return t;
}

// "'fc.weight' f32 (2, 3) on cpu 'AMD EPYC' (device 1)"
std::string where_is(const Tensor& t) {
  const std::string& name = t.impl().name;
  return fmt::format("{}{} on {}", name.empty() ? "" : "'" + name + "' ", t.str(),
                     t.device().str());
}

uint64_t byte_offset(const Tensor& t, int64_t element) {
  return static_cast<uint64_t>(t.impl().offset + element) * size_of(t.dtype());
}

}  // namespace

void Tensor::refuse_undefined() {
  fail(op_or("user"), "a defined tensor is needed, got an undefined one");
}

bool Tensor::is_leaf() const {
  return impl().producer.index < 0 || !impl().requires_grad;
}
Tensor Tensor::grad() const {
  return impl().grad;
}

Tensor& Tensor::set_requires_grad(bool value) {
  check<AutogradError>(is_leaf(), "set_requires_grad",
                       "only leaves can be set, got the result of an op; use detach()");
  check<DTypeError>(!value || is_float(dtype()), "set_requires_grad",
                    "needs a float tensor, got {}", name(dtype()));
  impl().requires_grad = value;
  impl().producer = {};  // whatever made it, it is a leaf from now on
  impl().from_gradient = false;
  return *this;
}

Tensor Tensor::detach() const {
  const TensorImpl& t = impl();
  Tensor copy = new_tensor(t.storage, t.shape, t.strides, t.offset, t.dtype, t.id);
  if (!t.name.empty()) copy.impl().name = t.name;
  return copy;
}

void Tensor::copy_from(std::span<const float> values) {
  write_host(*this, values);
}
void Tensor::copy_from(std::span<const int32_t> values) {
  write_host(*this, values);
}
void Tensor::copy_from(std::span<const uint8_t> values) {
  write_host(*this, values);
}

std::string Tensor::str() const {
  return defined() ? fmt::format("{} {}", name(dtype()), shape().str()) : "undefined";
}

Tensor empty(const Shape& shape, DType dtype, const std::shared_ptr<Device>& device) {
  return empty(shape, dtype, *device);
}

Tensor empty(const Shape& shape, DType dtype, Device& device) {
  check_sizes(op_or("empty"), shape, size_of(dtype));
  return new_tensor(device.allocate(shape, dtype), shape, dense_strides(shape), 0, dtype);
}

Tensor make_view(const Tensor& base, const Shape& shape, const Strides& strides, int64_t offset) {
  check_sizes(op_or("view"), shape, size_of(base.dtype()));
  const std::optional<int64_t> end = last_element(shape, strides, offset);
  const uint64_t held = base.impl().storage->bytes() / size_of(base.dtype());
  check<ShapeError>(
      end && static_cast<uint64_t>(*end) <= held, op_or("view"),
      "a view must lie in its storage of {} elements, got shape {}, strides {} and offset {}", held,
      shape, strides, offset);
  return new_tensor(base.impl().storage, shape, strides, offset, base.dtype());
}

Tensor tensor(std::span<const float> values, const Shape& shape, DType dtype) {
  return from_host(values, shape, dtype);
}

Tensor tensor(std::initializer_list<float> values, const Shape& shape, DType dtype) {
  return tensor(std::span(values.begin(), values.size()), shape, dtype);
}

Tensor tensor(std::span<const int32_t> values, const Shape& shape) {
  return from_host(values, shape, DType::i32);
}

Tensor tensor(std::span<const int64_t> values, const Shape& shape) {
  std::vector<int32_t> narrow(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    narrow[i] = static_cast<int32_t>(values[i]);
    check<ValueError>(narrow[i] == values[i], "tensor", "values must fit i32, got {} at {}",
                      values[i], i);
  }
  return from_host(std::span<const int32_t>(narrow), shape, DType::i32);
}

Tensor tensor(std::span<const uint8_t> values, const Shape& shape) {
  return from_host(values, shape, DType::u8);
}

void refuse_devices(const char* op, const Tensor& first, const Tensor& other) {
  check<DeviceError>(&first.device() == &other.device(), op,
                     "all tensors must be on one device, got {} and {}", where_is(first),
                     where_is(other));
  fail<DeviceError>(op,
                    "a dry run takes values of its own device, {}, got {}; make the model and its "
                    "data inside the program that is planned",
                    context().only->str(), where_is(other));
}

void write_elements(const Tensor& target, int64_t first, int64_t count, const void* source) {
  check_devices("write", target, target);
  check<ShapeError>(target.is_contiguous(), op_or("write"),
                    "host data goes to a contiguous tensor, got strides {}", target.strides());
  announce_write(*target.impl().storage);
  target.device().write(*target.impl().storage, byte_offset(target, first),
                        static_cast<uint64_t>(count) * size_of(target.dtype()), source);
}

void read_elements(const Tensor& source, int64_t first, int64_t count, void* target) {
  check_devices("read", source, source);
  source.device().read(*source.impl().storage, byte_offset(source, first),
                       static_cast<uint64_t>(count) * size_of(source.dtype()), target);
}

void copy_dense(const Tensor& source, const Tensor& target) {
  check_devices("copy", source, target);
  check(source.dtype() == target.dtype() && source.numel() == target.numel() &&
            source.is_contiguous() && target.is_contiguous(),
        "copy", "dense tensors of one dtype and size are needed, got {} and {}", source, target);
  const int64_t apart = std::abs(source.impl().offset - target.impl().offset);
  check(source.impl().storage != target.impl().storage || apart == 0 || apart >= source.numel(),
        "copy", "the tensors must not overlap, got {} and {}", source, target);
  announce_write(*target.impl().storage);
  source.device().copy(*source.impl().storage, byte_offset(source, 0), *target.impl().storage,
                       byte_offset(target, 0), source.bytes());
}

std::vector<std::byte> read_bytes(const Tensor& t) {
  const size_t size = size_of(t.dtype());
  const int64_t touched = t.is_contiguous() ? t.numel() : extent(t);
  std::vector<std::byte> bytes(static_cast<size_t>(touched) * size);
  if (touched > 0) read_elements(t, 0, touched, bytes.data());
  if (t.is_contiguous()) return bytes;
  std::vector<std::byte> dense(t.bytes());
  for (int64_t i = 0; i < t.numel(); ++i) {
    int64_t at = 0, rest = i;
    for (int axis = t.rank() - 1; axis >= 0; --axis) {
      at += rest % t.shape()[axis] * t.strides()[axis];
      rest /= t.shape()[axis];
    }
    std::memcpy(dense.data() + static_cast<size_t>(i) * size,
                bytes.data() + static_cast<size_t>(at) * size, size);
  }
  return dense;
}

Tensor from_memory(const std::shared_ptr<std::byte>& memory, const Shape& shape, DType dtype,
                   const std::shared_ptr<Device>& device) {
  check_sizes("from_memory", shape, size_of(dtype));
  constexpr uintptr_t whole_words = 16;  // kernels read up to their end
  if (shape.numel() == 0 || reinterpret_cast<uintptr_t>(memory.get()) % whole_words != 0) return {};
  std::shared_ptr<Storage> storage = device->adopt(memory, shape, dtype);
  if (!storage) return {};
  return new_tensor(std::move(storage), shape, dense_strides(shape), 0, dtype);
}

std::shared_ptr<std::byte> host_memory(const Tensor& t) {
  const std::shared_ptr<Storage> storage = t.impl().storage;
  if (storage->bytes() == 0) return nullptr;
  std::byte* const address = storage->device().pin(*storage);
  if (!address) return nullptr;
  return {address + t.impl().offset * static_cast<int64_t>(size_of(t.dtype())),
          [storage](std::byte*) { storage->device().unpin(*storage); }};
}

bool is_sole_owner(const Tensor& t) {
  const TensorImpl& impl = t.impl();
  return t.pointer().use_count() == 1 && impl.storage.use_count() == 1 && impl.offset == 0 &&
         t.is_contiguous() && t.bytes() == impl.storage->bytes() && !impl.storage->stays();
}

Tensor reuse_or_empty(Tensor& candidate, const Shape& shape, DType dtype) {
  const TensorImpl& impl = candidate.impl();
  if (is_sole_owner(candidate) && impl.dtype == dtype && impl.shape == shape &&
      impl.storage->place() == context().place && !impl.grad.defined() && context().overwrites) {
    impl.storage->take_over();
    return new_tensor(impl.storage, shape, dense_strides(shape), 0, dtype);
  }
  return empty(shape, dtype, candidate.device());
}

}  // namespace rw
