// The tape: the contents of records, the end of storage, gradients of odd graphs, errors.
#include <cmath>
#include <thread>

#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

constexpr int64_t leaf_size = 256;
constexpr uint64_t leaf_bytes = leaf_size * 4;

// Computes dy -> -dy and hands out its input: the shortest op that a user may write.
const Op reversal = {
    .name = "reversal",
    .forward = [](const std::any&, std::span<Tensor> in) { return std::vector<Tensor>{in[0]}; },
    .vjp = [](Record&, std::span<Tensor> dy) { return std::vector<Tensor>{neg(dy[0])}; }};

std::vector<Tensor> cube_forward(const std::any& attrs, std::span<Tensor> in) {
  return {in[0] * in[0] * in[0] * std::any_cast<float>(attrs)};
}
std::vector<Tensor> cube_vjp(Record& r, std::span<Tensor> dy) {
  return {dy[0] * square(r.input(0)) * (3 * r.attributes<float>())};
}
const Op cube = {.name = "cube",
                 .forward = cube_forward,
                 .vjp = cube_vjp,
                 .saves = [](const std::any&, uint32_t) {
                   return Saves{1, 0};
                 }};
const Op forgetful_cube = {.name = "forgetful", .forward = cube_forward, .vjp = cube_vjp};

}  // namespace

TEST_CASE_FIXTURE(CpuDevice, "tape: records hold what their vjp reads, once, and nothing else" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(leaf_size), constant = ones({leaf_size});
  const auto saved = [&](const Tensor&) { return tape().stats().saved_bytes; };
  CHECK(saved(x + constant) == 0);
  CHECK(saved(reshape(x * 2.0f, {16, 16})) == 0);
  CHECK(saved(sum(x + 1.0f)) == 0);
  CHECK(saved(exp(x)) == leaf_bytes);        // its output
  CHECK(saved(square(x)) == leaf_bytes);     // its input, the leaf itself
  CHECK(saved(x * constant) == leaf_bytes);  // the other factor
  CHECK(saved(x * x) == leaf_bytes);         // both inputs have one storage
  CHECK(saved(relu(exp(x))) == 2 * leaf_bytes);
  CHECK(saved(square(exp(x))) == leaf_bytes);  // exp's output is square's input
  CHECK(saved(matmul(reshape(x, {16, 16}), reshape(constant, {16, 16}))) == leaf_bytes);
  CHECK(tape().stats().saved_tensors == 0);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "tape: backward frees storage as it goes" * doctest::test_suite("host")) {
  const Tensor x = leaf(leaf_size);
  Tensor y = x + 0.0f;
  for (int i = 0; i < 20; ++i) y = tanh(y);
  y = sum(y);
  const uint64_t before = live();
  CHECK(before >= 20 * leaf_bytes);
  device->reset_peak();
  y.backward();
  CHECK(device->memory_report().peak <= before + 4 * leaf_bytes);
  y = {};
  CHECK(live() == 2 * leaf_bytes);  // x and its gradient
}

TEST_CASE_FIXTURE(CpuDevice, "tape: a record's saved values go before the next vjp runs" *
                                 doctest::test_suite("host")) {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 20; ++i) leaves.push_back(leaf(leaf_size));
  Tensor y = zeros({leaf_size});
  for (const Tensor& x : leaves) y = tanh(std::move(y) + x);
  const Tensor loss = sum(std::move(y));
  const uint64_t before = live();
  device->reset_peak();
  loss.backward();  // leaves' gradients take the place of saved values
  CHECK(device->memory_report().peak <= before + 4 * leaf_bytes);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "tape: a record costs what its own kernels do" * doctest::test_suite("host")) {
  const Tensor x = reshape(leaf(leaf_size), {16, 16});
  const Tensor first = matmul(x, x), second = matmul(x, x);
  const auto cost = [](const Tensor& y) { return tape().find(y.impl().producer.index)->cost; };
  CHECK(cost(first).flops == 2 * 16 * 16 * 16);
  CHECK(cost(second).flops == cost(first).flops);
  CHECK(cost(second).bytes == cost(first).bytes);
}

TEST_CASE_FIXTURE(CpuDevice,
                  "tape: integer outputs want no gradient" * doctest::test_suite("host")) {
  const Op counted = {
      .name = "counted",
      .forward =
          [](const std::any&, std::span<Tensor> in) {
            return std::vector<Tensor>{exp(in[0]), arange(3)};
          },
      .vjp = [](Record&, std::span<Tensor> dy) { return std::vector<Tensor>{dy[0]}; }};
  const std::vector<Tensor> outputs = apply(counted, {}, {leaf(8)});
  CHECK(outputs[0].requires_grad());
  CHECK_FALSE(outputs[1].requires_grad());
}

