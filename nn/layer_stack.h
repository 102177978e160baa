// Runs layers one after another, with a checkpoint segment for every few of them, and functions of
// rows on some rows after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "../core/autograd/checkpoint.h"
#include "../ops/ops.h"

namespace rw {

// x = run(layer, x) for each layer; `every` is the number of layers per segment, 0 for no segments.
template <class Layers, class Run>
Tensor through_layers(const Layers& layers, int every, Tensor x, const Run& run) {
  const size_t step = every > 0 ? static_cast<size_t>(every) : layers.size();
  for (size_t i = 0; i < layers.size();) {
    const CheckpointScope scope(every > 0);
    for (const size_t end = std::min(i + step, layers.size()); i < end; ++i)
      x = run(*layers[i], std::move(x));
  }
  return x;
}

// run(x) for a function that treats each row of x [..., size] alone: at most `rows` rows at a time,
// each time in a segment of its own, so that what it computes in between exists for so many. 0: all
// at once, without a segment.
template <class Run>
Tensor by_rows(Tensor x, int64_t rows, const Run& run) {
  const Shape shape = x.shape();
  const int64_t columns = x.size(-1), all = x.numel() / std::max<int64_t>(1, columns);
  if (rows == 0 || all <= rows) return run(std::move(x));
  std::vector<Tensor> parts = split(reshape(std::move(x), {all, columns}), rows, 0);
  for (Tensor& part : parts) {
    const CheckpointScope scope;
    part = run(std::move(part));
  }
  return reshape(concat(std::move(parts), 0), shape);
}

}  // namespace rw
