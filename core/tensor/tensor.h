// Tensor: a cheap handle to a strided view of device storage, with its place on the tape.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../base/dtype.h"
#include "../base/error.h"
#include "../base/shape.h"
#include "../memory/default_device.h"
#include "../memory/device.h"

namespace rw {

struct TensorImpl;
class Tensor;

// Receives a gradient and returns its replacement, or an undefined tensor to leave it unchanged.
using GradHook = std::function<Tensor(const Tensor& gradient)>;

// Receives a leaf whose grad() has just been added to.
using PostAccumulateGradHook = std::function<void(const Tensor& leaf)>;

using GradHooks = std::map<int, GradHook>;  // by number, in the order of their registration

// Removes a hook on request. If nobody asks, the hook stays.
class HookHandle {
 public:
  HookHandle() = default;
  HookHandle(const std::shared_ptr<GradHooks>& hooks, int number)
      : hooks_(hooks), number_(number) {}
  // Stops calling the hook. Does nothing if the tensor or the hook is gone.
  void remove() {
    if (const auto hooks = hooks_.lock()) hooks->erase(number_);
  }

 private:
  std::weak_ptr<GradHooks> hooks_;
  int number_ = 0;
};

// The indices of x[{...}], one after another: a number picks one place of an axis and removes the
// axis; a Slice takes a range of places, like Python's begin:end:step, and ignores places outside;
// new_axis adds an axis of size 1; ellipsis stands for as many whole axes as are not named. Axes
// after the last named one are whole.
struct Slice {
  std::optional<int64_t> begin = {},
                         end = {};  // negative: from the end; none: from the first, to the last
  int64_t step = 1;                 // positive
};
struct NewAxis {};
struct Ellipsis {};
inline constexpr NewAxis new_axis;   // x[{new_axis}]
inline constexpr Ellipsis ellipsis;  // x[{ellipsis, 0}]
using Index = std::variant<int64_t, Slice, NewAxis, Ellipsis>;

// A handle on values: copies are cheap and share them. An undefined handle refers to nothing; any
// call on it other than defined() is a ValueError.
class Tensor {
 public:
  Tensor() = default;  // undefined
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return impl_ != nullptr; }  // it has values
  // The same.
  explicit operator bool() const { return defined(); }

  const Shape& shape() const;                  // the sizes by axis
  const Strides& strides() const;              // in elements; 0 along an axis that was broadcast
  DType dtype() const;                         // of the elements
  int rank() const { return shape().rank(); }  // number of axes
  int64_t size(int axis) const { return shape().at(axis); }  // negative: from the end; ShapeError
  int64_t numel() const { return shape().numel(); }          // elements
  // select(x, 0, index): a recorded view without the first axis. Negative indices count from the
  // end. Like backward(), it is defined in the room that records (ops, core/autograd).
  Tensor operator[](int64_t index) const;
  // The recorded view of what the indices name: x[{0, Slice{1, 3}}], x[{ellipsis, new_axis}].
  // ShapeError for more indices than axes.
  Tensor operator[](std::initializer_list<Index> indices) const;

  // The bytes of all elements; the storage of a view may have more or fewer.
  uint64_t bytes() const { return static_cast<uint64_t>(numel()) * size_of(dtype()); }

  bool is_contiguous() const;  // dense in row-major order
  Device& device() const;      // the one of its storage

  // A leaf that requires a gradient collects it in grad(); the results of ops on such leaves
  // require gradients, too.
  bool requires_grad() const;
  // Only for leaves (AutogradError) that are f32 or f16 (DTypeError). Returns *this.
  Tensor& set_requires_grad(bool value = true);

  bool is_leaf() const;  // made by the user, or by ops that no gradient passes
  Tensor grad() const;   // undefined until a backward reached this leaf
  // Replaces the gradient (undefined removes it): f32, of this shape, on this device; throws
  // otherwise. A strided gradient is copied.
  void set_grad(Tensor grad);

  Tensor detach() const;  // shares the storage, outside of the tape: a constant

  // Runs the tape backward from this scalar (or with the given gradient of its shape) and adds to
  // the leaves' gradients. The records on the way are freed unless `retain`. AutogradError if the
  // tensor depends on a gradient (see rw::grad()).
  void backward(const Tensor& gradient = {}, bool retain = false) const;

