#include "core/tensor.h"

#include <atomic>

#include "core/launch.h"
#include "core/ops.h"
#include "core/tape.h"

namespace rw {

namespace {

thread_local int no_grad_scopes = 0;
std::atomic<uint64_t> next_value_id = 1;

std::shared_ptr<TensorImpl> new_impl(std::shared_ptr<Storage> storage, const Shape& shape,
                                     const Strides& strides, int64_t offset, DType dtype) {
  auto impl = std::make_shared<TensorImpl>();
  impl->storage = std::move(storage);
  impl->shape = shape;
  impl->strides = strides;
  impl->offset = offset;
  impl->dtype = dtype;
  impl->id = next_value_id++;
  return impl;
}

template <class T>
std::vector<T> read_as(const Tensor& t) {
  std::vector<T> values(static_cast<size_t>(t.numel()));
  if (!values.empty()) read_elements(t, 0, t.numel(), values.data());
  return values;
}

template <class T>
void write_as(Tensor& t, const std::vector<T>& values) {
  if (!values.empty()) write_elements(t, 0, t.numel(), values.data());
}

template <class T>
void write_host(Tensor& t, std::span<const T> values) {
  check<ShapeError>(static_cast<int64_t>(values.size()) == t.numel(), "copy_from",
                    "as many values as elements are needed, got {} values for {}", values.size(),
                    t.str());
  check<ShapeError>(t.is_contiguous(), "copy_from", "the target must be contiguous, got strides {}",
                    t.strides().str());
  switch (t.dtype()) {
    case DType::f32: return write_as(t, std::vector<float>(values.begin(), values.end()));
    case DType::i32: return write_as(t, std::vector<int32_t>(values.begin(), values.end()));
    case DType::u8: return write_as(t, std::vector<uint8_t>(values.begin(), values.end()));
    case DType::f16: {
      std::vector<uint16_t> halves;
      halves.reserve(values.size());
      for (T v : values) halves.push_back(to_half(static_cast<float>(v)));
      return write_as(t, halves);
    }
  }
}

template <class T>
Tensor from_host(std::span<const T> values, const Shape& shape, DType dtype) {
  check_sizes("tensor", shape, size_of(dtype));
  check<ShapeError>(static_cast<int64_t>(values.size()) == shape.numel(), "tensor",
                    "as many values as elements are needed, got {} values for {}", values.size(),
                    shape.str());
  Tensor t = empty(shape, dtype);
  t.copy_from(values);
  return t;
}

}  // namespace

TensorImpl& Tensor::impl() const {
  check(impl_ != nullptr, OpScope::current(), "a defined tensor is needed, got an undefined one");
  return *impl_;
}

TensorImpl::~TensorImpl() {
  if (producer.index < 0) return;
  if (const auto tape = producer.tape.lock()) tape->release_reader(producer.index);
}

const Shape& Tensor::shape() const { return impl().shape; }
const Strides& Tensor::strides() const { return impl().strides; }
DType Tensor::dtype() const { return impl().dtype; }
bool Tensor::is_contiguous() const { return is_dense(impl().shape, impl().strides); }
Device& Tensor::device() const { return impl().storage->device(); }
bool Tensor::requires_grad() const { return impl().requires_grad; }
bool Tensor::is_leaf() const { return impl().producer.index < 0; }
Tensor Tensor::grad() const { return impl().grad; }

Tensor Tensor::operator[](int64_t index) const { return select(*this, 0, index); }

Tensor& Tensor::set_requires_grad(bool value) {
  check<AutogradError>(is_leaf(), "set_requires_grad",
                       "only leaves can be set, got the result of an op; use detach()");
  check<DTypeError>(!value || is_float(dtype()), "set_requires_grad", "needs a float tensor, got {}",
                    name(dtype()));
  impl().requires_grad = value;
  return *this;
}

void Tensor::set_grad(Tensor grad) {
  if (grad.defined()) {
    check<ShapeError>(grad.shape() == shape(), "set_grad",
                      "the gradient must have the tensor's shape, got {} and {}", grad.str(), str());
    check<DTypeError>(grad.dtype() == DType::f32, "set_grad",
                      "gradients of leaves are f32, got {} for {}; cast it", grad.str(), str());
    const Tensor both[] = {*this, grad};
    check_devices("set_grad", both);
    const NoGrad guard;
    grad = contiguous(grad);  // backward adds to it
  }
  impl().grad = std::move(grad);
}

Tensor Tensor::detach() const {
  const TensorImpl& t = impl();
  auto copy = new_impl(t.storage, t.shape, t.strides, t.offset, t.dtype);
  copy->id = t.id;
  copy->name = t.name;
  return Tensor(std::move(copy));
}

void Tensor::backward(const Tensor& gradient, bool retain) const {
  Tape::current()->backward(*this, gradient, retain);
}

std::vector<float> Tensor::to_vector() const {
  const NoGrad guard;
  const Tensor t = contiguous(*this);
  if (t.dtype() == DType::f32) return read_as<float>(t);
  std::vector<float> values;
  values.reserve(static_cast<size_t>(numel()));
  if (t.dtype() == DType::f16)
    for (uint16_t h : read_as<uint16_t>(t)) values.push_back(from_half(h));
  else
    for (int32_t v : t.to_ints()) values.push_back(static_cast<float>(v));
  return values;
}

std::vector<int32_t> Tensor::to_ints() const {
  const NoGrad guard;
  check<DTypeError>(!is_float(dtype()), "to_ints", "needs i32 or u8, got {}", name(dtype()));
  const Tensor t = contiguous(*this);
  if (t.dtype() == DType::i32) return read_as<int32_t>(t);
  const auto bytes = read_as<uint8_t>(t);
  return {bytes.begin(), bytes.end()};
}

float Tensor::item() const {
  check<ShapeError>(numel() == 1, "item", "needs exactly one element, got {}", str());
  return to_vector()[0];
}

void Tensor::copy_from(std::span<const float> values) { write_host(*this, values); }
void Tensor::copy_from(std::span<const int32_t> values) { write_host(*this, values); }
void Tensor::copy_from(std::span<const uint8_t> values) { write_host(*this, values); }

void Tensor::copy_(const Tensor& source) {
  check<ShapeError>(source.shape() == shape(), "copy_", "shapes must agree, got {} and {}", str(),
                    source.str());
  copy_into(source, *this);
}

std::string Tensor::str() const {
  return defined() ? fmt::format("{} {}", name(dtype()), shape().str()) : "undefined";
}

Tensor empty(const Shape& shape, DType dtype, const std::shared_ptr<Device>& device) {
  check_sizes(op_or("empty"), shape, size_of(dtype));
  return Tensor(new_impl(device->allocate(shape, dtype), shape, dense_strides(shape), 0, dtype));
}

Tensor make_view(const Tensor& base, const Shape& shape, const Strides& strides, int64_t offset) {
  check_sizes(op_or("view"), shape, size_of(base.dtype()));
  const std::optional<int64_t> end = last_element(shape, strides, offset);
  const uint64_t held = base.impl().storage->bytes() / size_of(base.dtype());
  check<ShapeError>(end && static_cast<uint64_t>(*end) <= held, op_or("view"),
                    "a view must lie in its storage of {} elements, got shape {}, strides {} and offset {}",
                    held, shape.str(), strides.str(), offset);
  return Tensor(new_impl(base.impl().storage, shape, strides, offset, base.dtype()));
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

Tensor tensor(std::span<const uint8_t> values, const Shape& shape) {
  return from_host(values, shape, DType::u8);
}

NoGrad::NoGrad() { ++no_grad_scopes; }
NoGrad::~NoGrad() { --no_grad_scopes; }
bool grad_enabled() { return no_grad_scopes == 0; }

}  // namespace rw
