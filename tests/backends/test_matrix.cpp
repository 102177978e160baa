// matmul and the convolutions on Vulkan against plain loops in double, every variant forced in
// turn.
#include <doctest/doctest.h>

#include <functional>

#include "backends/vulkan/device/matrix_choice.h"
#include "tests/fixtures/compare_kernels.h"

namespace {

using namespace rw;
using rw::kernels::Conv2dParams;
using rw::kernels::MatmulParams;
using rw::test::decode;
using rw::test::encode;
using rw::test::values;

Backend* vulkan() {
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

// How products run in one scope; empty: the planner's own choice.
struct Forced {
  explicit Forced(const char* name) { rw::vulkan::force_choice(name); }
  ~Forced() { rw::vulkan::force_choice(""); }
};

// An element of the result and the sum of the magnitudes that went into it.
struct Exact {
  double value = 0, magnitude = 0;
  void add(double a, double b) {
    value += a * b;
    magnitude += std::abs(a * b);
  }
};

struct Array {
  DType dtype;
  uint32_t offset;            // elements
  std::vector<float> values;  // as stored: rounded to dtype

  Array(DType t, uint32_t at, size_t n, uint32_t seed)
      : dtype(t), offset(at), values(rw::test::values(n, -1, 1, seed)) {
    for (float& v : values)
      if (is_half(t)) v = from_16_bits(t, to_16_bits(t, v));
  }
};

constexpr size_t guard = 64;
constexpr std::byte outside{0xFF};  // NaNs: what reads them and uses them is found

// Runs the kernel with everything in one block and checks `expected` (index in c -> exact value; c
// elements without one must stay) and every byte outside c and the workspace.
void run_and_check(const char* kernel, const std::array<const Array*, 3>& arrays,
                   std::span<const std::byte> params,
                   const std::vector<std::pair<size_t, Exact>>& expected, const std::string& what) {
  Backend& backend = *vulkan();
  std::vector<Binding> bindings;
  size_t end = 0;
  const auto place = [&](size_t bytes) {
    const size_t at = end;
    end = (end + bytes + guard + 255) / 256 * 256;
    return at;
  };
  for (size_t i = 0; i < 3; ++i) {
    const size_t size = (arrays[i]->offset + arrays[i]->values.size()) * size_of(arrays[i]->dtype);
    bindings.push_back(
        {{0, place(size), size}, arrays[i]->dtype, i == 2 ? Access::read_write : Access::read});
  }
  KernelCall call{.kernel = kernel, .bindings = bindings, .params = params};
  const uint64_t scratch = backend.workspace_bytes(call);
  const size_t scratch_at = place(scratch);
  const uint32_t block = backend.allocate_block(end);
  for (Binding& b : bindings) b.range.block = block;
  call.workspace = {block, scratch_at, scratch};

  std::vector<std::byte> memory(end, outside);
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < arrays[i]->values.size(); ++k)
      encode(
          arrays[i]->values[k], arrays[i]->dtype,
          &memory[bindings[i].range.offset + (arrays[i]->offset + k) * size_of(arrays[i]->dtype)]);
  backend.write({block, 0, end}, memory.data());
  backend.run(call);
  std::vector<std::byte> after(end);
  backend.read({block, 0, end}, after.data());
  backend.free_block(block);

  size_t wrong = 0;
  std::string first;
  for (const auto& [index, exact] : expected) {
    const size_t width = size_of(arrays[2]->dtype);
    const size_t at = bindings[2].range.offset + (arrays[2]->offset + index) * width;
    const double got = decode(arrays[2]->dtype, &after[at]);
    const DType stored = arrays[2]->dtype;
    const double step = stored == DType::f16 ? 1e-3 : stored == DType::bf16 ? 8e-3 : 0;
    const double rounding = step * std::abs(exact.value) + (is_half(stored) ? 1e-6 : 0);
    if (!(std::abs(got - exact.value) <= 4e-6 * exact.magnitude + rounding + 1e-7) && wrong++ == 0)
      first = fmt::format("c[{}] is {} instead of {}", index, got, exact.value);
    std::copy_n(&memory[at], width, &after[at]);  // whatever still differs was not to be written
  }
  CHECK_MESSAGE(wrong == 0,
                what << ": " << wrong << " of " << expected.size() << " wrong, " << first);
  std::fill_n(&after[scratch_at], scratch, outside);
  CHECK_MESSAGE(after == memory, what << ": wrote outside the result and the workspace");
}

struct MatmulCase {
  uint32_t m, n, k;
  bool a_transposed = false, b_transposed = false;
  std::array<uint32_t, 2> batch = {1, 1};
  uint32_t pad = 0;     // extra elements in every row of a, b and c
  uint32_t offset = 0;  // of a, b and c
  float alpha = 1, beta = 0;
  bool share_b = false;  // one b for all matrices
};

void check_matmul(const MatmulCase& t, DType in, DType out) {
  const uint32_t a_rows = t.a_transposed ? t.k : t.m, a_cols = (t.a_transposed ? t.m : t.k) + t.pad;
  const uint32_t b_rows = t.b_transposed ? t.n : t.k, b_cols = (t.b_transposed ? t.k : t.n) + t.pad;
  MatmulParams p{.offset = {t.offset, t.offset, t.offset},
                 .m = t.m,
                 .n = t.n,
                 .k = t.k,
                 .batch = {t.batch[0], t.batch[1]},
                 .alpha = t.alpha,
                 .beta = t.beta};
  (t.a_transposed ? p.a_col : p.a_row) = a_cols;
  (t.a_transposed ? p.a_row : p.a_col) = 1;
  (t.b_transposed ? p.b_col : p.b_row) = b_cols;
  (t.b_transposed ? p.b_row : p.b_col) = 1;
  p.c_row = t.n + t.pad;
  const auto strides = [&](uint32_t* to, uint32_t matrix) {
    to[1] = matrix;
    to[0] = matrix * t.batch[1];
  };
  strides(p.a_batch, a_rows * a_cols);
  strides(p.b_batch, t.share_b ? 0 : b_rows * b_cols);
  strides(p.c_batch, t.m * p.c_row);
  const uint32_t batches = t.batch[0] * t.batch[1];
  const Array a(in, t.offset, size_t{batches} * a_rows * a_cols, 1);
  const Array b(in, t.offset, size_t{t.share_b ? 1 : batches} * b_rows * b_cols, 2);
  const Array c(out, t.offset, size_t{batches} * t.m * p.c_row, 3);

  std::vector<std::pair<size_t, Exact>> expected;
  for (uint32_t z = 0; z < batches; ++z)
    for (uint32_t i = 0; i < t.m; ++i)
      for (uint32_t j = 0; j < t.n; ++j) {
        Exact sum;
        for (uint32_t k = 0; k < t.k; ++k)
          sum.add(t.alpha * a.values[size_t{z} * p.a_batch[1] + i * p.a_row + k * p.a_col],
                  b.values[size_t{z} * p.b_batch[1] + k * p.b_row + j * p.b_col]);
        const size_t at = size_t{z} * p.c_batch[1] + i * p.c_row + j;
        if (t.beta != 0) sum.add(t.beta, c.values[at]);
        expected.emplace_back(at, sum);
      }
  run_and_check("matmul", {&a, &b, &c}, std::as_bytes(std::span(&p, 1)), expected,
                fmt::format("{}x{}x{}{}{} {}->{} batch {}x{} pad {} offset {} alpha {} beta {} {}",
                            t.m, t.n, t.k, t.a_transposed ? " T" : " N", t.b_transposed ? "T" : "N",
                            name(in), name(out), t.batch[0], t.batch[1], t.pad, t.offset, t.alpha,
                            t.beta, name(rw::vulkan::forced_choice())));
}

struct ConvCase {
  uint32_t batch, h, w, in_c, out_c, kernel_h, kernel_w;
  uint32_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  uint32_t groups = 1, offset = 0;
};

// Calls f(index in x, in w, in y) for every product of the convolution.
void each_product(const Conv2dParams& p, const std::function<void(size_t, size_t, size_t)>& f) {
  const uint32_t channels = p.in_c / p.groups, outputs = p.out_c / p.groups;
  for (uint32_t b = 0; b < p.batch; ++b)
    for (uint32_t oh = 0; oh < p.out_h; ++oh)
      for (uint32_t ow = 0; ow < p.out_w; ++ow)
        for (uint32_t oc = 0; oc < p.out_c; ++oc)
          for (uint32_t kh = 0; kh < p.kernel_h; ++kh)
            for (uint32_t kw = 0; kw < p.kernel_w; ++kw) {
              const int ih = int(oh * p.stride_h + kh * p.dilation_h) - int(p.pad_h);
              const int iw = int(ow * p.stride_w + kw * p.dilation_w) - int(p.pad_w);
              if (ih < 0 || iw < 0 || ih >= int(p.in_h) || iw >= int(p.in_w)) continue;
              for (uint32_t c = 0; c < channels; ++c)
                f(((size_t{b} * p.in_h + ih) * p.in_w + iw) * p.in_c + oc / outputs * channels + c,
                  ((size_t{oc} * p.kernel_h + kh) * p.kernel_w + kw) * channels + c,
                  ((size_t{b} * p.out_h + oh) * p.out_w + ow) * p.out_c + oc);
            }
}

void check_conv(const ConvCase& t, DType dtype) {
  Conv2dParams p{.offset = {t.offset, t.offset, t.offset},
                 .batch = t.batch,
                 .in_h = t.h,
                 .in_w = t.w,
                 .in_c = t.in_c,
                 .out_h = 0,
                 .out_w = 0,
                 .out_c = t.out_c,
                 .kernel_h = t.kernel_h,
                 .kernel_w = t.kernel_w,
                 .stride_h = t.stride_h,
                 .stride_w = t.stride_w,
                 .pad_h = t.pad_h,
                 .pad_w = t.pad_w,
                 .dilation_h = t.dilation_h,
                 .dilation_w = t.dilation_w,
                 .groups = t.groups};
  p.out_h = (t.h + 2 * t.pad_h - t.dilation_h * (t.kernel_h - 1) - 1) / t.stride_h + 1;
  p.out_w = (t.w + 2 * t.pad_w - t.dilation_w * (t.kernel_w - 1) - 1) / t.stride_w + 1;
  const Array x(dtype, t.offset, size_t{t.batch} * t.h * t.w * t.in_c, 1);
  const Array w(dtype, t.offset, size_t{t.out_c} * t.kernel_h * t.kernel_w * (t.in_c / t.groups),
                2);
  const Array y(dtype, t.offset, size_t{t.batch} * p.out_h * p.out_w * t.out_c, 3);
  Array dw = w;
  dw.dtype = DType::f32;
  const auto indexed = [](size_t n) {
    std::vector<std::pair<size_t, Exact>> all(n);
    for (size_t i = 0; i < n; ++i) all[i].first = i;
    return all;
  };
  auto forward = indexed(y.values.size()), dgrad = indexed(x.values.size());
  auto wgrad = indexed(w.values.size());
  each_product(p, [&](size_t i, size_t j, size_t k) {
    forward[k].second.add(x.values[i], w.values[j]);
    dgrad[i].second.add(y.values[k], w.values[j]);
    wgrad[j].second.add(x.values[i], y.values[k]);
  });
  const std::string what = fmt::format(
      "{} {}x{}x{}x{} -> {} kernel {}x{} stride {}x{} pad {}x{} dilation {}x{} groups {} offset {} "
      "{}",
      name(dtype), t.batch, t.h, t.w, t.in_c, t.out_c, t.kernel_h, t.kernel_w, t.stride_h,
      t.stride_w, t.pad_h, t.pad_w, t.dilation_h, t.dilation_w, t.groups, t.offset,
      name(rw::vulkan::forced_choice()));
  const auto params = std::as_bytes(std::span(&p, 1));
  run_and_check("conv2d", {&x, &w, &y}, params, forward, "conv2d " + what);
  run_and_check("conv2d_dgrad", {&y, &w, &x}, params, dgrad, "conv2d_dgrad " + what);
  run_and_check("conv2d_wgrad", {&x, &y, &dw}, params, wgrad, "conv2d_wgrad " + what);
}

// CPU drivers take minutes to compile the tiles of GPUs, and hardly take them: those are tested
// where REWIND_LIKE_GPU is set.
std::vector<const char*> variants() {
  std::vector<const char*> all = {"", "naive", "subgroup", "subgroup2-packed-split4"};
  if (!vulkan()->info().is_cpu)
    all.insert(all.end(), {"tiled", "tiled32", "tiled64-split3", "tiled128"});
  if (vulkan()->info().has("cooperative matrices"))
    all.insert(all.end(), {"cooperative64", "cooperative128"});
  return all;
}

TEST_CASE("matmul: layouts, edges and types") {
  if (!vulkan()) return;
  for (const char* variant : variants()) {
    const Forced forced(variant);
    for (const auto& [m, n, k] : {std::array{1u, 1u, 1u},
                                  {3, 5, 7},
                                  {16, 32, 16},
                                  {33, 65, 17},
                                  {70, 36, 40},
                                  {5, 130, 63},
                                  {130, 4, 100}})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true}) {
          check_matmul({m, n, k, ta, tb}, DType::f32, DType::f32);
          check_matmul({m, n, k, ta, tb}, DType::f16, DType::f16);
          check_matmul({m, n, k, ta, tb}, DType::bf16, DType::bf16);
        }
    check_matmul({33, 65, 17}, DType::f16, DType::f32);
    check_matmul({33, 66, 17}, DType::f32, DType::f16);
    check_matmul({33, 66, 17}, DType::f32, DType::bf16);
    check_matmul({33, 65, 17}, DType::bf16, DType::f32);
  }
}