TEST_CASE_FIXTURE(CpuDevice, "tape: what no handle can reach is freed, during the forward too" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(leaf_size);
  for (int i = 0; i < 1000; ++i) {
    const Tensor y = sum(square(exp(x)) * x);
    REQUIRE(tape().stats().records < 8);
  }
  CHECK(live() == leaf_bytes);
  Tensor kept = exp(x);
  { const Tensor side = square(tanh(kept)); }
  CHECK(tape().stats().records == 1);
  CHECK(live() == 2 * leaf_bytes);
  const Tensor loss = sum(kept);
  kept = {};
  loss.backward();
  for (size_t i = 0; const float g : x.grad().to_vector())
    REQUIRE(g == doctest::Approx(std::exp(x.to_vector()[i++])));
}

TEST_CASE_FIXTURE(CpuDevice, "tape: a value read twice gets the sum of its gradients" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(5);
  const Tensor y = exp(x);
  sum(y * y + expand(reshape(y, {1, 5}), {3, 5}) * 2.0f).backward();
  const auto values = x.to_vector(), gradient = x.grad().to_vector();
  for (size_t i = 0; i < values.size(); ++i)  // 3 rows of y^2 + 2 y
    CHECK(gradient[i] == doctest::Approx(6 * std::exp(2 * values[i]) + 6 * std::exp(values[i])));
}

TEST_CASE_FIXTURE(CpuDevice, "tape: disjoint graphs do not disturb each other, in either order" *
                                 doctest::test_suite("host")) {
  for (const bool first_first : {true, false}) {
    const Tensor a = leaf(8), b = leaf(8);
    const Tensor la = sum(square(a)), lb = sum(exp(b)), la2 = sum(a * 3.0f);
    (first_first ? la : lb).backward();
    (first_first ? lb : la).backward();
    la2.backward();
    for (size_t i = 0; i < 8; ++i) {
      CHECK(a.grad().to_vector()[i] == doctest::Approx(2 * a.to_vector()[i] + 3));
      CHECK(b.grad().to_vector()[i] == doctest::Approx(std::exp(b.to_vector()[i])));
    }
  }
}

TEST_CASE_FIXTURE(CpuDevice, "tape: gradients accumulate; retain allows a second backward" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(8);
  const Tensor loss = sum(square(x));
  loss.backward({}, true);
  const std::vector<float> once = x.grad().to_vector();
  loss.backward();
  sum(square(x)).backward();
  for (size_t i = 0; i < 8; ++i) CHECK(x.grad().to_vector()[i] == 3 * once[i]);
  CHECK(contains(message_of<AutogradError>([&] { loss.backward(); }), "retain = true"));
  CHECK(std::isfinite(loss.item()));  // the value stays

  // A product may take its inputs out of its record, but not if they are read again.
  Tensor left = full({4, 4}, 0.5f), right = full({4, 4}, 0.25f);
  left.set_requires_grad();
  right.set_requires_grad();
  const Tensor product = sum(matmul(exp(left), exp(right)));
  product.backward({}, true);
  const std::vector<float> of_left = left.grad().to_vector(), of_right = right.grad().to_vector();
  product.backward();
  for (size_t i = 0; i < 16; ++i) {
    CHECK(left.grad().to_vector()[i] == 2 * of_left[i]);
    CHECK(right.grad().to_vector()[i] == 2 * of_right[i]);
  }
}

TEST_CASE_FIXTURE(CpuDevice, "tape: a second backward through a freed part is an error" *
                                 doctest::test_suite("host")) {
  const Tensor x = leaf(8);
  const Tensor trunk = exp(x);
  const Tensor a = sum(square(trunk)), b = sum(trunk * 2.0f);
  a.backward();
  CHECK(contains(message_of<AutogradError>([&] { b.backward(); }), "freed by an earlier backward"));
}

