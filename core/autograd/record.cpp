#include "core/autograd/record.h"

#include "core/base/hash.h"

namespace rw {

namespace {

const Tensor& checked(const Edges& edges, int slot, const Record& record, const char* side) {
  const auto i = static_cast<size_t>(slot);
  check<AutogradError>(i < edges.size() && edges[i].saved.tensor.defined(), record.op->name,
                       "the vjp reads {} {}, which is not saved; declare it in saves", side, slot);
  const Saved& saved = edges[i].saved;
  const TensorImpl& impl = saved.tensor.impl();
  if (impl.storage->version() != saved.version)
    fail<AutogradError>(
        record.op->name,
        "{} {}{} {} must not change between forward and backward, it was written to", side, slot,
        impl.name.empty() ? "" : fmt::format(" ('{}')", impl.name), saved.tensor);
  return saved.tensor;
}

}  // namespace

const Tensor& Record::input(int i) const {
  return checked(inputs, i, *this, "input");
}
Tensor Record::take_input(int i) {
  const Tensor& value = input(i);
  return is_last_read ? std::move(inputs[static_cast<size_t>(i)].saved.tensor) : value;
}

Tensor Record::gradient_so_far(int i) const {
  const Edge& edge = gradient_edge(static_cast<size_t>(i), DType::f32);
  if (!edge.requires_grad || edge.record >= 0 || !is_for_leaves || edge.leaf.impl().hooks)
    return {};
  const Tensor own = edge.leaf.grad();
  const Tensor& gradient = own.defined() ? own : edge.leaf.impl().grad_place;
  const bool usable = gradient.defined() && gradient.dtype() == DType::f32 &&
                      gradient.is_contiguous() && gradient.shape() == edge.shape;
  return usable ? gradient : Tensor();
}

const Tensor& Record::output(int i) const {
  return checked(outputs, i, *this, "output");
}

uint64_t content_hash(const Tensor& t) {
  return fnv1a(read_bytes(t));
}

}  // namespace rw
