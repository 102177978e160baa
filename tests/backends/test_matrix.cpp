// Compares matmul and the convolutions on Vulkan with plain loops in double, in every variant.
#include <doctest/doctest.h>

#include "backends/vulkan/device/matrix_choice.h"
#include "tests/backends/product_check.h"
#include "tests/fixtures/compare_kernels.h"

namespace {

using namespace rw;
using rw::kernels::MatmulParams;
using rw::test::ProductCheck;
using rw::test::values;

Backend* matrix_backend() {
  static const std::unique_ptr<Backend> backend = [] {
    std::unique_ptr<Backend> b;
    try {
      b = open_backend("vulkan");
    } catch (const DeviceError& e) {
      MESSAGE("skipped: " << e.what());
    }
    return b;
  }();
  return backend.get();
}

// CPU drivers take minutes to compile the tiles of GPUs, and rarely choose them, so those are
// tested only if REWIND_LIKE_GPU is set.
std::vector<const char*> variants() {
  std::vector<const char*> all = {"", "naive", "subgroup", "subgroup2-packed-split4"};
  if (!matrix_backend()->info().is_cpu)
    all.insert(all.end(), {"tiled", "tiled32", "tiled64-split3", "tiled128"});
  if (matrix_backend()->info().has("cooperative matrices"))
    all.insert(all.end(), {"cooperative64", "cooperative128"});
  return all;
}

// Runs a table in each of them.
void in_all_variants(void (ProductCheck::*table)() const) {
  if (!matrix_backend()) return;
  for (const char* variant : variants()) {
    CAPTURE(variant);
    const ForcedChoice forced(variant);
    (ProductCheck(*matrix_backend()).*table)();
  }
}

TEST_CASE("matmul: layouts, edges and types") {
  in_all_variants(&ProductCheck::layouts);
}

TEST_CASE("matmul: whole words") {
  in_all_variants(&ProductCheck::whole_words);
}

TEST_CASE("matmul: batches, strides, offsets, alpha and beta") {
  in_all_variants(&ProductCheck::batches);
}

TEST_CASE("matmul: few rows, or few terms") {
  if (matrix_backend()) ProductCheck(*matrix_backend()).few_rows_or_terms();
}

TEST_CASE("matmul: large right factors") {
  if (matrix_backend()) ProductCheck(*matrix_backend()).large_factors();
}

TEST_CASE("matmul: long sums are split") {
  in_all_variants(&ProductCheck::long_sums);
}

TEST_CASE("conv2d, conv2d_dgrad, conv2d_wgrad") {
  in_all_variants(&ProductCheck::convolutions);
}

TEST_CASE("matmul: the same call gives the same bits") {
  if (!matrix_backend()) return;
  KernelCall call{.kernel = "matmul"};
  MatmulParams p{.m = 16,
                 .n = 16,
                 .k = 20000,
                 .batch = {1, 1},
                 .a_row = 1,
                 .a_col = 16,
                 .b_row = 16,
                 .b_col = 1,
                 .c_row = 16,
                 .alpha = 1};
  Backend& backend = *matrix_backend();
  const uint64_t bytes = uint64_t{p.k} * 16 * 4;
  const std::vector<float> data = values(p.k * 16);
  std::vector<Binding> bindings;
  for (const uint64_t size : {bytes, bytes, uint64_t{1024}})
    bindings.push_back({{backend.allocate_block(size), 0, size}, DType::f32, Access::read});
  bindings[2].access = Access::write;
  backend.write(bindings[0].range, data.data());
  backend.write(bindings[1].range, data.data());
  call.bindings = bindings;
  call.params = std::as_bytes(std::span(&p, 1));
  const uint64_t scratch = backend.workspace_bytes(call);
  if (scratch) call.workspace = {backend.allocate_block(scratch), 0, scratch};
  std::vector<uint32_t> first(256), again(256);
  backend.run(call);
  backend.read(bindings[2].range, first.data());
  for (int i = 0; i < 3; ++i) {
    backend.run(call);
    backend.read(bindings[2].range, again.data());
    CHECK(first == again);
  }
  for (const Binding& b : bindings) backend.free_block(b.range.block);
  if (scratch) backend.free_block(call.workspace.block);
}

}  // namespace
