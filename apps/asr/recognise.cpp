#include "apps/asr/recognise.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "apps/asr/options.h"
#include "data/speech/audio.h"
#include "io/models/model.h"
#include "io/models/speech.h"
#include "models/speech_stream.h"
#include "ops/autocast.h"
#include "trainer/program/shared_options.h"

namespace rw {

namespace {

struct Recognise {
  DeviceOptions device;
  std::vector<std::string> files;
  std::string model;    // empty: default_recognizer()
  double chunk = 0.32;  // seconds that are computed at a time

  void add_to(CLI::App& app);
  void run() const;
};

}  // namespace

void Recognise::add_to(CLI::App& app) {
  app.add_option("files", files, "WAV, FLAC or Ogg files")->required();
  shared_option(app, "--model", model, "a file that asr --save wrote (default: in the cache)");
  app.add_option("--chunk", chunk, "the seconds of sound to compute at a time")
      ->capture_default_str();
  device.add_to(app);
}

namespace {

// Feeds the sound as it would come from a microphone, a chunk at a time.
std::string text_of(SpeechRecognizer& model, const Audio& audio, int64_t chunk,
                    const SpeechUnits& units) {
  SpeechStream stream(model, chunk);
  constexpr size_t part = 1600;
  const std::span<const float> samples = audio.samples;
  for (size_t at = 0; at < samples.size(); at += part)
    stream.feed(samples.subspan(at, std::min(part, samples.size() - at)));
  stream.finish();
  return units.decode(stream.labels());
}

}  // namespace

void Recognise::run() const {
  check(chunk > 0 && chunk <= 60, "options", "--chunk must be in (0, 60], got {}", chunk);
  const std::string path = model.empty() ? default_recognizer() : model;
  check<FileError>(std::filesystem::exists(path), "recognise",
                   "there must be a recogniser in '{}', got nothing; ./rewind asr makes one", path);
  const SafetensorsFile file(path);
  const StoredRecognizer stored = read_recognizer(file);
  const LogMelOptions& frames = stored.config.features;
  const SpeechUnits units(stored.has_words ? SpeechUnit::word : SpeechUnit::character,
                          stored.units);
  const double output = static_cast<double>(frames.hop * SpeechEncoder::subsampling) /
                        static_cast<double>(frames.rate);
  const int64_t outputs = std::max<int64_t>(1, std::llround(chunk / output));
  std::vector<Audio> sounds;
  for (const std::string& name : files)
    sounds.push_back(read_audio(name, static_cast<int>(frames.rate)));
  device.open();
  SpeechRecognizer recognizer(stored.config);
  load_tensors(file, torch_state_dict(recognizer));
  recognizer.eval();
  const DType dtype = device.parsed_dtype();
  const Autocast autocast(dtype, dtype != DType::f32);
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string text = text_of(recognizer, sounds[i], outputs, units);
    fmt::print("{}{}\n", files.size() > 1 ? files[i] + ": " : "", text);
  }
}

std::function<void()> add_recognise(CLI::App& app) {
  return add_command<Recognise>(app);
}

}  // namespace rw
