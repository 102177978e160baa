// Ops in 16 bits where values and sizes are large, against the same program in double: what an op
// reads alone is not rounded, and no count, sum or product of it overflows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "backends/open.h"
#include "core/memory/default_device.h"
#include "ops/numeric.h"
#include "tests/op_table/f64_backend.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

// The outputs and gradients of a row.
struct HalfValues {
  std::vector<std::vector<double>> outputs, gradients;
};

template <class Read>
HalfValues half_values(const OpCase& row, const Tensors& inputs, const Read& read) {
  manual_seed(7);
  HalfValues values;
  Tensor loss;
  const Tensors outputs = row.run(inputs);
  for (size_t k = 0; k < outputs.size(); ++k) {
    values.outputs.push_back(read(outputs[k]));
    if (!outputs[k].requires_grad()) continue;
    const Shape& shape = outputs[k].shape();
    std::vector<float> weights = loss_weights(shape, k);
    for (float& w : weights) w = std::round(16 * w) / 16;  // 16 bits hold them
    const Tensor part = sum(cast(outputs[k], DType::f32) * host_tensor(weights, shape, DType::f32));
    loss = loss.defined() ? loss + part : part;
  }
  if (loss.defined()) loss.backward();
  for (const Tensor& t : inputs)
    values.gradients.push_back(t.grad().defined() ? read(t.grad()) : std::vector<double>());
  return values;
}

// The first element that is not what double gives, within roundings of the dtype; empty: there is
// none. What 16 bits cannot hold is infinite, or the largest, and what f32 cannot hold anything
// that is not finite.
std::string half_difference(const std::vector<double>& a, const std::vector<double>& b, DType dtype,
                            double tolerance) {
  const double most = dtype == DType::f16 ? 65504 : 3.38e38;
  const double least = dtype == DType::f16 ? 0x1p-24 : 0x1p-126;
  double squares = 0, count = 0;
  for (const double v : b)
    if (std::abs(v) < most) squares += v * v, ++count;
  const double scale = count > 0 ? std::sqrt(squares / count) : 0;
  if (a.size() != b.size()) return "another size";
  for (size_t i = 0; i < a.size(); ++i) {
    const bool is_same =
        std::isnan(b[i])          ? std::isnan(a[i])
        : std::abs(b[i]) > 3.3e38 ? !std::isfinite(a[i])
        : std::abs(b[i]) > 0.99 * most
            ? a[i] * b[i] > 0 && std::abs(a[i]) > 0.9 * most
            : std::abs(a[i] - b[i]) <= tolerance * (std::abs(b[i]) + scale) + least;
    if (!is_same) return fmt::format("element {} is {}, not {}", i, a[i], b[i]);
  }
  return {};
}

// The same row with the axes of one size grown to another, and all others of size 1.
OpCase with_sizes(OpCase row, int64_t from, int64_t size) {
  for (Input& input : row.inputs)
    for (int axis = 0; axis < input.shape.rank(); ++axis) {
      int64_t& s = input.shape[axis];
      s = s == from ? size : 1;
    }
  return row;
}

bool begins_with(const OpCase& row, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* name) { return row.name.starts_with(name); });
}

// Rows whose kernels read what they or others stored in 16 bits (docs/mixed-precision.md has them).
bool reads_rounded(const OpCase& row) {
  return begins_with(row,
                     {"attention", "lstm", "gru", "softmax", "log_softmax", "tied_cross_entropy"});
}

// Rows that are not held against double for large values: those, and values between a row's own ops
// that 16 bits do not hold (logsumexp's are 100 x).
bool is_exempt(const OpCase& row) {
  return row.elementwise || reads_rounded(row) ||
         begins_with(row,
                     {"logsumexp", "autocast", "assignments", "fmod and remainder of all sizes",
                      "ctc_loss", "rnnt", "pow rows", "kl_div of logarithms", "cumprod in parts"});
}

class HalfSweep {
 public:
  HalfSweep() {
    auto made = std::make_unique<F64Backend>();
    f64_ = made.get();
    wide_ = Device::create(std::move(made));
    wide_->set_memory_limit(64 << 20);  // which outer products of long inputs exceed
  }

