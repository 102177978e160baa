// BERT, and its files at Hugging Face.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/pair.h>

#include "python/door/modules.h"

namespace door {

namespace {

rw::BertConfig bert_config(const std::string& preset, const nb::kwargs& sizes) {
  rw::BertConfig c = rw::BertConfig::preset(preset);
  Fields("BERT", sizes)("vocab_size", c.vocab_size)("hidden_size", c.hidden_size)(
      "num_hidden_layers", c.num_hidden_layers)("num_attention_heads", c.num_attention_heads)(
      "intermediate_size", c.intermediate_size)(
      "max_position_embeddings", c.max_position_embeddings)("type_vocab_size", c.type_vocab_size)(
      "hidden_dropout_prob", c.hidden_dropout_prob)("attention_probs_dropout_prob",
                                                    c.attention_probs_dropout_prob)(
      "layer_norm_eps", c.layer_norm_eps)("initializer_range", c.initializer_range)
      .end();
  return c;
}

// forward, and the files: a folder with config.json and model.safetensors.
template <class M>
void bind_common(nb::class_<M, rw::Module>& c) {
  c.def(
      "forward",
      [](M& m, Given ids, Maybe token_types, Maybe lengths) {
        return m.forward({.ids = std::move(ids.tensor),
                          .token_types = std::move(token_types.tensor),
                          .lengths = std::move(lengths.tensor)});
      },
      "ids"_a, "token_types"_a.none() = nb::none(), "lengths"_a.none() = nb::none(), Release(),
      "ids i32 [N, S]; token_types i32 [N, S], or all 0; lengths i32 [N] say where padding "
      "begins.");
  c.def(
      "load",
      [](M& m, const std::filesystem::path& file) {
        const rw::LoadResult r = rw::load_bert(file, m);
        return std::pair(r.missing, r.unexpected);
      },
      "file"_a, Release(),
      "Fills the model from model.safetensors of any BERT of its size; a head that is missing "
      "keeps "
      "its values. Returns the names that are missing and those that are not wanted.");
  c.def_static(
      "from_files",
      [](const std::filesystem::path& folder) {
        ensure_device();
        const auto weights = folder / "model.safetensors", sizes = folder / "config.json";
        const rw::BertConfig config = rw::read_bert_config(sizes);
        std::unique_ptr<M> model;
        if constexpr (std::is_same_v<M, rw::BertForSequenceClassification>)
          model = std::make_unique<M>(
              config, static_cast<int64_t>(rw::bert_class_names(sizes, weights).size()));
        else
          model = std::make_unique<M>(config);
        rw::load_bert(weights, *model);
        return model.release();
      },
      "folder"_a, nb::rv_policy::take_ownership, Release(),
      "The model of a folder of Hugging Face's.");
}

}  // namespace

void bind_bert(nb::module_& m) {
  nb::class_<rw::BertModel, rw::Module> model(
      m, "BertModel",
      "ids -> [N, S, hidden] (Devlin et al. 2019). The preset is tiny, mini, small, medium, base "
      "or "
      "large; sizes have the names of Hugging Face's config.json.");
  model.def(
      "__init__",
      [](rw::BertModel* self, const std::string& preset, bool pooler, nb::kwargs sizes) {
        ensure_device();
        new (self) rw::BertModel(bert_config(preset, sizes), pooler);
      },
      "preset"_a = "base", "pooler"_a = true, "sizes"_a);
  bind_common(model);
  model.def(
      "pool", [](rw::BertModel& b, Given hidden) { return b.pool(hidden.tensor); }, "hidden"_a,
      Release(), "tanh of a linear layer of the first token, [N, hidden].");

  nb::class_<rw::BertForPreTraining, rw::Module> training(
      m, "BertForPreTraining", "A BertModel with the heads for words that are hidden in a text.");
  training.def(
      "__init__",
      [](rw::BertForPreTraining* self, const std::string& preset, bool next_sentence,
         nb::kwargs sizes) {
        ensure_device();
        new (self) rw::BertForPreTraining(bert_config(preset, sizes), next_sentence);
      },
      "preset"_a = "base", "next_sentence"_a = true, "sizes"_a);
  bind_common(training);
  training.def(
      "token_logits",
      [](rw::BertForPreTraining& b, Given hidden, Given positions) {
        return b.token_logits(hidden.tensor, positions.tensor);
      },
      "hidden"_a, "positions"_a, Release(),
      "Scores of the vocabulary at positions i32 [P], which count in the N * S tokens.");
  training.def(
      "token_loss",
      [](rw::BertForPreTraining& b, Given hidden, Given positions, Given targets) {
        return b.token_loss(hidden.tensor, positions.tensor, targets.tensor);
      },
      "hidden"_a, "positions"_a, "targets"_a, Release(),
      "Mean cross entropy of targets i32 [P] at positions, without the logits in memory.");
  training.def(
      "next_sentence_logits",
      [](rw::BertForPreTraining& b, Given hidden) { return b.next_sentence_logits(hidden.tensor); },
      "hidden"_a, Release(), "[N, 2]; class 0: the second text follows the first.");

  nb::class_<rw::BertForSequenceClassification, rw::Module> classifier(
      m, "BertForSequenceClassification",
      "A linear layer on the first token, ids -> [N, classes].");
  classifier.def(
      "__init__",
      [](rw::BertForSequenceClassification* self, int64_t classes, const std::string& preset,
         nb::kwargs sizes) {
        ensure_device();
        new (self) rw::BertForSequenceClassification(bert_config(preset, sizes), classes);
      },
      "classes"_a, "preset"_a = "base", "sizes"_a);
  bind_common(classifier);
}

}  // namespace door
