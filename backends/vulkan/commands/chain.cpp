#include "backends/vulkan/commands/chain.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace rw::vulkan {

// A call, as a step on one of its inputs.
struct ChainStep {
  uint32_t code = 0;
  uint32_t n = 0;
  float a = 0, b = 0;
  uint32_t period = 0;
  kernels::DropoutParams dropout{};
  ChainValue in, out;
  std::optional<ChainValue> operand;
};

namespace {

bool is_float_dtype(const KernelCall& call) {
  return std::all_of(call.bindings.begin(), call.bindings.end(), [&](const Binding& b) {
    return rw::is_float(b.dtype) && b.dtype == call.bindings[0].dtype;
  });
}

// Binding i of a call, whose parameters begin with the offsets.
ChainValue value(const KernelCall& call, size_t i) {
  ChainValue v{call.bindings[i]};
  std::memcpy(&v.offset, call.params.data() + i * sizeof v.offset, sizeof v.offset);
  return v;
}

template <class P>
ChainStep step_of(const KernelCall& call, const P& params, uint32_t code, size_t in, size_t out) {
  ChainStep step{.code = code, .n = params.n, .in = value(call, in), .out = value(call, out)};
  if constexpr (requires { params.a; }) step.a = params.a, step.b = params.b;
  return step;
}

ChainStep unary(const KernelCall& call) {
  return step_of(call, call.params_as<kernels::UnaryParams>(), CHAIN_UNARY + call.constant(0), 0,
                 1);
}

ChainStep unary_grad(const KernelCall& call) {
  ChainStep step = step_of(call, call.params_as<kernels::UnaryGradParams>(),
                           CHAIN_GRAD + call.constant(0), 1, 2);
  step.operand = value(call, 0);
  return step;
}

ChainStep dropout(const KernelCall& call) {
  const auto params = call.params_as<kernels::DropoutParams>();
  ChainStep step = step_of(call, params, CHAIN_DROPOUT, 0, 1);
  step.dropout = params;
  return step;
}

// `second`: the value with which the chain continues is the second factor.
ChainStep binary(const KernelCall& call, bool second) {
  const auto params = call.params_as<kernels::BinaryParams>();
  const uint32_t code = CHAIN_BINARY + 6 * call.constant(0) + 2 * (call.constant(1) - 1) + second;
  ChainStep step = step_of(call, params, code, second, 2);
  step.operand = value(call, !second);
  step.period = params.period;
  return step;
}

// The step that the call may become.
std::optional<ChainStep> step_of(const KernelCall& call) {
  if (!is_float_dtype(call)) return {};
  if (call.kernel == "unary" && call.constant(1) == 1) return unary(call);
  if (call.kernel == "unary_grad") return unary_grad(call);
  if (call.kernel == "dropout") return dropout(call);
  if (call.kernel != "binary" || call.constant(1) == 0) return {};
  return binary(call, false);
}

// The other step, if either factor may be the value.
std::optional<ChainStep> other_step_of(const KernelCall& call) {
  const bool either = call.kernel == "binary" && call.constant(1) == 1 && is_float_dtype(call);
  return either ? std::optional(binary(call, true)) : std::nullopt;
}

// Tells whether the threads of the module may take the steps of a chain.
bool is_product_module(std::string_view module) {
  return module.starts_with("gemm_tiled.") || module.starts_with("gemm_cooperative.");
}

// Tells whether the call makes one product in whole words, without sums to be added up later.
bool is_plain_product(const KernelCall& call) {
  const auto p = call.params_as<kernels::GemmParams>();
  return is_float_dtype(call) && call.constant(2) && call.constant(3) && p.splits == 1 &&
         p.batches == 1 && p.beta == 0 && p.c_row == p.n;
}

}  // namespace

OwnedCall::OwnedCall(const KernelCall& call)
    : kernel_(call.kernel),
      binding_count_(call.bindings.size()),
      params_size_(call.params.size()),
      variant_count_(call.variant.size()),
      threads_(call.threads),
      flops_(call.flops) {
  check<ValueError>(binding_count_ <= bindings_.size() && params_size_ <= params_.size() &&
                        variant_count_ <= variant_.size(),
                    call.kernel,
                    "a call must have at most 8 bindings, 128 bytes of parameters and "
                    "8 constants, got {}, {} and {}",
                    binding_count_, params_size_, variant_count_);
  std::copy(call.bindings.begin(), call.bindings.end(), bindings_.begin());
  std::copy(call.params.begin(), call.params.end(), params_.begin());
  std::copy(call.variant.begin(), call.variant.end(), variant_.begin());
}

// A call that is held back has a single module.
KernelCall OwnedCall::call() const& {
  return {.kernel = kernel_,
          .bindings = {bindings_.data(), binding_count_},
          .params = {params_.data(), params_size_},
          .threads = threads_,
          .variant = {variant_.data(), variant_count_},
          .flops = flops_,
          .preparation = nullptr};
}

bool ChainValue::operator==(const ChainValue& other) const {
  const BufferRange &a = binding.range, &b = other.binding.range;
  return a.block == b.block && a.offset == b.offset && a.size == b.size && offset == other.offset &&
         binding.dtype == other.binding.dtype;
}

bool Chain::may_start(std::string_view module) {
  return module == "unary" || module == "binary" || module == "unary_grad" || module == "dropout" ||
         module == "batch_norm" || is_product_module(module);
}

