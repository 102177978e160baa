// Products that vector loops make, of 16-bit factors and of one row, compared with those of the
// reference.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "shaders/params.h"
#include "tests/backends/cpu/loop_cases.h"

using namespace rw;
using namespace rw::kernels;
using namespace rw::test;

namespace {

struct ProductCase {
  uint32_t m, n, k;
  bool is_a_transposed = false, is_b_transposed = false;
  uint32_t batch = 1;
  float alpha = 1, beta = 0;
};

// Checks results of f32 and of the factors' type; lines have three more elements after their last
// one.
void check_product(const ProductCase& t, DType dtype) {
  const uint32_t gap = 3, a_line = (t.is_a_transposed ? t.m : t.k) + gap,
                 b_line = (t.is_b_transposed ? t.k : t.n) + gap, c_line = t.n + gap;
  const uint32_t a = a_line * (t.is_a_transposed ? t.k : t.m),
                 b = b_line * (t.is_b_transposed ? t.n : t.k), c = c_line * t.m;
  MatmulParams p{.offset = {1, 2, 3}, .m = t.m, .n = t.n, .k = t.k, .batch = {1, t.batch}};
  (t.is_a_transposed ? p.a_col : p.a_row) = a_line;
  (t.is_a_transposed ? p.a_row : p.a_col) = 1;
  (t.is_b_transposed ? p.b_col : p.b_row) = b_line;
  (t.is_b_transposed ? p.b_row : p.b_col) = 1;
  p.c_row = c_line;
  p.a_batch[1] = a, p.b_batch[1] = b, p.c_batch[1] = c;
  p.alpha = t.alpha, p.beta = t.beta;
  CAPTURE(fmt::format("{} x {} x {}{}{} alpha {} beta {}", t.m, t.n, t.k,
                      t.is_a_transposed ? " tn" : "", t.is_b_transposed ? " nt" : "", t.alpha,
                      t.beta));
  for (const DType out : {DType::f32, dtype})
    check_loop({"matmul",
                {{1 + a * t.batch, dtype}, {2 + b * t.batch, dtype}, {3 + c * t.batch, out}},
                {},
                summed},
               p);
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("cpu loops: products of 16 bits") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const float beta : {0.0f, 1.0f})  // deep, and not cut in parts
      check_product({250, 260, 520, false, true, 1, 1, beta}, dtype);
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        check_product({13, 45, 33, ta, tb}, dtype);     // rows and columns that fill no register
        check_product({70, 130, 1100, ta, tb}, dtype);  // a deep sum, packed in parts
        check_product({40, 48, 5000, ta, tb, 1, 0.5f}, dtype);  // a long one, in parts on threads
        check_product({30, 1100, 20, ta, tb, 3, -2, 1},
                      dtype);  // batches, added to existing values
        check_product({9, 17, 21, ta, tb, 1, 1, 0.25f}, dtype);
        check_product({130, 40, 1, ta, tb, 1, 1, 1}, dtype);  // a column times a row
        check_product({5, 1, 70, ta, tb}, dtype);
      }
  }
}

TEST_CASE("cpu loops: products of one row") {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const bool tb : {false, true}) {
      check_product({1, 700, 2100, false, tb}, dtype);
      check_product({1, 33, 70, false, tb, 5, 0.5f, 2}, dtype);
      check_product({1, 5, 3, false, tb, 2, 1, 1}, dtype);
      check_product({1, 1, 1030, false, tb}, dtype);
      check_product({1, 300, 9, true, tb}, dtype);  // by tiles
    }
}

TEST_SUITE_END();
