// Matrices in the blocks of GGUF files: what is refused, what stays in memory, and slabs.
#include "core/autograd/gradients.h"
#include "ops/losses/losses.h"
#include "ops/network/block_matrix.h"
#include "planner/dry_run.h"
#include "tests/fixtures/block_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

TEST_SUITE_BEGIN("host");

TEST_CASE_FIXTURE(CpuDevice, "block matrices: what is refused") {
  const auto bytes = [](const Shape& shape) { return zeros(shape, DType::u8); };
  const BlockMatrix w(bytes({3, 68}), blocks::q8_0);
  CHECK(w.rows() == 3);
  CHECK(w.columns() == 64);
  CHECK(contains(message_of<ValueError>([&] {
                   BlockMatrix(bytes({3, 132}), blocks::steps);
                 }),
                 "GGUF"));
  const BlockType own = blocks::q8_0;
  CHECK_THROWS_AS(BlockMatrix(bytes({3, 68}), own), ValueError);
  CHECK_THROWS_AS(BlockMatrix(zeros({3, 68}), blocks::q8_0), DTypeError);
  for (const Shape& shape : {Shape{3, 67}, Shape{68}, Shape{3, 0}, Shape{0, 68}, Shape{1, 3, 68}})
    CHECK(contains(message_of<ShapeError>([&] { BlockMatrix(bytes(shape), blocks::q8_0); }),
                   "whole blocks of 34 bytes for Q8_0"));
  CHECK_THROWS_AS(linear(zeros({2, 32}), w), ShapeError);
  CHECK_THROWS_AS(linear(zeros({}), w), ShapeError);
  CHECK_THROWS_AS(linear(zeros({2, 64}), w, zeros({4})), ShapeError);
  CHECK_THROWS_AS(linear(zeros({2, 64}, DType::i32), w), DTypeError);
  CHECK_THROWS_AS(matmul(zeros({2, 64}), w), ShapeError);
  CHECK_THROWS_AS(embedding(w, zeros({2})), DTypeError);
  CHECK_THROWS_AS(embedding(w, zeros({2}, DType::i32), DType::i32), DTypeError);
  CHECK_THROWS_AS(dequantize(w, DType::u8), DTypeError);
  CHECK_THROWS_AS(tied_cross_entropy(zeros({2, 32}), w, {}, zeros({2}, DType::i32)), ShapeError);
  CHECK_THROWS_AS(tied_cross_entropy(zeros({2, 64}), w, zeros({2}), zeros({2}, DType::i32)),
                  ShapeError);
}

TEST_CASE_FIXTURE(CpuDevice, "block matrices: rows outside the table are NaN") {
  CHECK_THROWS_AS(embedding(some_matrix(blocks::nf4, 2, 64), zeros({1}, DType::i32)), ValueError);
  for (const BlockType* type : file_block_types()) {
    if (type->has_shared_scales) continue;
    const Tensor y = embedding(some_matrix(*type, 2, 256), tensor(std::vector{1, 2, -1}, {3}));
    const std::vector<float> values = y.to_vector();
    CHECK(std::isfinite(values[0]));
    for (size_t i = 256; i < values.size(); ++i) CHECK(std::isnan(values[i]));
  }
}

namespace {

// Products of a matrix whose floats take several slabs, with their gradient of x.
std::vector<std::vector<float>> in_slabs(const BlockType& type, DType dtype, int64_t rows,
                                         bool has_floats, bool replays = false) {
  const BlockMatrix w = some_matrix(type, 4200, 1024);  // 16.4 MiB in f32
  const Tensor dense = has_floats ? dequantize(w, dtype) : Tensor();
  Tensor x = cast(leaf(rows * 1024), dtype).detach();
  x = reshape(x, {rows, 1024}).detach().set_requires_grad();
  Tensor y;
  {
    const CheckpointScope segment(replays);
    y = has_floats ? linear(sin(x), dense) : linear(sin(x), w);
  }
  sum(cast(y * y, DType::f32)).backward();
  return {y.to_vector(), x.grad().to_vector()};
}

double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    size += x[i] * x[i];
  }
  return std::sqrt(error / size);
}

}  // namespace

