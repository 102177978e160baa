// Recurrent cells: one step of LSTM and GRU.
#include "backends/cpu/loops/vectors.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// Elements [at, at + count) of each gate of a row, of `gates` gates of `hidden` elements.
struct Gates {
  int64_t row, gates, hidden, at, count;
  int64_t of(int64_t gate) const { return (row * gates + gate) * hidden + at; }
  int64_t state() const { return row * hidden + at; }
};

// Calls body(row, at, count) for the blocks of [rows, hidden].
template <class P, class Body>
void each_state(const P& p, int64_t width, const Body& body) {
  const int64_t hidden = p.hidden;
  parallel_for(p.rows, p.rows * hidden * 8 * width, [&](int64_t row) {
    blocks_of(hidden, [&](int64_t at, int64_t count) { body(row, at, count); });
  });
}

// Sets `to` to x + bias of a gate.
void add_bias(const Operand& x, const Operand& bias, const Gates& g, int64_t gate, float* to) {
  Block values, shifts;
  const float* v = read(x, g.of(gate), g.count, values.at);
  const float* b = read(bias, gate * g.hidden + g.at, g.count, shifts.at);
  each(g.count, [=](int64_t i) { to[i] = v[i] + b[i]; });
}
void add(const Operand& x, const Gates& g, int64_t gate, float* to) {
  Block values;
  const float* v = read(x, g.of(gate), g.count, values.at);
  each(g.count, [=](int64_t i) { to[i] += v[i]; });
}

}  // namespace

bool lstm_cell(const LoopCall& call) {
  const auto& p = params<CellParams>(call);
  const Operand gx = operand(call, 0), gh = operand(call, 1), bias = operand(call, 2),
                c = operand(call, 3), h = operand(call, 4), saved = operand(call, 5),
                acts = operand(call, 6);
  each_state(p, gx.width, [&](int64_t row, int64_t at, int64_t n) {
    const Gates g{row, 4, p.hidden, at, n};
    Block gate[4], cells, result;
    for (int64_t k = 0; k < 4; ++k) {
      add_bias(gh, bias, g, k, gate[k].at);
      add(gx, g, k, gate[k].at);
      float* const a = gate[k].at;
      if (k == 2)
        each(n, [=](int64_t i) { a[i] = tanh(a[i]); });
      else
        each(n, [=](int64_t i) { a[i] = sigmoid(a[i]); });
      write(acts, g.of(k), n, a);
    }
    const float *in = gate[0].at, *keep = gate[1].at, *fresh = gate[2].at, *out = gate[3].at;
    const float* before = read(c, g.state(), n, cells.at);
    float *state = cells.at, *y = result.at;
    each(n, [=](int64_t i) {
      state[i] = keep[i] * before[i] + in[i] * fresh[i];
      y[i] = out[i] * tanh(state[i]);
    });
    write(c, g.state(), n, state);
    write(saved, g.state(), n, state);
    write(h, g.state(), n, y);
  });
  return true;
}

bool lstm_cell_grad(const LoopCall& call) {
  const auto& p = params<CellParams>(call);
  const Operand acts = operand(call, 0), c_prev = operand(call, 1), c = operand(call, 2),
                dy = operand(call, 3), dh = operand(call, 4), dc = operand(call, 5),
                dgates = operand(call, 6);
  each_state(p, acts.width, [&](int64_t row, int64_t at, int64_t n) {
    const Gates g{row, 4, p.hidden, at, n};
    Block act[4], values[5], grad[4];
    const float* a[4];
    for (int64_t k = 0; k < 4; ++k) a[k] = read(acts, g.of(k), n, act[k].at);
    const float *in = a[0], *keep = a[1], *fresh = a[2], *out = a[3];
    const float *before = read(c_prev, g.state(), n, values[0].at),
                *state = read(c, g.state(), n, values[1].at),
                *of_y = read(dy, g.state(), n, values[2].at),
                *of_h = read(dh, g.state(), n, values[3].at),
                *of_c = read(dc, g.state(), n, values[4].at);
    float *d0 = grad[0].at, *d1 = grad[1].at, *d2 = grad[2].at, *d3 = grad[3].at;
    float* carry = values[4].at;
    each(n, [=](int64_t i) {
      const float d = of_y[i] + of_h[i], t = tanh(state[i]);
      const float cell = of_c[i] + d * out[i] * (1 - t * t);
      d0[i] = cell * fresh[i] * in[i] * (1 - in[i]);
      d1[i] = cell * before[i] * keep[i] * (1 - keep[i]);
      d2[i] = cell * in[i] * (1 - fresh[i] * fresh[i]);
      d3[i] = d * t * out[i] * (1 - out[i]);
      carry[i] = cell * keep[i];
    });
    for (int64_t k = 0; k < 4; ++k) write(dgates, g.of(k), n, grad[k].at);
    write(dc, g.state(), n, carry);
  });
  return true;
}

