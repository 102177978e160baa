#include "rewind/nn/sequential.h"

#include <algorithm>
#include <cmath>

#include "rewind/core/autograd/checkpoint.h"

namespace rw {

size_t Sequential::segment_length() const {
  if (checkpoint_every_) return *checkpoint_every_;
  if (is_child() || !checkpoints_blocks()) return 0;
  const bool has_blocks = std::any_of(modules_.begin(), modules_.end(),
                                      [](const auto& m) { return m->has_children(); });
  return has_blocks ? 1 : std::lround(std::ceil(std::sqrt(static_cast<double>(modules_.size()))));
}

Tensor Sequential::forward(Tensor x) {
  const size_t segment = is_training() ? segment_length() : 0;
  const size_t length = segment > 0 ? segment : modules_.size();
  for (size_t i = 0; i < modules_.size();) {
    const CheckpointScope scope(segment > 0);
    for (const size_t end = std::min(i + length, modules_.size()); i < end; ++i)
      x = modules_[i]->forward(std::move(x));
  }
  return x;
}

}  // namespace rw
