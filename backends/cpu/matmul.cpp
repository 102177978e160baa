// Matrix products by oneDNN's sgemm, on one thread for each tile of the result. Factors of 16 bits
// become f32 as they are copied for a tile.
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "backends/cpu/halves.h"
#include "backends/cpu/loops.h"
#include "backends/cpu/one_thread.h"
#include "backends/cpu/prepared_call.h"
#include "backends/cpu/work.h"
#include "core/base/error.h"
#include "shaders/params.h"

namespace rw::cpu {

namespace {

using kernels::MatmulParams;

// One of the factors: stored as [rows, cols] with `step` elements from one line to the next, or
// transposed; batch elements are `batch` apart.
struct Factor {
  int64_t rows, cols;
  bool is_transposed;
  int64_t step;
  bool is_apart;   // lines do not overlap
  bool is_copied;  // for each tile, with lines closer to each other
  std::array<int64_t, 2> batch;

  Factor(int64_t rows, int64_t cols, int64_t row, int64_t col, const uint32_t (&batch)[2])
      : rows(rows),
        cols(cols),
        is_transposed(col != 1 && !(row == 1 && cols == 1)),
        step(is_transposed ? std::max(col, rows) : std::max(row, cols)),
        is_apart(is_transposed ? cols == 1 || step == col : rows == 1 || step == row),
        is_copied(false),
        batch{batch[0], batch[1]} {}

  // Returns the place of element (row, col) of the matrix at batch element b.
  int64_t at(int64_t b, uint32_t inner, int64_t row, int64_t col) const {
    return b / inner * batch[0] + b % inner * batch[1] +
           (is_transposed ? col * step + row : row * step + col);
  }
};

class PreparedMatmul final : public PreparedCall {
 public:
  explicit PreparedMatmul(const KernelCall& call)
      : p_(call.params_as<MatmulParams>()),
        in_(call.bindings[0].dtype),
        out_(call.bindings[2].dtype),
        a_(p_.m, p_.k, p_.a_row, p_.a_col, p_.a_batch),
        b_(p_.k, p_.n, p_.b_row, p_.b_col, p_.b_batch),
        batches_(int64_t{p_.batch[0]} * p_.batch[1]) {
    cut();
    is_direct_ = parts_ == 1 && out_ == DType::f32;
    a_.is_copied = copies(a_, a_.is_transposed, p_.m, p_.n);
    b_.is_copied = copies(b_, !b_.is_transposed, p_.n, p_.m);
    const auto area = [](int64_t rows, int64_t cols) { return static_cast<uint64_t>(rows * cols); };
    const int64_t depth = std::min(part_k_, copied_depth);
    near_b_ = room(a_, tile_rows_, depth);
    if (a_.is_copied || b_.is_copied)
      copied_ = slot_scratch(static_cast<uint64_t>(near_b_ + room(b_, depth, tile_cols_)));
    if (parts_ > 1)
      sums_ = scratch(area(parts_ * batches_ * p_.m, p_.n));
    else if (!is_direct_)
      c_tile_ = slot_scratch(area(tile_rows_, tile_cols_));
    place_slots(pieces());
  }

  // Tells whether the library takes the factors in their layout.
  bool has_form() const { return a_.is_apart && b_.is_apart; }

