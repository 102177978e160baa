// The results of every op for NaN, infinities, denormals and extremes: Vulkan against cpu, by the
// contract of docs/kernels.md ("Values that are not finite").
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "backends/open.h"
#include "core/memory/default_device.h"
#include "ops/numeric.h"
#include "tests/fixtures/element_bytes.h"
#include "tests/fixtures/env.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

constexpr float least_f32 = std::numeric_limits<float>::min();

const std::shared_ptr<Device>& reference_device() {
  static const std::shared_ptr<Device> device = Device::create(open_backend("reference"));
  return device;
}

// Null if the machine has no Vulkan device.
const std::shared_ptr<Device>& vulkan_device() {
  static const std::shared_ptr<Device> device = []() -> std::shared_ptr<Device> {
    try {
      return Device::create(open_backend("vulkan"));
    } catch (const DeviceError& e) {
      MESSAGE("skipped: " << std::string(e.what()));
      return {};
    }
  }();
  return device;
}

using HostInputs = std::vector<std::vector<float>>;

// Runs the row's function on `device` with these values, all of one shape if one is given.
Evaluated evaluate_on(const std::shared_ptr<Device>& device, const OpCase& row, DType dtype,
                      const HostInputs& values, const Shape* shape = nullptr) {
  set_default_device(device);
  Tensors inputs;
  for (size_t k = 0; k < row.inputs.size(); ++k) {
    const Input& input = row.inputs[k];
    const DType wanted = input.dtype == DType::f32 && !input.keep_f32 ? dtype : input.dtype;
    Tensor t = host_tensor(values[k], shape ? *shape : input.shape, wanted);
    t.set_requires_grad(input.differentiable);
    inputs.push_back(std::move(t));
  }
  return evaluate(inputs, row.run);
}

// How an element must agree with the cpu's: in its class, and if finite, in its value.
struct Agreement {
  double tolerance, scale;  // of finite values: relative to themselves and to `scale`
  bool compares_values = true;
  bool infinity_is_nan = false;  // either stands for the other
  bool spreads = false;          // a NaN may stand for a finite value
  bool overflows = false;        // any value may stand for one that is not finite

  bool operator()(float a, float b) const {
    if (spreads && std::isnan(a)) return true;
    if (!std::isfinite(b) && overflows) return true;
    if (!std::isfinite(b) && infinity_is_nan) return !std::isfinite(a);
    if (std::isnan(b)) return std::isnan(a);
    if (std::isinf(b)) return a == b;
    if (!compares_values) return std::isfinite(a);
    return std::abs(double{a} - b) <= tolerance * (std::abs(b) + scale) + least_f32;
  }
};

double finite_scale(const std::vector<float>& values) {
  double squares = 0, count = 0;
  for (const float v : values)
    if (std::isfinite(v)) squares += double{v} * v, ++count;
  return count > 0 ? std::sqrt(squares / count) : 0;
}

// A special value goes into one element of one input, or into all of it.
struct Special {
  std::string name;
  float value;
};
const Special special_values[] = {
    {"NaN", NAN},         {"infinity", infinity}, {"-infinity", -infinity},
    {"denormal", 1e-40f}, {"large", 1e18f},       {"-large", -1e18f}};

// Describes the first element that agrees with neither of two; empty: there is none.
std::string difference(const HostValues& a, const HostValues& b, const HostValues& c,
                       Agreement agree, const char* what) {
  for (size_t k = 0; k < b.size(); ++k) {
    REQUIRE(a[k].size() == b[k].size());
    agree.scale = finite_scale(b[k]);
    for (size_t i = 0; i < b[k].size(); ++i)
      if (!agree(a[k][i], b[k][i]) && !agree(a[k][i], c[k][i]))
        return fmt::format(" {} {}, element {}: {}, cpu has {}", what, k, i, a[k][i], b[k][i]);
  }
  return {};
}

float flushed(float v) {
  return std::abs(v) < least_f32 ? std::copysign(0.0f, v) : v;
}

double extreme_tolerance(const OpCase& row, DType dtype) {
  return dtype == DType::f32 ? 10 * row.f32_tolerance
                             : 2 * row.roundings * (dtype == DType::f16 ? 0x1p-11 : 0x1p-8);
}

