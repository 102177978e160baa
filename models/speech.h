// A streaming speech recogniser: strided causal convolutions and LSTMs on log-mel features, trained
// with CTC (Graves et al. 2006) or as a transducer (Graves 2012).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../nn/layers.h"
#include "../nn/norm.h"
#include "../nn/recurrent.h"
#include "../nn/speech/log_mel.h"
#include "../nn/speech/rnnt_decode.h"
#include "../ops/losses/ctc.h"
#include "../ops/losses/rnnt.h"

namespace rw {

// How frames become labels: by ctc (Graves et al. 2006), or by rnnt, a transducer.
enum class SpeechLoss { ctc, rnnt };

// The sizes of a recogniser; all positive (ValueError).
struct SpeechConfig {
  SpeechLoss loss = SpeechLoss::ctc;  // of training
  int64_t classes = 11;               // with the blank, which is class 0
  int64_t channels = 96;              // of both convolutions
  int64_t kernel = 5;                 // frames that a convolution sees
  int64_t hidden = 128;         // of every LSTM, the transducer's predictor and its joint network
  int64_t layers = 1;           // LSTMs of the encoder
  float dropout = 0.1f;         // of their outputs
  LogMelOptions features = {};  // of the sound that it hears

  // The elements of the encoder's matrices; norms, biases and the head are few beside them.
  int64_t matrix_elements() const {
    return kernel * (features.mels + channels) * channels + layers * 8 * hidden * hidden;
  }
};

// Two strided causal convolutions, LSTMs, and a norm.
class SpeechEncoder : public Module {
 public:
  static constexpr int64_t subsampling = 4;  // frames for each output

  // The state that carries over from part to part of a stream.
  struct State {
    Tensor first, second;             // frames before the convolutions
    std::vector<LSTM::State> layers;  // of the LSTMs
  };

  explicit SpeechEncoder(const SpeechConfig& config);
  ~SpeechEncoder() override;
  // Features [N, T, mels] -> [T', N, hidden], T' = outputs(T).
  Tensor forward(Tensor x) override;
  // The same for frames that continue; T is a multiple of `subsampling`, except in the last part.
  Tensor forward(const Tensor& x, State& state);

  // The number of outputs for this many frames.
  static int64_t outputs(int64_t frames) { return (frames + subsampling - 1) / subsampling; }

 private:
  class Convolution;
  class Layer;

  std::unique_ptr<Convolution> first_, second_;
  std::vector<std::unique_ptr<Layer>> layers_;
  LayerNorm norm_;
};

// The transducer's other half: a network of the labels so far, and the joint network.
class Transducer : public Module {
 public:
  explicit Transducer(const SpeechConfig& config);

  // The mean loss of encoder outputs [T, N, hidden], targets i32 [N, U], and their lengths i32 [N],
  // as in rnnt_joint_loss().
  Tensor loss(const Tensor& encoded, Tensor targets, Tensor input_lengths, Tensor target_lengths);
  // A search for this many samples; it decodes what frames() returns.
  RnntGreedyDecoder decoder(int64_t samples);
  // [T, N, hidden] -> [N, T, hidden], for a decoder.
  Tensor frames(const Tensor& encoded);

 private:
  struct Prediction;
  Tensor predict(Prediction& last, std::span<const int32_t> labels);
  const Linear& joint() const;

  Embedding embedding_;
  LSTM predictor_;
  Linear encoder_out_, predictor_out_, joint_;
};

// Features, encoder, and the head that makes labels.
class SpeechRecognizer : public Module {
 public:
  explicit SpeechRecognizer(const SpeechConfig& config);

  // The mean loss of features [N, T, mels], of which frames[n] count, for targets i32 [N, U]; the
  // lengths are i32 [N]. CTC's loss is divided by the number of labels. It is infinite if the
  // labels do not fit, and for features that are NaN.
  Tensor loss(Tensor x, const Tensor& frames, const Tensor& targets, const Tensor& target_lengths);
  // The likeliest labels of each sample: greedily, or for CTC with a beam of more than 1 by
  // ctc_beam_decode(). Waits for the device. ValueError for a beam that is not positive, or wider
  // than 1 with a transducer.
  std::vector<std::vector<int32_t>> recognise(Tensor x, std::span<const int32_t> frames,
                                              int beam = 1);
  // [T, N, hidden] -> [T, N, classes] f32, log-probabilities of CTC.
  Tensor log_probs(Tensor encoded);
  Transducer& transducer();  // ValueError with CTC

  const SpeechConfig& config() const { return config_; }  // as given to the constructor

  LogMel features;        // sound [N, S] -> [N, T, mels]
  SpeechEncoder encoder;  // -> [T', N, hidden]

 private:
  SpeechConfig config_;
  std::unique_ptr<Linear> output_;          // of CTC
  std::unique_ptr<Transducer> transducer_;  // or this
};

}  // namespace rw
