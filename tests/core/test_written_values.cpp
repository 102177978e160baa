// Programs that write into values which the tape has recorded: straight-through estimators, caches
// that are filled part by part, modules that change their input. Every form of recomputation gives
// the plain run's bits, or its error.
#include "core/autograd/gradients.h"
#include "core/tensor/primitives.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "planner/auto_recompute.h"
#include "tests/fixtures/tape_fixture.h"

namespace rw::test {

namespace {

using Mode = AutoRecomputeOptions::Mode;

Tensor numbers(std::initializer_list<float> values) {
  return tensor(values, {static_cast<int64_t>(values.size())});
}

struct WrittenLeaves {
  Tensor x = numbers({1, 2, 3}).set_requires_grad(), w = numbers({10, 20, 30}).set_requires_grad();
};

// Returns the loss; `segments` says whether the program marks segments.
using WritingProgram = std::function<Tensor(const WrittenLeaves&, bool segments)>;

// The program's gradients of x and w, from the third of three passes.
std::vector<float> gradients(const WritingProgram& program, bool segments) {
  const WrittenLeaves leaves;
  for (int pass = 0; pass < 3; ++pass) {
    leaves.x.impl().grad = leaves.w.impl().grad = {};
    program(leaves, segments).backward();
  }
  std::vector<float> all;
  for (const Tensor& leaf : {leaves.x, leaves.w})
    for (const float g : leaf.grad() ? leaf.grad().to_vector() : std::vector<float>())
      all.push_back(g);
  return all;
}

// Runs it under plans and budgets that know nothing of it.
template <class F>
void each_recomputation(F&& run) {
  for (const Mode mode : {Mode::memory, Mode::speed, Mode::budget, Mode::evict}) {
    CAPTURE(static_cast<int>(mode));
    const AutoRecompute recompute({.mode = mode, .budget = 64 * MiB});
    run();
  }
}

void check_program(const WritingProgram& program, const std::vector<float>& expected) {
  CHECK(gradients(program, false) == expected);
  CHECK(gradients(program, true) == expected);
  const WritingProgram nested = [&](const WrittenLeaves& leaves, bool segments) {
    const CheckpointScope scope;
    const Tensor doubled = leaves.x * 1.0f;
    return program({doubled, leaves.w}, segments);
  };
  CHECK(gradients(nested, true) == expected);
  each_recomputation([&] { CHECK(gradients(program, false) == expected); });
}

// sum(t * w) of a t = 2x into which `write` has written.
void check_write(const std::function<void(Tensor)>& write, const std::vector<float>& expected) {
  check_program(
      [&](const WrittenLeaves& leaves, bool segments) {
        const CheckpointScope scope(segments);
        const Tensor t = leaves.x * 2.0f;
        write(t);
        return sum(t * leaves.w);
      },
      expected);
}

void check_refused(const WritingProgram& program) {
  for (const bool segments : {false, true}) {
    const WrittenLeaves leaves;
    CHECK_THROWS_WITH_AS(program(leaves, segments).backward(), doctest::Contains("written to"),
                         AutogradError);
  }
  each_recomputation([&] {
    const WrittenLeaves leaves;
    CHECK_THROWS_AS(program(leaves, false).backward(), AutogradError);
  });
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice, "written values: whoever writes" * doctest::test_suite("host")) {
  check_write([](Tensor t) { t.copy_(numbers({7, 8, 9})); }, {20, 40, 60, 7, 8, 9});
  check_write([](Tensor t) { t.detach().copy_(numbers({7, 8, 9})); }, {20, 40, 60, 7, 8, 9});
  check_write([](Tensor t) { t.copy_(round(t.detach() * 0.3f)); }, {20, 40, 60, 1, 1, 2});
  check_write([](Tensor t) { t.copy_from(std::vector<float>{7, 8, 9}); }, {20, 40, 60, 7, 8, 9});
  check_write([](Tensor t) { fill_(t, 5); }, {20, 40, 60, 5, 5, 5});
  check_write([](Tensor t) { init::constant_(t.detach(), 5); }, {20, 40, 60, 5, 5, 5});
  check_write([](Tensor t) { fill_(slice(t, 0, 1, 2), 5); }, {20, 40, 60, 2, 5, 6});
  check_write(
      [](Tensor t) {
        const float x = 3;
        write_elements(t, 1, 1, &x);
      },
      {20, 40, 60, 2, 3, 6});
  check_write(
      [](Tensor t) {
        for (int i = 0; i < 3; ++i) t[{Slice{i, i + 1}}].copy_(full({1}, static_cast<float>(i)));
      },
      {20, 40, 60, 0, 1, 2});
}

TEST_CASE_FIXTURE(CpuDevice,
                  "written values: read before and after" * doctest::test_suite("host")) {
  check_program(  // relu saves what it has made, so that nobody misses what is overwritten
      [](const WrittenLeaves& leaves, bool segments) {
        const CheckpointScope scope(segments);
        const Tensor t = leaves.x * 0.0f, u = relu(t);
        fill_(t, 5);
        return sum(u * leaves.w + t * leaves.w);
      },
      {0, 0, 0, 5, 5, 5});
  check_program(  // a cache from outside
      [](const WrittenLeaves& leaves, bool segments) {
        Tensor cache = zeros({3});
        const CheckpointScope scope(segments);
        for (int i = 0; i < 3; ++i) {
          Tensor place = cache[{Slice{i, i + 1}}];
          place.copy_(leaves.x.detach()[{Slice{i, i + 1}}] * 2.0f);
        }
        return sum(cache * leaves.w) + sum(leaves.x);
      },
      {1, 1, 1, 2, 4, 6});
  check_program(  // one segment makes a value, and another one reads it after a write
      [](const WrittenLeaves& leaves, bool segments) {
        Tensor t;
        {
          const CheckpointScope scope(segments);
          t = leaves.x * 2.0f;
        }
        fill_(t, 5);
        const CheckpointScope scope(segments);
        return sum(t * leaves.w);
      },
      {20, 40, 60, 5, 5, 5});
}

TEST_CASE_FIXTURE(CpuDevice, "written values: a gradient that would read another value is refused" *
                                 doctest::test_suite("host")) {
  check_refused([](const WrittenLeaves& leaves, bool segments) {
    const CheckpointScope scope(segments);
    const Tensor t = leaves.x * 2.0f, u = t * leaves.w;
    fill_(t, 5);
    return sum(u);
  });
  check_refused([](const WrittenLeaves& leaves, bool segments) {
    Tensor t, u;
    {
      const CheckpointScope scope(segments);
      t = leaves.x * 2.0f;
      u = t * t;
    }
    fill_(t, 5);
    const CheckpointScope scope(segments);
    return sum(u * leaves.w + t * leaves.w);
  });
}

TEST_CASE_FIXTURE(CpuDevice,
                  "written values: retained for a second backward" * doctest::test_suite("host")) {
  const WrittenLeaves leaves;
  Tensor y;
  {
    const CheckpointScope scope;
    const Tensor t = leaves.x * 2.0f;
    fill_(t, 5);
    y = sum(t * leaves.w);
  }
  y.backward({}, true);
  y.backward();
  CHECK(leaves.w.grad().to_vector() == std::vector<float>{10, 10, 10});
}

TEST_CASE_FIXTURE(CpuDevice, "written values: an op takes the memory of a value that was read" *
                                 doctest::test_suite("host")) {
  // The product's gradient reads t, whose memory relu takes over inside the segment: that the
  // program writes there afterwards does not concern t.
  check_program(
      [](const WrittenLeaves& leaves, bool segments) {
        const CheckpointScope scope(segments);
        Tensor t = leaves.x * 2.0f;
        const Tensor product = t * leaves.w, u = relu(std::move(t));
        fill_(u, 5);
        return sum(product) + sum(u.detach() * leaves.w);
      },
      {20, 40, 60, 7, 9, 11});
}

TEST_CASE_FIXTURE(CpuDevice, "segments: gradients inside of one" * doctest::test_suite("host")) {
  for (const bool segments : {false, true}) {
    const WrittenLeaves leaves;
    const CheckpointScope outer(segments);
    const Tensor h = leaves.x * leaves.w;
    Tensor slope;
    {
      const CheckpointScope inner(segments);
      const Tensor y = leaves.x * leaves.x * leaves.w;
      slope = grad({sum(y)}, {leaves.x})[0];
    }
    CHECK(slope.to_vector() == std::vector<float>{20, 80, 180});
    sum(tanh(h) * 0.0f + h * slope.detach()).backward();
    CHECK(leaves.x.grad().to_vector() == std::vector<float>{200, 1600, 5400});
    CHECK(leaves.w.grad().to_vector() == std::vector<float>{20, 160, 540});
  }
}

TEST_CASE_FIXTURE(CpuDevice, "segments: an embedding of bounded norm that is looked up twice" *
                                 doctest::test_suite("host")) {
  const auto run = [](bool segments) {
    manual_seed(3);
    Embedding table(4, 3, {.max_norm = 1.0f});
    const CheckpointScope scope(segments);
    const Tensor a = table.forward(tensor(std::vector<int32_t>{0, 1}, {2}));
    const Tensor b = table.forward(tensor(std::vector<int32_t>{1, 2}, {2}));
    sum(square(a) * 3.0f + tanh(b)).backward();
    return table.weight.grad().to_vector();
  };
  CHECK(run(true) == run(false));
}

}  // namespace rw::test
