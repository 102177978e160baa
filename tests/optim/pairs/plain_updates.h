// Optimizers as plain loops in double over one parameter, from their papers and PyTorch's pages.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "../../../core/blocks/block_type.h"
#include "../../../optim/adafactor.h"
#include "../../../optim/adagrad.h"
#include "../../../optim/adam8bit.h"
#include "../../../optim/base/loss_scaler.h"
#include "../../../optim/lamb.h"
#include "../../../optim/lion.h"
#include "../../../optim/muon.h"
#include "../../../optim/rmsprop.h"
#include "../../../optim/sgd.h"

namespace rw::test {

using Doubles = std::vector<double>;

inline double length_of(const Doubles& x) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  return std::sqrt(squares);
}

// Changes a parameter's values by a gradient. t, from 1, is the number of the parameter's updates.
using PlainUpdate =
    std::function<void(Doubles& x, const Doubles& g, double lr, double decay, int t)>;

inline PlainUpdate plain_sgd(const SGDOptions& o) {
  return [o, buffer = Doubles()](Doubles& x, const Doubles& g, double lr, double decay,
                                 int t) mutable {
    buffer.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = (o.maximize ? -g[i] : g[i]) + decay * x[i];
      buffer[i] = t == 1 ? d : o.momentum * buffer[i] + (1.0 - o.dampening) * d;
      x[i] -= lr * (o.momentum == 0 ? d : o.nesterov ? d + o.momentum * buffer[i] : buffer[i]);
    }
  };
}

// Rounds the blocks of a moment to codes. Means of squares that are not 0 stay above it.
inline void round_to_8_bits(Doubles& moment, bool is_signed) {
  constexpr size_t block = 256;
  const std::array<float, 256> map = dynamic_map(is_signed);
  const auto least = map.begin() + !is_signed;
  for (size_t begin = 0; begin < moment.size(); begin += block) {
    const size_t end = std::min(moment.size(), begin + block);
    double most = 0;
    for (size_t i = begin; i < end; ++i) most = std::max(most, std::abs(moment[i]));
    for (size_t i = begin; i < end; ++i) {
      if (moment[i] == 0) continue;
      const double share = moment[i] / most;
      auto code = std::lower_bound(least, map.end() - 1, share);
      if (code != least && share - code[-1] <= *code - share) --code;
      moment[i] = most * *code;
    }
  }
}

// With `is_8bit`, the moments of a large parameter are rounded for the next update.
inline PlainUpdate plain_adam(const AdamWOptions& o, bool is_decoupled, bool is_8bit = false) {
  return [o, is_decoupled, is_8bit, m = Doubles(), v = Doubles(), most = Doubles()](
             Doubles& x, const Doubles& g, double lr, double decay, int t) mutable {
    m.resize(x.size()), v.resize(x.size()), most.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = is_decoupled ? g[i] : g[i] + decay * x[i];
      if (is_decoupled) x[i] -= lr * decay * x[i];
      m[i] = o.beta1 * m[i] + (1.0 - o.beta1) * d;
      v[i] = o.beta2 * v[i] + (1.0 - o.beta2) * d * d;
      most[i] = std::max(most[i], v[i]);
      const double mean = m[i] / (1 - std::pow(double{o.beta1}, t));
      const double square = (o.amsgrad ? most[i] : v[i]) / (1 - std::pow(double{o.beta2}, t));
      x[i] -= lr * mean / (std::sqrt(square) + o.eps);
    }
    if (!is_8bit || x.size() < least_8bit_elements) return;
    round_to_8_bits(m, true);
    round_to_8_bits(v, false);
  };
}

inline PlainUpdate plain_adagrad(const AdagradOptions& o) {
  return
      [o, sum = Doubles()](Doubles& x, const Doubles& g, double lr, double decay, int t) mutable {
        sum.resize(x.size(), o.initial_accumulator_value);
        for (size_t i = 0; i < x.size(); ++i) {
          const double d = g[i] + decay * x[i];
          sum[i] += d * d;
          x[i] -= lr / (1 + (t - 1) * double{o.lr_decay}) * d / (std::sqrt(sum[i]) + o.eps);
        }
      };
}

inline PlainUpdate plain_rmsprop(const RMSpropOptions& o) {
  return [o, square = Doubles(), mean = Doubles(), buffer = Doubles()](
             Doubles& x, const Doubles& g, double lr, double decay, int) mutable {
    square.resize(x.size()), mean.resize(x.size()), buffer.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = g[i] + decay * x[i];
      square[i] = o.alpha * square[i] + (1.0 - o.alpha) * d * d;
      mean[i] = o.alpha * mean[i] + (1.0 - o.alpha) * d;
      const double v = o.centered ? square[i] - mean[i] * mean[i] : square[i];
      buffer[i] = o.momentum * buffer[i] + d / (std::sqrt(v) + o.eps);
      x[i] -= lr * buffer[i];
    }
  };
}

inline PlainUpdate plain_lion(const LionOptions& o) {
  return [o, m = Doubles()](Doubles& x, const Doubles& g, double lr, double decay, int) mutable {
    m.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double u = o.beta1 * m[i] + (1.0 - o.beta1) * g[i];
      x[i] -= lr * (decay * x[i] + (u > 0 ? 1 : u < 0 ? -1 : 0));
      m[i] = o.beta2 * m[i] + (1.0 - o.beta2) * g[i];
    }
  };
}

