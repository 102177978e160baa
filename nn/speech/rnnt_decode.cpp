#include "nn/speech/rnnt_decode.h"

#include <algorithm>

#include "ops/ops.h"

namespace rw {

RnntGreedyDecoder::RnntGreedyDecoder(int64_t samples, RnntPredict predict, Tensor weight,
                                     Tensor bias, int32_t blank, int most)
    : predict_(std::move(predict)),
      weight_(std::move(weight)),
      bias_(std::move(bias)),
      blank_(blank),
      most_(most),
      labels_(static_cast<size_t>(samples)) {
  check(samples > 0 && most > 0, "rnnt_greedy",
        "samples and labels per frame must be positive, got {} and {}", samples, most);
  check(blank >= 0 && blank < weight_.size(0), "rnnt_greedy",
        "the blank must be one of {} classes, got {}", weight_.size(0), blank);
  predicted_ = predict_(std::vector<int32_t>(labels_.size(), blank));
}

void RnntGreedyDecoder::decode(const Tensor& encoder, std::span<const int64_t> lengths) {
  const size_t samples = labels_.size();
  check<ShapeError>(encoder.rank() == 3 && encoder.size(0) == static_cast<int64_t>(samples),
                    "rnnt_greedy", "the frames must be [{}, T, D], got {}", samples, encoder);
  check(lengths.empty() || lengths.size() == samples, "rnnt_greedy",
        "there must be a length for each of {} samples, got {}", samples, lengths.size());
  const int64_t frames = encoder.size(1);
  for (const int64_t length : lengths)
    check(length >= 0 && length <= frames, "rnnt_greedy", "lengths must be 0 to {} frames, got {}",
          frames, length);
  const auto length_of = [&](size_t n) { return lengths.empty() ? frames : lengths[n]; };
  const NoGrad guard;
  const Tensor rows = flatten(encoder, 0, 1);
  std::vector<int64_t> at(samples);
  std::vector<int> said(samples);  // in this frame
  const auto is_over = [&](size_t n) { return at[n] >= length_of(n); };
  for (;;) {
    std::vector<int32_t> index(samples), next(samples, -1);
    bool any = false, any_label = false;
    for (size_t n = 0; n < samples; ++n) {
      any = any || !is_over(n);
      index[n] = static_cast<int32_t>(static_cast<int64_t>(n) * frames +
                                      std::min(at[n], std::max<int64_t>(0, frames - 1)));
    }
    if (!any) return;
    const Tensor here = embedding(rows, tensor(index, {static_cast<int64_t>(samples)}));
    const std::vector<int32_t> top =
        argmax(linear(tanh(add(here, predicted_)), weight_, bias_)).to_ints();
    for (size_t n = 0; n < samples; ++n) {
      if (is_over(n)) continue;
      if (top[n] == blank_ || said[n] == most_) {
        ++at[n];
        said[n] = 0;
        continue;
      }
      ++said[n];
      labels_[n].push_back(next[n] = top[n]);
      any_label = true;
    }
    if (any_label) predicted_ = predict_(next);
  }
}

}  // namespace rw
