#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "backends/reference/kernels.h"
#include "core/blocks/nf4.h"

namespace rw::reference {

using namespace kernels;

namespace {

// Calls body(first, size) for each block of n elements; the last one may be short.
void for_each_block(uint64_t n, const auto& body) {
  for (uint64_t first = 0; first < n; first += QUANTIZE_BLOCK)
    body(first, std::min<uint64_t>(QUANTIZE_BLOCK, n - first));
}

}  // namespace

void quantize_blocks(const Call& call) {
  const Elements x = call.in(0);
  Elements codes = call.out(1), steps = call.out(2);
  for_each_block(call.params<QuantizeBlocksParams>().n, [&](uint64_t first, uint64_t size) {
    std::array<float, QUANTIZE_BLOCK> values{};
    for (uint64_t i = 0; i < size; ++i) values[i] = static_cast<float>(x.get(first + i));
    std::array<std::byte, QUANTIZE_BLOCK + sizeof(float)> block;
    blocks::steps.encode(values.data(), block.data());
    for (uint64_t i = 0; i < size; ++i) codes.seti(first + i, std::to_integer<int32_t>(block[i]));
    float step;
    std::memcpy(&step, &block[QUANTIZE_BLOCK], sizeof step);
    steps.set(first / QUANTIZE_BLOCK, step);
  });
}

void dequantize_blocks(const Call& call) {
  Elements y = call.out(0);
  const Elements codes = call.in(1), steps = call.in(2);
  for_each_block(call.params<QuantizeBlocksParams>().n, [&](uint64_t first, uint64_t size) {
    std::array<std::byte, QUANTIZE_BLOCK + sizeof(float)> block{};
    for (uint64_t i = 0; i < size; ++i) block[i] = static_cast<std::byte>(codes.geti(first + i));
    const auto step = static_cast<float>(steps.get(first / QUANTIZE_BLOCK));
    std::memcpy(&block[QUANTIZE_BLOCK], &step, sizeof step);
    std::array<float, QUANTIZE_BLOCK> values;
    blocks::steps.decode(block.data(), values.data());
    for (uint64_t i = 0; i < size; ++i) y.set(first + i, values[i]);
  });
}

namespace {

std::vector<std::byte> bytes_from(const Elements& codes, uint64_t at, uint64_t count) {
  std::vector<std::byte> bytes(count);
  for (uint64_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(codes.geti(at + i));
  return bytes;
}

// The floats of the rows of a matrix.
class DecodedRows {
 public:
  DecodedRows(const Elements& codes, const BlockMatrixParams& p, const BlockType& type)
      : codes_(codes), p_(p), type_(type), across_(p.cols / type.elements) {
    if (!type.has_shared_scales) return;
    const uint64_t all_rows = p.tail / p.row_bytes;
    shared_ = bytes_from(codes, p.tail, blocks::nf4_shared_bytes(all_rows * across_));
  }

  // Those of row `row`, counted from the first one that the call is about.
  std::vector<float> operator()(uint64_t row) const {
    row += p_.first;
    std::vector<float> values(p_.cols);
    for (uint64_t b = 0; b < across_; ++b) {
      const uint32_t bytes = type_.has_shared_scales ? type_.code_bytes : type_.bytes();
      std::vector<std::byte> one = bytes_from(codes_, row * p_.row_bytes + b * bytes, bytes);
      if (type_.has_shared_scales) {
        const float scale = blocks::nf4_scale(shared_.data(), row * across_ + b);
        one.resize(bytes + sizeof scale);
        std::memcpy(&one[bytes], &scale, sizeof scale);
      }
      type_.decode(one.data(), &values[b * type_.elements]);
    }
    return values;
  }

 private:
  const Elements& codes_;
  const BlockMatrixParams& p_;
  const BlockType& type_;
  const uint64_t across_;  // blocks of a row
  std::vector<std::byte> shared_;
};

}  // namespace

void decode_blocks(const Call& call) {
  const auto p = call.params<BlockMatrixParams>();
  const BlockType& type = *block_types()[call.variant(0)];
  const Elements codes = call.in(0);
  Elements y = call.out(1);
  const DecodedRows decoded(codes, p, type);
  for (uint64_t row = 0; row < p.rows; ++row) {
    const std::vector<float> values = decoded(row);
    for (uint64_t i = 0; i < p.cols; ++i) y.set(row * p.cols + i, values[i]);
  }
}

void multiply_blocks(const Call& call) {
  const auto p = call.params<BlockMatrixParams>();
  const BlockType& type = *block_types()[call.variant(0)];
  const Elements x = call.in(0), codes = call.in(1);
  Elements y = call.out(2);
  const DecodedRows decoded(codes, p, type);
  for (uint64_t row = 0; row < p.rows; ++row) {
    const std::vector<float> values = decoded(row);
    for (uint64_t r = 0; r < p.m; ++r) {
      double sum = 0;
      for (uint64_t i = 0; i < p.cols; ++i) sum += double{values[i]} * x.get(r * p.cols + i);
      y.set(r * p.rows + row, static_cast<Real>(sum));
    }
  }
}

}  // namespace rw::reference