inline PlainUpdate plain_lamb(const LambOptions& o) {
  return [o, m = Doubles(), v = Doubles()](Doubles& x, const Doubles& g, double lr, double decay,
                                           int t) mutable {
    m.resize(x.size()), v.resize(x.size());
    Doubles u(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      m[i] = o.beta1 * m[i] + (1.0 - o.beta1) * g[i];
      v[i] = o.beta2 * v[i] + (1.0 - o.beta2) * g[i] * g[i];
      const double root = std::sqrt(v[i] / (1 - std::pow(double{o.beta2}, t)));
      u[i] = m[i] / (1 - std::pow(double{o.beta1}, t)) / (root + o.eps) + decay * x[i];
    }
    const double size = length_of(x), change = length_of(u);
    const double ratio = decay != 0 && size > 0 && change > 0 ? size / change : 1;
    for (size_t i = 0; i < x.size(); ++i) x[i] -= lr * ratio * u[i];
  };
}

// A matrix has second moments of its rows and columns, a vector one of each element.
inline PlainUpdate plain_adafactor(const AdafactorOptions& o, size_t rows, size_t cols) {
  return [o, rows, cols, row = Doubles(), col = Doubles(), each = Doubles()](
             Doubles& x, const Doubles& g, double lr, double decay, int t) mutable {
    const double share = std::pow(t, double{o.beta2_decay});
    const auto root = [](double sum, size_t n) { return sum / std::sqrt(static_cast<double>(n)); };
    row.resize(rows), col.resize(cols), each.resize(x.size());
    Doubles mean_row(rows), mean_col(cols), u(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      mean_row[i / cols] += g[i] * g[i] / static_cast<double>(cols);
      mean_col[i % cols] += g[i] * g[i] / static_cast<double>(rows);
      each[i] += share * (g[i] * g[i] - each[i]);
    }
    double mean = 0;
    for (size_t r = 0; r < rows; ++r) {
      row[r] += share * (mean_row[r] - row[r]);
      mean += row[r] / static_cast<double>(rows);
    }
    for (size_t c = 0; c < cols; ++c) col[c] += share * (mean_col[c] - col[c]);
    const double least = double{o.eps1} * o.eps1;
    for (size_t i = 0; i < x.size(); ++i) {
      const double factored = row[i / cols] * col[i % cols] / std::max<double>(mean, o.eps1);
      u[i] = g[i] / std::sqrt(std::max(rows > 1 ? factored : each[i], least));
    }
    double rate = o.relative_step ? std::min(lr, 1 / std::sqrt(t)) : lr;
    if (o.scale_parameter) rate *= std::max<double>(o.eps2, root(length_of(x), x.size()));
    rate /= std::max(1.0, root(length_of(u), u.size()) / o.clip);
    for (size_t i = 0; i < x.size(); ++i) x[i] -= lr * decay * x[i] + rate * u[i];
  };
}

// Newton-Schulz, u = a u + (b s + c s s) u with s = u u', where u is wide.
inline void orthogonalise(Doubles& u, size_t rows, size_t cols, const MuonOptions& o) {
  const auto [a, b, c] = o.ns_coefficients;
  const double size = std::max<double>(length_of(u), o.eps);
  for (double& v : u) v /= size;
  for (int n = 0; n < o.ns_steps; ++n) {
    Doubles s(rows * rows), factor(s), next(u.size());
    for (size_t i = 0; i < s.size(); ++i)
      for (size_t k = 0; k < cols; ++k) s[i] += u[i / rows * cols + k] * u[i % rows * cols + k];
    for (size_t i = 0; i < s.size(); ++i) {
      factor[i] = b * s[i];
      for (size_t k = 0; k < rows; ++k)
        factor[i] += c * s[i / rows * rows + k] * s[k * rows + i % rows];
    }
    for (size_t i = 0; i < u.size(); ++i) {
      next[i] = a * u[i];
      for (size_t k = 0; k < rows; ++k)
        next[i] += factor[i / cols * rows + k] * u[k * cols + i % cols];
    }
    u = next;
  }
}
inline PlainUpdate plain_muon(const MuonOptions& o, size_t rows, size_t cols) {
  return [o, rows, cols, buffer = Doubles()](Doubles& x, const Doubles& g, double lr, double decay,
                                             int) mutable {
    buffer.resize(x.size());
    Doubles u(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      buffer[i] = o.momentum * buffer[i] + (1.0 - o.momentum) * g[i];
      u[i] = o.nesterov ? (1.0 - o.momentum) * g[i] + o.momentum * buffer[i] : buffer[i];
    }
    orthogonalise(u, rows, cols, o);
    const auto wide = static_cast<double>(cols);  // at least as many columns as rows
    const double ratio = o.adjust_lr == MuonRate::match_rms_adamw ? 0.2 * std::sqrt(wide) : 1;
    for (size_t i = 0; i < x.size(); ++i) x[i] -= lr * (decay * x[i] + ratio * u[i]);
  };
}

// The loss scale's rule.
struct PlainScale {
  LossScaler o;
  double scale = o.initial;
  uint32_t good = 0, bad = 0;
  void note(bool overflow) {
    if (!o.is_dynamic) return;
    good = overflow ? 0 : good + 1;
    bad = overflow ? bad + 1 : o.keep_bad ? bad : 0;
    if (overflow && bad >= o.hysteresis)
      scale = std::max<double>(o.floor, scale * o.backoff), bad = 0;
    if (good >= o.interval) scale = std::min<double>(o.ceiling, scale * o.growth), good = bad = 0;
  }
};

}  // namespace rw::test
