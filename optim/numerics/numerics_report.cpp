#include "optim/numerics/numerics_report.h"

#include <algorithm>
#include <bit>

#include "shaders/params.h"

namespace rw {

namespace {

uint32_t word(const ValueHistory& value, int i) {
  return static_cast<uint32_t>(value.words[static_cast<size_t>(i)]);
}
bool is_16_bit_gradient(const ValueHistory& value) {
  return value.kind == ValueKind::gradient && size_of(value.dtype) == 2;
}
bool is_forward(ValueKind kind) {
  return kind == ValueKind::input || kind == ValueKind::output;
}

NumericsFinding finding(const ValueHistory& value) {
  NumericsFinding found;
  found.kind = value.kind;
  found.op = value.op;
  found.tensor = value.tensor;
  found.segment = value.segment;
  found.dtype = value.dtype;
  return found;
}
// The values at HISTORY_OVERFLOW or HISTORY_UNDERFLOW.
NumericsFinding finding(const ValueHistory& value, int at) {
  NumericsFinding found = finding(value);
  found.step = word(value, at);
  found.update = word(value, at + 1);
  const bool is_overflow = at == HISTORY_OVERFLOW;
  (is_overflow ? found.nans : found.denormals) = word(value, at + 2);
  (is_overflow ? found.infinities : found.normals) = word(value, at + 3);
  found.scale = std::bit_cast<float>(word(value, at + 4));
  return found;
}

// The least first step among those of `values` that are `wanted`; 0: there is none.
template <class F>
uint32_t first_step(const std::vector<ValueHistory>& values, int at, F&& wanted) {
  uint32_t first = 0;
  for (const ValueHistory& value : values)
    if (const uint32_t step = word(value, at); step > 0 && wanted(value))
      first = first == 0 ? step : std::min(first, step);
  return first;
}
// The first of them in that step.
template <class F>
std::optional<NumericsFinding> first_of(const std::vector<ValueHistory>& values, int at,
                                        uint32_t step, F&& wanted) {
  for (const ValueHistory& value : values)
    if (step > 0 && word(value, at) == step && wanted(value)) return finding(value, at);
  return std::nullopt;
}

void find_overflows(const std::vector<ValueHistory>& values, NumericsReport& report) {
  const auto overflows = [](const ValueHistory& v) { return word(v, HISTORY_OVERFLOWS); };
  bool went_well = false;  // some step did
  for (const ValueHistory& value : values)
    went_well |= value.is_result && overflows(value) < word(value, HISTORY_STEPS);
  const uint32_t bad =
      first_step(values, HISTORY_OVERFLOW, [](const ValueHistory& v) { return v.is_result; });
  const auto is_harmless = [&](const ValueHistory& v) {
    return is_forward(v.kind) && !v.is_result && overflows(v) > 0 &&
           (bad == 0 || (went_well && overflows(v) == word(v, HISTORY_STEPS)));
  };
  report.overflow = first_of(values, HISTORY_OVERFLOW, bad,
                             [&](const ValueHistory& v) { return !is_harmless(v); });
  for (const ValueHistory& value : values)
    if (is_harmless(value)) report.harmless.push_back(value.tensor + " of " + value.op);
}

void find_underflows(const std::vector<ValueHistory>& values, NumericsReport& report) {
  const auto is_output = [](const ValueHistory& v) {
    return v.kind == ValueKind::output && size_of(v.dtype) == 2;
  };
  report.underflow =
      first_of(values, HISTORY_UNDERFLOW, first_step(values, HISTORY_UNDERFLOW, is_16_bit_gradient),
               is_16_bit_gradient);
  if (!report.underflow)
    report.underflow = first_of(values, HISTORY_UNDERFLOW,
                                first_step(values, HISTORY_UNDERFLOW, is_output), is_output);
  bool had_more = false;
  for (const ValueHistory& value : values) {
    if (!is_16_bit_gradient(value)) continue;
    const uint32_t steps = word(value, HISTORY_STEPS);
    const bool is_zero = steps > 0 && word(value, HISTORY_ZEROS) == steps;
    if (is_zero && had_more && !report.vanished) report.vanished = finding(value);
    had_more |= !is_zero;
    ++report.gradients;
    report.denormal_gradients += uint64_t{2} * word(value, HISTORY_UNDERFLOWS) > steps;
  }
}

std::string overflow_advice(const NumericsFinding& f) {
  const bool only_nans = f.infinities == 0;
  if (f.kind == ValueKind::input)
    return "It came from outside the ops that were recorded, so no loss scale helps: check the "
           "data, "
           "or for a parameter the updates before (a learning rate that is too high).";
  if (f.kind == ValueKind::output)
    return only_nans ? "All of its inputs were finite, so no loss scale helps: look for 0 / 0, "
                       "infinity - infinity, or a logarithm or root of a negative number."
                     : fmt::format(
                           "The forward overflows in {}, so no loss scale helps: keep this "
                           "op in f32, or make its inputs smaller.",
                           name(f.dtype));
  if (only_nans)
    return "The forward was finite and nothing before it was infinite: the gradient of this op "
           "itself "
           "is no number there, as that of a root or a norm at 0.";
  if (size_of(f.dtype) == 2 || f.scale > 1)
    return fmt::format(
        "The forward was finite, the gradient times the loss scale is too large for {}: a dynamic "
        "scaler skips the update and lowers the scale; a fixed one should be lower than {:g}.",
        name(f.dtype), f.scale);
  return "The forward was finite and no loss scale was in the gradient: it diverges by itself; "
         "lower "
         "the learning rate or clip.";
}

std::string place(const NumericsFinding& f) {
  std::string text = fmt::format("{} of {}", f.tensor, f.op);
  if (f.kind == ValueKind::gradient || f.kind == ValueKind::parameter_gradient)
    text = fmt::format("{}, made by the vjp of {}", f.tensor, f.op);
  text += fmt::format(", {}", name(f.dtype));
  if (f.segment >= 0) text += fmt::format(", in checkpoint segment {}", f.segment);
  return text;
}

}  // namespace

std::string NumericsFinding::str() const {
  if (step == 0)
    return fmt::format(
        "{}: nothing but zeros in every step. Too small for {}, if they are not meant "
        "to be 0 (as behind weights that begin at 0): raise the loss scale.",
        place(*this), name(dtype));
  const std::string head =
      fmt::format("step {} (update {}, loss scale {:g}): {}: ", step, update, scale, place(*this));
  if (nans + infinities > 0)
    return head + fmt::format("{} NaN and {} infinite elements. ", nans, infinities) +
           overflow_advice(*this);
  return head +
         fmt::format("{} of {} elements that are not 0 are denormal. ", denormals,
                     denormals + normals) +
         (kind == ValueKind::gradient
              ? "They lose digits, and smaller ones are 0: raise the loss scale."
              : "The loss scale changes nothing in the forward: keep this op in f32 if it "
                "matters.");
}

std::string NumericsReport::str() const {
  std::string text = fmt::format("{} steps watched, {} values in each", steps, values);
  if (left_out > 0)
    text += fmt::format(" ({} times one was left out: allow more values)", left_out);
  text += overflow ? "\nfirst overflow: " + overflow->str() : "\nno overflow was seen";
  text += underflow ? "\nfirst underflow: " + underflow->str()
                    : "\nno value of 16 bits was mostly denormal";
  if (vanished) text += "\nfirst gradient of zeros: " + vanished->str();
  if (!harmless.empty())
    text +=
        fmt::format("\nnot finite, without harm to losses and gradients: {}{}", harmless[0],
                    harmless.size() > 1 ? fmt::format(" and {} more", harmless.size() - 1) : "");
  return text + "\n";
}

NumericsReport numerics_report(const std::vector<ValueHistory>& values) {
  NumericsReport report;
  report.values = values.size();
  find_overflows(values, report);
  find_underflows(values, report);
  return report;
}

std::string diagnose(const Optimizer& optimizer, const NumericsReport& report) {
  UpdateCounts counts = optimizer.counts();
  if (report.gradients > 0)
    counts.denormal_gradients =
        static_cast<double>(report.denormal_gradients) / static_cast<double>(report.gradients);
  return diagnose(optimizer.scaler(), counts) + "\n" + report.str();
}

}  // namespace rw