// Words of 16 bytes, whole tiles and parts of them, several panels, and columns of c in fours or
// not.
TEST_CASE("matmul: whole words") {
  if (!vulkan()) return;
  for (const char* variant : variants()) {
    const Forced forced(variant);
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const DType t : {DType::f32, DType::f16, DType::bf16}) {
          check_matmul({72, 136, 48, ta, tb}, t, t);
          check_matmul({136, 40, 72, ta, tb, {1, 2}, 8, 8, 0.5f, 2}, t, t);
          check_matmul({136, 42, 40, false, tb, {1, 1}, 0, 16}, t, DType::f32);
          check_matmul({68, 268, 36, ta, tb, {1, 1}, 4, 4}, t, t);
        }
  }
}

TEST_CASE("matmul: batches, strides, offsets, alpha and beta") {
  if (!vulkan()) return;
  for (const char* variant : variants()) {
    const Forced forced(variant);
    for (const DType t : {DType::f32, DType::f16})
      for (const bool trans : {false, true}) {
        check_matmul({20, 24, 36, trans, !trans, {2, 3}}, t, t);
        check_matmul({17, 9, 21, trans, trans, {3, 2}, 3, 5}, t, t);
        check_matmul({17, 10, 22, trans, !trans, {1, 2}, 4, 8, -0.5f}, t, t);
        check_matmul({9, 33, 12, !trans, trans, {1, 1}, 1, 0, 2, 0.25f}, t, t);
        check_matmul({34, 34, 18, trans, trans, {2, 2}, 2, 2, 1, 1, true}, t, t);
      }
  }
}

