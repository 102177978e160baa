// Matrix products by oneDNN's sgemm, on one thread for each tile of the result.
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "backends/cpu/halves.h"
#include "backends/cpu/one_thread.h"
#include "backends/cpu/plan.h"
#include "backends/cpu/work.h"
#include "core/base/error.h"
#include "shaders/params.h"

namespace rw::cpu {

namespace {

using kernels::MatmulParams;

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// One of the factors: stored [rows, cols] with `step` elements from one line to the next, or
// transposed; by batch, from one matrix to the next.
struct Factor {
  int64_t rows, cols;
  bool is_transposed;
  int64_t step;
  bool is_apart;  // no line begins within another
  std::array<int64_t, 2> batch;

  Factor(int64_t rows, int64_t cols, int64_t row, int64_t col, const uint32_t (&batch)[2])
      : rows(rows),
        cols(cols),
        is_transposed(col != 1 && !(row == 1 && cols == 1)),
        step(is_transposed ? std::max(col, rows) : std::max(row, cols)),
        is_apart(is_transposed ? cols == 1 || step == col : rows == 1 || step == row),
        batch{batch[0], batch[1]} {}

  // Elements from the first to one past the last, for so many matrices.
  int64_t extent(const uint32_t (&count)[2]) const {
    const int64_t lines = is_transposed ? cols : rows, length = is_transposed ? rows : cols;
    return (count[0] - 1) * batch[0] + (count[1] - 1) * batch[1] + (lines - 1) * step + length;
  }
  // Element (row, col) of the matrix at batch element b.
  int64_t at(int64_t b, uint32_t inner, int64_t row, int64_t col) const {
    return b / inner * batch[0] + b % inner * batch[1] +
           (is_transposed ? col * step + row : row * step + col);
  }
};

class MatmulPlan final : public Plan {
 public:
  explicit MatmulPlan(const KernelCall& call)
      : p_(call.params_as<MatmulParams>()),
        in_(call.bindings[0].dtype),
        out_(call.bindings[2].dtype),
        a_(p_.m, p_.k, p_.a_row, p_.a_col, p_.a_batch),
        b_(p_.k, p_.n, p_.b_row, p_.b_col, p_.b_batch),
        batches_(int64_t{p_.batch[0]} * p_.batch[1]) {
    cut();
    if (in_ != DType::f32) {
      a_scratch_ = scratch(static_cast<uint64_t>(a_.extent(p_.batch)));
      b_scratch_ = scratch(static_cast<uint64_t>(b_.extent(p_.batch)));
    }
    if (parts_ > 1 || out_ != DType::f32)
      sums_ = scratch(static_cast<uint64_t>(parts_ * batches_ * p_.m * p_.n));
  }

  // Whether the library takes the factors as they lie.
  bool has_form() const { return a_.is_apart && b_.is_apart; }

  void run(const KernelCall& call, const Memory& memory) const override {
    const auto params = call.params_as<MatmulParams>();  // whose offsets are of this call
    const float* a = floats_of(memory, 0, params.offset[0], a_, a_scratch_);
    const float* b = floats_of(memory, 1, params.offset[1], b_, b_scratch_);
    const bool is_direct = parts_ == 1 && out_ == DType::f32;
    float* c = is_direct ? memory.at<float>(2, params.offset[2]) : floats(memory, sums_);
    const int64_t rows = divide_up(p_.m, tile_rows_), cols = divide_up(p_.n, tile_cols_);
    std::atomic<bool> is_done = true;
    parallel_for(parts_ * batches_ * rows * cols, [&](int64_t i) {
      const OneThread here;
      const int64_t col = i % cols * tile_cols_, row = i / cols % rows * tile_rows_;
      const int64_t batch = i / cols / rows % batches_, part = i / cols / rows / batches_;
      const int64_t first = part * part_k_, k = std::min<int64_t>(part_k_, p_.k - first);
      float* to = is_direct ? c + c_at(batch) + row * p_.c_row + col
                            : c + ((part * batches_ + batch) * p_.m + row) * p_.n + col;
      const dnnl_status_t status = dnnl_sgemm(
          a_.is_transposed ? 'T' : 'N', b_.is_transposed ? 'T' : 'N',
          std::min<int64_t>(tile_rows_, p_.m - row), std::min<int64_t>(tile_cols_, p_.n - col), k,
          p_.alpha, a + a_.at(batch, p_.batch[1], row, first), a_.step,
          b + b_.at(batch, p_.batch[1], first, col), b_.step, is_direct ? p_.beta : 0, to,
          is_direct ? p_.c_row : p_.n);
      if (status != dnnl_success) is_done = false;
    });
    check<DeviceError>(is_done, call.kernel,
                       "oneDNN must have memory for a product of {} x {} x {}", p_.m, p_.n, p_.k);
    if (!is_direct) add_parts(c, memory.bindings[2], params.offset[2]);
  }