  void run(const KernelCall& call, const Memory& memory) const override {
    const auto& offset = call.params_as<MatmulParams>().offset;  // of this call
    const int64_t rows = divide_up(p_.m, tile_rows_), cols = divide_up(p_.n, tile_cols_);
    std::atomic<bool> is_done = true;
    for_pieces(pieces(), [&](int64_t i) {
      const OneThread here;
      const int64_t col = i % cols * tile_cols_, row = i / cols % rows * tile_rows_;
      const int64_t batch = i / cols / rows % batches_, part = i / cols / rows / batches_;
      const int64_t m = std::min(tile_rows_, p_.m - row), n = std::min(tile_cols_, p_.n - col);
      const int64_t first = part * part_k_, k = std::min(part_k_, p_.k - first);
      const uint64_t at = offset[2] + c_at(batch) + row * p_.c_row + col;
      float* to = is_direct_    ? memory.at<float>(2, at)
                  : parts_ == 1 ? floats_of_slot(memory, c_tile_)
                                : floats(memory, sums_) +
                                      ((part * batches_ + batch) * p_.m + row) * p_.n + col;
      const int64_t step = is_direct_ ? p_.c_row : parts_ == 1 ? n : p_.n;
      const uint64_t a = offset[0] + a_.at(batch, p_.batch[1], row, first);
      const uint64_t b = offset[1] + b_.at(batch, p_.batch[1], first, col);
      const float beta = is_direct_ ? p_.beta : 0;
      if (!multiply(memory, {a, b}, {m, n, k}, beta, to, step)) is_done = false;
      if (parts_ > 1 || is_direct_) return;
      for (int64_t line = 0; line < m; ++line)
        add(to + line * n, 0, n, memory.bindings[2] + (at + line * p_.c_row) * size_of(out_));
    });
    check<DeviceError>(is_done, call.kernel,
                       "oneDNN must have memory for a product of {} x {} x {}", p_.m, p_.n, p_.k);
    if (parts_ > 1) add_parts(floats(memory, sums_), memory.bindings[2], offset[2]);
  }

 private:
  // The work has about so many pieces, if the result or the sum is large enough for them.
  static constexpr int64_t most_pieces = 16, least_tile = 64, least_part = 512, copied_depth = 512;

  void cut() {
    tile_rows_ = p_.m;
    tile_cols_ = p_.n;
    const auto tiles = [&] {
      return batches_ * divide_up(p_.m, tile_rows_) * divide_up(p_.n, tile_cols_);
    };
    while (tiles() < most_pieces && std::max(tile_rows_, tile_cols_) > least_tile) {
      const bool has_long_lines = p_.k == 1 && tile_rows_ > least_tile;  // only the result moves
      int64_t& side = has_long_lines || tile_rows_ > tile_cols_ ? tile_rows_ : tile_cols_;
      side = divide_up(divide_up(side, 2), 16) * 16;
    }
    parts_ =
        std::clamp<int64_t>(std::min(most_pieces / tiles(), p_.k / least_part), 1, most_pieces);
    part_k_ = divide_up(p_.k, parts_);
    parts_ = divide_up(p_.k, part_k_);
  }

  int64_t pieces() const {
    return parts_ * batches_ * divide_up(p_.m, tile_rows_) * divide_up(p_.n, tile_cols_);
  }

  // The library's packing of a factor takes as long as the product if lines that lie a multiple of
  // 2 KiB apart are its terms of the sum: these share few sets of the caches. They are copied
  // closer first, unless there are few products with them. Copies of other lines take a tenth more.
  bool copies(const Factor& factor, bool lines_are_terms, int64_t length, int64_t others) const {
    return in_ != DType::f32 ||
           (lines_are_terms && length > 16 && others >= 32 && factor.step % 512 == 0);
  }
  // Returns the step of copied lines. Short ones need no gaps, which would take much of their
  // memory.
  static int64_t near_step(int64_t length) {
    const int64_t step = divide_up(length, 16) * 16 + (length < 128 ? 0 : 16);
    return step % 512 == 0 ? step + 16 : step;
  }
  // Returns the elements that copied lines of so many rows and columns take.
  static int64_t room(const Factor& factor, int64_t rows, int64_t cols) {
    if (!factor.is_copied) return 0;
    return factor.is_transposed ? cols * near_step(rows) : rows * near_step(cols);
  }

