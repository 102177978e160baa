// Runs layers one after another, with a checkpoint segment for every few of them.
#pragma once

#include <algorithm>
#include <cstddef>

#include "../core/autograd/checkpoint.h"
#include "../core/tensor/tensor.h"

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

}  // namespace rw
