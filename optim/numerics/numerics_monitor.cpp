#include "optim/numerics/numerics_monitor.h"

#include <string_view>

#include "core/tensor/launch.h"
#include "core/tensor/primitives.h"
#include "optim/numerics/value_range.h"

namespace rw {

// The optimizer announces its updates to this.
class NumericsMonitor::Updates : public UpdateObserver {
 public:
  explicit Updates(NumericsMonitor& monitor) : monitor_(monitor) {}
  void before_update() override { monitor_.end_pass(); }
  void after_update() override { ++queued; }

  bool is_watched() const { return queued % monitor_.options_.every == 0; }

  uint32_t queued = 0;  // updates so far

 private:
  NumericsMonitor& monitor_;
};

NumericsMonitor::NumericsMonitor(Optimizer& optimizer, const MonitorOptions& options)
    : options_(options),
      tape_(Tape::current()),
      updates_(std::make_shared<Updates>(*this)),
      control_(optimizer.control()) {
  check(options.every > 0 && options.values > 0, "numerics_monitor",
        "every and values must be positive, got {} and {}", options.every, options.values);
  const PurposeScope purpose(Purpose::optimizer);
  const auto device = optimizer.device().shared_from_this();
  rows_ = empty({options.values, RANGE_SIZE}, DType::i32, device);
  history_ = empty({options.values, HISTORY_SIZE}, DType::i32, device);
  fill_(rows_, 0);
  fill_(history_, 0);
  optimizer.add_observer(updates_);
  tape_->add_observer(*this);
}

NumericsMonitor::~NumericsMonitor() {
  tape_->remove_observer(*this);
}

void NumericsMonitor::begin_pass() {
  end_pass();
  is_in_pass_ = true;
  is_watched_ = updates_->is_watched();
  first_ = tape_->end();
}

// Drops the counts of a forward pass without a backward pass: it had no effect.
void NumericsMonitor::end_pass() {
  if (has_counts_) {
    const OpScope scope("numerics_monitor");
    const auto rows = static_cast<uint32_t>(values_.size());
    launch("range_history", {inout(rows_), inout(history_), in(control_)},
           kernels::RangeHistoryParams{.offset = {},
                                       .rows = rows,
                                       .step = is_backward_ ? step_ : 0,
                                       .update = updates_->queued + 1},
           {.threads = {rows, 1, 1}});
  }
  is_in_pass_ = is_backward_ = has_counts_ = false;
  inputs_.clear();
  names_.clear();
  makers_.clear();
}

void NumericsMonitor::begin_backward(int64_t index, const Record& loss) {
  is_backward_ = true;
  ++step_;
  watched_steps_ += is_watched_;
  for (size_t k = 0; k < loss.outputs.size(); ++k) {
    const auto found = values_.find({false, index - first_, ValueKind::output, k, loss.op});
    if (found != values_.end()) found->second.what.is_result = true;
  }
}

ValueHistory* NumericsMonitor::count(const ValueKey& key, const Tensor& x) {
  if (!x.defined() || !is_float(x.dtype()) || x.numel() == 0) return nullptr;
  auto found = values_.find(key);
  if (found == values_.end()) {
    if (values_.size() == options_.values) {
      ++left_out_;
      return nullptr;
    }
    found = values_.emplace(key, Value{.row = static_cast<int64_t>(values_.size())}).first;
  }
  Value& value = found->second;
  value.what.kind = key.kind;
  value.what.dtype = x.dtype();
  const OpScope scope("numerics_monitor");
  count_range(x, make_view(rows_, {RANGE_SIZE}, {1}, value.row * RANGE_SIZE),
              least_normal(x.dtype()), false, control_);
  has_counts_ = true;
  return std::exchange(value.is_new, false) ? &value.what : nullptr;
}

// The name of the parameter that the value is, or of which it is a cast or a view; empty if there
// is none.
std::string NumericsMonitor::name_of(const Edge& edge) const {
  if (edge.leaf.defined()) return edge.leaf.impl().name;
  const auto found = names_.find(edge.id);
  return found == names_.end() ? "" : found->second;
}

void NumericsMonitor::name_output(const Record& record) {
  if (!record.op->is_view && std::string_view(record.op->name) != "cast") return;
  if (std::string name = name_of(record.inputs[0]); !name.empty())
    names_[record.outputs[0].id] = std::move(name);
}

// "linear of 'fc.weight' (op 3)": the op with its first parameter and its place in the pass.
std::string NumericsMonitor::described(int64_t index, const Record& record) const {
  std::string text = record.label();
  for (const Edge& edge : record.inputs)
    if (const std::string name = name_of(edge); !name.empty()) {
      text += fmt::format(" of '{}'", name);
      break;
    }
  return text + fmt::format(" (op {})", index - first_ + 1);
}

// Names the maker of the gradient of an output that has not been identified yet.
void NumericsMonitor::note_maker(const Edge& output, int64_t index, const Record& record) {
  const Record* made = tape_->find(output.record);
  const auto slot = static_cast<size_t>(output.slot);
  const ValueKey key{true, first_ - output.record, ValueKind::gradient, slot,
                     made ? made->op : nullptr};
  if (values_.contains(key)) return;
  std::string& makers = makers_[{output.record, output.slot}];
  makers += (makers.empty() ? "" : " + ") + described(index, record);
}

void NumericsMonitor::before_forward(const Op& op, std::span<const Tensor> inputs) {
  if (!is_in_pass_ || is_backward_ || tape_->is_empty()) begin_pass();
  if (!is_watched_) return;
  const int64_t order = tape_->end() - first_;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorImpl& impl = inputs[i].impl();
    if (impl.producer.index >= 0 || !inputs_.insert(impl.id).second) continue;
    ValueHistory* value = count({false, order, ValueKind::input, i, &op}, inputs[i]);
    if (!value) continue;
    value->op = fmt::format("{} (op {})", op.name, order + 1);
    value->tensor = fmt::format("input {}", i);
    if (!impl.name.empty()) value->tensor += fmt::format(" '{}'", impl.name);
  }
}