  // Calls the hook with this tensor's gradient in every backward that reaches it, once, before
  // anything else reads it: for a leaf, the sum that is about to be added to grad() (f32); for
  // another tensor, the sum that backward passes on. A gradient that the hook returns replaces it:
  // of the same shape, ShapeError otherwise. Hooks must not call backward(). As PyTorch's
  // Tensor.register_hook. AutogradError if the tensor requires no gradient.
  HookHandle register_hook(GradHook hook) const;
  // Calls the hook with this leaf in every backward that reaches it, once: when its grad() is
  // complete, while backward continues. No record that backward has yet to pass or to replay reads
  // the leaf any more, so the hook may change it, and may drop the gradient (set_grad({})), which
  // was then in memory only briefly. As PyTorch's Tensor.register_post_accumulate_grad_hook.
  // AutogradError unless this is a leaf that requires a gradient. grad() with respect to the leaf
  // does not call such hooks.
  HookHandle register_post_accumulate_grad_hook(PostAccumulateGradHook hook) const;
  // Makes backward store this tensor's gradient in grad() from now on, although it is not a leaf;
  // it is replaced, not added to. For leaves there is nothing to do.
  void retain_grad() const;

  // Copies to the host, converting to float (to_vector) or reading i32/u8 as integers. Waits.
  std::vector<float> to_vector() const;
  std::vector<int32_t> to_ints() const;

  float item() const;  // the only element, as float; throws ShapeError if there are more

  // Writes host data of numel() elements into this tensor, which is contiguous, converted to its
  // dtype. Not recorded. ShapeError.
  void copy_from(std::span<const float> values);
  void copy_from(std::span<const int32_t> values);
  void copy_from(std::span<const uint8_t> values);
  // Overwrites this tensor with `source` of its shape (ShapeError; dtypes are converted), which may
  // overlap it. ValueError for an expand()ed tensor. Not recorded: records that saved its value
  // throw.
  void copy_(const Tensor& source);

  std::string str() const;  // for messages: "f16 (2, 3)"

  // ValueError if undefined.
  TensorImpl& impl() const {
    if (!defined()) [[unlikely]]
      refuse_undefined();
    return *impl_;
  }
  // Returns the tensor on which this is a handle, or null if it is undefined.
  const std::shared_ptr<TensorImpl>& pointer() const { return impl_; }

 private:
  [[noreturn]] static void refuse_undefined();

  std::shared_ptr<TensorImpl> impl_;
};

// Keeps records of the ops that made tensors: the tape.
class Recorder {
 public:
  virtual ~Recorder() = default;
  // Called when a handle on that output is gone.
  virtual void release_handle(int64_t index, int slot) = 0;
  // Called before a write to a storage whose writes are noted.
  virtual void before_write(Storage& storage) = 0;
};

// The origin of a tensor: output `slot` of record `index`, or -1 for a leaf. It notifies the tape
// when it dies.
struct Producer {
  std::weak_ptr<Recorder> tape;
  int64_t index = -1;
  int slot = 0;

  Producer() = default;
  Producer(std::weak_ptr<Recorder> recorder, int64_t record, int output)
      : tape(std::move(recorder)), index(record), slot(output) {}
  Producer(const Producer&) = delete;
  Producer& operator=(Producer&& other) noexcept {
    std::swap(tape, other.tape);
    std::swap(index, other.index);
    std::swap(slot, other.slot);
    return *this;
  }
  ~Producer() {
    if (index < 0) return;
    if (const auto recorder = tape.lock()) recorder->release_handle(index, slot);
  }
};

// The object behind handles: a view of a storage (shape, strides, dtype) and its place in autograd.
struct TensorImpl {
  std::shared_ptr<Storage> storage;  // shared by all views
  Shape shape;
  Strides strides;
  int64_t offset;  // elements from the start of the storage
  DType dtype;

  uint64_t id;  // unique per value; kept by detached copies, so that replay can find it
  bool requires_grad = false;  // Tensor::requires_grad()
  // Tells whether it depends on a gradient that backward made, which has no derivative: such a loss
  // is refused. It spreads as requires_grad does; detach() clears it.
  bool from_gradient = false;
  Producer producer;  // the record that made it
  Tensor grad;        // of a leaf, or after retain_grad()
  Tensor grad_place;  // zeros to which the first gradient is added; undefined: it may lie anywhere
  // Hooks of a leaf; the tape has those of its own values.
  std::shared_ptr<GradHooks> hooks;
  std::shared_ptr<GradHooks> post_accumulate_hooks;  // of a leaf
  bool is_optimized = false;                         // belongs to an optimizer
  std::string name;                                  // parameters: for messages

  TensorImpl(std::shared_ptr<Storage> memory, const Shape& sizes, const Strides& steps,
             int64_t first, DType type, uint64_t number)
      : storage(std::move(memory)),
        shape(sizes),
        strides(steps),
        offset(first),
        dtype(type),
        id(number) {}
  TensorImpl(const TensorImpl&) = delete;
  TensorImpl& operator=(const TensorImpl&) = delete;
};

inline const Shape& Tensor::shape() const {
  return impl().shape;
}
inline const Strides& Tensor::strides() const {
  return impl().strides;
}
inline DType Tensor::dtype() const {
  return impl().dtype;
}
inline Device& Tensor::device() const {
  return impl().storage->device();
}
inline bool Tensor::is_contiguous() const {
  return is_dense(impl().shape, impl().strides);
}
inline bool Tensor::requires_grad() const {
  return impl().requires_grad;
}

