// Rows of an optimizer's table of chunks, and values that all elements of an update share
// (shaders/params/optim.h).
#pragma once

#include "../fold.h"

namespace rw::cpu::REWIND_LEVEL {

// A row of the table gives a chunk's first elements in the parameters and their states and in the
// gradients, how many there are, and the chunk's number.
struct Chunk {
  int64_t begin, grad, size, number;
};

inline Chunk chunk_of(const Operand& table, int64_t row) {
  const int32_t* at = table.as<int32_t>(CHUNK_ROW * row);
  return {at[0], at[1], at[2], at[3]};
}

// Calls body(chunk) for rows [first, first + rows). `width` is the bytes of an element, over all
// operands.
template <class Body>
inline void each_chunk(const Operand& table, int64_t first, int64_t rows, int64_t width,
                       const Body& body) {
  int64_t elements = 0;
  for (int64_t row = first; row < first + rows; ++row) elements += chunk_of(table, row).size;
  parallel_for(rows, elements * width, [&](int64_t i) { body(chunk_of(table, first + i)); });
}

// Slots of the optimizer's state, in double, as the values computed from them are.
struct State {
  const float* slot;

  bool skips() const { return slot[STATE_FOUND_INF] != 0; }
  float grad_factor() const { return slot[STATE_GRAD_FACTOR]; }
  double lr(float lr) const { return double{lr} * slot[STATE_LR_FACTOR]; }
  double count(int64_t low, int64_t high) const {
    return double{slot[low]} + 0x1p24 * double{slot[high]};
  }
  double updates() const { return count(STATE_UPDATES, STATE_UPDATES + STATE_HIGH); }
  // of the parameter that has this chunk
  double own_updates(int64_t chunk) const {
    return updates() - count(STATE_MISSED(chunk), STATE_MISSED(chunk) + 1);
  }
  // returns 1 - beta^t, with t = own_updates(chunk)
  double correction(float beta, int64_t chunk) const {
    return 1 - __builtin_pow(double{beta}, own_updates(chunk));
  }
};
inline State state_of(const LoopCall& call, size_t i) {
  return {operand(call, i).as<float>()};
}

inline float to_float(double x) {
  return static_cast<float>(x);
}

// A sum of squares at three scales (shaders/optim/squares.glsl).
struct Squares {
  Vec plain{}, down{}, up{};

  void add(const float* x, int64_t count) {
    plain += fold_squares(x, count);
    down += fold_squares(x, count, SQUARES_DOWN);
    up += fold_squares(x, count, SQUARES_UP);
  }
  float norm() const {
    const float sum = fold_lanes<Sum>(plain);
    if (!(sum < infinity)) return sqrt(fold_lanes<Sum>(down)) / SQUARES_DOWN;
    return sum < 0x1p-80f ? sqrt(fold_lanes<Sum>(up)) / SQUARES_UP : sqrt(sum);
  }
};

}  // namespace rw::cpu::REWIND_LEVEL
