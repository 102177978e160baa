#include "models/speech_stream.h"

namespace rw {

SpeechStream::SpeechStream(SpeechRecognizer& model, int64_t step) : model_(model), step_(step) {
  check(step > 0, "SpeechStream", "step must be positive, got {}", step);
  check(!model.is_training(), "SpeechStream", "the model must be in evaluation mode: eval()");
  if (model.config().loss == SpeechLoss::rnnt)
    decoder_ = std::make_unique<RnntGreedyDecoder>(model.transducer().decoder(1));
}

void SpeechStream::feed(std::span<const float> samples) {
  waiting_.insert(waiting_.end(), samples.begin(), samples.end());
  const int64_t frames = step_ * SpeechEncoder::subsampling;
  while (model_.features.frames(static_cast<int64_t>(waiting_.size())) >= frames) compute(frames);
}

void SpeechStream::finish() {
  const int64_t frames = model_.features.frames(static_cast<int64_t>(waiting_.size()));
  if (frames > 0) compute(frames);
}

// Computes the next frames; the samples of the one after them stay.
void SpeechStream::compute(int64_t frames) {
  const NoGrad guard;
  const int64_t samples = model_.features.samples(frames);
  const Tensor sound =
      tensor(std::span(waiting_).first(static_cast<size_t>(samples)), {1, samples});
  take(model_.encoder.forward(model_.features(sound), state_));
  const int64_t used = frames * model_.features.options().hop;
  waiting_.erase(waiting_.begin(), waiting_.begin() + used);
}

void SpeechStream::take(const Tensor& encoded) {
  if (decoder_) return decoder_->decode(model_.transducer().frames(encoded));
  for (const int32_t label : argmax(model_.log_probs(encoded)).to_ints()) {
    if (label != 0 && label != before_) labels_.push_back(label);
    before_ = label;
  }
}

const std::vector<int32_t>& SpeechStream::labels() const {
  return decoder_ ? decoder_->labels()[0] : labels_;
}

}  // namespace rw