// Returns a tensor on the default device (or `device`) with undefined contents. Like every function
// that makes a shape, it throws ShapeError if a size is negative, or if 63 bits do not hold the
// bytes of the sizes that are not 0.
Tensor empty(const Shape& shape, DType dtype = DType::f32,
             const std::shared_ptr<Device>& device = default_device());
// The same on the device of another tensor, say.
Tensor empty(const Shape& shape, DType dtype, Device& device);
// Returns a view of the storage of `base`, with shape, strides and offset in elements; ShapeError
// if it would leave the storage.
Tensor make_view(const Tensor& base, const Shape& shape, const Strides& strides, int64_t offset);

// Returns the number of elements from the first one to one past the last one that the view touches.
inline int64_t extent(const Tensor& t) {
  const TensorImpl& impl = t.impl();
  int64_t last = 0;  // it lies in its storage, so nothing overflows
  for (int i = 0; i < impl.shape.rank(); ++i) {
    if (impl.shape[i] == 0) return 0;
    last += (impl.shape[i] - 1) * impl.strides[i];
  }
  return last + 1;
}

// Copies host data into a new tensor. Sizes must agree; throws ShapeError.
Tensor tensor(std::span<const float> values, const Shape& shape, DType dtype = DType::f32);
Tensor tensor(std::initializer_list<float> values, const Shape& shape, DType dtype = DType::f32);
Tensor tensor(std::span<const int32_t> values, const Shape& shape);
// The same as i32, since there is no i64; ValueError for a value that does not fit.
Tensor tensor(std::span<const int64_t> values, const Shape& shape);
Tensor tensor(std::span<const uint8_t> values, const Shape& shape);

// Host copies of elements [first, first + count) of a contiguous tensor, as they are stored.
void write_elements(const Tensor& target, int64_t first, int64_t count, const void* source);
void read_elements(const Tensor& source, int64_t first, int64_t count, void* target);  // waits
// Announces a write to the thread's recorder, for records that read the present contents.
inline void announce_write(Storage& storage) {
  if (storage.notes_writes() && thread_state().recorder)
    thread_state().recorder->before_write(storage);
}
// Queues a copy between dense tensors of one dtype and size (Device::copy).
void copy_dense(const Tensor& source, const Tensor& target);
// Returns all bytes of a tensor in row-major order, without using device memory. Waits.
std::vector<std::byte> read_bytes(const Tensor& t);

// Returns a tensor on memory of the host that others own and keep using: what either writes, both
// see. Records do not notice what others write. Undefined where that cannot be (copy then): on
// devices that work by themselves or have memory of their own, for memory that does not start at a
// multiple of 16 bytes, and for no elements.
Tensor from_memory(const std::shared_ptr<std::byte>& memory, const Shape& shape, DType dtype,
                   const std::shared_ptr<Device>& device = default_device());
// Returns where the host reads and writes the elements of a tensor (at its strides), which stay
// there while anybody shares the pointer. Null on devices that work by themselves or have memory of
// their own, and for values that are away in other memory.
std::shared_ptr<std::byte> host_memory(const Tensor& t);

// Throws DeviceError unless all tensors are on one device, and in a dry run on the dry one; names
// both. The first function says which device is wrong.
[[noreturn]] void refuse_devices(const char* op, const Tensor& first, const Tensor& other);
inline void check_devices(const char* op, const Tensor& first, const Tensor& other) {
  const Device *device = &first.device(), *only = context().only;
  if (&other.device() != device || (only && only != device)) [[unlikely]]
    refuse_devices(op, first, other);
}
inline void check_devices(const char* op, std::span<const Tensor> tensors) {
  for (const Tensor& t : tensors) check_devices(op, tensors[0], t);
}

// A tensor and its name.
struct NamedTensor {
  std::string name;  // dotted, as in PyTorch: "layer1.0.conv1.weight"
  Tensor tensor;     // a handle on the owner's
};

// Tells whether this handle is the last one of its tensor and covers a whole storage that no other
// tensor shares, and nobody else.
bool is_sole_owner(const Tensor& t);

// For forwards of ops: returns the storage of `candidate` if this call holds its last handle and
// shape and dtype agree, else a new tensor.
Tensor reuse_or_empty(Tensor& candidate, const Shape& shape, DType dtype);

// While it lives, ops are not recorded on this thread. Scopes may end in any order.
class NoGrad {
 public:
  NoGrad() { ++thread_state().no_grad; }
  ~NoGrad() { --thread_state().no_grad; }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
};

inline bool grad_enabled() {  // false inside a NoGrad
  return thread_state().no_grad == 0;
}

}  // namespace rw
