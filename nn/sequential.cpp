#include "nn/sequential.h"

#include <algorithm>
#include <cmath>

#include "nn/layer_stack.h"

namespace rw {

bool Sequential::has_blocks() const {
  return std::any_of(begin(), end(), [](const auto& m) { return m->has_children(); });
}

// A short Sequential inside a model is a block: Sequential(Linear, ReLU).
bool Sequential::segments_itself() const {
  constexpr size_t longest_block = 8;
  return checkpoint_every_ || size() > longest_block;
}

size_t Sequential::segment_length() const {
  if (checkpoint_every_) return *checkpoint_every_;
  if (!checkpoints_blocks() || Tape::current()->in_segment()) return 0;
  if (has_blocks()) return is_child() ? 0 : 1;  // inside a model they make their own
  if (is_child() && !segments_itself()) return 0;
  return static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(size()))));
}

Tensor Sequential::forward(Tensor x) {
  const int every = is_training() ? static_cast<int>(segment_length()) : 0;
  return through_layers(modules(), every, std::move(x),
                        [](Module& module, Tensor in) { return module(std::move(in)); });
}

}  // namespace rw
