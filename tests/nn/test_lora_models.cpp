// Adapters in models: their names, what is trained and kept, which layers get one, and how they are
// merged and removed.
#include "models/decoder.h"
#include "nn/init.h"
#include "nn/sequential.h"
#include "ops/numeric.h"
#include "planner/dry_run.h"
#include "tests/nn/lora_fixture.h"

namespace rw::test {

namespace {

std::vector<std::string> names_of_parameters(const Module& model) {
  std::vector<std::string> names;
  for (const NamedTensor& p : model.named_parameters()) names.push_back(p.name);
  return names;
}

}  // namespace

TEST_SUITE_BEGIN("host");

TEST_CASE_FIXTURE(CpuDevice, "lora: parameters, their names, and what is frozen") {
  manual_seed(1);
  TwoLayers model;
  const Tensor x = rand({5, 6}, -1, 1);
  const std::vector<float> before = model(x).to_vector();
  const auto adapters = add_lora(model, {.rank = 2, .dora = true});
  CHECK(names_of_parameters(model) ==
        std::vector<std::string>{
            "block.first_proj.weight", "block.first_proj.bias", "block.first_proj.lora_A.weight",
            "block.first_proj.lora_B.weight", "block.first_proj.lora_magnitude_vector",
            "block.second_proj.weight", "block.second_proj.lora_A.weight",
            "block.second_proj.lora_B.weight", "block.second_proj.lora_magnitude_vector",
            "head.weight", "head.bias"});
  for (const NamedTensor& p : model.named_parameters())
    CHECK(p.tensor.requires_grad() == (p.name.find("lora_") != std::string::npos));
  REQUIRE(adapters.size() == 2);
  CHECK(adapters[1].name == "block.second_proj");
  const Lora& first = *adapters[0].adapter;
  CHECK(first.A.impl().name == "block.first_proj.lora_A.weight");
  CHECK(first.A.shape() == Shape{2, 6});
  CHECK(first.B.shape() == Shape{4, 2});
  // Kaiming's bound with a = sqrt(5) is 1 / sqrt(in), and most of 12 values come near it.
  const float bound = 1 / std::sqrt(6.0f), largest = max(abs(first.A.detach())).item();
  CHECK(largest <= bound);
  CHECK(largest > bound / 2);
  CHECK(max(abs(first.B.detach())).item() == 0);
  check_lora_values(first.magnitude.to_vector(),
                    norm(model.first.weight.detach(), 2, {1}).to_vector(), 1e-6);
  CHECK(model(x).to_vector() == before);
  CHECK(lora_adapters(model).size() == 2);
}

TEST_CASE_FIXTURE(CpuDevice, "lora: frozen weights keep no activations") {
  manual_seed(1);
  TwoLayers model(64, 64);
  const Tensor x = rand({512, 64});
  const auto saved = [&] {
    const Tensor y = model(x);
    return tape().stats().saved_bytes;
  };
  const uint64_t trains_all = saved();
  add_lora(model, {.rank = 2, .target_modules = {"second_proj"}});
  {
    const Tensor y = model.first(x);
    CHECK(!y.requires_grad());
    CHECK(tape().stats().records == 0);
  }
  // A's gradient reads the input of second, B's reads 2 values of each row, and silu its input.
  const uint64_t row = 512 * sizeof(float), weights = 64 * 64 * sizeof(float);
  const uint64_t trains_one = saved();
  CHECK(trains_one >= (64 + 64 + 2) * row);
  CHECK(trains_one <= (64 + 64 + 2) * row + 2 * weights + 4096);
  CHECK(trains_one + 2 * 64 * row <= trains_all);
  sum(model(x)).backward();
  for (const NamedTensor& p : model.named_parameters())
    CHECK(p.tensor.grad().defined() == (p.name.find("lora_") != std::string::npos));
  for (Tensor p : model.parameters()) p.set_grad({});
}

TEST_CASE_FIXTURE(CpuDevice, "lora: segments give the same gradients, with dropout, too") {
  for (LoraOptions options : every_form)
    for (const float dropout : {0.0f, 0.25f}) {
      options.dropout = dropout;
      manual_seed(3);
      TwoLayers model;
      for (const NamedLora& a : add_lora(model, options)) init::normal_(a.adapter->B, 0, 0.5f);
      const Tensor x = rand({5, 6});
      const auto gradients = [&](bool replays) {
        manual_seed(5);
        Tensor loss;
        {
          const CheckpointScope segment(replays);
          loss = sum(square(model(x)));
        }
        loss.backward();
        std::vector<std::vector<float>> found;
        for (Tensor p : model.parameters()) {
          if (!p.requires_grad()) continue;
          found.push_back(p.grad().to_vector());
          p.set_grad({});
        }
        return found;
      };
      const auto plain = gradients(false);
      CHECK(gradients(true) == plain);
    }
}

TEST_CASE_FIXTURE(CpuDevice, "lora: a dry run knows the memory of a frozen model to the byte") {
  const auto step = [] {
    manual_seed(1);
    Decoder model({.vocab_size = 40,
                   .hidden_size = 64,
                   .intermediate_size = 96,
                   .num_hidden_layers = 2,
                   .num_attention_heads = 4,
                   .num_key_value_heads = 2,
                   .max_position_embeddings = 128});
    add_lora(model, {.rank = 4, .dora = true});
    std::vector<int32_t> ids(256);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7 % 40);
    const Tensor tokens = tensor(ids, {2, 128});
    model.loss(tokens, tokens).backward();
  };
  device->reset_peak();
  step();
  const uint64_t real = device->memory_report().peak;
  CHECK(plan(step).memory.peak == real);
}

