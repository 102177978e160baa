// Every op of the table without rows, columns or batches, and of whole numbers: the same values on
// all devices, or a sentence of the op itself.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "backends/open.h"
#include "core/memory/default_device.h"
#include "nn/weight_norm.h"
#include "ops/layout/indexing.h"
#include "ops/losses/losses.h"
#include "ops/numeric.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

const std::vector<std::string> all_backends = {"reference", "cpu", "vulkan"};

// A row gives values, or the message of an error.
struct OddResult {
  Evaluated values;
  std::string error;
};

class OddInputs {
 public:
  OddInputs() {
    for (const std::string& name : all_backends) try {
        devices_.push_back(Device::create(open_backend(name)));
      } catch (const DeviceError& e) {
        MESSAGE("skipped: " << std::string(e.what()));
      }
  }

  // `how` says what is odd.
  void check(const OpCase& row, const std::string& how) const {
    CAPTURE(row.name);
    CAPTURE(how);
    const OddResult expected = on(devices_[0], row);
    // The message names the op that was called.
    const std::string op = expected.error.substr(0, expected.error.find(']'));
    if (!op.empty() && op != "[pad" && !calls_several(row) && !row.name.starts_with(op.substr(1)))
      FAIL_CHECK(row.name << ", " << how << ": " << expected.error);
    for (size_t i = 1; i < devices_.size(); ++i) {
      const OddResult actual = on(devices_[i], row);
      CHECK_MESSAGE(actual.error == expected.error,
                    row.name << ", " << how << " on " << devices_[i]->str());
      const std::string what = fmt::format("{}, {} on {}", row.name, how, devices_[i]->str());
      compare(actual.values.outputs, expected.values.outputs, what);
      compare(actual.values.gradients, expected.values.gradients, what);
    }
  }

 private:
  // Rows that call ops which are not in their names.
  static bool calls_several(const OpCase& row) {
    for (const char* name : {"autocast", "promotion", "unary of", "view of", "index by", "isnan",
                             "isinf", "isfinite", "nan_to_num", "ctc_loss", "rnnt_joint_loss",
                             "quantize", "attention of a packed", "interpolate of one element"})
      if (row.name.starts_with(name)) return true;
    return false;
  }

  static OddResult on(const std::shared_ptr<Device>& device, const OpCase& row) {
    const DeviceScope scope(device);
    try {
      return {evaluate(make_inputs(row), row.run), ""};
    } catch (const Error& e) {
      Tape::current()->clear();
      return {{}, e.what()};
    }
  }

  static void compare(const HostValues& a, const HostValues& b, const std::string& what) {
    for (size_t k = 0; k < std::min(a.size(), b.size()); ++k) {
      REQUIRE_MESSAGE(a[k].size() == b[k].size(), what);
      for (size_t i = 0; i < a[k].size(); ++i) {
        const bool is_same = std::isfinite(b[k][i])
                                 ? std::abs(a[k][i] - b[k][i]) <= 1e-4 * (1 + std::abs(b[k][i]))
                                 : !std::isfinite(a[k][i]);
        if (!is_same)
          FAIL_CHECK(what << ": value " << i << " is " << a[k][i] << ", not " << b[k][i]);
      }
    }
  }

  std::vector<std::shared_ptr<Device>> devices_;
};

}  // namespace

TEST_CASE("odd inputs: ranges of whole numbers between any bounds, by any step") {
  const DeviceScope scope(Device::create(open_backend("cpu")));
  using Ints = std::vector<int32_t>;
  CHECK(arange(2, 5).to_ints() == Ints{2, 3, 4});
  CHECK(arange(-3, 3, 4).to_ints() == Ints{-3, 1});
  CHECK(arange(-5, -2).to_ints() == Ints{-5, -4, -3});
  CHECK(arange(5, -1, -2).to_ints() == Ints{5, 3, 1});
  CHECK(arange(4, 8, 4).to_ints() == Ints{4});
  CHECK(arange(4, 8, 100).to_ints() == Ints{4});
}

TEST_CASE("odd inputs: an identity of any number of columns") {
  const DeviceScope scope(Device::create(open_backend("cpu")));
  CHECK(eye(2).shape() == Shape{2, 2});
  CHECK(eye(2, 0).shape() == Shape{2, 0});
  CHECK(eye(0, 2).shape() == Shape{0, 2});
  CHECK(eye(2, 1).to_vector() == std::vector<float>{1, 0});
}

