// Kernels joined into chains: which calls join, and that the bits are those of single calls.
#include <cmath>

#include "backends/vulkan/commands/chain.h"
#include "core/autograd/checkpoint.h"
#include "core/memory/default_device.h"
#include "ops/operators.h"
#include "ops/ops.h"
#include "tests/fixtures/compare_kernels.h"
#include "tests/fixtures/element_bytes.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/kernel_runner.h"

namespace rw::test {

namespace {

using namespace kernels;

constexpr uint32_t unary_count = 0
#define UNARY(id, name, forward, grad, saves, lo, hi) +1
#include "shaders/elementwise.def"
    ;
constexpr uint32_t relu_row = 7, add_row = 0, mul_row = 2;

struct Twice {
  std::unique_ptr<KernelRunner> joins, apart;
};

// Returns the same device twice, or null if there is none.
Twice* both() {
  static Twice devices = [] {
    Twice two;
    if (is_brief()) return two;  // SwiftShader, on which nothing is joined
    try {
      two.joins = std::make_unique<KernelRunner>(open_backend("vulkan"));
      const Without apart("fusion");
      two.apart = std::make_unique<KernelRunner>(open_backend("vulkan"));
    } catch (const DeviceError&) {
      two = {};
    }
    return two;
  }();
  if (!devices.joins) MESSAGE("skipped: no Vulkan driver that joins kernels");
  return devices.joins ? &devices : nullptr;
}

Binding as(Binding b, Access access) {
  b.access = access;
  return b;
}

// Elementwise calls on y, one after the other.
class Calls {
 public:
  Calls(KernelRunner& runner, uint32_t n, DType dtype) : runner_(runner), n_(n), dtype_(dtype) {
    y_ = runner.allocate(n, dtype);
  }
  Binding tensor(uint32_t count, uint32_t seed, float lo = 0.3f, float hi = 0.9f) {
    return runner_.upload(rw::test::values(count, lo, hi, seed), dtype_);
  }
  void unary(uint32_t row, const Binding& x) {
    call("unary", {x, y_}, UnaryParams{.n = n_, .a = 0.7f, .b = 0.8f}, {row, 1});
  }
  void unary_grad(uint32_t row, const Binding& s) {
    call("unary_grad", {s, y_, y_}, UnaryGradParams{.n = n_, .a = 0.7f, .b = 0.8f}, {row, 1});
  }
  void binary(uint32_t row, const Binding& a, const Binding& b, uint32_t mode = 1,
              uint32_t period = 0) {
    call("binary", {a, b, y_}, BinaryParams{.n = n_, .period = period}, {row, mode});
  }
  void dropout(const Binding& x) {
    call("dropout", {x, y_}, DropoutParams{.n = n_, .keep = 0.8f, .seed_lo = 7, .counter_lo = 100},
         {1});
  }
  void batch_norm(const Binding& x, uint32_t channels) {
    std::vector<Binding> of_channels;
    for (uint32_t i = 0; i < 4; ++i) {
      const float scale = i == 1 ? NORM_SCALE * NORM_SCALE : 1;  // of the variance
      const uint32_t count = i == 0 ? 2 * channels : channels;   // means and their rests
      const std::vector<float> of = rw::test::values(count, 0.2f * scale, scale, i + 9);
      of_channels.push_back(as(runner_.upload(of), Access::read));
    }
    const uint32_t rows = n_ / channels;
    const std::initializer_list<Binding> bindings = {as(x, Access::read), of_channels[0],
                                                     of_channels[1],      of_channels[2],
                                                     of_channels[3],      as(y_, Access::write)};
    runner_.run("batch_norm", bindings,
                BatchNormParams{.n = n_, .channels = channels, .eps = 1e-3f, .has_rest = 1}, {1},
                {(channels + 7) / 8 * ((rows + BATCH_NORM_ROWS - 1) / BATCH_NORM_ROWS), 1, 1});
  }
  // Writes x, which is no part of the chain.
  void elsewhere(Binding x) {
    runner_.run("fill", {as(x, Access::write)}, FillParams{.n = 8}, {}, {1, 1, 1});
  }
  const Binding& y() const { return y_; }
  std::vector<float> result() { return runner_.download(y_); }