TEST_CASE_FIXTURE(CpuDevice, "lora: merged weights give the same, and removed adapters nothing") {
  for (const LoraOptions& options : every_form) {
    manual_seed(8);
    TwoLayers model;
    const Tensor x = rand({5, 6}, -1, 1);
    const NoGrad guard;
    const std::vector<float> base = model(x).to_vector();
    for (const NamedLora& a : add_lora(model, options)) {
      init::normal_(a.adapter->B, 0, 0.5f);
      if (options.dora) a.adapter->magnitude.copy_(a.adapter->magnitude * 1.5f);
    }
    const std::vector<float> adapted = model(x).to_vector();
    CHECK(adapted != base);
    remove_lora(model);
    CHECK(model(x).to_vector() == base);
    CHECK(model.named_parameters().size() == 5);
    for (const NamedLora& a : add_lora(model, options)) init::normal_(a.adapter->B, 0, 0.5f);
    const std::vector<float> other = model(x).to_vector();
    merge_lora(model);
    check_lora_values(model(x).to_vector(), other, 1e-5);
    CHECK(model.named_parameters().size() == 5);
    CHECK(!model.first.substitute());
  }
}

TEST_CASE_FIXTURE(CpuDevice, "lora: layers by name") {
  TwoLayers model;
  const auto names = [&](const std::vector<std::string>& targets) {
    std::vector<std::string> found;
    for (const NamedLinear& l : lora_targets(model, targets)) found.push_back(l.name);
    return found;
  };
  using Names = std::vector<std::string>;
  CHECK(names({}) == Names{"block.first_proj", "block.second_proj"});
  CHECK(names({"head"}) == Names{"head"});
  CHECK(names({"second_proj", "block.first_proj"}) ==
        Names{"block.first_proj", "block.second_proj"});
  CHECK(names({"proj"}).empty());  // parts of words do not count
  const auto refused = [&](const LoraOptions& options) {
    return message_of<ValueError>([&] { add_lora(model, options); });
  };
  CHECK(contains(refused({.target_modules = {"head", "q_proj"}}),
                 "'q_proj'; layers are: first_proj"));
  CHECK(contains(refused({.rank = 0}), "rank"));
  CHECK(contains(refused({.alpha = -1}), "alpha"));
  CHECK(contains(refused({.dropout = 1}), "dropout"));
  CHECK(model.first.weight.requires_grad());  // nothing has changed
  Sequential bare;
  CHECK(contains(message_of<ValueError>([&] { add_lora(bare); }), "besides its head"));
  CHECK(contains(message_of<ValueError>([&] { merge_lora(model); }), "got none"));
  add_lora(model);
  CHECK(contains(refused({}), "no adapters yet"));
}

TEST_CASE_FIXTURE(CpuDevice, "lora: quantised weights are not merged into") {
  TwoLayers model;
  model.second.substitute(std::make_unique<PackedLayer>(model.second));
  const std::vector<float> weight = model.first.weight.to_vector();
  const auto adapters = add_lora(model, {.rank = 2});
  init::normal_(adapters[0].adapter->B, 0, 0.5f);
  const std::string said = message_of<ValueError>([&] { merge_lora(model); });
  CHECK(contains(said, "'block.second_proj'"));
  CHECK(contains(said, "load the model with plain weights"));
  CHECK(model.first.weight.to_vector() == weight);
  CHECK(lora_adapters(model).size() == 2);
  remove_lora(model);  // the 8 bits are in the slot again
  CHECK(dynamic_cast<const PackedLayer*>(model.second.substitute()));
}

TEST_SUITE_END();

}  // namespace rw::test
