// The members of Tensor that may need a kernel.
#include "core/tensor/primitives.h"
#include "core/tensor/tensor.h"

namespace rw {

namespace {

template <class T>
std::vector<T> read_as(const Tensor& t) {
  std::vector<T> values(static_cast<size_t>(t.numel()));
  if (!values.empty()) read_elements(t, 0, t.numel(), values.data());
  return values;
}

}  // namespace

void Tensor::set_grad(Tensor grad) {
  if (grad.defined()) {
    check<ShapeError>(grad.shape() == shape(), "set_grad",
                      "the gradient must have the tensor's shape, got {} and {}", grad, str());
    check<DTypeError>(grad.dtype() == DType::f32, "set_grad",
                      "gradients of leaves are f32, got {} for {}; cast it", grad, str());
    const Tensor both[] = {*this, grad};
    check_devices("set_grad", both);
    grad = dense(grad);  // backward adds to it
  }
  impl().grad = std::move(grad);
}

std::vector<float> Tensor::to_vector() const {
  const Tensor t = dense(*this);
  if (t.dtype() == DType::f32) return read_as<float>(t);
  std::vector<float> values;
  values.reserve(static_cast<size_t>(numel()));
  if (is_half(t.dtype()))
    for (uint16_t h : read_as<uint16_t>(t)) values.push_back(from_16_bits(t.dtype(), h));
  else
    for (int32_t v : t.to_ints()) values.push_back(static_cast<float>(v));
  return values;
}

std::vector<int32_t> Tensor::to_ints() const {
  check<DTypeError>(!is_float(dtype()), "to_ints", "needs i32 or u8, got {}", name(dtype()));
  const Tensor t = dense(*this);
  if (t.dtype() == DType::i32) return read_as<int32_t>(t);
  const auto bytes = read_as<uint8_t>(t);
  return {bytes.begin(), bytes.end()};
}

float Tensor::item() const {
  check<ShapeError>(numel() == 1, "item", "needs exactly one element, got {}", str());
  return to_vector()[0];
}

void Tensor::copy_(const Tensor& source) {
  check<ShapeError>(source.shape() == shape(), "copy_", "shapes must agree, got {} and {}", str(),
                    source);
  const OpScope scope("copy_");
  copy_into(source, *this);
}

}  // namespace rw
