// Strided operands: any view as blocks, with its elements numbered like those of a dense tensor.
#pragma once

#include "level.h"

namespace rw::cpu::REWIND_LEVEL {

struct View {
  Operand x;
  int rank = 0;
  int64_t shape[REWIND_MAX_DIMS], stride[REWIND_MAX_DIMS];

  bool is_dense() const { return rank == 0 || (rank == 1 && stride[0] == 1); }
};

// Returns the view with as few dimensions as the strides allow.
inline View view(const Operand& x, uint32_t rank, const uint32_t* shape, const uint32_t* stride) {
  View v{x};
  for (uint32_t d = 0; d < rank; ++d) {
    if (shape[d] == 1) continue;
    const int last = v.rank - 1;
    if (v.rank > 0 && v.stride[last] == int64_t{stride[d]} * shape[d]) {
      v.shape[last] *= shape[d];
      v.stride[last] = stride[d];
    } else {
      v.shape[v.rank] = shape[d];
      v.stride[v.rank++] = stride[d];
    }
  }
  return v;
}
inline View dense(const Operand& x) {
  return {x};
}
// Returns a view that repeats one element without end.
inline View repeated(const Operand& x) {
  View v{x, 1};
  v.shape[0] = INT64_MAX;
  v.stride[0] = 0;
  return v;
}

// Calls body(done, from, length) for the runs along the last dimension that make up elements [at,
// at + count): `done` elements came before, and `from` is the place of the first.
template <class Body>
inline void each_run(const View& v, int64_t at, int64_t count, const Body& body) {
  int64_t place[REWIND_MAX_DIMS], from = 0, rest = at;
  for (int d = v.rank - 1; d >= 0; --d) {
    place[d] = rest % v.shape[d];
    rest /= v.shape[d];
    from += place[d] * v.stride[d];
  }
  const int last = v.rank - 1;
  for (int64_t done = 0; done < count;) {
    const int64_t length = least(count - done, v.shape[last] - place[last]);
    body(done, from, length);
    done += length;
    place[last] += length;
    from += length * v.stride[last];
    for (int d = last; d > 0 && place[d] == v.shape[d]; --d) {
      from += v.stride[d - 1] - place[d] * v.stride[d];
      place[d] = 0;
      ++place[d - 1];
    }
  }
}

// Returns elements [at, at + count) of a view, at most a block: where they are, or in `buffer`.
template <class T>
inline const T* gather(const View& v, int64_t at, int64_t count, T* buffer) {
  if (v.is_dense()) return v.x.as<T>(at);
  const T* x = v.x.as<T>();
  const int64_t step = v.stride[v.rank - 1];
  each_run(v, at, count, [=](int64_t done, int64_t from, int64_t length) {
    T* to = buffer + done;
    if (step == 1)
      for (int64_t i = 0; i < length; ++i) to[i] = x[from + i];
    else if (step == 0)
      for (int64_t i = 0; i < length; ++i) to[i] = x[from];
    else
      for (int64_t i = 0; i < length; ++i) to[i] = x[from + i * step];
  });
  return buffer;
}

// The same as f32.
inline const float* read(const View& v, int64_t at, int64_t count, float* buffer) {
  if (v.is_dense()) return read(v.x, at, count, buffer);
  if (v.x.dtype == DType::f32) return gather(v, at, count, buffer);
  Block raw;
  const void* gathered = v.x.width == 4 ? gather(v, at, count, as<int32_t>(raw))
                         : v.x.width == 2
                             ? static_cast<const void*>(gather(v, at, count, as<uint16_t>(raw)))
                             : gather(v, at, count, as<uint8_t>(raw));
  return read(Operand{static_cast<std::byte*>(const_cast<void*>(gathered)), v.x.dtype}, 0, count,
              buffer);
}

}  // namespace rw::cpu::REWIND_LEVEL
