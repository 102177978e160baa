#include "optim/grad_norm.h"

#include <algorithm>
#include <cmath>

#include "core/launch.h"
#include "core/ops.h"

namespace rw {

namespace {

// Enough chunks to fill a GPU, few enough for the one thread that adds up the partial sums.
constexpr int64_t most_chunks = 2048, smallest_chunk = 4096, largest_chunk = int64_t{1} << 18;

}  // namespace

GradStats::GradStats(size_t tensors, int64_t largest, Device& device) : tensors_(tensors) {
  const int64_t most = std::max<int64_t>(1, most_chunks / static_cast<int64_t>(tensors));
  const int64_t chunk = std::clamp((largest + most - 1) / most, smallest_chunk, largest_chunk);
  chunk_ = static_cast<uint32_t>((chunk + REWIND_FLAT - 1) / REWIND_FLAT * REWIND_FLAT);
  chunks_ = static_cast<uint32_t>(std::max<int64_t>(1, (largest + chunk_ - 1) / chunk_));
  const PurposeScope purpose(Purpose::optimizer);
  parts_ =
      empty({static_cast<int64_t>(tensors), 2, chunks_}, DType::f32, device.shared_from_this());
}

void GradStats::add(size_t index, const Tensor& gradient) {
  const int64_t size = int64_t{2} * chunks_;
  const Tensor part = make_view(parts_, {size}, {1}, static_cast<int64_t>(index) * size);
  kernels::GradStatsParams p{.offset = {},
                             .n = count32(gradient.numel(), "grad_stats"),
                             .chunk = chunk_,
                             .chunks = chunks_};
  launch("grad_stats", {in(gradient), out(part)}, p, {.threads = {chunks_, 1, 1}});
}

Tensor GradStats::partials() const {
  if (tensors_ == 1) return parts_;
  const int64_t tensors = static_cast<int64_t>(tensors_), chunks = chunks_;
  const Tensor by_kind = make_view(parts_, {2, tensors, chunks}, {chunks, 2 * chunks, 1}, 0);
  const Tensor dense = empty({2, tensors, chunks}, DType::f32, parts_.device().shared_from_this());
  copy_into(by_kind, dense);
  return dense;
}

float grad_norm(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> gradients;
  int64_t largest = 0;
  for (const Tensor& p : parameters) {
    if (!p.grad().defined()) continue;
    gradients.push_back(p.grad());
    largest = std::max(largest, p.numel());
  }
  if (gradients.empty()) return 0;
  GradStats stats(gradients.size(), largest, gradients[0].device());
  for (size_t i = 0; i < gradients.size(); ++i) stats.add(i, gradients[i]);
  const std::vector<float> partials = stats.partials().to_vector();
  double squares = 0;
  for (uint32_t c = 0; c < stats.chunks(); ++c) squares += partials[c];
  return static_cast<float>(std::sqrt(squares));
}

}  // namespace rw