TEST_CASE("block matrices: slabs give the product of the floats") {
  set_default_device(open_backend("cpu"));
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::f32, 1e-6}, {DType::f16, 2e-3}, {DType::bf16, 1e-2}})
    for (const auto& [type, rows] : {std::pair{&blocks::q4_k, 2},
                                     {&blocks::q4_k, 20},
                                     {&blocks::nf4, 2},
                                     {&blocks::nf4, 20}}) {
      CAPTURE(type->name);
      CAPTURE(rows);
      const auto exact = in_slabs(*type, dtype, rows, true),
                 found = in_slabs(*type, dtype, rows, false);
      CHECK(relative_error(exact[0], found[0]) < tolerance);
      CHECK(relative_error(exact[1], found[1]) < tolerance);
      CHECK(in_slabs(*type, dtype, rows, false, true) == found);
      CHECK(in_slabs(*type, dtype, rows, false) == found);
    }
}

// The cpu device rounds x to parts of the largest element of 256, of which there are 32639; each of
// the 16-bit types has a rounding of its own in the result.
TEST_CASE("block matrices: x as whole numbers is at most half a part from x") {
  constexpr int64_t rows = 24, columns = 512;
  set_default_device(open_backend("cpu"));
  const NoGrad guard;
  std::vector<float> values(columns);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(i * i)) * (i < 256 ? 1000.0f : 0.01f);
  const Tensor x = cast(tensor(values, {1, columns}), DType::f16);
  const std::vector<float> exact_x = cast(x, DType::f32).to_vector();
  for (const BlockType* type : file_block_types()) {
    CAPTURE(type->name);
    const BlockMatrix w = some_matrix(*type, rows, columns);
    const std::vector<float> found = linear(x, w).to_vector(), floats = dequantize(w).to_vector();
    for (size_t r = 0; r < rows; ++r) {
      double exact = 0, bound = 0;
      for (size_t i = 0; i < columns; ++i) {
        const double weight = floats[r * columns + i];
        exact += exact_x[i] * weight;
        bound += std::abs(weight) * (i < 256 ? 1000 : 0.01) / 32639 / 2;
      }
      CHECK(std::abs(found[r] - exact) < 1.01 * bound + std::abs(exact) * 0x1p-11);
    }
  }
}

TEST_CASE("block matrices: there are floats of one slab, and x is not kept") {
  const auto run = [](bool replays) {
    const BlockMatrix w = some_matrix(blocks::q8_0, 4096, 4096);  // 64 MiB in f32
    default_device()->reset_peak();
    const uint64_t before = default_device()->memory_report().live;
    Tensor x = zeros({16, 4096}).set_requires_grad();
    Tensor y;
    {
      const CheckpointScope segment(replays);
      y = linear(x * 2, w);
    }
    const uint64_t after = default_device()->memory_report().live;
    CHECK(after - before <= 2 * 16 * 4096 * 4 + 1024);  // x and y
    sum(y).backward();
    CHECK(default_device()->memory_report().peak - before < 10 * MiB);
    return default_device()->memory_report().peak;
  };
  set_default_device(open_backend("cpu"));
  for (const bool replays : {false, true}) {
    uint64_t dry = 0;
    dry_run(open_backend("dry:cpu"), [&] { dry = run(replays); });
    CHECK(run(replays) == dry);
  }
}

TEST_CASE_FIXTURE(CpuDevice, "block matrices: autocast makes x narrow, and bias and gradient fit") {
  const BlockMatrix w = some_matrix(blocks::q5_k, 6, 256);
  Tensor x = reshape(leaf(2 * 256), {2, 256}).detach().set_requires_grad();
  const Autocast autocast(DType::bf16);
  const Tensor y = linear(x, w, zeros({6}).set_requires_grad());
  CHECK(y.dtype() == DType::bf16);
  CHECK(matmul(y, w).dtype() == DType::bf16);
  const Tensor loss = tied_cross_entropy(x, w, {}, tensor(std::vector{1, 2}, {2}));
  CHECK(loss.dtype() == DType::f32);
  (loss + sum(cast(y, DType::f32))).backward();
  CHECK(x.grad().dtype() == DType::f32);
}

// On the cpu, products of many rows make no slabs.
TEST_CASE("block matrices: slabs give the product of the floats on vulkan") {
  try {
    set_default_device(open_backend("vulkan"));
  } catch (const DeviceError& e) {
    MESSAGE("skipped: " << std::string(e.what()));
    return;
  }
  for (const BlockType* type : {&blocks::q4_k, &blocks::nf4}) {
    CAPTURE(type->name);
    const auto exact = in_slabs(*type, DType::f32, 20, true),
               found = in_slabs(*type, DType::f32, 20, false);
    CHECK(relative_error(exact[0], found[0]) < 1e-5);
    CHECK(relative_error(exact[1], found[1]) < 1e-5);
  }
}