bool gru_cell(const LoopCall& call) {
  const auto& p = params<CellParams>(call);
  const Operand gx = operand(call, 0), gh = operand(call, 1), bias = operand(call, 2),
                h_prev = operand(call, 3), h = operand(call, 4), acts = operand(call, 5);
  each_state(p, gx.width, [&](int64_t row, int64_t at, int64_t n) {
    const Gates g{row, 3, p.hidden, at, n}, all_acts{row, 4, p.hidden, at, n};
    Block gate[3], fresh, values[2];
    for (int64_t k = 0; k < 3; ++k) add_bias(gh, bias, g, k, gate[k].at);
    for (int64_t k = 0; k < 2; ++k) add(gx, g, k, gate[k].at);
    float *r = gate[0].at, *z = gate[1].at, *q = gate[2].at, *next = fresh.at, *y = values[1].at;
    const float *x = read(gx, g.of(2), n, values[0].at),
                *before = read(h_prev, g.state(), n, values[1].at);
    each(n, [=](int64_t i) {
      r[i] = sigmoid(r[i]);
      z[i] = sigmoid(z[i]);
      next[i] = tanh(x[i] + r[i] * q[i]);
      y[i] = (1 - z[i]) * next[i] + z[i] * before[i];
    });
    const float* const made[] = {r, z, next, q};
    for (int64_t k = 0; k < 4; ++k) write(acts, all_acts.of(k), n, made[k]);
    write(h, g.state(), n, y);
  });
  return true;
}

bool gru_cell_grad(const LoopCall& call) {
  const auto& p = params<CellParams>(call);
  const Operand acts = operand(call, 0), h_prev = operand(call, 1), dy = operand(call, 2),
                dh = operand(call, 3), carry = operand(call, 4), dgx = operand(call, 5),
                dgh = operand(call, 6);
  each_state(p, acts.width, [&](int64_t row, int64_t at, int64_t n) {
    const Gates g{row, 3, p.hidden, at, n}, all_acts{row, 4, p.hidden, at, n};
    Block act[4], values[4], grad[4];
    const float* a[4];
    for (int64_t k = 0; k < 4; ++k) a[k] = read(acts, all_acts.of(k), n, act[k].at);
    const float *r = a[0], *z = a[1], *fresh = a[2], *q = a[3];
    const float *before = read(h_prev, g.state(), n, values[0].at),
                *of_y = read(dy, g.state(), n, values[1].at),
                *of_h = read(dh, g.state(), n, values[2].at),
                *behind = read(carry, g.state(), n, values[3].at);
    float *dr = grad[0].at, *dz = grad[1].at, *dn = grad[2].at, *dq = grad[3].at;
    float* left = values[3].at;
    each(n, [=](int64_t i) {
      const float d = of_y[i] + of_h[i] + behind[i];
      dn[i] = d * (1 - z[i]) * (1 - fresh[i] * fresh[i]);
      dr[i] = dn[i] * q[i] * r[i] * (1 - r[i]);
      dz[i] = d * (before[i] - fresh[i]) * z[i] * (1 - z[i]);
      dq[i] = dn[i] * r[i];
      left[i] = d * z[i];
    });
    const float *const of_x[] = {dr, dz, dn}, *const of_inner[] = {dr, dz, dq};
    for (int64_t k = 0; k < 3; ++k) {
      write(dgx, g.of(k), n, of_x[k]);
      write(dgh, g.of(k), n, of_inner[k]);
    }
    write(carry, g.state(), n, left);
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