  // Computes c = alpha a b + beta c by the library, where element (0, 0) of a and b has this place
  // in its binding. Returns false if it has no memory.
  bool multiply(const Memory& memory, std::array<uint64_t, 2> at, std::array<int64_t, 3> size,
                float beta, float* c, int64_t c_step) const {
    const auto [m, n, k] = size;
    const bool copies = a_.is_copied || b_.is_copied;
    const int64_t most = copies ? copied_depth : k;
    float* const near = copies ? floats_of_slot(memory, copied_) : nullptr;
    for (int64_t done = 0; done < k; done += most) {
      const int64_t depth = std::min(k - done, most);
      const Lines a = lines(memory, 0, at[0] + a_.at(0, 1, 0, done), a_, {m, depth}, near);
      const Lines b =
          lines(memory, 1, at[1] + b_.at(0, 1, done, 0), b_, {depth, n}, near + near_b_);
      if (dnnl_sgemm(a_.is_transposed ? 'T' : 'N', b_.is_transposed ? 'T' : 'N', m, n, depth,
                     p_.alpha, a.data, a.step, b.data, b.step, done > 0 ? 1 : beta, c,
                     c_step) != dnnl_success)
        return false;
    }
    return true;
  }

  struct Lines {
    const float* data;
    int64_t step;
  };
  // Returns the lines of a factor in f32, from element `at` of a binding: where they lie, or copied
  // to `to`.
  Lines lines(const Memory& memory, size_t binding, uint64_t at, const Factor& factor,
              std::array<int64_t, 2> size, float* to) const {
    if (!factor.is_copied) return {memory.at<float>(binding, at), factor.step};
    const int64_t length = size[factor.is_transposed ? 0 : 1],
                  count = size[factor.is_transposed ? 1 : 0], step = near_step(length);
    const std::byte* from = memory.bindings[binding] + at * size_of(in_);
    for (int64_t i = 0; i < count; ++i)
      to_floats(from + static_cast<uint64_t>(i * factor.step) * size_of(in_), in_, length,
                to + i * step);
    return {to, step};
  }

  int64_t c_at(int64_t batch) const {
    return batch / p_.batch[1] * p_.c_batch[0] + batch % p_.batch[1] * p_.c_batch[1];
  }

  // Sets `length` elements of c to the sum of those of all parts, `part` elements apart, + beta *
  // c.
  void add(const float* sums, int64_t part, int64_t length, std::byte* c) const {
    if (parts_ == 1 && p_.beta == 0) return from_floats(sums, length, out_, c);
    for (int64_t j = 0; j < length; ++j) {
      float sum = 0;
      for (int64_t s = 0; s < parts_; ++s) sum += sums[s * part + j];
      if (out_ == DType::f32) {
        float& x = reinterpret_cast<float*>(c)[j];
        x = p_.beta == 0 ? sum : sum + p_.beta * x;
      } else {
        uint16_t& x = reinterpret_cast<uint16_t*>(c)[j];
        x = to_16_bits(out_, p_.beta == 0 ? sum : sum + p_.beta * from_16_bits(out_, x));
      }
    }
  }

  void add_parts(const float* sums, std::byte* c, uint32_t offset) const {
    const int64_t part = batches_ * p_.m * p_.n;
    parallel_for(batches_ * p_.m, [&](int64_t line) {
      const int64_t at = offset + c_at(line / p_.m) + line % p_.m * p_.c_row;
      add(sums + line * p_.n, part, p_.n, c + static_cast<uint64_t>(at) * size_of(out_));
    });
  }

  MatmulParams p_;
  DType in_, out_;
  Factor a_, b_;
  int64_t batches_;
  int64_t tile_rows_ = 1, tile_cols_ = 1, parts_ = 1, part_k_ = 1;
  bool is_direct_ = false;  // tiles are made in their final place
  uint64_t copied_ = 0, c_tile_ = 0, sums_ = 0;
  int64_t near_b_ = 0;  // where the copied lines of b begin, behind those of a
};

}  // namespace

std::string product_library() {
  const dnnl_version_t& version = *dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version.major, version.minor, version.patch);
}

std::shared_ptr<const PreparedCall> prepare_matmul(const KernelCall& call) {
  const auto p = call.params_as<MatmulParams>();
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.batch[0] == 0 || p.batch[1] == 0) return nullptr;
  const bool is_row = p.m == 1 && p.a_col == 1;  // one row has a vector loop of its own
  if (call.bindings[0].dtype != DType::f32 && (is_row || levels().empty())) return nullptr;
  auto prepared = std::make_shared<PreparedMatmul>(call);
  return prepared->has_form() ? prepared : nullptr;
}

}  // namespace rw::cpu