 private:
  // About so many pieces of work, where the result or the sum is large enough for them.
  static constexpr int64_t pieces = 16, least_tile = 64, least_part = 512;

  void cut() {
    tile_rows_ = p_.m;
    tile_cols_ = p_.n;
    const auto tiles = [&] {
      return batches_ * divide_up(p_.m, tile_rows_) * divide_up(p_.n, tile_cols_);
    };
    while (tiles() < pieces && std::max(tile_rows_, tile_cols_) > least_tile) {
      int64_t& side = tile_rows_ > tile_cols_ ? tile_rows_ : tile_cols_;
      side = divide_up(divide_up(side, 2), 16) * 16;
    }
    parts_ = std::clamp<int64_t>(std::min(pieces / tiles(), p_.k / least_part), 1, pieces);
    part_k_ = divide_up(p_.k, parts_);
    parts_ = divide_up(p_.k, part_k_);
  }

  const float* floats_of(const Memory& memory, size_t i, uint32_t offset, const Factor& factor,
                         uint64_t begin) const {
    if (in_ == DType::f32) return memory.at<float>(i, offset);
    float* to = floats(memory, begin);
    to_floats(memory.bindings[i] + uint64_t{offset} * size_of(in_), in_, factor.extent(p_.batch),
              to);
    return to;
  }

  int64_t c_at(int64_t batch) const {
    return batch / p_.batch[1] * p_.c_batch[0] + batch % p_.batch[1] * p_.c_batch[1];
  }

  // c = sum of the parts + beta * c.
  void add_parts(const float* sums, std::byte* c, uint32_t offset) const {
    const int64_t part = batches_ * p_.m * p_.n;
    parallel_for(batches_ * p_.m, [&](int64_t line) {
      std::byte* to =
          c + static_cast<uint64_t>(offset + c_at(line / p_.m) + line % p_.m * p_.c_row) *
                  size_of(out_);
      for (int64_t j = 0; j < p_.n; ++j) {
        float sum = 0;
        for (int64_t s = 0; s < parts_; ++s) sum += sums[s * part + line * p_.n + j];
        if (out_ == DType::f32) {
          float& x = reinterpret_cast<float*>(to)[j];
          x = p_.beta == 0 ? sum : sum + p_.beta * x;
        } else {
          uint16_t& x = reinterpret_cast<uint16_t*>(to)[j];
          x = to_16_bits(out_, p_.beta == 0 ? sum : sum + p_.beta * from_16_bits(out_, x));
        }
      }
    });
  }

  MatmulParams p_;
  DType in_, out_;
  Factor a_, b_;
  int64_t batches_;
  int64_t tile_rows_ = 1, tile_cols_ = 1, parts_ = 1, part_k_ = 1;
  uint64_t a_scratch_ = 0, b_scratch_ = 0, sums_ = 0;
};

}  // namespace

std::string plan_library() {
  const dnnl_version_t& version = *dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version.major, version.minor, version.patch);
}

std::shared_ptr<const Plan> plan_matmul(const KernelCall& call) {
  const auto p = call.params_as<MatmulParams>();
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.batch[0] == 0 || p.batch[1] == 0) return nullptr;
  auto plan = std::make_shared<MatmulPlan>(call);
  return plan->has_form() ? plan : nullptr;
}

}  // namespace rw::cpu
