// Values in 8 bits, by blocks (shaders/params/quantize.h).
#include "backends/cpu/loops/fold.h"
#include "backends/cpu/loops/level.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

constexpr uint32_t infinite = 0x7f800000u, least_normal = 0x00800000u;
static_assert(block % QUANTIZE_BLOCK == 0);

// Calls body(first, count, x) for the blocks of codes in `count` elements from `at` on, which are
// at x.
template <class Body>
inline void each_code_block(int64_t at, int64_t count, const Body& body) {
  for (int64_t i = 0; i < count; i += QUANTIZE_BLOCK)
    body((at + i) / QUANTIZE_BLOCK, i, least(QUANTIZE_BLOCK, count - i));
}

void encode(const float* x, int64_t count, float step, uint8_t* codes) {
  const float inverse = 1.0f / step;
  each(count, [=](int64_t i) {
    const uint32_t bits = bits_of(x[i]) & 0x7fffffffu;
    const float scaled = float_of(bits) * inverse;
    int32_t k = static_cast<int32_t>(scaled);
    k += static_cast<float>(k) < scaled ? 1 : 0;
    k = k < 1 ? 1 : k > QUANTIZE_LEVELS ? QUANTIZE_LEVELS : k;
    k = bits < least_normal ? 0 : k;
    codes[i] = static_cast<uint8_t>(QUANTIZE_ZERO + (x[i] < 0 ? -k : k));
  });
}

}  // namespace

bool quantize_blocks(const LoopCall& call) {
  const auto& p = params<QuantizeBlocksParams>(call);
  const Operand x = operand(call, 0);
  uint8_t* codes = operand(call, 1).as<uint8_t>();
  float* steps = operand(call, 2).as<float>();
  each_block(p.n, x.width + 1, [&](int64_t at, int64_t count) {
    Block buffer;
    const float* values = read(x, at, count, buffer.at);
    each_code_block(at, count, [&](int64_t number, int64_t first, int64_t size) {
      const uint32_t most = largest_bits(values + first, size);
      const float step = float_of(most) / QUANTIZE_LEVELS;
      const bool is_finite = most < infinite;
      steps[number] = !is_finite ? nan : step < QUANTIZE_LEAST ? QUANTIZE_LEAST : step;
      if (is_finite)
        encode(values + first, size, steps[number], codes + at + first);
      else
        __builtin_memset(codes + at + first, QUANTIZE_ZERO, static_cast<size_t>(size));
    });
  });
  return true;
}

bool dequantize_blocks(const LoopCall& call) {
  const auto& p = params<QuantizeBlocksParams>(call);
  const Operand y = result(call, 0, p.n);
  const uint8_t* codes = operand(call, 1).as<uint8_t>();
  const float* steps = operand(call, 2).as<float>();
  each_block(p.n, y.width + 1, [&](int64_t at, int64_t count) {
    Block buffer;
    float* values = place(y, at, buffer.at);
    each_code_block(at, count, [&](int64_t number, int64_t first, int64_t size) {
      const float step = steps[number];
      const uint8_t* code = codes + at + first;
      float* to = values + first;
      each(size, [=](int64_t i) {
        const int32_t k = code[i] - QUANTIZE_ZERO;
        const float half = k > 0 ? -0.5f : k < 0 ? 0.5f : 0.0f;
        to[i] = (static_cast<float>(k) + half) * step;
      });
    });
    write(y, at, count, values);
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
