// BERT's files: config.json, and weights under the names that Hugging Face's files have.
#include <nlohmann/json.hpp>

#include <fstream>

#include "backends/open.h"
#include "data/base/files.h"
#include "io/models/bert.h"
#include "ops/ops.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/temporary_folder.h"

using namespace rw;
using test::all_values;

namespace {

const BertConfig config = {.vocab_size = 11,
                           .hidden_size = 8,
                           .num_hidden_layers = 1,
                           .num_attention_heads = 2,
                           .intermediate_size = 12,
                           .max_position_embeddings = 6,
                           .hidden_dropout_prob = 0.25};

// Tensors of a model under other names, as another program would have saved them.
void save_renamed(const std::filesystem::path& file, const Module& model,
                  const std::vector<Renaming>& rules) {
  write_safetensors(file, renamed(torch_state_dict(model), rules));
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  write_file(file, text);
}

}  // namespace

TEST_SUITE_BEGIN("host");  // needs no Vulkan

TEST_CASE("bert io: config.json") {
  const TemporaryFolder folder;
  const auto file = folder / "config.json";
  write_bert_config(file, config, "BertForMaskedLM");
  const BertConfig back = read_bert_config(file);
  CHECK(back.vocab_size == 11);
  CHECK(back.intermediate_size == 12);
  CHECK(back.hidden_dropout_prob == 0.25);
  CHECK(back.layer_norm_eps == 1e-12);

  write_text(file, R"({"hidden_size": 120, "num_hidden_layers": 2, "unknown": [1]})");
  CHECK(read_bert_config(file).hidden_size == 120);
  CHECK(read_bert_config(file).vocab_size == 30522);
  for (const char* wrong : {"{", "[]", R"({"hidden_size": "wide"})", R"({"hidden_act": "relu"})",
                            R"({"position_embedding_type": "relative_key"})"}) {
    CAPTURE(wrong);
    write_text(file, wrong);
    CHECK_THROWS_AS(read_bert_config(file), FileError);
  }
  CHECK_THROWS_AS(read_bert_config(folder / "none.json"), FileError);
}

TEST_CASE("bert io: classes have names in config.json, as Hugging Face has them") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const auto file = folder / "config.json", weights = folder / "model.safetensors";
  save_model(weights, BertForSequenceClassification(config, 3));
  const auto fault = [&] {
    try {
      bert_class_names(file, weights);
    } catch (const FileError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::vector<std::string> names = {"no", "perhaps", "yes"};
  write_bert_config(file, config, "BertForSequenceClassification", names);
  CHECK(bert_class_names(file, weights) == names);
  CHECK(nlohmann::json::parse(std::ifstream(file))["label2id"]["yes"] == 2);
  write_bert_config(file, config, "BertForSequenceClassification", {names.data(), 2});
  CHECK(fault().c_str() == doctest::Contains("must name the 3 classes"));
  write_bert_config(file, config, "BertForSequenceClassification");
  CHECK(bert_class_names(file, weights) ==
        std::vector<std::string>{"LABEL_0", "LABEL_1", "LABEL_2"});
  write_text(file, R"({"hidden_size": 8, "num_attention_heads": 2,
                       "id2label": {"0": "a", "1": "b", "3": "c"}})");
  CHECK(fault().c_str() == doctest::Contains("got none for \"2\""));
  save_model(weights, BertForPreTraining(config));
  CHECK(fault().c_str() == doctest::Contains("must hold a classifier"));
}

TEST_CASE("bert io: the encoder goes from any head to any other") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const auto file = folder / "model.safetensors";
  BertForPreTraining pretrained(config);

  save_model(file, pretrained);
  BertForPreTraining same(config);
  LoadResult result = load_bert(file, same);
  CHECK(result.missing.empty());
  CHECK(result.unexpected.empty());
  CHECK(all_values(same) == all_values(pretrained));

  BertForSequenceClassification classifier(config, 3);
  result = load_bert(file, classifier);
  CHECK(result.missing == std::vector<std::string>{"classifier.weight", "classifier.bias"});
  CHECK(result.unexpected.size() == 7);  // the heads of pre-training
  CHECK(all_values(classifier.bert) == all_values(pretrained.bert));
}

TEST_CASE("bert io: names of other files") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const auto file = folder / "model.safetensors";
  BertForPreTraining pretrained(config);

  // Early releases.
  save_renamed(file, pretrained,
               {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}});
  BertForPreTraining early(config);
  CHECK(load_bert(file, early).missing.empty());
  CHECK(all_values(early) == all_values(pretrained));

  // The bare model.
  save_model(file, pretrained.bert);
  BertForPreTraining bare(config);
  CHECK(load_bert(file, bare).missing.size() == 7);
  CHECK(all_values(bare.bert) == all_values(pretrained.bert));

  // Half precision.
  save_model(file, pretrained, {}, DType::f16);
  BertForPreTraining half(config);
  CHECK(load_bert(file, half).missing.empty());
  CHECK(half.bert.word_table().to_vector() ==
        cast(cast(pretrained.bert.word_table(), DType::f16), DType::f32).to_vector());
}

TEST_CASE("bert io: files of other models change nothing") {
  set_default_device(open_backend("reference"));
  const TemporaryFolder folder;
  const auto file = folder / "model.safetensors";
  BertForPreTraining model(config);
  const std::vector<float> before = all_values(model);

  BertConfig deeper = config, wider = config;
  deeper.num_hidden_layers = 2;
  wider.intermediate_size = 16;
  BertForPreTraining deep(deeper);
  save_model(file, model);
  CHECK_THROWS_AS(load_bert(file, deep), FileError);
  save_model(file, BertForPreTraining(wider));
  CHECK_THROWS_AS(load_bert(file, model), FileError);
  CHECK(all_values(model) == before);
}

TEST_SUITE_END();