TEST_CASE("matmul: few rows, or few terms") {
  if (!vulkan()) return;
  const Forced forced("thin");
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      for (const uint32_t few : {1u, 3u, 8u}) {
        check_matmul({few, 90, 300, ta, tb}, DType::f32, DType::f32);
        check_matmul({90, 140, few, ta, tb}, DType::f32, DType::f32);
        check_matmul({few, 92, 296, ta, tb, {1, 1}, 4, 4, 1, 1}, DType::f32, DType::f32);
        check_matmul({92, 140, few, ta, tb, {1, 1}, 4, 4, 0.5f, 1}, DType::f32, DType::f32);
      }
      for (const DType t : {DType::f16, DType::bf16}) {
        check_matmul({2, 92, 300, ta, tb}, t, t);
        check_matmul({92, 140, 2, ta, tb}, t, DType::f32);
        check_matmul({1, 9, 1000, ta, tb, {2, 3}, 1, 3, 2, 0.25f}, t, DType::f32);
      }
      check_matmul({5, 40, 2, ta, tb, {3, 2}, 0, 1}, DType::f32, DType::f32);
      check_matmul({4, 0, 5, ta, tb}, DType::f32, DType::f32);
      check_matmul({4, 5, 0, ta, tb}, DType::f32, DType::f32);
      check_matmul({1, 3, 5000, ta, tb}, DType::f32, DType::f32);
    }
}

