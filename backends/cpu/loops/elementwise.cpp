#include "backends/cpu/loops/elementwise.h"

#include "backends/cpu/loops/functions.h"
#include "backends/cpu/loops/views.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

template <class T, class U, class F>
inline void map(const T* x, int64_t count, U* y, const F& f) {
  REWIND_VECTORIZE
  for (int64_t i = 0; i < count; ++i) y[i] = f(x[i]);
}
template <class T, class U, class F>
inline void map(const T* a, const T* b, int64_t count, U* y, const F& f) {
  REWIND_VECTORIZE
  for (int64_t i = 0; i < count; ++i) y[i] = f(a[i], b[i]);
}

enum UnaryRow : uint32_t {
#define UNARY(id, name, forward, grad, saves, lo, hi) row_##name = id,
#include "shaders/elementwise.def"
};

// The same for a unary row or its gradient, whose f takes a double, too, if it turns by x.
template <uint32_t row, class F, class... Other>
inline void map_row(const float* x, int64_t count, float* y, const F& f, const Other*... other) {
  if constexpr (row == row_sin || row == row_cos || row == row_tan) {
    const auto is_far = [](float x) {
      return (bits_of(x) & 0x7fffffffu) > bits_of(most_turned) && abs(x) < infinity;
    };
    uint32_t far = 0;
    for (int64_t i = 0; i < count; ++i) far |= is_far(x[i]) ? 1u : 0u;
    if (far != 0) {
      for (int64_t i = 0; i < count; ++i)
        y[i] = is_far(x[i]) ? f(double{x[i]}, other[i]...) : f(x[i], other[i]...);
      return;
    }
  }
  map(x, other..., count, y, f);
}

void binary_block(uint32_t op, const int32_t* a, const int32_t* b, int64_t count, int32_t* y) {
  switch (op) {
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) \
  case id:                                            \
    return map(a, b, count, y, [](int64_t x, int64_t y) { return static_cast<int32_t>(forward); });
#define BINARY_FLOAT(id, name, forward, lo, hi, lo_y, hi_y)
#include "shaders/elementwise.def"
  }
}

template <class T>
void compare_block(uint32_t op, const T* a, const T* b, int64_t count, uint8_t* y) {
  switch (op) {
#define COMPARE(id, name, forward) \
  case id:                         \
    return map(a, b, count, y, [](T x, T y) { return static_cast<uint8_t>(forward); });
#include "shaders/elementwise.def"
  }
}

// The operands of a binary call.
struct Pair {
  View a, b;
};
inline Pair pair(const LoopCall& call, const BinaryParams& p) {
  const Operand a = operand(call, 0), b = operand(call, 1);
  switch (call.constant[1]) {
    case 0:
      return {view(a, p.rank, p.shape, p.a_stride), view(b, p.rank, p.shape, p.b_stride)};
    case 1:
      return {dense(a), dense(b)};
    case 2: {
      const uint32_t shape[] = {UINT32_MAX, p.period}, stride[] = {0, 1};
      return {dense(a), view(b, 2, shape, stride)};
    }
    default:
      return {dense(a), repeated(b)};
  }
}

}  // namespace

void unary_block(uint32_t op, const float* x, int64_t count, float a, float b, float* y) {
  switch (op) {
#define UNARY(id, name, forward, grad, saves, lo, hi) \
  case id:                                            \
    return map_row<id>(x, count, y,                   \
                       [a, b](auto x) { return (void)a, (void)b, static_cast<float>(forward); });
#include "shaders/elementwise.def"
  }
}

void unary_grad_block(uint32_t op, const float* s, const float* dy, int64_t count, float a, float b,
                      float* dx) {
  switch (op) {
#define UNARY(id, name, forward, grad, saves, lo, hi)                                             \
  case id:                                                                                        \
    return map_row<id>(                                                                           \
        s, count, dx,                                                                             \
        [a, b](auto s, float dy) { return (void)a, (void)b, (void)s, static_cast<float>(grad); }, \
        dy);
#include "shaders/elementwise.def"
  }
}

void binary_block(uint32_t op, const float* a, const float* b, int64_t count, float* y) {
  switch (op) {
#define BINARY(id, name, forward, lo, hi, lo_y, hi_y) \
  case id:                                            \
    return map(a, b, count, y, [](float x, float y) { return static_cast<float>(forward); });
#include "shaders/elementwise.def"
  }
}

bool grad_reads_saved(uint32_t op) {
  enum { SAVE_NONE = 0, SAVE_X = 1, SAVE_Y = 1 };
  switch (op) {
#define UNARY(id, name, forward, grad, saves, lo, hi) \
  case id:                                            \
    return saves != SAVE_NONE;
#include "shaders/elementwise.def"
  }
  return false;
}

bool fill(const LoopCall& call) {
  const auto& p = params<FillParams>(call);
  const Operand y = operand(call, 0);
  const uint32_t bits = p.bits;
  each_block(p.n, y.width, [&](int64_t at, int64_t count) {
    Block value;
    const bool is_wide = y.width == 4;
    auto* to = is_wide ? y.as<uint32_t>(at) : as<uint32_t>(value);
    const uint32_t filling =
        is_wide || is_real(y.dtype) ? bits : bits_of(static_cast<float>(bits & 0xffu));
    for (int64_t i = 0; i < count; ++i) to[i] = filling;
    if (!is_wide) write(y, at, count, value.at);
  });
  return true;
}

