#include "benchmarks/memory/workloads_sequence.h"

#include "core/memory/default_device.h"
#include "ops/losses/losses.h"
#include "ops/network/conv.h"
#include "ops/ops.h"
#include "optim/adam.h"

namespace rw::memory {

namespace {

// Adam on parameters that are made one after another.
class SequenceSteps : public TrainingSteps {
 public:
  void dry_step(const BatchShape&) override {
    if (!adam_) adam_.emplace(parameters_, AdamOptions{.lr = 1e-3f});
    adam_->backward(loss());
    adam_->step();
    adam_->zero_grad();
  }

 protected:
  virtual Tensor loss() = 0;
  Tensor parameter(const Shape& shape) {
    const PurposeScope scope(Purpose::parameter);
    parameters_.push_back(rand(shape, -0.1f, 0.1f).set_requires_grad());
    return parameters_.back();
  }
  static Tensor data(const Shape& shape, DType dtype) {
    const PurposeScope scope(Purpose::data);
    return zeros(shape, dtype);
  }

 private:
  std::vector<Tensor> parameters_;
  std::optional<Adam> adam_;
};

class WaveNetSteps : public SequenceSteps {
 public:
  WaveNetSteps(const WaveNetWorkload& o, bool marks) : o_(o), marks_(marks) {
    const int64_t c = o.channels;
    table_ = parameter({o.classes, c});
    for (int i = 0; i < o.layers; ++i)
      layers_.push_back(
          {parameter({c, 2, c}), parameter({c, 2, c}), parameter({c, c}), parameter({c, c})});
    out_ = parameter({c, c});
    classes_ = parameter({o.classes, c});
    samples_ = data({o.batch, o.length}, DType::i32);
  }

 private:
  struct Layer {
    Tensor filter, gate, residual, skip;
  };

  Tensor loss() override {
    Tensor x = embedding(table_, samples_), skips;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const CheckpointScope segment(marks_, save_matmuls());
      const int dilation = 1 << i;
      const Conv1dOptions causal{.padding = dilation, .dilation = dilation, .padding_end = 0};
      const Layer& layer = layers_[i];
      const Tensor filter = tanh(conv1d(x, layer.filter, {}, causal));
      const Tensor z = mul(filter, sigmoid(conv1d(x, layer.gate, {}, causal)));
      const Tensor skip = linear(z, layer.skip);
      skips = skips.defined() ? add(skips, skip) : skip;
      x = add(x, linear(z, layer.residual));
    }
    const Tensor logits = linear(relu(linear(relu(skips), out_)), classes_);
    return cross_entropy(reshape(logits, {-1, o_.classes}), reshape(samples_, {-1}));
  }

  const WaveNetWorkload o_;
  const bool marks_;
  Tensor table_, out_, classes_, samples_;
  std::vector<Layer> layers_;
};

class Seq2SeqSteps : public SequenceSteps {
 public:
  explicit Seq2SeqSteps(const Seq2SeqWorkload& o) : o_(o) {
    const int64_t w = o.width;
    for (Tensor* table : {&source_table_, &target_table_}) *table = parameter({o.words, w});
    for (Cell* cell : {&encoder_, &decoder_}) {
      const int64_t in = cell == &decoder_ ? 2 * w : w;
      *cell = {parameter({2 * w, in}), parameter({2 * w, w}), parameter({w, in}),
               parameter({w, w})};
    }
    query_ = parameter({w, w});
    words_ = parameter({o.words, 2 * w});
    source_ = data({o.batch, o.steps}, DType::i32);
    target_ = data({o.batch, o.steps}, DType::i32);
  }

 private:
  struct Cell {  // of a GRU, by ops
    Tensor gates_in, gates, value_in, value;

    Tensor operator()(const Tensor& x, const Tensor& h) const {
      const Tensor both = sigmoid(add(linear(x, gates_in), linear(h, gates)));
      const int64_t w = h.size(1);
      const Tensor reset = slice(both, 1, 0, w), update = slice(both, 1, w, 2 * w);
      const Tensor next = tanh(add(linear(x, value_in), mul(reset, linear(h, value))));
      return add(next, mul(update, sub(h, next)));
    }
  };

  Tensor loss() override {
    const int64_t n = o_.batch, w = o_.width;
    const auto at = [](const Tensor& x, int64_t i) {
      return reshape(slice(x, 1, i, i + 1), {x.size(0), x.size(2)});
    };
    Tensor h = zeros({n, w});
    const Tensor source = embedding(source_table_, source_);
    const Tensor target = embedding(target_table_, target_);
    std::vector<Tensor> states, logits;
    for (int64_t i = 0; i < o_.steps; ++i) {
      h = encoder_(at(source, i), h);
      states.push_back(reshape(h, {n, 1, w}));
    }
    const Tensor memory = concat(states, 1);  // [n, steps, w]
    for (int64_t i = 0; i < o_.steps; ++i) {
      const Tensor query = reshape(linear(h, query_), {n, w, 1});
      const Tensor weights = softmax(matmul(memory, query), 1);
      const Tensor context = reshape(sum(mul(memory, weights), {1}), {n, w});
      h = decoder_(concat({at(target, i), context}, 1), h);
      logits.push_back(linear(concat({h, context}, 1), words_));
    }
    return cross_entropy(concat(logits, 0), reshape(target_, {-1}));
  }

  const Seq2SeqWorkload o_;
  Cell encoder_, decoder_;
  Tensor source_table_, target_table_, query_, words_, source_, target_;
};

}  // namespace

Workload wavenet_workload(const WaveNetWorkload& o) {
  return {.about = {.model = "WaveNet",
                    .depth = o.layers,
                    .scale = o.layers,
                    .batch = o.batch,
                    .input = fmt::format("{} samples", o.length),
                    .norm = "no normalisation",
                    .in_peak = "all of training with Adam"},
          .make = [o](const StepSettings& s) {
            return std::make_unique<WaveNetSteps>(o, s.checkpoint == "matmuls");
          }};
}

Workload seq2seq_workload(const Seq2SeqWorkload& o) {
  return {.about = {.model = "seq2seq with attention",
                    .depth = o.steps,
                    .scale = o.steps,
                    .batch = o.batch,
                    .input = fmt::format("{} words", o.steps),
                    .norm = "no normalisation",
                    .in_peak = "all of training with Adam"},
          .make = [o](const StepSettings&) { return std::make_unique<Seq2SeqSteps>(o); }};
}

}  // namespace rw::memory
