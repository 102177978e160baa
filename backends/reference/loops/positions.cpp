#include <cmath>

#include "backends/reference/kernels.h"

namespace rw::reference {

using namespace kernels;

void rotary(const Call& call) {
  const auto p = call.params<RotaryParams>();
  const Elements x = call.in(0), frequencies = call.in(1), positions = call.in(2);
  Elements y = call.out(3);
  const uint64_t half = p.dim / 2;
  for (uint64_t pair = 0; pair < p.pairs; ++pair) {
    const uint64_t i = pair % half, line = pair / half;
    const uint64_t row = line % p.rows, head = line / p.rows % p.heads,
                   batch = line / p.rows / p.heads;
    const double position =
        p.placed ? positions.geti(batch * p.rows + row) : static_cast<double>(p.first + row);
    const double angle = position * frequencies.get(i);
    const double c = p.scale * std::cos(angle), s = p.scale * std::sin(p.backward ? -angle : angle);
    const uint64_t a = p.interleaved ? 2 * i : i, b = p.interleaved ? a + 1 : i + half;
    const uint64_t from = batch * p.x_stride[0] + head * p.x_stride[1] + row * p.x_stride[2];
    const double left = x.get(from + a * p.x_stride[3]), right = x.get(from + b * p.x_stride[3]);
    y.set(line * p.dim + a, static_cast<Real>(left * c - right * s));
    y.set(line * p.dim + b, static_cast<Real>(right * c + left * s));
  }
}

}  // namespace rw::reference
