// Tensor: a cheap handle to a strided view of device storage, with its place on the tape.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/shape.h"

namespace rw {

class Tape;
struct TensorImpl;

class Tensor {
 public:
  Tensor() = default;  // undefined
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }

  const Shape& shape() const;
  const Strides& strides() const;
  DType dtype() const;
  int rank() const { return shape().rank(); }
  int64_t size(int axis) const { return shape().at(axis); }
  int64_t numel() const { return shape().numel(); }
  // select(x, 0, index): a view without the first axis, recorded. Negative: from the end.
  Tensor operator[](int64_t index) const;
  uint64_t bytes() const { return static_cast<uint64_t>(numel()) * size_of(dtype()); }
  bool is_contiguous() const;
  Device& device() const;

  // Autograd. A leaf that requires a gradient collects it in grad(); results of ops on such leaves
  // require gradients too.
  bool requires_grad() const;
  Tensor& set_requires_grad(bool value = true);  // leaves only; throws AutogradError
  bool is_leaf() const;
  Tensor grad() const;  // undefined until a backward reached this leaf
  // Replaces the gradient (undefined: none): f32, of this shape, on this device; throws otherwise. One
  // that is strided is copied.
  void set_grad(Tensor grad);
  Tensor detach() const;  // the same storage, outside the tape

  // Runs the tape backward from this scalar (or with the given gradient of its shape) and adds to
  // the leaves' gradients. The records it passed are freed unless `retain`.
  void backward(const Tensor& gradient = {}, bool retain = false) const;

  // Copies to the host, converting to float (to_vector) or reading i32/u8 as integers. Waits.
  std::vector<float> to_vector() const;
  std::vector<int32_t> to_ints() const;
  float item() const;  // the only element, as float; throws ShapeError if there are more

  // Writes host data of numel() elements into this tensor's storage (f32 in, converted).
  void copy_from(std::span<const float> values);
  void copy_from(std::span<const int32_t> values);
  void copy_from(std::span<const uint8_t> values);
  // Overwrites this tensor with `source` (same shape; dtype is converted). Not recorded.
  void copy_(const Tensor& source);

  std::string str() const;  // "f16 (2, 3)"

  TensorImpl& impl() const;  // throws when undefined
  const std::shared_ptr<TensorImpl>& pointer() const { return impl_; }

 private:
  std::shared_ptr<TensorImpl> impl_;
};

// Where a tensor came from: output `slot` of record `index`, or -1 for a leaf.
struct Producer {
  std::weak_ptr<Tape> tape;
  int64_t index = -1;
  int slot = 0;
};

struct TensorImpl {
  std::shared_ptr<Storage> storage;
  Shape shape;
  Strides strides;
  int64_t offset = 0;  // elements from the start of the storage
  DType dtype = DType::f32;

  uint64_t id = 0;  // unique per value; kept by detached copies, so that replay can find it
  bool requires_grad = false;
  Producer producer;
  Tensor grad;
  Tensor grad_place;  // zeros that the first gradient is added to; undefined: it lies anywhere
  bool is_optimized = false;  // belongs to an optimizer
  std::string name;  // parameters: for messages

  TensorImpl() = default;
  TensorImpl(const TensorImpl&) = delete;
  TensorImpl& operator=(const TensorImpl&) = delete;
  ~TensorImpl();  // tells the tape that this handle's record has one reader less
};

// A tensor on the default device (or `device`) with undefined contents. Like everything that makes a
// shape: ShapeError where a size is negative, or where 63 bits do not hold the bytes of the sizes
// that are not 0.
Tensor empty(const Shape& shape, DType dtype, const std::shared_ptr<Device>& device = default_device());
// A view of the storage of `base`: shape, strides and offset in elements; ShapeError where it would
// leave the storage.
Tensor make_view(const Tensor& base, const Shape& shape, const Strides& strides, int64_t offset);

// Host data to a new tensor. Sizes must agree; throws ShapeError.
Tensor tensor(std::span<const float> values, const Shape& shape, DType dtype = DType::f32);
Tensor tensor(std::initializer_list<float> values, const Shape& shape, DType dtype = DType::f32);
Tensor tensor(std::span<const int32_t> values, const Shape& shape);
Tensor tensor(std::span<const uint8_t> values, const Shape& shape);

// While alive, ops are not recorded on this thread. Scopes may end in any order.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
};
bool grad_enabled();

}  // namespace rw
