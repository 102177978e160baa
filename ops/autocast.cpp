#include "ops/autocast.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "core/base/error.h"
#include "core/tensor/weight_copies.h"
#include "ops/list/op_list.h"
#include "ops/ops.h"

namespace rw {

namespace {

using Row = Autocast::Row;

// The rule that a head names; empty: it names none.
std::optional<AutocastRule> rule_named(std::string_view name) {
  if (name == "low") return AutocastRule::low;
  if (name == "f32") return AutocastRule::f32;
  if (name == "keep") return AutocastRule::keep;
  return {};
}

// The row of an op; -1: it is not listed. Some follow the row of another op.
int row_of(std::string_view op) {
  static const std::unordered_map<std::string_view, int> rows = [] {
    std::unordered_map<std::string_view, int> found;
    for (const Row& row : Autocast::ops()) found.emplace(row.op, static_cast<int>(found.size()));
    for (const OpInfo& info : op_list())
      if (const auto other = found.find(info.autocast); other != found.end())
        found.emplace(info.name, other->second);
    return found;
  }();
  const auto row = rows.find(op);
  return row == rows.end() ? -1 : row->second;
}

// ---- a parameter's copy that outlives the pass
std::vector<Tensor> copy_forward(const std::any& attrs, std::span<Tensor> inputs) {
  const auto dtype = std::any_cast<DType>(attrs);
  WeightCopies* copies = WeightCopies::of(inputs[0]);
  return TensorList(copies ? copies->view(inputs[0], dtype) : copy_of(inputs[0], dtype));
}

std::vector<Tensor> copy_vjp(Record& r, std::span<Tensor> dy) {
  return TensorList(cast(std::exchange(dy[0], {}), r.inputs[0].dtype));
}

// To everybody else it is a cast, so that a plan that saw the cast is followed where there is a
// copy; its memory is the parameter's.
const Op copy_op = {.name = "cast",
                    .forward = copy_forward,
                    .vjp = copy_vjp,
                    .any_grad_dtype = true,
                    .passes_gradient = true,
                    .is_view = true,
                    .records_vjp = true};

bool has_copy(const Tensor& x) {
  const WeightCopies* copies = WeightCopies::of(x);
  if (!copies || !WeightCopies::can_copy(x)) return false;
  return copies->use() == WeightCopyUse::always ||
         (copies->use() == WeightCopyUse::outside_segments && !Tape::current()->in_segment());
}

}  // namespace

// The rules are those of torch.autocast for CUDA, for the ops that are here, with these
// differences: norms keep 16-bit storage, as their statistics are f32 all the same, and var and
// logcumsumexp give f32.
const std::vector<Row>& Autocast::ops() {
  static const std::vector<Row> rows = [] {
    std::vector<Row> listed;
    for (const OpInfo& op : op_list())
      if (const auto rule = rule_named(op.autocast)) listed.push_back({op.name, *rule});
    return listed;
  }();
  return rows;
}

const Autocast* Autocast::innermost() {
  const std::vector<const Autocast*>& open = thread_state().autocasts;
  return open.empty() || !open.back() || !open.back()->is_enabled_ ? nullptr : open.back();
}

Autocast::Autocast(DType dtype, bool enabled) : dtype_(dtype), is_enabled_(enabled) {
  check<DTypeError>(is_float(dtype), "autocast", "needs a float dtype, got {}", name(dtype));
  if (const Autocast* outer = innermost())
    rules_ = outer->rules_;
  else
    for (const Row& row : ops()) rules_.push_back(row.rule);
  thread_state().autocasts.push_back(this);
}

Autocast::Autocast(DType dtype, const AutocastLists& changes) : Autocast(dtype) {
  std::vector<int> seen;
  const auto set = [&](const std::vector<std::string>& list, AutocastRule rule) {
    for (const std::string& op : list) {
      const int row = row_of(op);
      check(row >= 0, "autocast", "an op must be one of Autocast::ops(), got '{}'", op);
      check(std::find(seen.begin(), seen.end(), row) == seen.end(), "autocast",
            "an op must be in one list once, got '{}' again", op);
      seen.push_back(row);
      rules_[static_cast<size_t>(row)] = rule;
    }
  };
  set(changes.f32, AutocastRule::f32);
  set(changes.low, AutocastRule::low);
  set(changes.keep, AutocastRule::keep);
}

Autocast::~Autocast() {
  std::erase(thread_state().autocasts, this);
}

AutocastRule Autocast::rule(const std::string& op) {
  const Autocast* scope = innermost();
  const int row = scope ? row_of(op) : -1;
  return row < 0 ? AutocastRule::keep : scope->rules_[static_cast<size_t>(row)];
}

Tensor Autocast::as(Tensor x, DType dtype) {
  const bool narrows = size_of(dtype) < size_of(x.dtype());
  if (narrows && has_copy(x)) return apply1(copy_op, dtype, std::move(x));
  return cast(std::move(x), dtype);
}

Tensor Autocast::input(Tensor x) {
  const Autocast* scope = innermost();
  if (!scope || !is_float(x.dtype())) return x;
  return as(std::move(x), scope->dtype_);
}

template <class Range>
AutocastRule AutocastInputs::apply(const char* op, const Range& inputs, bool widens) {
  const Autocast* scope = Autocast::innermost();
  const int row = scope ? row_of(op) : -1;
  if (row < 0) return AutocastRule::keep;
  const AutocastRule rule = scope->rules_[static_cast<size_t>(row)];
  const auto is_cast = [](const Tensor* x) { return x->defined() && is_float(x->dtype()); };
  bool differs = false;  // of two float dtypes f32 is the widest
  const Tensor* first = nullptr;
  for (const Tensor* x : inputs) {
    if (!is_cast(x)) continue;
    if (!first) first = x;
    differs |= x->dtype() != first->dtype();
  }
  for (Tensor* x : inputs) {
    if (!is_cast(x)) continue;
    if (rule == AutocastRule::low) *x = Autocast::as(std::move(*x), scope->dtype_);
    if ((rule == AutocastRule::f32 && !widens) || (rule == AutocastRule::keep && differs))
      *x = cast(std::move(*x), DType::f32);
  }
  return rule;
}

AutocastInputs::AutocastInputs(const char* op, std::initializer_list<Tensor*> inputs, bool widens)
    : rule_(apply(op, inputs, widens)) {}

AutocastInputs::AutocastInputs(const char* op, std::vector<Tensor>& inputs)
    : rule_(apply(
          op,
          [&] {
            std::vector<Tensor*> all;
            for (Tensor& x : inputs) all.push_back(&x);
            return all;
          }(),
          false)) {}

}  // namespace rw
