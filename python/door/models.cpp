// The models of models/, whose sizes are keywords, and the files of those that others trained.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>

#include "python/door/modules.h"

namespace door {

namespace {

void bind_images(nb::module_& m) {
  nb::class_<rw::ResNet, rw::Module>(m, "ResNet", "[N, H, W, 3] -> [N, classes] (He et al. 2015).");
  m.def(
      "resnet_cifar",
      [](int depth, int version, bool bottleneck, int classes) {
        ensure_device();
        return new rw::ResNet(rw::resnet_cifar(
            depth, version, bottleneck ? rw::BlockKind::bottleneck : rw::BlockKind::basic,
            classes));
      },
      "depth"_a, "version"_a = 1, "bottleneck"_a = false, "classes"_a = 10,
      nb::rv_policy::take_ownership, Release(),
      "A ResNet for images of 32 x 32, of depth 6k + 2 (basic) or 9k + 2 (bottleneck).");
  m.def(
      "resnet_imagenet",
      [](int depth, int classes) {
        ensure_device();
        return new rw::ResNet(rw::resnet_imagenet(depth, classes));
      },
      "depth"_a, "classes"_a = 1000, nb::rv_policy::take_ownership, Release(),
      "torchvision's resnet18, 34, 50, 101 or 152.");
  nb::class_<rw::MobileNetV2, rw::Module>(m, "MobileNetV2")
      .def(
          "__init__",
          [](rw::MobileNetV2* self, int64_t classes, float width, int64_t stem_stride,
             float dropout) {
            ensure_device();
            new (self) rw::MobileNetV2({.classes = classes,
                                        .width = width,
                                        .stem_stride = stem_stride,
                                        .dropout = dropout});
          },
          "classes"_a = 1000, "width"_a = 1, "stem_stride"_a = 2, "dropout"_a.sig("0.2") = 0.2);
  nb::class_<rw::UNet, rw::Module>(m, "UNet").def(
      "__init__",
      [](rw::UNet* self, int64_t channels, int64_t classes, int64_t width, int levels) {
        ensure_device();
        new (self)
            rw::UNet({.channels = channels, .classes = classes, .width = width, .levels = levels});
      },
      "channels"_a = 3, "classes"_a = 2, "width"_a = 64, "levels"_a = 4);
  nb::class_<rw::ViT, rw::Module>(m, "ViT").def(
      "__init__",
      [](rw::ViT* self, int64_t image_size, int64_t patch_size, int64_t hidden, int64_t layers,
         int64_t heads, int64_t mlp, int64_t classes, float dropout) {
        ensure_device();
        new (self) rw::ViT({.image_size = image_size,
                            .patch_size = patch_size,
                            .hidden = hidden,
                            .layers = layers,
                            .heads = heads,
                            .mlp = mlp,
                            .classes = classes,
                            .dropout = dropout});
      },
      "image_size"_a = 224, "patch_size"_a = 16, "hidden"_a = 768, "layers"_a = 12, "heads"_a = 12,
      "mlp"_a = 3072, "classes"_a = 1000, "dropout"_a = 0);
}

rw::GptConfig gpt_config(const std::string& preset, const nb::kwargs& sizes) {
  rw::GptConfig c = rw::GptConfig::preset(preset);
  Fields("GPT", sizes)("vocab_size", c.vocab_size)("n_positions", c.n_positions)(
      "n_embd", c.n_embd)("n_layer", c.n_layer)("n_head", c.n_head)("n_inner", c.n_inner)(
      "resid_pdrop", c.resid_pdrop)("embd_pdrop", c.embd_pdrop)("attn_pdrop", c.attn_pdrop)
      .end();
  return c;
}

void bind_language(nb::module_& m) {
  nb::class_<rw::CausalLM, rw::Module>(
      m, "CausalLM", "A language model: ids i32 [N, S] -> logits [N, S, vocabulary].")
      .def(
          "loss",
          [](rw::CausalLM& lm, Given ids, Given targets, Maybe starts) {
            return lm.loss(std::move(ids.tensor), targets.tensor, starts.tensor);
          },
          "ids"_a, "targets"_a, "starts"_a.none() = nb::none(), Release(),
          "Mean cross entropy of the tokens that follow each of ids, without the logits in memory.")
      .def(
          "hidden",
          [](rw::CausalLM& lm, Given ids) { return lm.hidden(std::move(ids.tensor), nullptr); },
          "ids"_a, Release())
      .def(
          "logits",
          [](rw::CausalLM& lm, Given states) { return lm.logits(std::move(states.tensor)); },
          "states"_a, Release())
      .def(
          "generate",
          [](rw::CausalLM& lm, Given ids, int64_t max_new_tokens, float temperature, int64_t top_k,
             float top_p, float min_p, float repetition_penalty, rw::Generator* generator) {
            return lm.generate(ids.tensor, {.max_new_tokens = max_new_tokens,
                                            .sample = {.temperature = temperature,
                                                       .top_k = top_k,
                                                       .top_p = top_p,
                                                       .min_p = min_p,
                                                       .repetition_penalty = repetition_penalty,
                                                       .generator = generator}});
          },
          "ids"_a, "max_new_tokens"_a = 20, "temperature"_a = 1, "top_k"_a = 0, "top_p"_a = 1,
          "min_p"_a = 0, "repetition_penalty"_a = 1, "generator"_a.none() = nb::none(), Release(),
          "ids with tokens drawn after them; temperature 0 takes the likeliest.")
      .def_prop_ro("vocabulary", &rw::CausalLM::vocabulary)
      .def_prop_ro("longest", &rw::CausalLM::longest);
  nb::class_<rw::GptLMHeadModel, rw::CausalLM>(m, "GptLMHeadModel",
                                               "GPT-2 with Hugging Face's names.")
      .def(
          "__init__",
          [](rw::GptLMHeadModel* self, const std::string& preset, nb::kwargs sizes) {
            ensure_device();
            new (self) rw::GptLMHeadModel(gpt_config(preset, sizes));
          },
          "preset"_a = "gpt2", "sizes"_a)
      .def(
          "load",
          [](rw::GptLMHeadModel& lm, const std::filesystem::path& file) { rw::load_gpt(file, lm); },
          "file"_a, Release())
      .def(
          "save",
          [](const rw::GptLMHeadModel& lm, const std::filesystem::path& file, DTypeGiven dtype) {
            rw::save_gpt(file, lm, dtype);
          },
          "file"_a, "dtype"_a = rw::DType::f32, Release());
}

}  // namespace

void bind_models(nb::module_& m) {
  bind_images(m);
  bind_bert(m);
  bind_speech(m);
  bind_language(m);
  bind_decoder(m);
}

}  // namespace door
