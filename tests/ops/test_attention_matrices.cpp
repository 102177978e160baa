// Compares attention by cooperative matrices with the reference backend, if a driver has them. A
// CPU driver is asked for the kernels of GPUs.
#include <set>
#include <string>

#include "backends/vulkan/device/shader_table.h"
#include "backends/vulkan/passes/attention.h"
#include "ops/network/positions.h"
#include "tests/fixtures/env.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/op_table/gradcheck.h"

namespace rw::test {

namespace {

struct MatrixForm {
  std::string what;
  int64_t batch, heads, key_heads, queries, keys, dim;
  AttentionOptions options = {};
  bool has_mask = false;
  std::vector<int32_t> lengths = {};
  bool has_slopes = false;
};

Evaluated attend_form(const MatrixForm& f, DType dtype) {
  OpCase row;
  row.inputs = {{{f.batch, f.heads, f.queries, f.dim}},
                {{f.batch, f.key_heads, f.keys, f.dim}},
                {{f.batch, f.key_heads, f.keys, f.dim}}};
  Tensors inputs = make_inputs(row, dtype);
  for (Tensor& t : inputs) t.set_requires_grad();
  const Shape square = {1, f.heads, f.queries, f.keys};
  const Tensor mask =
      f.has_mask ? tensor(some_values(static_cast<int>(square.numel())), square) : Tensor();
  const Tensor lengths = f.lengths.empty() ? Tensor() : tensor(f.lengths, {f.batch});
  AttentionOptions options = f.options;
  if (f.has_slopes) options.alibi = alibi_slopes(f.heads);
  return evaluate(inputs, [&](const Tensors& in) {
    return Tensors{attention(in[0], in[1], in[2], options, mask, lengths)};
  });
}

// Returns the kernels of attention that the device has run.
std::set<std::string> kernels_of(Backend& backend, const std::function<void()>& body) {
  backend.time_kernels(true);
  body();
  std::set<std::string> names;
  for (const KernelTime& k : backend.kernel_times())
    if (k.kernel.starts_with("attention")) names.insert(k.kernel.substr(0, k.kernel.find('.')));
  backend.time_kernels(false);
  return names;
}

std::vector<MatrixForm> forms() {
  const AttentionOptions band{.causal = true, .window = 40, .lower_right = true};
  return {{"one word", 1, 1, 1, 1, 1, 8},
          {"half a depth", 2, 2, 2, 33, 65, 40},
          {"a depth", 1, 2, 2, 70, 150, 64, {.causal = true}},
          {"two depths and a word", 1, 1, 1, 40, 70, 136},
          {"the widest heads", 2, 2, 1, 33, 70, 256, {.causal = true}},
          {"shared heads, lengths", 2, 6, 2, 40, 130, 64, {}, false, {129, 3}},
          {"a band, a mask", 2, 4, 1, 70, 150, 16, band, true},
          {"slopes", 1, 6, 3, 40, 90, 24, {}, false, {}, true},
          {"dropout", 2, 2, 1, 70, 90, 64, {.causal = true, .dropout = 0.3f}},
          {"a window without keys", 1, 1, 1, 100, 20, 32, {.window = 8}},
          // Enough tiles of 64 rows for a GPU.
          {"64 rows", 2, 8, 8, 70, 150, 64, {.causal = true, .dropout = 0.3f}},
          {"64 rows, two depths, shared heads, a mask", 4, 8, 4, 66, 130, 72, band, true}};
}

}  // namespace

TEST_CASE(
    "attention by cooperative matrices: equals the reference backend's, the same bits each time") {
  // The self-check would take longer than this test, and other tests cover it; some drivers pack
  // 16-bit values wrongly.
  const Env gpu("REWIND_LIKE_GPU", "1");
  const Without trusts("self-check");
  const Without packing("half-packing");
  const auto cpu = Device::create(open_backend("reference"));
  std::unique_ptr<Backend> opened;
  try {
    opened = open_backend("vulkan");
  } catch (const DeviceError&) {
    return;
  }
  Backend& backend = *opened;
  const auto device = Device::create(std::move(opened));
  for (const DType dtype : {DType::f16, DType::bf16}) {
    if (!backend.info().has(dtype == DType::f16 ? "cooperative matrices" : "bf16 matrices"))
      continue;
    const DeviceScope on_cpu(cpu);
    for (const MatrixForm& form : forms()) {
      const Evaluated expected = attend_form(form, dtype), truth = attend_form(form, DType::f32);
      const DeviceScope scope(device);
      Evaluated actual;
      CHECK(kernels_of(backend, [&] { actual = attend_form(form, dtype); }) ==
            std::set<std::string>{"attention_cooperative", "attention_delta",
                                  "attention_dkv_cooperative", "attention_dq_cooperative"});
      // Sums of gradients cancel, so the tolerance includes the error of the reference backend's
      // own 16-bit values.
      const double least = dtype == DType::f16 ? 2e-3 : 1.6e-2;
      const auto near = [&](const std::vector<float>& a, const std::vector<float>& b,
                            const std::vector<float>& exact) {
        const bool is_zero =
            std::all_of(exact.begin(), exact.end(), [](float x) { return x == 0; });
        return is_zero ? a == exact : largest_error(a, exact) < least + 3 * largest_error(b, exact);
      };
      CHECK_MESSAGE(near(actual.outputs[0], expected.outputs[0], truth.outputs[0]), form.what);
      const Evaluated again = attend_form(form, dtype);
      CHECK_MESSAGE(again.outputs == actual.outputs, form.what);
      for (size_t i = 0; i < 3; ++i) {
        CHECK_MESSAGE(near(actual.gradients[i], expected.gradients[i], truth.gradients[i]),
                      form.what << ": gradient " << i);
        CHECK_MESSAGE(again.gradients[i] == actual.gradients[i], form.what);
      }
    }
  }
}

TEST_CASE("attention by cooperative matrices: which devices" * doctest::test_suite("host")) {
  using namespace vulkan;
  Caps caps;
  caps.shared_bytes = large_shared;
  caps.features = feature::cooperative | feature::cooperative_bf16;
  CHECK(attends_by_matrices(caps, DType::f16));
  CHECK(attends_by_matrices(caps, DType::bf16));
  CHECK_FALSE(attends_by_matrices(caps, DType::f32));
  caps.features = feature::cooperative;
  CHECK(attends_by_matrices(caps, DType::f16));
  CHECK_FALSE(attends_by_matrices(caps, DType::bf16));
  caps.shared_bytes = large_shared / 2;
  CHECK_FALSE(attends_by_matrices(caps, DType::f16));
  for (const uint32_t dim : {8u, 64u, 72u, 256u}) {
    const AttentionTile tile = attention_matrix_tile(caps, DType::bf16, dim, "attention_dq", 64, 8);
    CHECK(tile.module == "attention_dq_cooperative.FACTORSbf16");
    CHECK(tile.rows == 32);
    CHECK(tile.results * 64 >= dim);
    CHECK((tile.results - 1) * 64 < dim);
  }
  caps.multiprocessors = 16;
  caps.matrices.subgroup = 32;
  const auto rows = [&](uint32_t queries, uint64_t heads) {
    return attention_matrix_tile(caps, DType::f16, 64, "attention", queries, heads).rows;
  };
  CHECK(rows(65, 8) == 64);
  CHECK(rows(64, 8) == 32);
  CHECK(rows(33, 16) == 64);
  CHECK(rows(32, 16) == 32);
  caps.matrices.subgroup = 8;
  CHECK(rows(65, 8) == 32);
}

TEST_CASE("attention: smaller tiles where registers are few" * doctest::test_suite("host")) {
  using namespace vulkan;
  Caps caps;
  caps.shared_bytes = large_shared;
  caps.features = feature::cooperative;
  caps.multiprocessors = 16;
  const auto rows = [&] { return attention_tile(caps, 64, "attention").rows; };
  const auto results = [&] { return attention_tile(caps, 256, "attention").results; };
  CHECK(rows() == 64);
  CHECK(results() == 4);
  caps.few_registers = true;
  CHECK(rows() == 32);
  CHECK(results() == 1);
  caps.matrices.subgroup = 8;
  CHECK_FALSE(attends_by_matrices(caps, DType::f16));
  caps.matrices.subgroup = 16;
  CHECK(attends_by_matrices(caps, DType::f16));
  CHECK(attention_matrix_tile(caps, DType::f16, 64, "attention", 4096, 16).rows == 32);
}

}  // namespace rw::test
