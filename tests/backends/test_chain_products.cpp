// Chains that begin with a matrix product: its tiles take the steps, and the bits are those of
// kernel by kernel.
#include <doctest/doctest.h>

#include "backends/open.h"
#include "backends/vulkan/commands/chain.h"
#include "core/autograd/checkpoint.h"
#include "core/memory/default_device.h"
#include "nn/transformer/transformer.h"
#include "ops/autocast.h"
#include "ops/operators.h"
#include "ops/ops.h"
#include "tests/backends/product_check.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/optim_fixture.h"

namespace rw::test {

namespace {

struct ChainRun {
  std::vector<std::vector<std::byte>> bits;
  uint64_t dispatches = 0;
};

using ChainProgram = std::function<std::vector<Tensor>(DType)>;

Tensor number_tensor(const Shape& shape, DType dtype, int seed) {
  return cast(tensor(some_values(static_cast<int>(shape.numel()), seed), shape), dtype).detach();
}

// Runs a program with the kernels of GPUs, twice: the dispatches are those of the second time.
ChainRun run_twice(const ChainProgram& program, DType dtype, bool joins) {
  const Env gpu("REWIND_LIKE_GPU", "1");
  const Without fusion("fusion", !joins);
  auto opened = open_backend("vulkan");
  Backend& backend = *opened;
  const DeviceScope scope(Device::create(std::move(opened)));
  ChainRun run;
  program(dtype);
  backend.synchronize();
  const uint64_t before = backend.stats().dispatches;
  const std::vector<Tensor> results = program(dtype);
  backend.synchronize();
  run.dispatches = backend.stats().dispatches - before;
  for (const Tensor& t : results) run.bits.push_back(read_bytes(t));
  return run;
}

// Checks for the same bits, and `fewer` dispatches where kernels join.
void compare_joined(const ChainProgram& program, uint64_t fewer) {
  if (is_brief() || !has_vulkan()) return;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(name(dtype));
    // Large GPUs multiply so little element by element.
    const ForcedChoice forced(dtype == DType::f32 ? "tiled64" : "");
    const ChainRun joined = run_twice(program, dtype, true),
                   apart = run_twice(program, dtype, false);
    CHECK(joined.bits == apart.bits);
    if (!env_limit("dispatch-us")) CHECK(apart.dispatches - joined.dispatches == fewer);
  }
}

}  // namespace

TEST_CASE("chains after products: bias and activation") {
  compare_joined(
      [](DType t) {
        const Tensor x = number_tensor({150, 72}, t, 1), w = number_tensor({136, 72}, t, 2),
                     bias = number_tensor({136}, t, 3);
        return std::vector{gelu(linear(x, w, bias)), tanh(matmul(x, transpose(w, 0, 1)) * 0.1f)};
      },
      4);
}

TEST_CASE("chains after products: bias, dropout and residual") {
  compare_joined(
      [](DType t) {
        Generator generator(5);
        const Tensor x = number_tensor({70, 40}, t, 1), w = number_tensor({72, 40}, t, 2),
                     bias = number_tensor({72}, t, 3), residual = number_tensor({70, 72}, t, 4);
        return std::vector{residual + dropout(linear(x, w, bias), 0.3f, generator)};
      },
      3);
}

TEST_CASE("chains after products: the gradient of an activation") {
  compare_joined(
      [](DType t) {
        const Tensor x = number_tensor({150, 72}, t, 1).set_requires_grad(),
                     w = number_tensor({136, 72}, t, 2);
        linear(gelu(x * 1.5f), w).backward(number_tensor({150, 136}, t, 3));
        return std::vector{x.grad()};
      },
      1);
}

TEST_CASE("chains after products: a layer of a transformer has the same bits, in a segment, too") {
  if (is_brief() || !has_vulkan()) return;
  const auto layer = [](bool in_segment) {
    return [in_segment](DType t) {
      Generator generator(5);
      const GeneratorScope draws(generator);
      TransformerEncoderLayer layer(
          {.d_model = 64, .nhead = 4, .dim_feedforward = 136, .activation = gelu});
      const Tensor x = number_tensor({4, 35, 64}, t, 1).set_requires_grad();
      const Autocast autocast(t, t != DType::f32);
      const auto forward = [&](Tensor h) { return layer(std::move(h)); };
      Tensor y = in_segment ? checkpoint(forward, x) : forward(x);
      std::vector<Tensor> all = {y.detach()};
      y.backward(number_tensor({4, 35, 64}, y.dtype(), 2));
      all.push_back(x.grad());
      for (const Tensor& p : layer.parameters()) all.push_back(p.grad());
      return all;
    };
  };
  for (const DType dtype : {DType::f32, DType::f16}) {
    const ChainRun joined = run_twice(layer(false), dtype, true),
                   apart = run_twice(layer(false), dtype, false),
                   again = run_twice(layer(true), dtype, true);
    CHECK(joined.bits == apart.bits);
    CHECK(joined.bits == again.bits);
    CHECK(joined.dispatches < apart.dispatches);
  }
}