std::optional<Chain> Chain::start(const KernelCall& call) {
  if (call.kernel == "batch_norm") {
    Chain chain(call);
    chain.n_ = call.params_as<kernels::BatchNormParams>().n;
    chain.in_ = value(call, 0);
    chain.out_ = value(call, 5);
    return chain;
  }
  if (is_product_module(call.kernel)) {
    if (!is_plain_product(call)) return {};
    const auto p = call.params_as<kernels::GemmParams>();
    Chain chain(call);
    chain.n_ = p.m * p.n;
    chain.row_ = p.n;
    chain.in_ = value(call, 0);
    chain.out_ = value(call, 2);
    return chain;
  }
  const std::optional<ChainStep> step = step_of(call);
  if (!step) return {};
  Chain chain(call);
  chain.n_ = step->n;
  chain.in_ = step->in;
  chain.out_ = step->out;
  chain.add(*step);
  return chain;
}

bool Chain::join(const KernelCall& call) {
  if (!may_start(call.kernel)) return false;
  const auto goes_on = [&](const std::optional<ChainStep>& step) {
    return step && step->n == n_ && step->in == out_ && step->out == out_ &&
           !(step->operand && reads_result(*step->operand)) && add(*step);
  };
  if (!goes_on(step_of(call)) && !goes_on(other_step_of(call))) return false;
  flops_ += call.flops;
  note(call);
  return true;
}

// Such an operand would be read with its old contents.
bool Chain::reads_result(const ChainValue& operand) const {
  const Use use = use_of(operand.binding);
  return uses_.conflicts({&use, 1});
}

bool Chain::lets_by(const KernelCall& call) const {
  return call.workspace.size == 0 &&
         std::all_of(call.bindings.begin(), call.bindings.end(), [&](const Binding& b) {
           const Use use = use_of(b);
           return 16 * b.range.size <= out_.binding.range.size && !uses_.conflicts({&use, 1});
         });
}

void Chain::note(const KernelCall& call) {
  for (const Binding& b : call.bindings) {
    const Use use = use_of(b);
    uses_.add({&use, 1});
  }
}

bool Chain::add(const ChainStep& step) {
  const size_t number = codes_.size();
  const bool is_dropout = step.code == CHAIN_DROPOUT;
  if (number == CHAIN_STEPS || (step.operand && operands_.size() == CHAIN_OPERANDS)) return false;
  if (is_dropout && std::find(codes_.begin(), codes_.end(), step.code) != codes_.end())
    return false;
  const bool repeats = step.code >= CHAIN_BINARY && (step.code - CHAIN_BINARY) % 6 / 2 == 1;
  if (row_ && step.operand && (step.operand->offset % 4 != 0 || (repeats && step.period != row_)))
    return false;
  codes_.push_back(step.code);
  steps_.a[number] = step.a;
  steps_.b[number] = step.b;
  if (step.operand) {
    steps_.period[operands_.size()] = step.period;
    operands_.push_back(*step.operand);
  }
  if (is_dropout) {
    const kernels::DropoutParams& d = step.dropout;
    steps_.keep = d.keep;
    steps_.seed_lo = d.seed_lo, steps_.seed_hi = d.seed_hi;
    steps_.counter_lo = d.counter_lo, steps_.counter_hi = d.counter_hi;
  }
  return true;
}

template <class P>
OwnedCall Chain::make(const std::string& kernel, P params, std::vector<ChainValue> values,
                      std::initializer_list<uint32_t> more) const {
  for (size_t i = 0; i < CHAIN_OPERANDS; ++i)
    values.push_back(i < operands_.size() ? operands_[i] : in_);
  values.push_back(out_);
  std::vector<Binding> bindings;
  for (size_t i = 0; i < values.size(); ++i) {
    params.offset[i] = values[i].offset;
    bindings.push_back(values[i].binding);
    bindings.back().access = i + 1 == values.size() ? Access::write : Access::read;
  }
  params.steps = steps_;
  std::vector<uint32_t> variant = codes_;
  variant.resize(CHAIN_STEPS, CHAIN_NONE);
  variant.insert(variant.end(), more);
  return OwnedCall({kernel, bindings, std::as_bytes(std::span(&params, 1)), first_.call().threads,
                    variant, flops_});
}

OwnedCall Chain::product() const {
  const KernelCall first = first_.call();
  const auto p = first.params_as<kernels::GemmParams>();
  return make("gemm_chain" + std::string(first.kernel.substr(4)),
              kernels::GemmChainParams{.m = p.m,
                                       .n = p.n,
                                       .k = p.k,
                                       .a_row = p.a_row,
                                       .a_col = p.a_col,
                                       .b_row = p.b_row,
                                       .b_col = p.b_col,
                                       .alpha = p.alpha},
              {in_, value(first, 1)}, {first.constant(0), first.constant(1)});
}

OwnedCall Chain::joined() const {
  const KernelCall first = first_.call();
  const bool is_batch_norm = first.kernel == "batch_norm";
  if (codes_.size() + (is_batch_norm || row_) == 1) return first_;
  if (row_) return product();
  if (!is_batch_norm) return make("chain", kernels::ChainParams{.n = n_}, {in_});
  const auto norm = first.params_as<kernels::BatchNormParams>();
  std::vector<ChainValue> values;
  for (size_t i = 0; i < 5; ++i) values.push_back(value(first, i));
  return make("batch_norm_chain",
              kernels::BatchNormChainParams{
                  .n = n_, .channels = norm.channels, .eps = norm.eps, .has_rest = norm.has_rest},
              values);
}

}  // namespace rw::vulkan
