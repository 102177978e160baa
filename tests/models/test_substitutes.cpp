// Adapters and weights in 8 bits stand in the place of the Linear layers of any model.
#include "core/autograd/checkpoint.h"
#include "core/tensor/quantize.h"
#include "models/bert.h"
#include "models/decoder.h"
#include "models/vit.h"
#include "nn/adapters/lora.h"
#include "nn/init.h"
#include "ops/losses/losses.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using namespace rw::test;

namespace {

// A frozen weight, unpacked in each forward.
class In8Bits : public Module {
 public:
  explicit In8Bits(const Linear& base)
      : weight_(quantize_blocks(base.weight.detach())), bias_(base.bias) {}
  Tensor forward(Tensor x) override { return linear(std::move(x), weight(), bias_); }
  Tensor weight() const { return dequantize_blocks(weight_, DType::f32); }

 private:
  QuantizedBlocks weight_;
  Tensor bias_;
};

std::vector<Linear*> linear_layers(Module& model) {
  std::vector<Linear*> found;
  model.apply([&](Module& module) {
    if (auto* layer = dynamic_cast<Linear*>(&module)) found.push_back(layer);
  });
  return found;
}

// Adapters of all linear layers, the head among them.
std::vector<NamedLora> add_adapters(Module& model) {
  std::vector<std::string> targets;
  for (const NamedLinear& l : lora_targets(model, {"head", "lm_head", "classifier"}))
    targets.push_back(l.name);
  for (const NamedLinear& l : lora_targets(model, {})) targets.push_back(l.name);
  return add_lora(model, {.rank = 2, .target_modules = targets});
}

// A model with a loss, and how many adapters it takes.
struct Subject {
  const char* name;
  std::shared_ptr<Module> model;
  std::function<Tensor()> loss;
  size_t layers;
  const char* adapter;  // a parameter's name
};

Tensor tokens(int64_t n, int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n * length; ++i) ids.push_back(static_cast<int32_t>(i * 7 % 19));
  return tensor(ids, {n, length});
}

std::vector<Subject> subjects() {
  manual_seed(3);
  const auto decoder = std::make_shared<Decoder>(DecoderConfig{.vocab_size = 19,
                                                               .hidden_size = 16,
                                                               .intermediate_size = 24,
                                                               .num_hidden_layers = 2,
                                                               .num_attention_heads = 2,
                                                               .num_key_value_heads = 1,
                                                               .max_position_embeddings = 12,
                                                               .tie_word_embeddings = false});
  const auto bert =
      std::make_shared<BertForSequenceClassification>(BertConfig{.vocab_size = 19,
                                                                 .hidden_size = 16,
                                                                 .num_hidden_layers = 2,
                                                                 .num_attention_heads = 2,
                                                                 .intermediate_size = 24,
                                                                 .max_position_embeddings = 12},
                                                      3);
  const auto vit = std::make_shared<ViT>(ViTConfig{.image_size = 8,
                                                   .patch_size = 4,
                                                   .hidden = 16,
                                                   .layers = 2,
                                                   .heads = 2,
                                                   .mlp = 24,
                                                   .classes = 5});
  init::normal_(linear_layers(*vit).back()->weight, 0, 0.3f);  // the head starts at 0
  const Tensor ids = tokens(2, 9), images = rand({2, 8, 8, 3});
  return {{"decoder", decoder, [=] { return decoder->loss(ids, ids); }, 15,
           "model.layers.1.self_attn.q_proj.lora_A.weight"},
          {"bert", bert,
           [=] {
             return cross_entropy(bert->forward({.ids = ids}), tensor(std::vector{0, 2}, {2}));
           },
           14, "bert.encoder.layer.1.attention.self.query.lora_B.weight"},
          {"vit", vit,
           [=] {
             return cross_entropy((*vit)(images), tensor(std::vector{4, 2}, {2}));
           },
           9, "encoder.layers.encoder_layer_1.self_attention.in_proj_lora_A.weight"}};
}

float loss_of(const Subject& subject) {
  const NoGrad guard;
  subject.model->eval();
  const float loss = subject.loss().item();
  subject.model->train();
  return loss;
}

std::vector<std::vector<float>> gradients_of(const Subject& subject, bool replays = false) {
  manual_seed(5);  // of dropout
  Tensor loss;
  {
    const CheckpointScope segment(replays);
    loss = subject.loss();
  }
  loss.backward();
  std::vector<std::vector<float>> found;
  for (Tensor p : subject.model->parameters()) {
    found.push_back(p.grad() ? p.grad().to_vector() : std::vector<float>{});
    p.set_grad({});
  }
  return found;
}

}  // namespace

