// The speech recogniser, its files, and sound that it hears as it arrives.
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/pair.h>

#include "python/door/modules.h"

namespace door {

namespace {

using Sound = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

rw::SpeechConfig speech_config(const std::string& loss, const nb::kwargs& sizes) {
  rw::SpeechConfig c;
  rw::check(loss == "ctc" || loss == "rnnt", "SpeechRecognizer",
            "the loss must be 'ctc' or 'rnnt', got '{}'", loss);
  c.loss = loss == "ctc" ? rw::SpeechLoss::ctc : rw::SpeechLoss::rnnt;
  rw::LogMelOptions& f = c.features;
  Fields("SpeechRecognizer", sizes)("classes", c.classes)("channels", c.channels)(
      "kernel", c.kernel)("hidden", c.hidden)("layers", c.layers)("dropout", c.dropout)(
      "rate", f.rate)("window", f.window)("hop", f.hop)("mels", f.mels)("low", f.low)(
      "high", f.high)("floor", f.floor)
      .end();
  return c;
}

void bind_recognizer(nb::module_& m) {
  nb::class_<rw::SpeechEncoder, rw::Module>(
      m, "SpeechEncoder", "Features [N, T, mels] -> [T', N, hidden], a quarter as many frames.")
      .def_static("outputs", &rw::SpeechEncoder::outputs, "frames"_a,
                  "The number of outputs for so many frames.");
  nb::class_<rw::SpeechRecognizer, rw::Module>(
      m, "SpeechRecognizer",
      "Causal convolutions and LSTMs on log-mel features, trained with CTC or as a transducer. Its "
      "parts are features (sound [N, S] -> [N, T, mels]) and encoder.")
      .def(
          "__init__",
          [](rw::SpeechRecognizer* self, const std::string& loss, nb::kwargs sizes) {
            ensure_device();
            new (self) rw::SpeechRecognizer(speech_config(loss, sizes));
          },
          "loss"_a = "ctc", "sizes"_a)
      .def(
          "loss",
          [](rw::SpeechRecognizer& r, Given x, Given frames, Given targets, Given target_lengths) {
            return r.loss(std::move(x.tensor), frames.tensor, targets.tensor,
                          target_lengths.tensor);
          },
          "x"_a, "frames"_a, "targets"_a, "target_lengths"_a, Release(),
          "The mean loss of features [N, T, mels], of which frames[n] count, for targets i32 [N, "
          "U] "
          "of target_lengths.")
      .def(
          "recognise",
          [](rw::SpeechRecognizer& r, Given x, const std::vector<int32_t>& frames, int beam) {
            return r.recognise(std::move(x.tensor), frames, beam);
          },
          "x"_a, "frames"_a, "beam"_a = 1, Release(), "The likeliest labels of each sample.")
      .def(
          "log_probs",
          [](rw::SpeechRecognizer& r, Given encoded) {
            return r.log_probs(std::move(encoded.tensor));
          },
          "encoded"_a, Release(), "[T, N, hidden] -> [T, N, classes] f32, of CTC.");
}

void bind_stream(nb::module_& m) {
  nb::class_<rw::SpeechStream>(
      m, "SpeechStream",
      "Recognises one sound part by part: the labels are those of the whole sound.")
      .def(
          "__init__",
          [](rw::SpeechStream* self, rw::SpeechRecognizer& model, int64_t step) {
            new (self) rw::SpeechStream(model, step);
          },
          "model"_a, "step"_a = 8, nb::keep_alive<1, 2>())
      .def(
          "feed",
          [](rw::SpeechStream& s, const Sound& samples) {
            const nb::gil_scoped_release release;
            s.feed({samples.data(), samples.size()});
          },
          "samples"_a, "Takes further samples, float32 in [-1, 1].")
      .def("finish", &rw::SpeechStream::finish, Release(), "Ends the sound and computes the rest.")
      .def_prop_ro("labels", &rw::SpeechStream::labels, "So far.");
}

}  // namespace

void bind_speech(nb::module_& m) {
  bind_recognizer(m);
  bind_stream(m);
  m.def(
      "load_recognizer",
      [](const std::filesystem::path& path) {
        ensure_device();
        rw::StoredRecognizer stored = rw::read_recognizer(rw::SafetensorsFile(path));
        auto model = std::make_unique<rw::SpeechRecognizer>(stored.config);
        rw::load_model(path, *model);
        return nb::make_tuple(nb::cast(model.release(), nb::rv_policy::take_ownership),
                              stored.units);
      },
      "path"_a, "The recogniser in a file, and what its labels from 1 on mean.");
  m.def(
      "save_recognizer",
      [](const std::filesystem::path& path, const rw::SpeechRecognizer& model,
         const std::vector<std::string>& units, bool has_words) {
        rw::save_model(path, model, rw::to_metadata({model.config(), has_words, units}));
      },
      "path"_a, "model"_a, "units"_a, "has_words"_a = true, Release(),
      "Writes a recogniser with what its labels from 1 on mean: words, or characters.");
}

}  // namespace door
