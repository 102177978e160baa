#include "models/speech.h"

#include "nn/speech/ctc_decode.h"

namespace rw {

namespace {

const SpeechConfig& checked(const SpeechConfig& c) {
  check_positive(
      "SpeechRecognizer",
      {{"channels", c.channels}, {"kernel", c.kernel}, {"hidden", c.hidden}, {"layers", c.layers}});
  check(c.classes > 1, "SpeechRecognizer", "there must be a class besides the blank, got {}",
        c.classes);
  return c;
}

// The number of outputs for each number of frames, i32 [N].
Tensor output_lengths(const Tensor& frames) {
  const auto n = static_cast<float>(SpeechEncoder::subsampling);
  return cast(floor(affine(cast(frames, DType::f32), 1 / n, (n - 1) / n)), DType::i32);
}

}  // namespace

// relu(norm(conv(x))) of stride 2, which sees only the past: [N, T, in] -> [N, (T + 1) / 2, out].
class SpeechEncoder::Convolution : public Module {
 public:
  Convolution(int64_t in, int64_t out, int64_t kernel)
      : conv_(in, out, static_cast<int>(kernel),
              {.stride = 2, .padding = static_cast<int>(kernel) - 1, .padding_end = 0}),
        norm_(out) {
    register_module("conv", conv_);
    register_module("norm", norm_);
  }
  Tensor forward(Tensor x) override { return finish(conv_(std::move(x))); }
  // The same for a sequence that continues: `before` has the kernel - 1 frames before these,
  // undefined at the start, and is set to those before the next ones.
  Tensor forward(const Tensor& x, Tensor& before) {
    const int64_t earlier = conv_.weight.size(1) - 1;
    if (!before) before = zeros({x.size(0), earlier, x.size(2)}, x.dtype());
    const Tensor all = concat({before, x}, 1);
    before = contiguous(slice(all, 1, all.size(1) - earlier, all.size(1)));
    return finish(conv1d(all, conv_.weight, conv_.bias, {.stride = 2}));
  }

 private:
  Tensor finish(Tensor y) { return relu(norm_(std::move(y))); }

  Conv1d conv_;
  LayerNorm norm_;
};

// An LSTM with dropout: [T, N, in] -> [T, N, hidden].
class SpeechEncoder::Layer : public Module {
 public:
  Layer(int64_t in, int64_t hidden, float dropout) : lstm_(in, hidden), dropout_(dropout) {
    register_module("lstm", lstm_);
    register_module("dropout", dropout_);
  }
  Tensor forward(Tensor x) override { return dropout_(lstm_(std::move(x))); }
  Tensor forward(const Tensor& x, LSTM::State& state) {  // of steps that go on
    LSTM::Result result = lstm_.forward(x, state);
    state = std::move(result.state);
    return dropout_(std::move(result.y));
  }

 private:
  LSTM lstm_;
  Dropout dropout_;
};

SpeechEncoder::SpeechEncoder(const SpeechConfig& c)
    : first_(std::make_unique<Convolution>(c.features.mels, checked(c).channels, c.kernel)),
      second_(std::make_unique<Convolution>(c.channels, c.channels, c.kernel)),
      norm_(c.hidden) {
  register_module("conv1", *first_);
  register_module("conv2", *second_);
  for (int64_t i = 0; i < c.layers; ++i) {
    layers_.push_back(std::make_unique<Layer>(i == 0 ? c.channels : c.hidden, c.hidden, c.dropout));
    register_module(fmt::format("layer{}", i + 1), *layers_.back());
  }
  register_module("norm", norm_);
}

SpeechEncoder::~SpeechEncoder() = default;

Tensor SpeechEncoder::forward(Tensor x) {
  Tensor y = transpose((*second_)((*first_)(std::move(x))), 0, 1);
  for (const auto& layer : layers_) y = (*layer)(std::move(y));
  return norm_(std::move(y));
}

Tensor SpeechEncoder::forward(const Tensor& x, State& state) {
  Tensor y = second_->forward(first_->forward(x, state.first), state.second);
  y = transpose(std::move(y), 0, 1);
  state.layers.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) y = layers_[i]->forward(y, state.layers[i]);
  return norm_(std::move(y));
}

Transducer::Transducer(const SpeechConfig& c)
    : embedding_(c.classes, c.hidden),
      predictor_(c.hidden, c.hidden),
      encoder_out_(c.hidden, c.hidden),
      predictor_out_(c.hidden, c.hidden, false),
      joint_(c.hidden, c.classes) {
  register_module("embedding", embedding_);
  register_module("predictor", predictor_);
  register_module("encoder_out", encoder_out_);
  register_module("predictor_out", predictor_out_);
  register_module("joint", joint_);
}