bool unary(const LoopCall& call) {
  const auto& p = params<UnaryParams>(call);
  const Operand x = operand(call, 0), y = result(call, 1, p.n);
  const View from = call.constant[1] == 1 ? dense(x) : view(x, p.rank, p.shape, p.x_stride);
  each_block(p.n, x.width + y.width, [&](int64_t at, int64_t count) {
    Block in, out;
    float* to = place(y, at, out.at);
    unary_block(call.constant[0], read(from, at, count, in.at), count, p.a, p.b, to);
    write(y, at, count, to);
  });
  return true;
}

bool unary_grad(const LoopCall& call) {
  const auto& p = params<UnaryGradParams>(call);
  const uint32_t op = call.constant[0];
  const Operand s = operand(call, 0), dy = operand(call, 1), dx = result(call, 2, p.n);
  const bool reads = grad_reads_saved(op);
  each_block(p.n, (2 + reads) * dy.width, [&](int64_t at, int64_t count) {
    Block saved, in, out;
    const float* grad = read(dy, at, count, in.at);
    float* to = place(dx, at, out.at);
    unary_grad_block(op, reads ? read(s, at, count, saved.at) : grad, grad, count, p.a, p.b, to);
    write(dx, at, count, to);
  });
  return true;
}

bool binary(const LoopCall& call) {
  const auto& p = params<BinaryParams>(call);
  const Pair of = pair(call, p);
  const View &a = of.a, &b = of.b;
  const Operand y = result(call, 2, p.n);
  const bool is_int = y.dtype == DType::i32;
  each_block(p.n, 3 * y.width, [&](int64_t at, int64_t count) {
    Block left, right, out;
    if (is_int)
      return binary_block(call.constant[0], gather(a, at, count, as<int32_t>(left)),
                          gather(b, at, count, as<int32_t>(right)), count, y.as<int32_t>(at));
    float* to = place(y, at, out.at);
    binary_block(call.constant[0], read(a, at, count, left.at), read(b, at, count, right.at), count,
                 to);
    write(y, at, count, to);
  });
  return true;
}

bool compare(const LoopCall& call) {
  const auto& p = params<BinaryParams>(call);
  const Pair of = pair(call, p);
  const View &a = of.a, &b = of.b;
  const Operand y = operand(call, 2);
  const DType dtype = a.x.dtype;
  each_block(p.n, 2 * a.x.width + 1, [&](int64_t at, int64_t count) {
    Block left, right;
    const auto compared = [&]<class T>(const T* x, const T* y, uint8_t* to) {
      compare_block(call.constant[0], x, y, count, to);
    };
    if (dtype == DType::i32)
      compared(gather(a, at, count, as<int32_t>(left)), gather(b, at, count, as<int32_t>(right)),
               y.as<uint8_t>(at));
    else  // f32 holds every u8
      compared(read(a, at, count, left.at), read(b, at, count, right.at), y.as<uint8_t>(at));
  });
  return true;
}

namespace {

template <class T>
void select(const View& c, const View& a, const View& b, int64_t n, const Operand& y) {
  each_block(n, 1 + 3 * y.width, [&](int64_t at, int64_t count) {
    Block conditions, left, right;
    const uint8_t* condition = gather(c, at, count, as<uint8_t>(conditions));
    const T* yes = gather(a, at, count, as<T>(left));
    const T* no = gather(b, at, count, as<T>(right));
    T* to = y.as<T>(at);
    REWIND_VECTORIZE
    for (int64_t i = 0; i < count; ++i) to[i] = condition[i] != 0 ? yes[i] : no[i];
  });
}

}  // namespace

bool where(const LoopCall& call) {
  const auto& p = params<WhereParams>(call);
  const View c = view(operand(call, 0), p.rank, p.shape, p.c_stride);
  const View a = view(operand(call, 1), p.rank, p.shape, p.a_stride);
  const View b = view(operand(call, 2), p.rank, p.shape, p.b_stride);
  const Operand y = operand(call, 3);
  if (c.x.width != 1 || a.x.dtype != y.dtype || b.x.dtype != y.dtype) return false;
  if (y.width == 4)
    select<uint32_t>(c, a, b, p.n, y);
  else if (y.width == 2)
    select<uint16_t>(c, a, b, p.n, y);
  else
    select<uint8_t>(c, a, b, p.n, y);
  return true;
}

bool accumulate(const LoopCall& call) {
  const auto& p = params<AccumulateParams>(call);
  const Operand x = operand(call, 0), y = operand(call, 1);
  each_block(p.n, x.width + 2 * y.width, [&](int64_t at, int64_t count) {
    Block in;
    const float a = p.a;
    map(y.as<float>(at), read(x, at, count, in.at), count, y.as<float>(at),
        [a](float y, float x) { return y + a * x; });
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