// Puts `value` in one element of an input, or in all of them.
void check_special(const OpCase& row, DType dtype, size_t which, const Special& special,
                   bool everywhere) {
  const auto values_with = [&](float value) {
    HostInputs values;
    for (const Input& input : row.inputs) values.push_back(input_values(input, values.size()));
    std::vector<float>& v = values[which];
    if (everywhere)
      std::fill(v.begin(), v.end(), value);
    else
      v[v.size() * 5 / 8] = value;
    return values;
  };
  const HostInputs values = values_with(special.value);
  Agreement agree{10 * extreme_tolerance(row, dtype), 0};  // sums of constants cancel
  agree.compares_values = std::abs(special.value) < 1e10f;
  agree.infinity_is_nan = std::isinf(special.value);
  agree.overflows = std::isfinite(special.value);
  agree.spreads = row.spreads;
  const Evaluated actual = evaluate_on(vulkan_device(), row, dtype, values);
  const Evaluated kept = evaluate_on(reference_device(), row, dtype, values);
  const Evaluated flush = special.value == flushed(special.value)
                              ? kept
                              : evaluate_on(reference_device(), row, dtype, values_with(0));
  const std::string text =
      difference(actual.outputs, kept.outputs, flush.outputs, agree, "output") +
      difference(actual.gradients, kept.gradients, flush.gradients, agree, "gradient");
  if (!text.empty())
    FAIL_CHECK(fmt::format("{} in {} with {} {} in input {}:{}", row.name, name(dtype),
                           everywhere ? "only" : "one", special.name, which, text));
}

// Leaves large rows out except in --all, since the effect of a value does not depend on sizes.
// There a row also tries every value; elsewhere every second one, since a kernel has many rows.
void check_specials(const OpCase& row, DType dtype, size_t number) {
  const bool all = rounds(0, 1) != 0;
  int64_t elements = 0;
  for (const Input& input : row.inputs) elements += input.shape.numel();
  if (!all && elements > 8192) return;
  for (size_t which = 0; which < row.inputs.size(); ++which)
    if (is_float(row.inputs[which].dtype) && row.inputs[which].shape.numel() > 0)
      for (size_t k = all ? 0 : number % 2; k < std::size(special_values); k += all ? 1 : 2)
        for (const bool everywhere : {false, true})
          if (!everywhere || dtype == DType::f32)
            check_special(row, dtype, which, special_values[k], everywhere);
}

// Returns every pair of these values.
std::vector<float> grid_values(DType dtype, float most) {
  std::vector<float> values = {NAN};
  if (is_float(dtype)) {
    for (const float v :
         {0.0f, 1e-40f, 1.2e-38f, 1e-20f, 1e-6f,  0.3f, 0.5f,     1.0f,  2.0f,  2.5f,  3.0f,
          5.0f, 20.0f,  89.0f,    104.0f, 300.5f, 1e4f, 65504.0f, 1e10f, 1e18f, 3e38f, infinity})
      if (v <= most || std::isinf(v)) values.insert(values.end(), {v, -v});
  } else if (dtype == DType::i32) {
    values = {0, 1, -1, 2, -2, 3, -7, 100, 65536, -65536, 2147483520.0f, -2147483648.0f};
  } else {
    values = {0, 1, 2, 3, 127, 128, 255};
  }
  return values;
}

// Checks a function of elements on all pairs of values at once.
void check_grid(const OpCase& row, DType dtype) {
  HostInputs values(row.inputs.size());
  size_t count = 1;
  for (const Input& input : row.inputs) count *= grid_values(input.dtype, row.most).size();
  size_t step = 1;
  for (size_t k = 0; k < values.size(); ++k) {
    const std::vector<float> grid = grid_values(row.inputs[k].dtype, row.most);
    for (size_t i = 0; i < count; ++i) values[k].push_back(grid[i / step % grid.size()]);
    step *= grid.size();
  }
  const Shape shape = {static_cast<int64_t>(count)};
  const Evaluated actual = evaluate_on(vulkan_device(), row, dtype, values, &shape);
  const Evaluated kept = evaluate_on(reference_device(), row, dtype, values, &shape);
  HostInputs without = values;
  for (std::vector<float>& v : without) std::transform(v.begin(), v.end(), v.begin(), flushed);
  const Evaluated flush = evaluate_on(reference_device(), row, dtype, without, &shape);
  const auto compare = [&](const HostValues& a, const HostValues& b, const HostValues& c,
                           const char* what) {
    int shown = 0;
    for (size_t k = 0; k < b.size(); ++k)
      for (size_t i = 0; i < b[k].size() && shown < 8; ++i) {
        // A remainder's slope is a quotient rounded to a whole number, which may have been denormal
        // before.
        if (values.size() == 2 && values[0][i] != 0 &&
            std::abs(values[0][i] / values[1][i]) < least_f32)
          continue;
        bool has_nan = false;
        double largest = 0;
        std::string of;
        for (const std::vector<float>& v : values) {
          has_nan = has_nan || std::isnan(v[i]);
          if (std::isfinite(v[i])) largest = std::max(largest, std::abs(double{v[i]}));
        }
        // Where terms cancel, values are lost that double holds on the way and f32 does not.
        const bool is_composed = row.most < 3e38f;
        const Agreement agree{.tolerance = extreme_tolerance(row, dtype),
                              .scale = is_composed ? 1 + largest : 1,
                              .infinity_is_nan = is_composed && !has_nan};
        if (agree(a[k][i], b[k][i]) || agree(a[k][i], c[k][i])) continue;
        for (const std::vector<float>& v : values) of += fmt::format(" {}", v[i]);
        FAIL_CHECK(fmt::format("{} of{} in {}: {} {} is {}, cpu has {}", row.name, of, name(dtype),
                               what, k, a[k][i], b[k][i]));
        ++shown;
      }
  };
  compare(actual.outputs, kept.outputs, flush.outputs, "output");
  compare(actual.gradients, kept.gradients, flush.gradients, "gradient");
}