TEST_CASE("matmul: large right factors") {
  if (!vulkan()) return;
  for (const DType t : {DType::f32, DType::f16})
    for (const bool trans : {false, true}) {
      check_matmul({280, 301, 270, trans, trans}, t, t);
      check_matmul({257, 300, 264, trans, !trans, {1, 2}, 4}, t, t);
    }
}

TEST_CASE("matmul: long sums are split") {
  if (!vulkan()) return;
  for (const char* variant : variants()) {
    const Forced forced(variant);
    for (const DType t : {DType::f32, DType::f16, DType::bf16}) {
      check_matmul({9, 20, 5003, true, false}, t, DType::f32);
      check_matmul({16, 16, 8192, false, true}, t, t);
    }
    check_matmul({2, 4, 140000, true, false}, DType::f32, DType::f32);
  }
}

TEST_CASE("conv2d, conv2d_dgrad, conv2d_wgrad") {
  if (!vulkan()) return;
  const ConvCase cases[] = {
      {2, 8, 8, 16, 16, 3, 3, 1, 1, 1, 1},                // ResNet
      {2, 9, 7, 16, 32, 3, 3, 2, 2, 1, 1},                // strided, odd
      {3, 8, 10, 8, 20, 1, 1, 2, 2},                      // strided 1x1: pixels with no tap
      {2, 7, 6, 12, 24, 1, 1},                            // a plain product
      {2, 11, 9, 3, 16, 7, 7, 2, 2, 3, 3},                // the first layer of a large ResNet
      {1, 13, 12, 4, 6, 3, 3, 1, 1, 2, 2, 2, 2},          // dilated
      {2, 12, 13, 5, 7, 3, 2, 2, 3, 1, 0, 1, 2, 1, 3},    // odd everything, odd offset
      {1, 14, 15, 6, 10, 3, 3, 3, 2, 2, 4, 2, 3},         // padding beyond the kernel's reach
      {2, 9, 9, 16, 24, 3, 3, 1, 2, 1, 1, 1, 1, 2, 4},    // groups by tiles
      {2, 9, 8, 10, 10, 3, 3, 2, 1, 1, 1, 1, 1, 10},      // depthwise
      {2, 9, 13, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1, 16},     // depthwise, 8 channels at a time
      {1, 11, 9, 24, 24, 5, 4, 2, 3, 2, 3, 1, 2, 24, 8},  // the same, odd everything
      {1, 9, 8, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1, 8, 4},      // no whole words
      {3, 40, 21, 8, 8, 7, 7, 1, 1, 3, 3, 1, 1, 8},       // split gradient
      {2, 6, 6, 6, 9, 3, 3, 1, 1, 1, 1, 1, 1, 3, 1},      // groups of few channels
      {5, 20, 20, 8, 8, 3, 3, 1, 1, 1, 1},                // many pixels: split gradient
      {3, 11, 13, 32, 136, 3, 3, 1, 1, 1, 1},             // whole words, several tiles
      {2, 10, 9, 48, 80, 3, 2, 2, 1, 1, 1, 1, 2, 2, 8},   // the same by groups
      {1, 12, 11, 4, 12, 3, 3, 1, 1, 1, 1, 1, 1, 1, 4},   // whole words of f32 only
      {1, 7, 6, 200, 24, 3, 3, 1, 1, 1, 1},               // split sums, parts begin inside a tap
      {1, 6, 5, 360, 34, 3, 3, 1, 1, 1, 2, 1, 2, 2, 1},   // the same by groups, no whole words
      {1, 7, 5, 8, 520, 3, 3, 2, 2, 1, 1},                // long sums for some pixels of a gradient
  };
  for (const char* variant : variants()) {
    const Forced forced(variant);
    for (const ConvCase& c : cases)
      for (const DType t : {DType::f32, DType::f16, DType::bf16}) check_conv(c, t);
  }
}

TEST_CASE("matmul: the same call gives the same bits") {
  if (!vulkan()) return;
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
  Backend& backend = *vulkan();
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