 private:
  template <class P>
  void call(const char* kernel, std::vector<Binding> bindings, P params,
            std::initializer_list<uint32_t> variant) {
    for (size_t i = 0; i < bindings.size(); ++i)
      bindings[i].access = i + 1 == bindings.size() ? Access::write : Access::read;
    KernelCall call;
    call.kernel = kernel;
    call.bindings = bindings;
    call.params = std::as_bytes(std::span(&params, 1));
    call.threads = {(n_ + REWIND_FLAT - 1) / REWIND_FLAT, 1, 1};
    call.variant = {variant.begin(), variant.size()};
    runner_.backend().run(call);
  }

  KernelRunner& runner_;
  uint32_t n_;
  DType dtype_;
  Binding y_;
};

uint64_t bits_of(float v) {
  return std::isnan(v) ? 1 : std::bit_cast<uint32_t>(v);
}

// Runs `program` on both devices, which must give the same bits, with so many dispatches where
// calls join.
template <class Program>
void compare_chains(uint32_t n, DType dtype, uint64_t dispatches, const Program& program) {
  Twice* two = both();
  if (!two) return;
  std::vector<float> results[2];
  for (KernelRunner* runner : {two->joins.get(), two->apart.get()}) {
    Calls calls(*runner, n, dtype);
    runner->backend().synchronize();
    const uint64_t before = runner->backend().stats().dispatches;
    program(calls);
    runner->backend().synchronize();
    // Limits on the time of dispatches make more of them.
    if (runner == two->joins.get() && !env_limit("dispatch-us"))
      CHECK(runner->backend().stats().dispatches - before == dispatches);
    results[runner != two->joins.get()] = calls.result();
  }
  for (uint32_t i = 0; i < n; ++i)
    if (bits_of(results[0][i]) != bits_of(results[1][i]))
      FAIL_CHECK("element " << i << ": " << results[0][i] << ", kernel by kernel "
                            << results[1][i]);
}

}  // namespace

namespace {

using vulkan::Chain;
using vulkan::OwnedCall;

// Returns y[i] = relu(x[i]) of the first n elements.
OwnedCall relu_call(const BufferRange& x, const BufferRange& y, uint32_t n, double flops = 0) {
  const UnaryParams params{.n = n};
  const Binding bindings[] = {{x, DType::f32, Access::read}, {y, DType::f32, Access::write}};
  const uint32_t variant[] = {relu_row, 1};
  return OwnedCall(
      {"unary", bindings, std::as_bytes(std::span(&params, 1)), {1, 1, 1}, variant, flops});
}

constexpr BufferRange chain_x{0, 0, 4096}, chain_y{0, 4096, 4096};

}  // namespace

TEST_CASE("chains: a step is of all that the chain writes" * doctest::test_suite("host")) {
  const OwnedCall first = relu_call(chain_x, chain_y, 1024, 100);
  const OwnedCall half = relu_call(chain_y, chain_y, 512, 50);
  const OwnedCall whole = relu_call(chain_y, chain_y, 1024, 30);
  std::optional<Chain> chain = Chain::start(first.call());
  REQUIRE(chain.has_value());
  CHECK_FALSE(chain->join(half.call()));
  CHECK(chain->join(whole.call()));
  const OwnedCall both = chain->joined();
  CHECK(both.call().kernel == "chain");
  CHECK(both.call().params_as<ChainParams>().n == 1024);
  CHECK(both.call().flops == 130);
}

TEST_CASE("chains: what is far smaller goes by, if it needs nothing of the chain" *
          doctest::test_suite("host")) {
  const OwnedCall first = relu_call(chain_x, chain_y, 1024);
  const std::optional<Chain> chain = Chain::start(first.call());
  REQUIRE(chain.has_value());
  const auto lets_by = [&](const BufferRange& x, const BufferRange& y) {
    const OwnedCall call = relu_call(x, y, 16);
    return chain->lets_by(call.call());
  };
  const BufferRange small{1, 0, 256}, large{1, 0, 260};
  CHECK(lets_by(small, small));
  CHECK(lets_by({0, 0, 256}, small));  // both read x
  CHECK_FALSE(lets_by(small, large));
  CHECK_FALSE(lets_by(large, small));
  CHECK_FALSE(lets_by(small, {0, 0, 64}));     // writes x
  CHECK_FALSE(lets_by({0, 4096, 64}, small));  // reads y
}

TEST_CASE("chains: every op, as kernel by kernel") {
  for (const DType dtype : floats)
    for (uint32_t row = 0; row < unary_count; ++row) {
      // Only some rows are checked, since every pipeline is compiled for this test alone.
      if (row % (dtype == DType::bf16 ? 13 : dtype == DType::f16 ? 7 : 1) != 0) continue;
      CAPTURE(row);
      CAPTURE(name(dtype));
      const uint32_t n = 1000 + row % 2 * 3, mode = 1 + row % 3, period = row % 4 ? 8 : 13;
      const uint32_t count[] = {n, period, 1};
      compare_chains(n, dtype, 1, [&](Calls& c) {
        const Binding x = c.tensor(n, 1), s = c.tensor(n, 2), b = c.tensor(count[mode - 1], 3);
        c.unary(row, x);
        c.unary_grad(row, s);
        if (mode == 1 && row % 2)
          c.binary(row % 10, b, c.y());
        else
          c.binary(row % 10, c.y(), b, mode, period);
      });
    }
}

TEST_CASE("chains: after batch norm, with dropout") {
  for (const DType dtype : floats)
    for (const uint32_t channels : {16u, 7u}) {
      const uint32_t n = channels * 37;
      compare_chains(n, dtype, 1, [&](Calls& c) {
        const Binding x = c.tensor(n, 1), residual = c.tensor(n, 2, -2, 2);
        c.batch_norm(x, channels);
        c.binary(add_row, c.y(), residual);
        c.unary(relu_row, c.y());
      });
      compare_chains(n, dtype, 1, [&](Calls& c) {
        const Binding bias = c.tensor(8, 1), x = c.tensor(n, 2), residual = c.tensor(n, 3);
        c.binary(add_row, x, bias, 2, 8);
        c.dropout(c.y());
        c.binary(add_row, residual, c.y());
      });
      // mul and add of two steps must not become one operation.
      compare_chains(n, dtype, 1, [&](Calls& c) {
        const Binding a = c.tensor(n, 1), b = c.tensor(n, 2), d = c.tensor(n, 3);
        c.binary(mul_row, a, b);
        c.binary(add_row, c.y(), d);
      });
    }
}

TEST_CASE("chains: what lies between steps is rounded, overflows and goes subnormal") {
  for (const DType dtype : floats)
    for (const float most : {300.0f, 3e-3f, 3e-4f})
      compare_chains(1000, dtype, 1, [&](Calls& c) {
        const Binding a = c.tensor(1000, 1, -most, most), b = c.tensor(1000, 2, -most, most);
        const Binding scale = c.tensor(1, 3, most < 1 ? 5000 : 1e-3f, most < 1 ? 5001 : 2e-3f);
        c.binary(mul_row, a, b);
        c.binary(mul_row, c.y(), scale, 3);
      });
}

TEST_CASE("chains: what does not join") {
  compare_chains(64, DType::f32, 2, [](Calls& c) {  // y + y reads the value that is written
    c.unary(relu_row, c.tensor(64, 1));
    c.binary(add_row, c.y(), c.y());
  });
  compare_chains(64, DType::f32, 2, [](Calls& c) {  // the value in between must stay
    const Binding x = c.tensor(64, 1);
    c.unary(relu_row, x);
    c.binary(add_row, x, x);
  });
  compare_chains(64, DType::f32, 2, [](Calls& c) {  // five steps become three and two
    c.unary(relu_row, c.tensor(64, 1));
    for (int i = 0; i < 4; ++i) c.unary(i % 2 ? 8 : 9, c.y());
  });
  compare_chains(64, DType::f32, 2, [](Calls& c) {  // a third operand does not fit
    const Binding a = c.tensor(64, 1), b = c.tensor(64, 2), d = c.tensor(64, 3);
    c.binary(add_row, a, b);
    c.binary(mul_row, c.y(), d);
    c.binary(add_row, c.y(), a);
  });
  compare_chains(64, DType::f32, 2, [](Calls& c) {  // there is only one counter
    const Binding x = c.tensor(64, 1);
    c.dropout(x);
    c.dropout(c.y());
  });
}

TEST_CASE("chains: small calls between go by") {
  compare_chains(1024, DType::f32, 2, [](Calls& c) {
    const Binding x = c.tensor(1024, 1), small = c.tensor(8, 2);
    c.batch_norm(x, 16);
    c.elsewhere(small);
    c.unary(relu_row, c.y());
  });
  compare_chains(1024, DType::f32, 3,
                 [](Calls& c) {  // it writes a value that the chain still reads
                   const Binding x = c.tensor(1024, 1), operand = c.tensor(8, 2);
                   c.binary(add_row, x, operand, 2, 8);
                   c.elsewhere(operand);
                   c.unary(relu_row, c.y());
                 });
}

TEST_CASE("chains: what is held back is done before it is read, copied, written or freed") {
  Twice* two = both();
  if (!two) return;
  KernelRunner& runner = *two->joins;
  const auto make = [&](Calls& c) { c.unary(0, c.tensor(8, 1, 1, 2)); };  // neg
  Calls read(runner, 8, DType::f32);
  make(read);
  const std::vector<float> negative = read.result();
  CHECK(negative[0] < -0.9f);
  Calls copied(runner, 8, DType::f32);
  make(copied);
  const Binding target = runner.allocate(8);
  runner.backend().copy(copied.y().range, target.range);
  CHECK(runner.download(target) == negative);
  Calls written(runner, 8, DType::f32);
  make(written);
  const std::vector<float> ones(8, 1);
  runner.backend().write(written.y().range, ones.data());
  CHECK(written.result() == ones);
  Calls freed(runner, 8, DType::f32);
  const Binding x = freed.tensor(8, 1, 1, 2);
  freed.unary(0, x);
  runner.backend().free_block(x.range.block);
  CHECK(freed.result() == negative);
}

TEST_CASE("chains: a step of a network has the same bits") {
  if (!both()) return;
  for (const bool checkpoints : {false, true})
    for (const DType dtype : {DType::f32, DType::f16}) {
      std::vector<std::vector<std::byte>> bits[2];
      for (const bool apart : {false, true}) {
        const Without env("fusion", apart);
        const DeviceScope scope(Device::create(open_backend("vulkan")));
        Generator generator(3);
        const GeneratorScope draws(generator);
        Tensor x = cast(randn({4, 6, 6, 8}), dtype).detach(), weight = randn({8}),
               bias = randn({8});
        for (Tensor* t : {&x, &weight, &bias}) t->set_requires_grad(true);
        const auto block = [&](Tensor h) {
          h = batch_norm(h, weight, bias).y;
          h = rw::relu(dropout(std::move(h), 0.3f, generator) + x);
          return gelu(std::move(h) * x) * 0.5f;
        };
        Tensor h = x * 1.5f;
        for (int i = 0; i < 2; ++i)
          h = checkpoints ? checkpoint([&](Tensor t) { return block(std::move(t)); }, h) : block(h);
        bits[apart].push_back(read_bytes(h.detach()));
        sum(h).backward();
        for (const Tensor* t : {&x, &weight, &bias}) bits[apart].push_back(read_bytes(t->grad()));
      }
      CHECK(bits[0] == bits[1]);
    }
}

}  // namespace rw::test