// Kernels that read and write 16 bits are those of f32 except for this: f16 has one element only,
// bf16 functions only.
void check_extremes(DType dtype) {
  if (!vulkan_device()) return;
  size_t number = 0;
  for (const OpCase& row : op_cases()) {
    ++number;
    try {
      if (row.elementwise)
        check_grid(row, dtype);
      else if (dtype != DType::bf16)
        check_specials(row, dtype, number);
    } catch (const Error& e) {
      FAIL_CHECK(row.name << ": " << std::string(e.what()));
    }
  }
}

}  // namespace

TEST_CASE("op extremes: vulkan has the classes of cpu in f32") {
  check_extremes(DType::f32);
}
TEST_CASE("op extremes: vulkan has the classes of cpu in f16") {
  check_extremes(DType::f16);
}
TEST_CASE("op extremes: vulkan has the classes of cpu in bf16") {
  check_extremes(DType::bf16);
}

namespace {

using Values = std::vector<float>;

std::vector<std::shared_ptr<Device>> extreme_devices() {
  return vulkan_device() ? std::vector{reference_device(), vulkan_device()}
                         : std::vector{reference_device()};
}

// Returns outputs and gradients of attention over 5 and 0 of 9 keys, with `beyond` in its key,
// value and mask from there on.
HostValues attend_beyond(int64_t dim, DType dtype, const AttentionOptions& options, float beyond) {
  manual_seed(3);
  const Shape q_shape = {2, 4, 6, dim}, kv_shape = {2, 2, 9, dim}, mask_shape = {2, 1, 6, 9};
  const std::vector<int32_t> lengths = {5, 0};
  const auto padded = [&](const Shape& shape, int key_axis) {
    std::vector<float> values = randn(shape).to_vector();
    const auto inner = static_cast<size_t>(key_axis == 2 ? dim : 1);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto batch = i / (values.size() / 2);
      if (static_cast<int32_t>(i / inner % 9) >= lengths[batch]) values[i] = beyond;
    }
    return values;
  };
  Tensors leaves = {cast(randn(q_shape), dtype), host_tensor(padded(kv_shape, 2), kv_shape, dtype),
                    host_tensor(padded(kv_shape, 2), kv_shape, dtype)};
  if (!options.alibi) leaves.push_back(host_tensor(padded(mask_shape, 3), mask_shape, DType::f32));
  for (Tensor& t : leaves) t = t.detach().set_requires_grad();
  const Tensor y = attention(leaves[0], leaves[1], leaves[2], options,
                             options.alibi ? Tensor() : leaves[3], tensor(lengths, {2}));
  HostValues all = {y.to_vector()};
  sum(cast(y, DType::f32) * randn(y.shape())).backward();
  for (const Tensor& t : leaves) all.push_back(t.grad().to_vector());
  return all;
}

}  // namespace

TEST_CASE("op extremes: attention does not see what keys beyond the lengths hold") {
  for (const auto& device : extreme_devices()) {
    set_default_device(device);
    CAPTURE(device->str());
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const int64_t dim : {8, 72})
        for (const bool alibi : {false, true}) {
          CAPTURE(dim);
          CAPTURE(alibi);
          AttentionOptions options = {.causal = dim == 72, .dropout = dim == 8 ? 0.3f : 0};
          if (alibi) options.alibi = full({4}, 0.1f);
          const HostValues expected = attend_beyond(dim, dtype, options, 0);
          for (const Values& values : expected)
            for (const float v : values) REQUIRE(std::isfinite(v));
          for (const float beyond : {NAN, infinity, -infinity})
            CHECK(attend_beyond(dim, dtype, options, beyond) == expected);
        }
  }
}