TEST_CASE_FIXTURE(CpuDevice, "substitutes: adapters in every model") {
  for (const Subject& subject : subjects()) {
    CAPTURE(subject.name);
    Module& model = *subject.model;
    const float before = loss_of(subject);
    const std::vector<NamedTensor> own = model.named_parameters();
    const std::vector<NamedLora> adapters = add_adapters(model);
    CHECK(adapters.size() == subject.layers);
    CHECK(adapters.size() == linear_layers(model).size());
    CHECK(loss_of(subject) == before);  // B is zero
    // Its own parameters keep their names; each layer has two more.
    const std::vector<NamedTensor> all = model.named_parameters();
    CHECK(all.size() == own.size() + 2 * adapters.size());
    const auto has = [&](const std::string& name) {
      return std::ranges::count(all, name, &NamedTensor::name) == 1;
    };
    for (const NamedTensor& p : own) CHECK(has(p.name));
    CHECK(has(subject.adapter));

    for (const NamedLora& a : adapters) {
      init::normal_(a.adapter->A, 0, 0.1f);
      init::normal_(a.adapter->B, 0, 0.1f);
    }
    CHECK(loss_of(subject) != before);
    const auto plain = gradients_of(subject);
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_adapter = all[i].name.find("lora_") != std::string::npos;
      CAPTURE(all[i].name);
      CHECK(plain[i].empty() == !is_adapter);
      CHECK((!is_adapter || std::ranges::any_of(plain[i], [](float g) { return g != 0; })));
    }
    CHECK(gradients_of(subject, true) == plain);
    for (const NamedLora& a : adapters) CHECK(a.adapter->is_training());
    remove_lora(model);
    CHECK(loss_of(subject) == before);
    CHECK(model.named_parameters().size() == own.size());
  }
}

TEST_CASE_FIXTURE(CpuDevice, "substitutes: weights in 8 bits, without the plain ones") {
  for (const Subject& subject : subjects()) {
    CAPTURE(subject.name);
    const float exact = loss_of(subject);
    const uint64_t memory = live();
    for (Linear* layer : linear_layers(*subject.model)) {
      auto weight = std::make_unique<In8Bits>(*layer);
      layer->substitute(std::move(weight));
    }
    const float loss = loss_of(subject);
    CHECK(loss == doctest::Approx(exact).epsilon(0.02));
    CHECK(loss != exact);
    for (Linear* layer : linear_layers(*subject.model)) layer->release_weight();
    CHECK(loss_of(subject) == loss);
    CHECK(live() < memory);
    for (const NamedTensor& p : subject.model->named_parameters())
      CHECK((p.tensor.rank() == 1 || p.name.find("proj.weight") == std::string::npos ||
             p.name == "conv_proj.weight"));
    // Gradients flow through them to what lies before.
    const auto gradients = gradients_of(subject);
    CHECK(std::ranges::any_of(gradients.front(), [](float g) { return g != 0; }));
  }
}

TEST_CASE_FIXTURE(CpuDevice, "substitutes: queries of one text, keys of another") {
  manual_seed(1);
  MultiheadAttention attention(8, 2);
  const Tensor x = rand({1, 3, 8}), y = rand({1, 5, 8}), z = rand({1, 5, 8});
  const NoGrad guard;
  for (const Tensor& value : {y, z}) {
    const std::vector<float> plain = attention.forward(x, y, value).to_vector();
    add_lora(attention, {.rank = 2, .target_modules = {"in_proj"}});
    CHECK(attention.forward(x, y, value).to_vector() == plain);
    remove_lora(attention);
  }
}

TEST_CASE_FIXTURE(CpuDevice, "substitutes: what is refused") {
  Linear layer(4, 3);
  CHECK(contains(message_of<ValueError>([&] { layer.release_weight(); }), "in its place"));
  layer.eval();
  layer.substitute(std::make_unique<In8Bits>(layer));
  CHECK(!layer.substitute()->is_training());
  layer.release_weight();
  CHECK(layer(rand({2, 4})).shape() == Shape{2, 3});
  CHECK(contains(message_of<ValueError>([&] { layer.substitute(nullptr); }), "released"));
  CHECK(layer.named_parameters().size() == 1);
}
