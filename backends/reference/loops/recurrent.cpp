#include <cmath>

#include "backends/reference/kernels.h"
#include "backends/reference/loops/elementwise.h"

namespace rw::reference {

using namespace kernels;

namespace {

using elementwise::sigmoid;

// The places of element j of gate k (of `gates`) of a row, and of the row's element in [rows,
// hidden].
struct Place {
  uint64_t row, j, hidden;
  uint64_t gate(uint64_t k, uint64_t gates) const { return (row * gates + k) * hidden + j; }
  uint64_t bias(uint64_t k) const { return k * hidden + j; }
  uint64_t state() const { return row * hidden + j; }
};

template <class P, class Body>
void for_each_element(const P& p, const Body& body) {
  for (uint64_t row = 0; row < p.rows; ++row)
    for (uint64_t j = 0; j < p.hidden; ++j) body(Place{row, j, p.hidden});
}

}  // namespace

void lstm_cell(const Call& call) {
  const auto p = call.params<CellParams>();
  const Elements gx = call.in(0), gh = call.in(1), bias = call.in(2);
  Elements c = call.inout(3), h = call.out(4), saved = call.out(5), acts = call.out(6);
  for_each_element(p, [&](const Place& at) {
    const auto sum = [&](uint64_t k) {
      return double{gx.get(at.gate(k, 4))} + gh.get(at.gate(k, 4)) + bias.get(at.bias(k));
    };
    const double gates[] = {sigmoid(sum(0)), sigmoid(sum(1)), std::tanh(sum(2)), sigmoid(sum(3))};
    const double state = gates[1] * c.get(at.state()) + gates[0] * gates[2];
    for (uint64_t k = 0; k < 4; ++k) acts.set(at.gate(k, 4), static_cast<Real>(gates[k]));
    c.set(at.state(), static_cast<Real>(state));
    saved.set(at.state(), static_cast<Real>(state));
    h.set(at.state(), static_cast<Real>(gates[3] * std::tanh(state)));
  });
}

void lstm_cell_grad(const Call& call) {
  const auto p = call.params<CellParams>();
  const Elements acts = call.in(0), c_prev = call.in(1), c = call.in(2), dy = call.in(3),
                 dh = call.in(4);
  Elements dc = call.inout(5), dgates = call.out(6);
  for_each_element(p, [&](const Place& at) {
    const auto act = [&](uint64_t k) { return double{acts.get(at.gate(k, 4))}; };
    const double i = act(0), f = act(1), g = act(2), o = act(3);
    const double d = double{dy.get(at.state())} + dh.get(at.state()),
                 t = std::tanh(double{c.get(at.state())});
    const double dcell = dc.get(at.state()) + d * o * (1 - t * t);
    const double gates[] = {dcell * g * i * (1 - i), dcell * c_prev.get(at.state()) * f * (1 - f),
                            dcell * i * (1 - g * g), d * t * o * (1 - o)};
    for (uint64_t k = 0; k < 4; ++k) dgates.set(at.gate(k, 4), static_cast<Real>(gates[k]));
    dc.set(at.state(), static_cast<Real>(dcell * f));
  });
}

void gru_cell(const Call& call) {
  const auto p = call.params<CellParams>();
  const Elements gx = call.in(0), gh = call.in(1), bias = call.in(2), h_prev = call.in(3);
  Elements h = call.out(4), acts = call.out(5);
  for_each_element(p, [&](const Place& at) {
    const auto inner = [&](uint64_t k) {
      return double{gh.get(at.gate(k, 3))} + bias.get(at.bias(k));
    };
    const double r = sigmoid(gx.get(at.gate(0, 3)) + inner(0));
    const double z = sigmoid(gx.get(at.gate(1, 3)) + inner(1)), q = inner(2);
    const double n = std::tanh(gx.get(at.gate(2, 3)) + r * q);
    const double gates[] = {r, z, n, q};
    for (uint64_t k = 0; k < 4; ++k) acts.set(at.gate(k, 4), static_cast<Real>(gates[k]));
    h.set(at.state(), static_cast<Real>((1 - z) * n + z * h_prev.get(at.state())));
  });
}

void gru_cell_grad(const Call& call) {
  const auto p = call.params<CellParams>();
  const Elements acts = call.in(0), h_prev = call.in(1), dy = call.in(2), dh = call.in(3);
  Elements carry = call.inout(4), dgx = call.out(5), dgh = call.out(6);
  for_each_element(p, [&](const Place& at) {
    const auto act = [&](uint64_t k) { return double{acts.get(at.gate(k, 4))}; };
    const double r = act(0), z = act(1), n = act(2), q = act(3);
    const double d = double{dy.get(at.state())} + dh.get(at.state()) + carry.get(at.state());
    const double dn = d * (1 - z) * (1 - n * n), dr = dn * q * r * (1 - r);
    const double dz = d * (h_prev.get(at.state()) - n) * z * (1 - z);
    const double x[] = {dr, dz, dn}, inner[] = {dr, dz, dn * r};
    for (uint64_t k = 0; k < 3; ++k) {
      dgx.set(at.gate(k, 3), static_cast<Real>(x[k]));
      dgh.set(at.gate(k, 3), static_cast<Real>(inner[k]));
    }
    carry.set(at.state(), static_cast<Real>(d * z));
  });
}

}  // namespace rw::reference
