#include "optim/numerics/value_range.h"

#include <algorithm>
#include <bit>

#include "core/tensor/launch.h"

namespace rw {

namespace {

// Enough workgroups to fill a GPU, few enough that a thread has few elements.
constexpr int64_t most_chunks = 1024, smallest_chunk = 8192;

uint32_t chunk_of(int64_t n) {
  const int64_t chunk = std::max(smallest_chunk, (n + most_chunks - 1) / most_chunks);
  return static_cast<uint32_t>((chunk + REWIND_FLAT - 1) / REWIND_FLAT * REWIND_FLAT);
}

}  // namespace

float least_normal(DType dtype) {
  return dtype == DType::f16 ? 0x1p-14f : 0x1p-126f;
}

void count_range(const Tensor& x, const Tensor& row, float least_normal, bool is_scaled,
                 const Tensor& control) {
  check<DTypeError>(is_float(x.dtype()) && row.dtype() == DType::i32, "value_range",
                    "needs floats and an i32 row, got {} and {}", x, row);
  check<ShapeError>(x.numel() > 0 && row.numel() == RANGE_SIZE, "value_range",
                    "needs elements and a row of {}, got {} and {}", RANGE_SIZE, x, row);
  const uint32_t n = count32(x.numel(), "value_range"), chunk = chunk_of(x.numel());
  kernels::ValueRangeParams p{.offset = {},
                              .n = n,
                              .chunk = chunk,
                              .least_normal = least_normal,
                              .scaled = is_scaled,
                              .rank = static_cast<uint32_t>(x.rank()),
                              .shape = {},
                              .stride = {}};
  copy_dims(x.shape(), p.shape);
  for (int d = 0; d < x.rank(); ++d) p.stride[d] = count32(x.strides()[d], "value_range");
  const uint32_t groups = n / chunk + (n % chunk != 0);
  launch("value_range", {in(x), inout(row), in(control)}, p,
         {.threads = {groups, 1, 1}, .variant = {x.is_contiguous()}});
}

ValueRange range_of_row(std::span<const int32_t> row) {
  const auto count = [&](int word) { return uint64_t{static_cast<uint32_t>(row[word])}; };
  return {.nans = count(RANGE_NANS),
          .infinities = count(RANGE_INFINITIES),
          .normals = count(RANGE_NORMALS),
          .zeros = count(RANGE_ZEROS),
          .denormals = count(RANGE_DENORMALS),
          .largest = range_largest(row[RANGE_LARGEST]),
          .least = range_least(row[RANGE_LEAST])};
}

float range_largest(int32_t word) {
  return std::bit_cast<float>(word);
}

float range_least(int32_t word) {
  return word == 0 ? 0 : std::bit_cast<float>(INFINITY_BITS - word);
}

}  // namespace rw