TEST_CASE("odd inputs: sizes of 0") {
  const OddInputs odd;
  for (const OpCase& row : op_cases()) {
    std::set<int64_t> sizes;
    for (const Input& input : row.inputs) sizes.insert(input.shape.begin(), input.shape.end());
    for (const int64_t size : sizes) {
      if (size == 0) continue;
      OpCase empty = row;
      for (Input& input : empty.inputs)
        for (int axis = 0; axis < input.shape.rank(); ++axis)
          if (input.shape[axis] == size) input.shape[axis] = 0;
      odd.check(empty, fmt::format("{} as 0", size));
    }
  }
}

TEST_CASE("odd inputs: whole numbers") {
  const OddInputs odd;
  for (const OpCase& row : op_cases())
    for (const DType dtype : {DType::u8, DType::i32}) {
      OpCase whole = row;
      bool differs = false;
      for (Input& input : whole.inputs) {
        if (!is_float(input.dtype)) continue;
        differs = true;
        input.dtype = dtype;
        input.differentiable = false;
        if (dtype == DType::u8) input.low = std::max(input.low, 0.0f);
      }
      if (differs) odd.check(whole, fmt::format("of {}", name(dtype)));
    }
}

TEST_CASE("odd inputs: lengths of values whose squares overflow or vanish" *
          doctest::test_suite("host")) {
  const DeviceScope scope(Device::create(open_backend("cpu")));
  for (const float size : {1e20f, 1e-25f}) {
    Tensor x = tensor({3 * size, -4 * size}, {2}).set_requires_grad();
    const Tensor y = norm(x), cube = norm(x, 3), inverse = norm(x, -2);
    CHECK(y.item() == doctest::Approx(5 * size));
    CHECK(cube.item() == doctest::Approx(std::cbrt(91.0) * size));
    CHECK(inverse.item() == doctest::Approx(2.4 * size));
    y.backward();
    CHECK(x.grad().to_vector()[1] == doctest::Approx(-0.8));
    CHECK(cosine_similarity(x, x, 0, 0).item() == doctest::Approx(1));
    const Tensor row = reshape(x.detach(), {1, 2}), far = zeros({1, 2});
    CHECK(weight_norm(row, ones({1})).to_vector()[1] == doctest::Approx(-0.8));
    if (size > 1) CHECK(triplet_margin_loss(row, far, row).item() == doctest::Approx(5 * size));
  }
}

TEST_CASE("odd inputs: nothing gets no gradient" * doctest::test_suite("host")) {
  const DeviceScope scope(Device::create(open_backend("cpu")));
  constexpr float none = -std::numeric_limits<float>::infinity();
  Tensor x = tensor({none, none, 0, 1, none, 2}, {6}).set_requires_grad();
  logcumsumexp(x, 0).backward(ones({6}));
  const std::vector<float> of_scan = x.grad().to_vector();
  for (const size_t i : {0, 1, 4}) CHECK(of_scan[i] == 0);
  CHECK(of_scan[5] == doctest::Approx(std::exp(2) / (1 + std::exp(1) + std::exp(2))));
  Tensor a = tensor({none, 0, 1}, {3}).set_requires_grad(),
         b = tensor({none, none, 1}, {3}).set_requires_grad();
  logaddexp(logaddexp(a, b), full({3}, 2)).backward(ones({3}));
  CHECK(a.grad().to_vector()[0] == 0);
  CHECK(b.grad().to_vector()[0] == 0);
  CHECK(b.grad().to_vector()[1] == 0);
  CHECK(a.grad().to_vector()[2] == b.grad().to_vector()[2]);
  Tensor zero = tensor({0, 2}, {2}).set_requires_grad();
  sum(pow(zero, 0.0f)).backward();
  CHECK(zero.grad().to_vector() == std::vector<float>{0, 0});
}