void NumericsMonitor::after_forward(int64_t index, const Record& record,
                                    std::span<const Tensor> outputs) {
  if (!is_watching()) return;
  name_output(record);
  if (record.op->is_view) return;
  for (size_t k = 0; k < outputs.size(); ++k) {
    ValueHistory* value =
        count({false, index - first_, ValueKind::output, k, record.op}, outputs[k]);
    if (!value) continue;
    value->op = described(index, record);
    value->tensor = fmt::format("output {}", k);
    value->segment = record.segment;
  }
}

void NumericsMonitor::before_vjp(int64_t index, const Record& record, std::span<const Tensor> dy) {
  if (!is_in_pass_) return;
  if (!is_backward_) begin_backward(index, record);
  if (!is_watched_) return;
  for (size_t k = 0; k < dy.size(); ++k) {
    ValueHistory* value = count({true, first_ - index, ValueKind::gradient, k, record.op}, dy[k]);
    if (!value) continue;
    const auto maker = makers_.find({index, static_cast<int>(k)});
    value->op = maker == makers_.end() ? "the loss" : maker->second;
    value->tensor = fmt::format("gradient of output {} of {}", k, described(index, record));
    value->segment = record.segment;
  }
}

void NumericsMonitor::after_vjp(int64_t index, const Record& record, std::span<const Tensor> dx) {
  if (!is_watching()) return;
  for (size_t k = 0; k < dx.size(); ++k) {
    if (!record.inputs[k].requires_grad || !dx[k].defined()) continue;
    const Edge& edge = record.gradient_edge(k, dx[k].dtype());
    if (edge.record >= 0) {
      note_maker(edge, index, record);
      continue;
    }
    ValueHistory* value =
        count({true, first_ - index, ValueKind::parameter_gradient, k, record.op}, dx[k]);
    if (!value) continue;
    const std::string& name = edge.leaf.impl().name;
    value->op = described(index, record);
    value->tensor = name.empty() ? fmt::format("gradient of input {}", k)
                                 : fmt::format("gradient of '{}'", name);
    value->segment = record.segment;
    value->is_result = true;
  }
}

NumericsReport NumericsMonitor::report() {
  if (is_backward_) end_pass();
  const std::vector<int32_t> words = history_.to_ints();
  std::vector<ValueHistory> values;
  for (const auto& [place, value] : values_) {
    values.push_back(value.what);
    values.back().words =
        std::span(words).subspan(static_cast<size_t>(value.row) * HISTORY_SIZE, HISTORY_SIZE);
  }
  NumericsReport report = numerics_report(values);
  report.steps = watched_steps_;
  report.left_out = left_out_;
  return report;
}

}  // namespace rw
