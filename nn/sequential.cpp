#include "rewind/nn/sequential.h"

#include <algorithm>
#include <cmath>

#include "rewind/core/autograd/checkpoint.h"

namespace rw {

bool Sequential::has_blocks() const {
  return std::any_of(modules_.begin(), modules_.end(),
                     [](const auto& m) { return m->has_children(); });
}

// A short one inside a model is a block: Sequential(Linear, ReLU).
bool Sequential::segments_itself() const {
  constexpr size_t longest_block = 8;
  return checkpoint_every_ || modules_.size() > longest_block;
}

size_t Sequential::segment_length() const {
  if (checkpoint_every_) return *checkpoint_every_;
  if (!checkpoints_blocks() || Tape::current()->in_segment()) return 0;
  if (has_blocks()) return is_child() ? 0 : 1;  // inside a model they make their own
  if (is_child() && !segments_itself()) return 0;
  return static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(modules_.size()))));
}

Tensor Sequential::forward(Tensor x) {
  const size_t segment = is_training() ? segment_length() : 0;
  const size_t length = segment > 0 ? segment : modules_.size();
  for (size_t i = 0; i < modules_.size();) {
    const CheckpointScope scope(segment > 0);
    for (const size_t end = std::min(i + length, modules_.size()); i < end; ++i)
      x = (*modules_[i])(std::move(x));
  }
  return x;
}

}  // namespace rw
