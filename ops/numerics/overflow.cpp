#include "ops/numerics/overflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/autograd/tape.h"
#include "ops/numeric.h"

namespace rw {

namespace {

bool has_only_finite(const Tensor& x) {
  if (!x.defined() || !is_float(x.dtype()) || x.numel() == 0) return true;
  const NoGrad guard;
  return all(isfinite(x)).item() != 0;
}

class FirstOverflow : public Tape::Observer {
 public:
  FirstOverflow() : tape_(Tape::current()), first_(tape_->end()) { tape_->add_observer(*this); }
  ~FirstOverflow() override { tape_->remove_observer(*this); }
  FirstOverflow(const FirstOverflow&) = delete;
  FirstOverflow& operator=(const FirstOverflow&) = delete;

  bool records_all() const override { return true; }

  void before_forward(const Op& op, std::span<const Tensor> inputs) override {
    if (found) return;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorImpl& impl = inputs[i].impl();
      if (!seen_.insert(impl.id).second) continue;
      if (has_only_finite(inputs[i])) continue;
      const std::string name =
          impl.name.empty() ? fmt::format("input {}", i) : fmt::format("'{}'", impl.name);
      found = {.op = numbered(op.name, tape_->end()), .dtype = inputs[i].dtype(), .given = name};
      return;
    }
  }
  void after_forward(int64_t index, const Record& record,
                     std::span<const Tensor> outputs) override {
    if (found) return;
    const std::string parameter = parameter_of(record);
    if (record.op->is_view || std::string_view(record.op->name) == "cast")
      names_[record.outputs[0].id] = parameter;
    for (const Edge& output : record.outputs) seen_.insert(output.id);
    if (record.op->is_view || std::ranges::all_of(outputs, has_only_finite)) return;
    const std::string of = parameter.empty() ? "" : fmt::format(" of '{}'", parameter);
    found = {.op = numbered(record.label() + of, index), .dtype = outputs[0].dtype()};
  }

  std::optional<Overflow> found;

 private:
  // The name of the first parameter that the op reads, as it is, cast or as a view; may be empty.
  std::string parameter_of(const Record& record) const {
    for (const Edge& edge : record.inputs) {
      const auto known = names_.find(edge.id);
      const std::string name = edge.leaf.defined()     ? edge.leaf.impl().name
                               : known != names_.end() ? known->second
                                                       : "";
      if (!name.empty()) return name;
    }
    return "";
  }
  std::string numbered(const std::string& op, int64_t index) const {
    return fmt::format("{} (op {})", op, index - first_ + 1);
  }

  const std::shared_ptr<Tape> tape_;
  const int64_t first_;
  std::unordered_set<uint64_t> seen_;                // values that were looked at, by id
  std::unordered_map<uint64_t, std::string> names_;  // of casts and views of parameters, by id
};

// Ops are recorded while it lives, also inside a NoGrad.
class Recording {
 public:
  Recording() : outside_(std::exchange(thread_state().no_grad, 0)) {}
  ~Recording() { thread_state().no_grad = outside_; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  const decltype(ThreadState::no_grad) outside_;
};

}  // namespace

std::string Overflow::str() const {
  if (!given.empty()) return fmt::format("{}, which {} reads, was not finite before", given, op);
  return fmt::format("{} was the first to overflow, in {}", op, name(dtype));
}

std::optional<Overflow> first_overflow(const std::function<void()>& forward) {
  const Recording recording;
  FirstOverflow observer;
  forward();
  return observer.found;
}

std::string overflow_advice(DType dtype) {
  if (dtype != DType::f16) return "";
  return "bf16 has the range of f32: use --dtype bf16 or f32";
}

}  // namespace rw