TEST_CASE_FIXTURE(CpuDevice, "tape: misuse says what to do" * doctest::test_suite("host")) {
  const Tensor x = leaf(8);
  const Tensor y = exp(x);
  CHECK(message_of<ShapeError>([&] { y.backward(); }) ==
        "[backward] needs a scalar, or a gradient of its shape, got f32 (8)");
  CHECK(contains(message_of<ShapeError>([&] { y.backward(ones({7})); }), "(7)"));
  CHECK(contains(message_of<AutogradError>([&] { ones({1}).backward(); }), "requires a gradient"));
  CHECK(contains(message_of<AutogradError>([&] { Tensor(y).set_requires_grad(); }), "detach()"));
  CHECK(contains(message_of<DTypeError>([&] { arange(3).set_requires_grad(); }), "i32"));
  y.backward(full({8}, 2));
  CHECK(x.grad().to_vector()[3] == doctest::Approx(2 * std::exp(x.to_vector()[3])));
}

TEST_CASE_FIXTURE(CpuDevice, "tape: a value that changed between forward and backward is named" *
                                 doctest::test_suite("host")) {
  Tensor w = leaf(8, "layer.weight");
  const Tensor loss = sum(w * exp(w));
  {
    const NoGrad guard;
    w.copy_(ones({8}));
  }
  const std::string message = message_of<AutogradError>([&] { loss.backward(); });
  CHECK(contains(message, "'layer.weight'"));
  CHECK(contains(message, "[mul]"));
  const Tensor unread = sum(w + 1.0f);  // add's vjp does not read it
  w.copy_(zeros({8}));
  unread.backward();
}

TEST_CASE_FIXTURE(CpuDevice,
                  "tape: tensors of two devices do not mix" * doctest::test_suite("host")) {
  const auto other = Device::create(open_backend("reference"));
  const Tensor a = ones({4}), b = full({4}, 1, DType::f32, other);
  CHECK(contains(message_of<DeviceError>([&] { a + b; }), "one device"));
}

TEST_CASE_FIXTURE(CpuDevice, "tape: ops write over inputs that nobody else needs, and only these" *
                                 doctest::test_suite("host")) {
  {
    const NoGrad guard;
    Tensor t = full({leaf_size}, -1);
    t = relu(std::move(t) * 2.0f);
    CHECK(device->memory_report().peak == leaf_bytes);
    const Tensor kept = t;
    t = std::move(t) + 1.0f;  // `kept` needs the old value
    CHECK(kept.to_vector()[0] == 0);
    CHECK(t.to_vector()[0] == 1);
  }
  const Tensor x = leaf(leaf_size);
  Tensor y = x + 1.0f;  // a leaf is never overwritten
  y = std::move(y) + 1.0f;
  CHECK(live() == 2 * leaf_bytes);
  y = exp(std::move(y));  // over y: its vjp reads its output
  CHECK(live() == 2 * leaf_bytes);
  y = std::move(y) * 2.0f;  // exp's output is saved
  CHECK(live() == 3 * leaf_bytes);
  const Tensor view = reshape(y, {16, 16});
  y = std::move(y) + 1.0f;  // the view reads the same storage
  CHECK(live() == 4 * leaf_bytes);
  sum(y + reshape(view, {leaf_size})).backward();
  for (size_t i = 0; i < 8; ++i)
    CHECK(x.grad().to_vector()[i] == doctest::Approx(4 * std::exp(x.to_vector()[i] + 2)));
}

TEST_CASE_FIXTURE(CpuDevice,
                  "tape: a user's op is like the built-in ones" * doctest::test_suite("host")) {
  const Tensor x = leaf(8);
  for (const bool segment : {false, true}) {
    Tensor loss;
    {
      const CheckpointScope scope(segment);
      loss = sum(apply1(cube, 2.0f, {x * 1.0f}));
    }
    Tensor(x).set_grad({});
    loss.backward();
    for (size_t i = 0; i < 8; ++i)
      CHECK(x.grad().to_vector()[i] == doctest::Approx(6 * x.to_vector()[i] * x.to_vector()[i]));
  }
  const Tensor bad = sum(apply1(forgetful_cube, 2.0f, {x * 1.0f}));
  CHECK(contains(message_of<AutogradError>([&] { bad.backward(); }), "declare it in saves"));
}

