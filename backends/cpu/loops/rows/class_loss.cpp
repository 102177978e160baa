// Losses of classes: cross entropy, also with weights or target distributions, and nll_loss.
#include "backends/cpu/loops/rows/rows.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

float at(const Operand& x, int64_t i) {
  float value;
  return *read(x, i, 1, &value);
}

}  // namespace

bool nll_loss(const LoopCall& call) {
  const auto& p = params<ClassLossParams>(call);
  const Operand x = operand(call, 0);
  const int32_t* const targets = operand(call, 1).as<int32_t>();
  float* const loss = operand(call, 2).as<float>();
  for (int64_t row = 0; row < p.rows; ++row) {
    const int64_t t = targets[row];
    const bool is_valid = t >= 0 && t < p.cols;
    loss[row] = t == p.ignore_index ? 0 : is_valid ? -at(x, row * p.cols + t) : nan;
  }
  return true;
}

bool nll_loss_grad(const LoopCall& call) {
  const auto& p = params<ClassLossParams>(call);
  const int32_t* const targets = operand(call, 0).as<int32_t>();
  const float* const dloss = operand(call, 1).as<float>();
  const Operand dx = operand(call, 2);
  const int64_t cols = p.cols;
  parallel_for(p.rows, p.rows * cols * dx.width, [&](int64_t row) {
    const int64_t t = targets[row];
    const bool is_ignored = t == p.ignore_index, is_valid = t >= 0 && t < cols;
    Block result;
    blocks_of(cols, [&](int64_t first, int64_t n) {
      float* to = place(dx, row * cols + first, result.at);
      for (int64_t i = 0; i < n; ++i) to[i] = is_ignored || is_valid ? 0 : nan;
      if (!is_ignored && t >= first && t < first + n) to[t - first] = -dloss[row];
      write(dx, row * cols + first, n, to);
    });
  });
  return true;
}

bool cross_entropy(const LoopCall& call) {
  const auto& p = params<ClassLossParams>(call);
  const Operand x = operand(call, 0);
  const int32_t* const targets = operand(call, 1).as<int32_t>();
  float *const loss = operand(call, 2).as<float>(), *const lse = operand(call, 3).as<float>();
  const int64_t cols = p.cols;
  parallel_for(p.rows, p.rows * cols * x.width, [&](int64_t row) {
    Row values(x, row, cols);
    const double whole = log_sum_exp(values, cols), s = p.smoothing;
    const int64_t t = targets[row];
    lse[row] = static_cast<float>(whole);
    if (t == p.ignore_index || t < 0 || t >= cols) {
      loss[row] = t == p.ignore_index ? 0 : nan;
      return;
    }
    double result = (1 - s) * (whole - double{at(x, row * cols + t)});
    if (s != 0) {  // 0 * (whole - mean) is NaN if a logit is -infinity
      double total = 0;
      blocks_of(cols, [&](int64_t first, int64_t n) { total += sum(values.read(first, n), n); });
      result += s * (whole - total / static_cast<double>(cols));
    }
    loss[row] = static_cast<float>(result);
  });
  return true;
}

bool cross_entropy_grad(const LoopCall& call) {
  const auto& p = params<ClassLossParams>(call);
  const Operand x = operand(call, 0), dx = operand(call, 4);
  const int32_t* const targets = operand(call, 1).as<int32_t>();
  const float *lse = operand(call, 2).as<float>(), *dloss = operand(call, 3).as<float>();
  const int64_t cols = p.cols;
  const float share = p.smoothing / static_cast<float>(cols);
  parallel_for(p.rows, p.rows * cols * (x.width + dx.width), [&](int64_t row) {
    const int64_t t = targets[row];
    const bool is_ignored = t == p.ignore_index, is_valid = t >= 0 && t < cols;
    const float whole = lse[row], factor = dloss[row];
    Block values, result;
    blocks_of(cols, [&](int64_t first, int64_t n) {
      const float* from = read(x, row * cols + first, n, values.at);
      float* to = place(dx, row * cols + first, result.at);
      if (is_ignored || !is_valid) {
        for (int64_t i = 0; i < n; ++i) to[i] = is_ignored ? 0 : nan;
      } else {
        const bool has_target = t >= first && t < first + n;
        const float of_target = has_target ? exp(from[t - first] - whole) : 0;  // dx may be x
        REWIND_VECTORIZE
        for (int64_t i = 0; i < n; ++i) to[i] = factor * (exp(from[i] - whole) - share);
        if (has_target) to[t - first] = factor * (of_target - (1 - p.smoothing) - share);
      }
      write(dx, row * cols + first, n, to);
    });
  });
  return true;
}