// Rows times 1e20, and rows that differ little from a large mean, as double has them.
TEST_CASE("odd inputs: norms of huge values and of large means") {
  on_each_device(
      [] {
        const Tensor weight = ones({16}), bias = zeros({16});
        const std::function<Tensor(Tensor)> norms[] = {
            [](Tensor x) { return layer_norm(std::move(x)); },
            [](Tensor x) { return rms_norm(std::move(x)); },
            [](Tensor x) { return group_norm(std::move(x), 1); },
            [&](Tensor x) { return batch_norm(std::move(x), weight, bias).y; }};
        for (size_t which = 0; which < 4; ++which) {
          CAPTURE(which);
          const auto run = [&](float factor) {
            std::vector<float> values = input_values(Input{{24, 16}, -2, 2}, 3);
            for (float& v : values) v *= factor;
            Tensor x = tensor(values, {24, 16}).set_requires_grad();
            const Tensor y = norms[which](x);
            sum(y * tensor(input_values(Input{{24, 16}}, 5), {24, 16})).backward();
            std::vector<float> all = y.to_vector();
            for (const float g : x.grad().to_vector()) all.push_back(g * factor);
            return all;
          };
          const std::vector<float> usual = run(1000), huge = run(1e20f);
          for (size_t i = 0; i < usual.size(); ++i)
            CHECK(huge[i] == doctest::Approx(usual[i]).epsilon(1e-4).scale(1));
        }
        for (size_t which : {0, 2}) {
          CAPTURE(which);
          std::vector<float> values(64), steps(64);
          for (size_t i = 0; i < 64; ++i) {
            steps[i] = static_cast<float>(i * i % 61) * 0x1p-10f;  // that f32 holds beside 8192
            values[i] = 8192 + steps[i];
          }
          const auto run = [&](const std::vector<float>& of) {
            Tensor x = tensor(of, {1, 64}).set_requires_grad();
            const Tensor y = norms[which](x);
            sum(y * tensor(input_values(Input{{1, 64}}, 5), {1, 64})).backward();
            std::vector<float> all = y.to_vector();
            for (const float g : x.grad().to_vector()) all.push_back(g);
            return all;
          };
          const std::vector<float> expected = run(steps), actual = run(values);
          for (size_t i = 0; i < 128; ++i)
            CHECK(actual[i] == doctest::Approx(expected[i]).epsilon(1e-4).scale(1));
        }
      },
      all_backends);
}

// Channels of batch norm that differ little from a large mean are those without the mean.
TEST_CASE("odd inputs: batch norm of large means") {
  on_each_device(
      [] {
        for (const int64_t channels : {1, 5, 16}) {
          CAPTURE(channels);
          const Shape shape{1000, channels};
          const auto count = static_cast<size_t>(shape.numel());
          const Tensor weight = tensor(input_values(Input{{channels}, 1, 2}, 1), {channels}),
                       bias = zeros({channels});
          const auto run = [&](float mean) {
            std::vector<float> values(count);
            for (size_t i = 0; i < count; ++i)  // with steps that f32 holds beside the mean
              values[i] = mean + static_cast<float>(i * i % 331) * 0x1p-10f;
            Tensor x = tensor(values, shape).set_requires_grad(), w = weight.detach();
            w.set_requires_grad();
            const BatchNormResult r = batch_norm(x, w, bias, 0);
            sum(r.y * tensor(input_values(Input{shape}, 5), shape)).backward();
            std::vector<float> all = r.y.to_vector();
            for (const Tensor& t : {x.grad(), w.grad() / 1000.0f, r.var})
              for (const float v : t.to_vector()) all.push_back(v);
            return all;
          };
          const std::vector<float> expected = run(0), actual = run(-10000);
          double most = 0;
          for (size_t i = 0; i < expected.size(); ++i)
            most = std::max(most, std::abs(double{actual[i]} - expected[i]));
          CHECK(most < 2e-5);
        }
      },
      all_backends);
}

TEST_CASE("odd inputs: sizes that a product does not have" * doctest::test_suite("host")) {
  const DeviceScope scope(Device::create(open_backend("cpu")));
  CHECK(linear(zeros({2, 0}), zeros({3, 0})).to_vector() == std::vector<float>(6));
  CHECK(argmax(tensor({0.1f, 0.9f, 0.3f}, {3}) > 0.5f).to_ints() == std::vector<int32_t>{1});
}

}  // namespace rw::test