TEST_CASE("chains after products: what does not join") {
  compare_joined(
      [](DType t) {
        const Tensor x = number_tensor({70, 40}, t, 1), w = number_tensor({72, 40}, t, 2),
                     odd = number_tensor({70, 40}, t, 5), thin = number_tensor({71, 40}, t, 6);
        const Tensor product = matmul(x, transpose(w, 0, 1)), kept = relu(product);
        return std::vector{
            product, kept, relu(matmul(x, transpose(thin, 0, 1))),  // rows of 71 elements
            relu(matmul(reshape(x, {2, 35, 40}), transpose(reshape(odd, {2, 35, 40}), 1, 2)))};
      },
      0);
}

namespace {

using namespace kernels;
using vulkan::Chain;
using vulkan::OwnedCall;

constexpr uint32_t gemm_m = 40, gemm_n = 24, gemm_k = 16;
constexpr BufferRange left{0, 0, gemm_m*gemm_k * 4}, right{0, 4096, gemm_n*gemm_k * 4},
    result{1, 0, gemm_m*gemm_n * 4};

OwnedCall gemm_call(GemmParams p, std::array<uint32_t, 4> variant = {1, 1, 1, 1}) {
  p.m = gemm_m, p.n = gemm_n, p.k = p.k_chunk = gemm_k, p.a_row = p.b_col = gemm_k,
  p.a_col = p.b_row = 1, p.c_row = gemm_n;
  p.alpha = 1;
  const Binding bindings[] = {{left}, {right}, {result, DType::f32, Access::read_write}};
  return OwnedCall(
      {"gemm_tiled.TILE32", bindings, std::as_bytes(std::span(&p, 1)), {2, 1, 1}, variant, 100});
}

bool starts_chain(const OwnedCall& call) {
  return Chain::start(call.call()).has_value();
}

// Returns a call that adds `period` values to the result again and again.
OwnedCall added(uint32_t period, uint32_t offset = 0) {
  const BinaryParams p{.offset = {0, offset, 0}, .n = gemm_m * gemm_n, .period = period};
  const Binding bindings[] = {{result}, {{2, 0, 4096}}, {result, DType::f32, Access::write}};
  const uint32_t variant[] = {0, 2};
  return OwnedCall({"binary", bindings, std::as_bytes(std::span(&p, 1)), {1, 1, 1}, variant, 10});
}

}  // namespace

TEST_CASE("chains after products: a row's bias is a step" * doctest::test_suite("host")) {
  const OwnedCall first = gemm_call({.splits = 1, .batches = 1}), bias = added(gemm_n, 8);
  std::optional<Chain> chain = Chain::start(first.call());
  REQUIRE(chain.has_value());
  const OwnedCall alone = chain->joined();
  CHECK(alone.call().kernel == "gemm_tiled.TILE32");
  const OwnedCall two_rows = added(2 * gemm_n), loose = added(gemm_n, 2);
  CHECK_FALSE(chain->join(two_rows.call()));
  CHECK_FALSE(chain->join(loose.call()));  // lies in no whole words
  CHECK(chain->join(bias.call()));
  const OwnedCall both = chain->joined();
  CHECK(both.call().kernel == "gemm_chain_tiled.TILE32");
  CHECK(both.call().flops == 110);
  CHECK(std::ranges::equal(both.call().variant,
                           std::array<uint32_t, 5>{CHAIN_BINARY + 2, 0, 0, 1, 1}));
  const auto p = both.call().params_as<GemmChainParams>();
  CHECK(p.offset[2] == 8);
  CHECK(
      (p.m == gemm_m && p.n == gemm_n && p.k == gemm_k && p.a_row == gemm_k && p.b_col == gemm_k));
}

TEST_CASE("chains after products: none after parts, sums and loose elements" *
          doctest::test_suite("host")) {
  for (const GemmParams& p :
       {GemmParams{.splits = 2, .batches = 1}, GemmParams{.splits = 1, .batches = 2},
        GemmParams{.splits = 1, .batches = 1, .beta = 1}})
    CHECK_FALSE(starts_chain(gemm_call(p)));
  for (const std::array<uint32_t, 4> variant : {std::array{1u, 1u, 0u, 1u}, {1u, 1u, 1u, 0u}})
    CHECK_FALSE(starts_chain(gemm_call({.splits = 1, .batches = 1}, variant)));
}

}  // namespace rw::test
