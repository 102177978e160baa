// Adafactor for one parameter at a time, dense [matrices, rows, cols].
#include "backends/cpu/loops/optim/chunks.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// The share by which a mean square moves to that of this update; in the first update, all the way.
struct Step {
  float kept, fresh;

  template <class P>
  Step(const State& state, const P& p) {
    const double step = __builtin_pow(state.own_updates(p.own), double{p.beta2_decay});
    kept = to_float(1 - step);
    fresh = to_float(step);
  }
  float operator()(float before, float mean) const { return kept * before + fresh * mean; }
};

// The mean of n elements, whose squares with the loss scale have this sum.
float mean_square(const State& state, double squares, int64_t n) {
  const double factor = state.grad_factor();
  return to_float(factor * factor * squares / static_cast<double>(n));
}

// The updates of elements [at, at + count), which lie in one row, from their gradients.
class Updates {
 public:
  Updates(const LoopCall& call)
      : p_(params<AdafactorParams>(call)),
        state_(state_of(call, 5)),
        grad_(operand(call, 1).as<float>()),
        row_var_(operand(call, 2).as<float>()),
        col_var_(operand(call, 3).as<float>()),
        mean_(operand(call, 4).as<float>()),
        factored_(call.constant[0] != 0) {}

  // Calls body(at, count, u) for the runs of [begin, end). With `takes_in`, the estimate that is
  // not factored first takes in the squares of the gradients.
  template <class Body>
  void each_run(int64_t begin, int64_t end, bool takes_in, const Body& body) const {
    Block u;
    const int64_t cols = factored_ ? p_.cols : INT64_MAX;
    for (int64_t at = begin; at < end;) {
      const int64_t count = least(least(block, end - at), cols - at % cols);
      make(at, count, takes_in, u.at);
      body(at, count, u.at);
      at += count;
    }
  }

 private:
  void make(int64_t at, int64_t count, bool takes_in, float* u) const {
    const float factor = state_.grad_factor(), least_root = p_.eps1;
    const float* g = grad_ + at;
    if (factored_) {
      const int64_t row = at / p_.cols, matrix = row / p_.rows;
      const float of_row = row_var_[row] / max(mean_[matrix], p_.eps1);
      const float* of_col = col_var_ + matrix * p_.cols + at % p_.cols;
      each(count,
           [=](int64_t i) { u[i] = factor * g[i] / max(sqrt(of_row * of_col[i]), least_root); });
      return;
    }
    const Step moved(state_, p_);
    float* v = row_var_ + at;
    each(count, [=](int64_t i) {
      const float gradient = factor * g[i];
      const float now = takes_in ? moved(v[i], gradient * gradient) : v[i];
      v[i] = now;
      u[i] = gradient / max(sqrt(now), least_root);
    });
  }

  const AdafactorParams& p_;
  State state_;
  const float* grad_;
  float* row_var_;
  const float *col_var_, *mean_;
  bool factored_;
};

double root_mean_square(const AdafactorParams& p, const float* partial) {
  double squares = 0;
  for (int64_t c = 0; c < p.chunks; ++c) squares += double{partial[c]} * double{partial[c]};
  return __builtin_sqrt(squares / p.n);
}

}  // namespace

bool adafactor_rows(const LoopCall& call) {
  const auto& p = params<AdafactorParams>(call);
  const State state = state_of(call, 2);
  if (state.skips()) return true;
  const float* grad = operand(call, 0).as<float>();
  float* row_var = operand(call, 1).as<float>();
  const Step moved(state, p);
  const int64_t rows = int64_t{p.matrices} * p.rows, cols = p.cols;
  parallel_for(rows, rows * cols * 4, [&](int64_t row) {
    Squares squares;
    for (int64_t at = 0; at < cols; at += block)
      squares.add(grad + row * cols + at, least(block, cols - at));
    const double norm = squares.norm();
    row_var[row] = moved(row_var[row], mean_square(state, norm * norm, cols));
  });
  return true;
}