  // False if the row does not take inputs of these sizes.
  bool check(const OpCase& row, DType dtype, float factor, const std::string& how) {
    HalfValues expected, actual;
    try {
      expected = on(wide_, row, dtype, factor, [&](const Tensor& t) {
        if (!is_float(t.dtype())) return host_values(t);
        return f64_->values(contiguous(t.detach()));
      });
    } catch (const Error& e) {
      Tape::current()->clear();
      return false;
    }
    actual = on(cpu_, row, dtype, factor, host_values);
    const double tolerance = row.roundings * (dtype == DType::f16 ? 0x1p-11 : 0x1p-8);
    const auto compare = [&](const auto& a, const auto& b, const char* what) {
      for (size_t k = 0; k < b.size(); ++k)
        if (const std::string text = half_difference(a[k], b[k], dtype, tolerance); !text.empty())
          FAIL_CHECK(
              fmt::format("{} in {}, {}: {} {}, {}", row.name, name(dtype), how, what, k, text));
    };
    compare(actual.outputs, expected.outputs, "output");
    compare(actual.gradients, expected.gradients, "gradient");
    return true;
  }

 private:
  static std::vector<double> host_values(const Tensor& t) {
    const std::vector<float> values = t.to_vector();
    return {values.begin(), values.end()};
  }

  template <class Read>
  HalfValues on(const std::shared_ptr<Device>& device, const OpCase& row, DType dtype, float factor,
                const Read& read) {
    const DeviceScope scope(device);
    Tensors inputs;
    for (const Input& input : row.inputs) {
      const bool is_low = input.dtype == DType::f32 && !input.keep_f32;
      std::vector<float> values = input_values(input, row.inputs.size());
      if (is_low)
        for (float& v : values) v *= factor;
      inputs.push_back(host_tensor(values, input.shape, is_low ? dtype : input.dtype));
      inputs.back().set_requires_grad(input.differentiable);
    }
    return half_values(row, inputs, read);
  }

  F64Backend* f64_ = nullptr;
  std::shared_ptr<Device> wide_, cpu_ = Device::create(open_backend("cpu"));
};

}  // namespace

TEST_CASE("halves: values past 256 are those of double" * doctest::test_suite("host")) {
  HalfSweep sweep;
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const OpCase& row : op_cases())
      if (!is_exempt(row)) sweep.check(row, dtype, 150, "times 150");
}

TEST_CASE("halves: kernels that read what they rounded are near double where values are at most 1" *
          doctest::test_suite("host")) {
  HalfSweep sweep;
  for (const DType dtype : {DType::f16, DType::bf16})
    for (OpCase row : op_cases())
      if (reads_rounded(row)) {
        row.roundings *= 4;
        CHECK(sweep.check(row, dtype, 1, "as they are"));
      }
}

TEST_CASE("halves: sizes past 65536 are those of double" * doctest::test_suite("host")) {
  HalfSweep sweep;
  std::set<std::string> ops, grown;
  for (const OpCase& row : op_cases()) {
    const std::string op = row.name.substr(0, row.name.find(' '));
    if (is_exempt(row) || row.inputs.empty() || !ops.insert(op).second) continue;
    const Shape& shape = row.inputs[0].shape;
    if (shape.rank() == 0) continue;
    const OpCase larger = with_sizes(row, shape.at(-1), 70002);
    int64_t n = 0;
    for (const Input& input : larger.inputs) n = std::max(n, input.shape.numel());
    if (n < 80000 && sweep.check(larger, DType::f16, 1, "70002 long")) grown.insert(op);
  }
  MESSAGE(grown.size() << " ops of " << ops.size());
  for (const char* op : {"sum", "mean", "max", "min", "var", "norm", "cosine_similarity", "cumsum",
                         "cumprod", "logcumsumexp", "swiglu"})
    CHECK_MESSAGE(grown.contains(op), std::string(op));
}

TEST_CASE("halves: counts, sums and lengths that 16 bits do not hold" *
          doctest::test_suite("host")) {
  const DeviceScope scope(Device::create(open_backend("cpu")));
  for (const DType dtype : {DType::f16, DType::bf16}) {
    CAPTURE(name(dtype));
    Tensor x = ones({70000}, dtype).set_requires_grad();
    max(x).backward();
    CHECK(x.grad().to_vector()[69999] == doctest::Approx(1.0 / 70000).epsilon(1e-5));
    Tensor y = full({1, 65536}, 100, dtype).set_requires_grad();
    logsumexp(y).backward();
    CHECK(sum(y.grad()).item() == doctest::Approx(1).epsilon(1e-3));
    CHECK(logsumexp(zeros({1, 65536}, dtype)).item() == doctest::Approx(11.0904).epsilon(0.01));
    std::vector<float> one_large(100);
    one_large[0] = 500;
    CHECK(var(tensor(one_large, {100}, dtype)).item() == doctest::Approx(2475).epsilon(0.01));
    CHECK(sum(normalize(zeros({1, 4}, dtype))).item() == 0);
    const Tensor v = full({1, 64}, 300, dtype);
    CHECK(cosine_similarity(v, v).item() == 1);
  }
}

}  // namespace rw::test