TEST_CASE("op extremes: reductions of nothing") {
  for (const auto& device : extreme_devices()) {
    set_default_device(device);
    CAPTURE(device->str());
    for (const DType dtype : {DType::f32, DType::f16}) {
      const Tensor none = zeros({2, 0}, dtype);
      CHECK(sum(none, {1}).to_vector() == Values{0, 0});
      CHECK(prod(none).item() == 1);
      CHECK(max(none, {1}).to_vector() == Values{-infinity, -infinity});
      CHECK(min(none).item() == infinity);
      CHECK(logsumexp(none).item() == -infinity);
      for (const Tensor& y :
           {mean(none), mean(none, {1}, true), var(none, {1}), var(none, {}, true)})
        for (const float v : y.to_vector()) CHECK(std::isnan(v));
      CHECK(mean(none, {0}).numel() == 0);
      CHECK(any(none).item() == 0);
      CHECK(all(none).item() == 1);
      CHECK(all(none, {1}, true).to_vector() == Values{1, 1});
    }
    const Tensor none = zeros({0}, DType::i32);
    CHECK(max(none).to_ints() == std::vector<int32_t>{std::numeric_limits<int32_t>::min()});
    CHECK(min(none).to_ints() == std::vector<int32_t>{std::numeric_limits<int32_t>::max()});
    CHECK(all(zeros({0}, DType::u8)).item() == 1);
    Tensor x = zeros({0, 3}).set_requires_grad();
    mean(x).backward();
    CHECK(x.grad().numel() == 0);
  }
}

TEST_CASE("op extremes: numbers of host data and fills become integers as in a cast") {
  const Values values = {NAN,  infinity, -infinity, 3e9f, -3e9f,
                         2.9f, -2.9f,    300,       -1,   2147483520.0f};
  const Shape shape = {static_cast<int64_t>(values.size())};
  for (const auto& device : extreme_devices()) {
    set_default_device(device);
    CAPTURE(device->str());
    for (const DType dtype : {DType::i32, DType::u8}) {
      const std::vector<int32_t> expected = cast(tensor(values, shape), dtype).to_ints();
      CHECK(tensor(values, shape, dtype).to_ints() == expected);
      for (size_t i = 0; i < values.size(); ++i)
        CHECK(full({1}, values[i], dtype).to_ints()[0] == expected[i]);
      if (dtype == DType::i32)
        CHECK(expected == std::vector<int32_t>{0, 2147483647, -2147483647 - 1, 2147483647,
                                               -2147483647 - 1, 2, -2, 300, -1, 2147483520});
    }
  }
}

TEST_CASE("op extremes: a gate has the shape of what it opens" * doctest::test_suite("host")) {
  set_default_device(reference_device());
  for (Tensor (*const gated)(Tensor, Tensor) : {swiglu, geglu}) {
    CHECK_THROWS_AS(gated(ones({2, 3}), ones({3})), ShapeError);
    CHECK_THROWS_AS(gated(zeros({2}, DType::i32), ones({2})), DTypeError);
    CHECK(gated(zeros({2, 0}), zeros({2, 0})).numel() == 0);
  }
}

TEST_CASE("op extremes: options that are no numbers are refused" * doctest::test_suite("host")) {
  set_default_device(reference_device());
  const Tensor x = ones({2, 3, 4}), one = ones({4});
  for (const float eps : {NAN, infinity, -1.0f}) {
    CHECK_THROWS_AS(layer_norm(x, {}, {}, eps), ValueError);
    CHECK_THROWS_AS(rms_norm(x, {}, eps), ValueError);
    CHECK_THROWS_AS(group_norm(x, 2, {}, {}, eps), ValueError);
    CHECK_THROWS_AS(instance_norm(x, {}, {}, eps), ValueError);
    CHECK_THROWS_AS(batch_norm(x, one, one, eps), ValueError);
    CHECK_THROWS_AS(batch_norm_with(x, one, one, one, one, eps), ValueError);
    CHECK_THROWS_AS(normalize(x, 2, 1, eps), ValueError);
    CHECK_THROWS_AS(cosine_similarity(x, x, 1, eps), ValueError);
    CHECK_THROWS_AS(update_running({one, one, eps}, batch_statistics(x)), ValueError);
  }
  CHECK_THROWS_AS(update_running({one, one, 1.5f}, batch_statistics(x)), ValueError);
  CHECK(one.to_vector() == Values(4, 1));
  const Tensor q = ones({1, 1, 2, 8});
  for (const float scale : {NAN, infinity})
    CHECK_THROWS_AS(attention(q, q, q, {.scale = scale}), ValueError);
  // As in PyTorch, the upper bound wins, and a bound of NaN gives NaN.
  CHECK(clamp(tensor({-5, 0, 5}, {3}), 2, -2).to_vector() == Values{-2, -2, -2});
  CHECK(clamp(tensor({-5, 0, 5}, {3}, DType::i32), 2, -2).to_vector() == Values{-2, -2, -2});
  for (const float v : clamp(one, NAN, 1).to_vector()) CHECK(std::isnan(v));
}

}  // namespace rw::test