bool adafactor_columns(const LoopCall& call) {
  const auto& p = params<AdafactorParams>(call);
  const float* grad = operand(call, 0).as<float>();
  float* partial = operand(call, 1).as<float>();
  const int64_t cols = p.cols, across = divide_up(cols, block), rows = p.rows, chunks = p.chunks;
  parallel_for(p.matrices * chunks * across, p.matrices * rows * cols * 4, [&](int64_t i) {
    const int64_t col = i % across * block, chunk = i / across % chunks,
                  matrix = i / across / chunks;
    const int64_t first = chunk * ADAFACTOR_ROWS, end = least(first + ADAFACTOR_ROWS, rows);
    const int64_t count = least(block, cols - col);
    float* to = partial + (matrix * chunks + chunk) * cols + col;
    double sums[block], *squares = sums;
    for (int64_t c = 0; c < count; ++c) squares[c] = 0;
    for (int64_t row = first; row < end; ++row) {
      const float* g = grad + (matrix * rows + row) * cols + col;
      each(count, [=](int64_t c) { squares[c] += double{g[c]} * double{g[c]}; });
    }
    each(count, [=](int64_t c) { to[c] = to_float(__builtin_sqrt(squares[c])); });
  });
  return true;
}

bool adafactor_combine(const LoopCall& call) {
  const auto& p = params<AdafactorParams>(call);
  const State state = state_of(call, 2);
  if (state.skips()) return true;
  const float* partial = operand(call, 0).as<float>();
  float* col_var = operand(call, 1).as<float>();
  const Step moved(state, p);
  const int64_t rows = p.rows, cols = p.cols, across = divide_up(cols, block), chunks = p.chunks;
  parallel_for(p.matrices * across, p.matrices * chunks * cols * 4, [&](int64_t i) {
    const int64_t matrix = i / across, col = i % across * block, count = least(block, cols - col);
    double sums[block], *squares = sums;
    for (int64_t c = 0; c < count; ++c) squares[c] = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const float* part = partial + (matrix * chunks + chunk) * cols + col;
      each(count, [=](int64_t c) { squares[c] += double{part[c]} * double{part[c]}; });
    }
    float* v = col_var + matrix * cols + col;
    each(count, [=](int64_t c) { v[c] = moved(v[c], mean_square(state, squares[c], rows)); });
  });
  return true;
}

bool adafactor_norms(const LoopCall& call) {
  const auto& p = params<AdafactorParams>(call);
  if (state_of(call, 5).skips()) return true;
  const float* x = operand(call, 0).as<float>();
  float* partial = operand(call, 6).as<float>();
  const Updates updates(call);
  parallel_for(p.chunks, int64_t{p.n} * 12, [&](int64_t chunk) {
    Squares squares_x, squares_u;
    const int64_t begin = chunk * ADAFACTOR_CHUNK, end = least(begin + ADAFACTOR_CHUNK, p.n);
    updates.each_run(begin, end, true, [&](int64_t at, int64_t count, const float* u) {
      squares_x.add(x + at, count);
      squares_u.add(u, count);
    });
    partial[chunk] = squares_x.norm();
    partial[p.chunks + chunk] = squares_u.norm();
  });
  return true;
}

bool adafactor(const LoopCall& call) {
  const auto& p = params<AdafactorParams>(call);
  const State state = state_of(call, 5);
  if (state.skips()) return true;
  float* values = operand(call, 0).as<float>();
  const float* partial = operand(call, 6).as<float>();
  const double lr = state.lr(p.lr), relative = 1 / __builtin_sqrt(state.own_updates(p.own)),
               eps2 = p.eps2;
  double rate = (p.flags & ADAFACTOR_RELATIVE) != 0 && relative < lr ? relative : lr;
  const double size = (p.flags & ADAFACTOR_SCALED) != 0 ? root_mean_square(p, partial) : 1;
  if ((p.flags & ADAFACTOR_SCALED) != 0) rate *= size < eps2 ? eps2 : size;
  const double excess = root_mean_square(p, partial + p.chunks) / p.clip;
  const float kept = to_float(1 - lr * p.weight_decay);
  const float step = to_float(excess > 1 ? rate / excess : rate);
  const Updates updates(call);
  parallel_for(p.chunks, int64_t{p.n} * 12, [&](int64_t chunk) {
    const int64_t begin = chunk * ADAFACTOR_CHUNK, end = least(begin + ADAFACTOR_CHUNK, p.n);
    updates.each_run(begin, end, false, [&](int64_t at, int64_t count, const float* u) {
      float* x = values + at;
      each(count, [=](int64_t i) { x[i] = kept * x[i] - step * u[i]; });
    });
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
