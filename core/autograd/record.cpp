#include "rewind/core/autograd/record.h"

#include "rewind/core/base/hash.h"

namespace rw {

namespace {

const Tensor& checked(const std::vector<Saved>& saved, int slot, const Record& record,
                      const char* side) {
  const bool there = slot < static_cast<int>(saved.size()) && saved[slot].tensor.defined();
  check<AutogradError>(there, record.op->name,
                       "the vjp reads {} {}, which is not saved; declare it in saves", side, slot);
  const TensorImpl& impl = saved[slot].tensor.impl();
  check<AutogradError>(impl.storage->version() == saved[slot].version, record.op->name,
                       "{} {}{} {} must not change between forward and backward, it was written to",
                       side, slot, impl.name.empty() ? "" : fmt::format(" ('{}')", impl.name),
                       saved[slot].tensor.str());
  return saved[slot].tensor;
}

}  // namespace

const Tensor& Record::input(int i) const {
  return checked(saved_inputs, i, *this, "input");
}
Tensor Record::take_input(int i) {
  const Tensor& value = input(i);
  return is_last_read ? std::move(saved_inputs[static_cast<size_t>(i)].tensor) : value;
}

Tensor Record::gradient_so_far(int i) const {
  const Edge& edge = inputs[static_cast<size_t>(i)];
  if (!edge.requires_grad || edge.record >= 0) return {};
  const Tensor own = edge.leaf.grad();
  const Tensor& gradient = own.defined() ? own : edge.leaf.impl().grad_place;
  const bool usable = gradient.defined() && gradient.dtype() == DType::f32 &&
                      gradient.is_contiguous() && gradient.shape() == edge.shape;
  return usable ? gradient : Tensor();
}

const Tensor& Record::output(int i) const {
  return checked(saved_outputs, i, *this, "output");
}

uint64_t content_hash(const Tensor& t) {
  return fnv1a(read_bytes(t));
}

}  // namespace rw