TEST_CASE_FIXTURE(CpuDevice,
                  "tape: a user's op may hand out its input" * doctest::test_suite("host")) {
  const Tensor x = leaf(8);
  for (const bool segment : {false, true}) {
    Tensor loss;
    {
      const CheckpointScope scope(segment);
      const Tensor y = exp(x);
      loss = sum(square(apply1(reversal, {}, {y})) + y * 3.0f);
    }
    Tensor(x).set_grad({});
    loss.backward();
    for (size_t i = 0; i < 8; ++i) {
      const float e = std::exp(x.to_vector()[i]);
      CHECK(x.grad().to_vector()[i] == doctest::Approx(-2 * e * e + 3 * e));
    }
  }
  const Tensor direct = sum(apply1(reversal, {}, {x}));
  CHECK(x.is_leaf());
  Tensor(x).set_grad({});
  direct.backward();
  CHECK(x.grad().to_vector()[0] == -1);
}

TEST_CASE_FIXTURE(CpuDevice, "tape: a vjp must give one gradient per input, of its shape" *
                                 doctest::test_suite("host")) {
  const Op few = {.name = "few", .forward = cube_forward, .vjp = [](Record&, std::span<Tensor>) {
                    return std::vector<Tensor>{};
                  }};
  const Op wrong = {
      .name = "wrong", .forward = cube_forward, .vjp = [](Record&, std::span<Tensor>) {
        return std::vector<Tensor>{ones({3})};
      }};
  const Tensor x = leaf(8);
  CHECK(contains(message_of<AutogradError>([&] { sum(apply1(few, 1.0f, {x})).backward(); }),
                 "one gradient per input"));
  CHECK(contains(message_of<AutogradError>([&] { sum(apply1(wrong, 1.0f, {x})).backward(); }),
                 "(3) and (8)"));
}

TEST_CASE_FIXTURE(CpuDevice, "tape: an op may have many inputs" * doctest::test_suite("host")) {
  const Tensor x = leaf(3);
  std::vector<Tensor> parts;
  for (int i = 0; i < 70; ++i) parts.push_back(x * static_cast<float>(i));
  sum(concat(parts, 0)).backward();
  CHECK(x.grad().to_vector() == std::vector<float>(3, 69 * 70 / 2));
}

TEST_CASE_FIXTURE(CpuDevice,
                  "tape: 40000 ops deep, without recursion" * doctest::test_suite("host")) {
  const Tensor x = leaf(4);
  for (const bool backward : {true, false}) {
    Tensor y = x + 0.0f;
    for (int i = 0; i < 40000; ++i) y = i % 2 ? sin(std::move(y)) : y + 0.001f;
    CHECK(tape().stats().records == 40001);
    if (backward) sum(y).backward();
  }
  CHECK(std::isfinite(x.grad().to_vector()[0]));
}

TEST_CASE_FIXTURE(CpuDevice,
                  "tape: exceptions leave tape and arena clean" * doctest::test_suite("host")) {
  struct Stop {};
  const Op bad_forward = {
      .name = "bad_forward",
      .forward = [](const std::any&, std::span<Tensor>) -> std::vector<Tensor> { throw Stop(); },
      .vjp = cube_vjp};
  const Op bad_vjp = {
      .name = "bad_vjp",
      .forward = cube_forward,
      .vjp = [](Record&, std::span<Tensor>) -> std::vector<Tensor> { throw Stop(); }};
  const Tensor x = leaf(leaf_size);
  for (const bool segment : {false, true}) {
    {
      const Tensor y = exp(x);
      CHECK_THROWS_AS(
          [&] {
            const CheckpointScope scope(segment);
            apply1(bad_forward, {}, {square(y)});
          }(),
          Stop);
      CHECK(tape().stats().records == 1);
    }
    CHECK(live() == leaf_bytes);
    {
      const Tensor loss = [&] {
        const CheckpointScope scope(segment);
        return sum(square(apply1(bad_vjp, 1.0f, {exp(x)})));
      }();
      CHECK_THROWS_AS(loss.backward(), Stop);
    }
    CHECK(live() == leaf_bytes);
    sum(x * 1.0f).backward();  // and everything works again
    CHECK(x.grad().to_vector()[0] == 1);
    Tensor(x).set_grad({});
  }
}

TEST_CASE_FIXTURE(CpuDevice, "tape: every thread has its own" * doctest::test_suite("host")) {
  const Tensor x = leaf(8);
  const Tensor y = exp(x);
  std::thread([&] {
    CHECK(tape().stats().records == 0);
    CHECK(contains(message_of<AutogradError>([&] { square(y); }), "thread"));
    CHECK(contains(message_of<AutogradError>([&] { y.backward(ones({8})); }), "thread"));
    sum(square(x)).backward();
  }).join();
  CHECK(x.grad().to_vector()[1] == 2 * x.to_vector()[1]);
}

}  // namespace rw::test