namespace {

// The weighted share of each class in a row's smoothed target.
struct Shares {
  Operand target, weight;
  bool is_weighted;
  int64_t cols;
  float smoothing;

  void make(int64_t row, int64_t first, int64_t n, float* to) const {
    Block values;
    const float keep = 1 - smoothing, more = smoothing / static_cast<float>(cols);
    if (is_real(target.dtype)) {
      const float* p = read(target, row * cols + first, n, values.at);
      REWIND_VECTORIZE
      for (int64_t i = 0; i < n; ++i) to[i] = mul_add(keep, p[i], more);
    } else {
      const int64_t t = *target.as<int32_t>(row) - first;
      for (int64_t i = 0; i < n; ++i) to[i] = more;
      if (t >= 0 && t < n) to[t] = keep + more;
    }
    if (!is_weighted) return;
    const float* w = read(weight, first, n, values.at);
    REWIND_VECTORIZE
    for (int64_t i = 0; i < n; ++i) to[i] *= w[i];
  }
};

}  // namespace

bool soft_cross_entropy(const LoopCall& call) {
  const auto& p = params<ClassLossParams>(call);
  const Operand x = operand(call, 0), target = operand(call, 1);
  float *losses = operand(call, 3).as<float>(), *lses = operand(call, 4).as<float>();
  float* masses = operand(call, 5).as<float>();
  const int64_t cols = p.cols;
  const Shares shares{target, operand(call, 2), call.constant[0] != 0, cols, p.smoothing};
  parallel_for(p.rows, p.rows * cols * 2 * x.width, [&](int64_t row) {
    Row values(x, row, cols);
    const double whole = log_sum_exp(values, cols);
    const float lse = static_cast<float>(whole);
    double loss = 0, mass = 0;
    blocks_of(cols, [&](int64_t first, int64_t n) {
      Block parts;
      shares.make(row, first, n, parts.at);
      mass += sum(parts.at, n);
      const float* from = values.read(first, n);
      REWIND_VECTORIZE
      for (int64_t i = 0; i < n; ++i) {
        const float product = parts.at[i] * (lse - from[i]);
        parts.at[i] = parts.at[i] != 0.0f ? product : 0.0f;
      }
      loss += sum(parts.at, n);
    });
    if (!is_real(target.dtype)) {
      const int64_t t = *target.as<int32_t>(row);
      if (t == p.ignore_index)
        loss = mass = 0;
      else if (t < 0 || t >= cols)
        loss = mass = double{nan};
    }
    losses[row] = static_cast<float>(loss);
    lses[row] = lse;
    masses[row] = static_cast<float>(mass);
  });
  return true;
}

bool soft_cross_entropy_grad(const LoopCall& call) {
  const auto& p = params<ClassLossParams>(call);
  const Operand x = operand(call, 0), target = operand(call, 1), dx = operand(call, 6);
  const float *lse = operand(call, 3).as<float>(), *mass = operand(call, 4).as<float>();
  const float* dloss = operand(call, 5).as<float>();
  const int64_t cols = p.cols;
  const Shares shares{target, operand(call, 2), call.constant[0] != 0, cols, p.smoothing};
  parallel_for(p.rows, p.rows * cols * 2 * (x.width + dx.width), [&](int64_t row) {
    const bool is_ignored = !is_real(target.dtype) && *target.as<int32_t>(row) == p.ignore_index;
    const float whole = lse[row], factor = dloss[row], all_mass = mass[row];
    blocks_of(cols, [&](int64_t first, int64_t n) {
      Block values, parts, result;
      float* to = place(dx, row * cols + first, result.at);
      if (is_ignored) {
        for (int64_t i = 0; i < n; ++i) to[i] = 0;
      } else {
        shares.make(row, first, n, parts.at);
        const float* from = read(x, row * cols + first, n, values.at);
        REWIND_VECTORIZE
        for (int64_t i = 0; i < n; ++i)
          to[i] = factor * (all_mass * exp(from[i] - whole) - parts.at[i]);
      }
      write(dx, row * cols + first, n, to);
    });
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
