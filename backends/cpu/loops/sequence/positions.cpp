// Rotary position embeddings. The angles of a row are computed once for all heads, and for all
// texts where these share them.
#include "backends/cpu/loops/vectors.h"

namespace rw::cpu::REWIND_LEVEL {

bool rotary(const LoopCall& call) {
  const auto& p = params<RotaryParams>(call);
  const Operand x = operand(call, 0), frequencies = operand(call, 1), y = operand(call, 3);
  const int32_t* const positions = operand(call, 2).as<int32_t>();
  const int64_t dim = p.dim, half = dim / 2, rows = p.rows, heads = p.heads;
  if (dim > block || p.x_stride[3] != 1) return false;
  if (p.pairs == 0) return true;
  const int64_t lines = p.pairs / half / rows;  // of batch and heads
  const bool is_placed = p.placed != 0;
  const int64_t own = is_placed ? heads : lines;  // lines that share their angles
  Block read_steps;
  const float* const steps = read(frequencies, 0, half, read_steps.at);
  parallel_for(lines / own * rows, lines * rows * dim * (x.width + y.width), [&](int64_t item) {
    const int64_t row = item % rows, first_line = item / rows * own;
    Block cosines, sines, values, result;
    float *const c = cosines.at, *const s = sines.at, *const to = result.at;
    const float* const step = steps;
    const double place = is_placed ? static_cast<double>(positions[item])
                                   : static_cast<double>(int64_t{p.first} + row);
    const float scale = p.scale, sine_scale = p.backward != 0 ? -scale : scale;
    each(half, [=](int64_t i) {
      const auto [n, rest] = quarters(place * double{step[i]});
      s[i] = sine_scale * sine_of({n, rest});
      c[i] = scale * sine_of({n + 1, rest});
    });
    for (int64_t line = first_line; line < first_line + own; ++line) {
      const int64_t from = line / heads * p.x_stride[0] + line % heads * p.x_stride[1] +
                           row * int64_t{p.x_stride[2]};
      const float* const v = read(x, from, dim, values.at);
      if (p.interleaved != 0)
        each(half, [=](int64_t i) {
          const float left = v[2 * i], right = v[2 * i + 1];
          to[2 * i] = left * c[i] - right * s[i];
          to[2 * i + 1] = right * c[i] + left * s[i];
        });
      else
        each(half, [=](int64_t i) {
          const float left = v[i], right = v[i + half];
          to[i] = left * c[i] - right * s[i];
          to[i + half] = right * c[i] + left * s[i];
        });
      write(y, (line * rows + row) * dim, dim, to);
    }
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
