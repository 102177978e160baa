#include "nn/summary.h"

#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "core/autograd/tape.h"
#include "core/memory/memory_report.h"

namespace rw {

namespace {

// Watches a forward pass.
class Watch : public Tape::Observer {
 public:
  Watch(const Module& model, Summary& summary) : summary_(summary), tape_(Tape::current()) {
    for (const NamedTensor& p : model.named_parameters()) {
      names_[&p.tensor.impl()] = p.name;
      summary.parameters += p.tensor.numel();
    }
    tape_->add_observer(*this);
  }
  ~Watch() override { tape_->remove_observer(*this); }

  bool records_all() const override { return true; }
  void after_forward(int64_t, const Record& record, std::span<const Tensor>) override {
    SummaryRow row{.op = record.label(), .flops = record.cost.flops};
    for (const Edge& edge : record.inputs) take_parameter(edge, row);
    for (const Edge& edge : record.outputs) {
      if (&edge == &record.outputs[0]) row.output = edge.shape, row.dtype = edge.dtype;
      if (makers_.try_emplace(edge.root, summary_.rows.size()).second)
        row.activations += edge.bytes;
    }
    summary_.rows.push_back(std::move(row));
    for (size_t k = 0; k < record.inputs.size(); ++k)
      if (record.saves.input(k)) keep(record.inputs[k]);
    for (size_t k = 0; k < record.outputs.size(); ++k)
      if (record.saves.output(k)) keep(record.outputs[k]);
  }

 private:
  void take_parameter(const Edge& edge, SummaryRow& row) {
    if (!edge.leaf.defined()) return;
    const auto found = names_.find(&edge.leaf.impl());
    if (found == names_.end()) return;
    if (row.layer.empty()) row.layer = found->second.substr(0, found->second.rfind('.'));
    if (read_.insert(found->first).second) row.parameters += edge.leaf.numel();
  }

  void keep(const Edge& edge) {
    if (edge.leaf.defined() || !kept_.insert(edge.root).second) return;
    const auto maker = makers_.find(edge.root);
    (maker == makers_.end() ? summary_.input_kept : summary_.rows[maker->second].kept) +=
        edge.bytes;
  }

  Summary& summary_;
  const std::shared_ptr<Tape> tape_;
  std::unordered_map<const TensorImpl*, std::string> names_;
  std::unordered_set<const TensorImpl*> read_;
  std::unordered_map<uint64_t, size_t> makers_;  // root of a value -> row
  std::unordered_set<uint64_t> kept_;            // roots
};

std::string cut(const std::string& name, int depth) {
  size_t at = 0;
  for (int i = 0; i < depth && at != std::string::npos; ++i) at = name.find('.', at + (i > 0));
  return name.substr(0, at);
}

}  // namespace

double Summary::flops() const {
  double sum = 0;
  for (const SummaryRow& row : rows) sum += row.flops;
  return sum;
}

uint64_t Summary::activations() const {
  uint64_t sum = 0;
  for (const SummaryRow& row : rows) sum += row.activations;
  return sum;
}

uint64_t Summary::kept() const {
  uint64_t sum = 0;
  for (const SummaryRow& row : rows) sum += row.kept;
  return sum;
}

Summary Summary::folded(int depth) const {
  check<ValueError>(depth > 0, "summary", "the depth must be positive, got {}", depth);
  Summary result{.parameters = parameters, .input_kept = input_kept};
  for (const SummaryRow& row : rows) {
    const std::string layer = cut(row.layer, depth);
    const bool joins = !result.rows.empty() && (layer.empty() || layer == result.rows.back().layer);
    if (!joins) result.rows.push_back({.layer = layer, .op = row.layer.empty() ? row.op : ""});
    SummaryRow& sum = result.rows.back();
    sum.output = row.output;
    sum.dtype = row.dtype;
    sum.parameters += row.parameters;
    sum.flops += row.flops;
    sum.activations += row.activations;
    sum.kept += row.kept;
  }
  return result;
}

std::string Summary::str() const {
  constexpr const char* line = "{:<36}{:<20}{:<22}{:>12}{:>10}{:>13}{:>13}\n";
  std::string text =
      fmt::format(line, "layer", "op", "output", "parameters", "MFLOP", "activations", "kept");
  for (const SummaryRow& row : rows)
    text += fmt::format(line, row.layer, row.op,
                        fmt::format("{} {}", name(row.dtype), row.output.str()),
                        row.parameters ? fmt::format("{}", row.parameters) : "",
                        fmt::format("{:.2f}", row.flops / 1e6), format_bytes(row.activations),
                        row.kept ? format_bytes(row.kept) : "");
  return text + fmt::format(
                    "{} parameters; forward {:.3f} GFLOP, {} of activations, of which gradients "
                    "keep {}, and {} of the input\n",
                    parameters, flops() / 1e9, format_bytes(activations()), format_bytes(kept()),
                    format_bytes(input_kept));
}

Summary summary(Module& model, const Tensor& input) {
  return summary(model, [&] { model.forward(input); });
}

Summary summary(const Module& model, const std::function<void()>& forward) {
  check<AutogradError>(grad_enabled(), "summary", "must not be called under NoGrad");
  Summary result;
  const Watch watch(model, result);
  forward();
  return result;
}

}  // namespace rw
