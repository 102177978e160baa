#include "rewind/nn/sequential.h"

#include <algorithm>

#include "rewind/core/autograd/checkpoint.h"

namespace rw {

Tensor Sequential::forward(Tensor x) {
  const bool segments = is_training() && checkpoint_every_ > 0;
  const size_t length = segments ? checkpoint_every_ : modules_.size();
  for (size_t i = 0; i < modules_.size();) {
    const CheckpointScope scope(segments);
    for (const size_t end = std::min(i + length, modules_.size()); i < end; ++i)
      x = modules_[i]->forward(std::move(x));
  }
  return x;
}

}  // namespace rw
