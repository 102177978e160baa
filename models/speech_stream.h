// Recognises sound as it arrives.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "speech.h"

namespace rw {

// Recognises one sound part by part, with a model in evaluation mode: the labels are those of the
// whole sound, whatever the parts (up to rounding, if the device adds in another order).
class SpeechStream {
 public:
  // The model must outlive the stream. `step` is the number of outputs that are computed at a time.
  explicit SpeechStream(SpeechRecognizer& model, int64_t step = 8);

  // Takes further samples, in [-1, 1], and computes what is complete. Waits for the device.
  void feed(std::span<const float> samples);
  // Ends the sound and computes the rest.
  void finish();
  const std::vector<int32_t>& labels() const;  // so far

 private:
  void compute(int64_t frames);
  void take(const Tensor& encoded);

  SpeechRecognizer& model_;
  int64_t step_;
  SpeechEncoder::State state_;
  std::vector<float> waiting_;   // samples from the next frame's first on
  std::vector<int32_t> labels_;  // of CTC
  int32_t before_ = 0;           // the last output's class
  std::unique_ptr<RnntGreedyDecoder> decoder_;
};

}  // namespace rw
