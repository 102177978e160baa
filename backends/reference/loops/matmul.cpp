#include "backends/reference/kernels.h"
#include "backends/reference/parallel.h"

namespace rw::reference {

using namespace kernels;

namespace {

// Returns a strided [rows, cols] matrix as dense rows.
std::vector<double> dense(const Elements& x, uint64_t start, uint64_t rows, uint64_t cols,
                          uint64_t row_stride, uint64_t col_stride) {
  std::vector<double> values(rows * cols);
  for (uint64_t r = 0; r < rows; ++r)
    for (uint64_t c = 0; c < cols; ++c)
      values[r * cols + c] = x.get(start + r * row_stride + c * col_stride);
  return values;
}

// Returns a [m, k] @ b [k, n], summed over k in order.
std::vector<double> multiply(const std::vector<double>& a, const std::vector<double>& b, uint64_t m,
                             uint64_t n, uint64_t k) {
  std::vector<double> c(m * n);
  parallel_for(m, n * k, [&](uint64_t i) {
    double* c_row = c.data() + i * n;
    for (uint64_t l = 0; l < k; ++l) {
      const double scale = a[i * k + l];
      const double* b_row = b.data() + l * n;
      for (uint64_t j = 0; j < n; ++j) c_row[j] += scale * b_row[j];
    }
  });
  return c;
}

}  // namespace

void matmul(const Call& call) {
  const auto p = call.params<MatmulParams>();
  const Elements a = call.in(0), b = call.in(1);
  Elements c = p.beta == 0 ? call.out(2) : call.inout(2);
  for (uint64_t b0 = 0; b0 < p.batch[0]; ++b0) {
    for (uint64_t b1 = 0; b1 < p.batch[1]; ++b1) {
      const auto start = [&](const uint32_t* stride) { return b0 * stride[0] + b1 * stride[1]; };
      const auto product =
          multiply(dense(a, start(p.a_batch), p.m, p.k, p.a_row, p.a_col),
                   dense(b, start(p.b_batch), p.k, p.n, p.b_row, p.b_col), p.m, p.n, p.k);
      for (uint64_t i = 0; i < p.m; ++i) {
        for (uint64_t j = 0; j < p.n; ++j) {
          const uint64_t at = start(p.c_batch) + i * p.c_row + j;
          // The product is rounded before the addition, as on other devices, so that the summand
          // has the bits of the product alone.
          const auto value = static_cast<Real>(p.alpha * product[i * p.n + j]);
          c.set(at, p.beta == 0 ? value : value + p.beta * c.get(at));
        }
      }
    }
  }
}

}  // namespace rw::reference