Tensor Transducer::frames(const Tensor& encoded) {
  return encoder_out_(transpose(encoded, 0, 1));
}

const Linear& Transducer::joint() const {
  check(!joint_.substitute(), "rnnt_joint_loss",
        "the joint network must be a plain Linear, got one with a module in its place");
  return joint_;
}

Tensor Transducer::loss(const Tensor& encoded, Tensor targets, Tensor input_lengths,
                        Tensor target_lengths) {
  const Tensor start = zeros({targets.size(0), 1}, DType::i32);  // the blank
  const Tensor said = embedding_(transpose(concat({start, targets}, 1), 0, 1));
  Tensor predicted = predictor_out_(transpose(predictor_(said), 0, 1));
  return rnnt_joint_loss(frames(encoded), std::move(predicted), joint().weight, joint_.bias,
                         std::move(targets), std::move(input_lengths), std::move(target_lengths));
}

// The predictor's state, and its output after the last labels.
struct Transducer::Prediction {
  LSTM::State state;
  Tensor out;
};

Tensor Transducer::predict(Prediction& last, std::span<const int32_t> labels) {
  const auto n = static_cast<int64_t>(labels.size());
  std::vector<int32_t> ids(labels.begin(), labels.end()), is_new;
  for (int32_t& id : ids) {
    is_new.push_back(id >= 0);
    id = std::max(id, 0);
  }
  auto [y, state] = predictor_.forward(embedding_(tensor(ids, {1, n})), last.state);
  Tensor out = predictor_out_(select(y, 0, 0));
  if (last.out) {  // samples without a label keep their state
    const Tensor moved = cast(tensor(is_new, {n, 1}), DType::u8);
    state.h = where(moved, state.h, last.state.h);
    state.c = where(moved, state.c, last.state.c);
    out = where(moved, out, last.out);
  }
  last = {std::move(state), std::move(out)};
  return last.out;
}

RnntGreedyDecoder Transducer::decoder(int64_t samples) {
  const auto last = std::make_shared<Prediction>();
  const auto predicted = [this, last](std::span<const int32_t> labels) {
    const NoGrad guard;
    return predict(*last, labels);
  };
  return {samples, predicted, joint().weight, joint_.bias};
}

SpeechRecognizer::SpeechRecognizer(const SpeechConfig& config)
    : features(config.features), encoder(config), config_(config) {
  register_module("features", features);
  register_module("encoder", encoder);
  if (config.loss == SpeechLoss::ctc) {
    output_ = std::make_unique<Linear>(config.hidden, config.classes);
    register_module("output", *output_);
  } else {
    transducer_ = std::make_unique<Transducer>(config);
    register_module("transducer", *transducer_);
  }
}

Transducer& SpeechRecognizer::transducer() {
  check(transducer_ != nullptr, "SpeechRecognizer", "a model with CTC has no transducer");
  return *transducer_;
}

Tensor SpeechRecognizer::log_probs(Tensor encoded) {
  check(output_ != nullptr, "SpeechRecognizer", "a transducer has no log-probabilities of frames");
  return log_softmax(cast((*output_)(std::move(encoded)), DType::f32));
}

Tensor SpeechRecognizer::loss(Tensor x, const Tensor& frames, const Tensor& targets,
                              const Tensor& target_lengths) {
  const Tensor lengths = output_lengths(frames);
  const Tensor encoded = encoder(std::move(x));
  if (transducer_) return transducer_->loss(encoded, targets, lengths, target_lengths);
  return ctc_loss(log_probs(encoded), targets, lengths, target_lengths);
}

std::vector<std::vector<int32_t>> SpeechRecognizer::recognise(Tensor x,
                                                              std::span<const int32_t> frames,
                                                              int beam) {
  check(beam >= 1 && (beam == 1 || !transducer_), "recognise",
        "the beam must be positive, and 1 with a transducer, got {}", beam);
  const NoGrad guard;
  std::vector<int64_t> lengths;
  for (const int32_t count : frames) lengths.push_back(SpeechEncoder::outputs(count));
  const int64_t samples = x.size(0);
  const Tensor encoded = encoder(std::move(x));
  if (transducer_) {
    RnntGreedyDecoder decoder = transducer_->decoder(samples);
    decoder.decode(transducer_->frames(encoded), lengths);
    return decoder.labels();
  }
  std::vector<std::vector<int32_t>> labels;
  if (beam == 1) {
    for (CtcHypothesis& heard : ctc_greedy_decode(log_probs(encoded), lengths))
      labels.push_back(std::move(heard.labels));
  } else {
    for (auto& best : ctc_beam_decode(log_probs(encoded), lengths, {.beam = beam}))
      labels.push_back(std::move(best.at(0).labels));
  }
  return labels;
}

}  // namespace rw
