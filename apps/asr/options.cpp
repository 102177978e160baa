#include "apps/asr/options.h"

#include <CLI/CLI.hpp>

#include "data/base/files.h"
#include "trainer/program/shared_options.h"

namespace rw {

std::string default_recognizer() {
  return (cache_directory() / "asr" / "model.safetensors").string();
}

void AsrOptions::add_to(CLI::App& app) {
  shared_option(
      app, "--data", data,
      "speech as in LibriSpeech, SPEAKER/CHAPTER/*.trans.txt beside FLAC or WAV files, also "
      "below train*/ and dev*/; without it, espeak-ng speaks digits");
  app.add_option("--strings", strings,
                 "without --data: the number of strings of digits to train with")
      ->capture_default_str();
  app.add_option("--loss", loss, "the loss: ctc, or rnnt, which trains a transducer")
      ->check(CLI::IsMember({"ctc", "rnnt"}))
      ->capture_default_str();
  app.add_option("--tokens", tokens,
                 "the units to recognise: word or character (default word, with --data character)")
      ->check(CLI::IsMember({"word", "character"}));
  app.add_option("--hidden", hidden, "the size of the LSTMs")->capture_default_str();
  shared_option(app, "--layers", layers, "of the LSTM")->capture_default_str();
  app.add_option("--channels", channels, "the channels of the convolutions")->capture_default_str();
  shared_option(app, "--test-share", test_share, "of the speakers, if there is no dev*/ or test*/")
      ->capture_default_str();
  must_be_positive(
      shared_option(app, "--epochs", epochs, "default 4, for a transducer 6, with --data 20"));
  must_be_positive(shared_option(app, "--steps", steps, "instead of --epochs"));
  app.add_option("--beam", beam, "the prefixes that the search in an evaluation keeps; 1: greedy")
      ->capture_default_str();
  shared_option(app, "--load", load);
  shared_option(app, "--save", save, "a safetensors file (default: in the cache)");
  shared_flag(app, "--eval", eval);
  TrainerOptions::add_to(app);
  app.add_option("--seconds", seconds, "with --plan and without --data: the length of the sounds")
      ->needs("--plan")
      ->capture_default_str();
}

void AsrOptions::complete() {
  if (tokens.empty()) tokens = data.empty() ? "word" : "character";
  if (epochs == 0) epochs = !data.empty() ? 20 : loss == "ctc" ? 4 : 6;
  check_numbers();
  check(strings > 0, "options", "--strings must be positive, got {}", strings);
  check(hidden > 0 && layers > 0 && channels > 0, "options",
        "--hidden, --layers and --channels must be positive, got {}, {} and {}", hidden, layers,
        channels);
  ranks.share_out(accumulate);
  check(test_share > 0 && test_share < 1, "options", "--test-share must be in (0, 1), got {}",
        test_share);
  check(seconds >= 0.1 && seconds <= 3600, "options", "--seconds must be in [0.1, 3600], got {}",
        seconds);
  check(beam > 0 && (beam == 1 || loss == "ctc"), "options",
        "--beam must be positive, and 1 with --loss rnnt, got {}", beam);
  check(!eval || !load.empty(), "options", "--eval needs weights: --load FILE");
  check(!eval || average.decay == 0, "options",
        "--ema follows training: there is none with --eval");
  chosen = rw::recipe({.kind = TrainingWork::Kind::speech,
                       .is_loaded = !load.empty(),
                       .parameters = model(2).matrix_elements(),
                       .batch = batch * accumulate});
  if (save.empty() && !planning.plan && !eval) keep_earlier(*command, save = default_recognizer());
}

SpeechConfig AsrOptions::model(int64_t classes) const {
  return {.loss = loss == "ctc" ? SpeechLoss::ctc : SpeechLoss::rnnt,
          .classes = classes,
          .channels = channels,
          .hidden = hidden,
          .layers = layers};
}

SpeechRecipe AsrOptions::recipe(int64_t classes, int64_t length, int64_t width) const {
  return {.model = model(classes),
          .length = length,
          .width = width,
          .lr = static_cast<float>(rate()),
          .weight_decay = static_cast<float>(weight_decay),
          .numerics = numerics,
          .average = average};
}

TrainingProgram AsrOptions::program(const SpeechRecipe& recipe) const {
  return {
      .title = fmt::format("{} recogniser of {} {}s, {} LSTM{} of {}", loss,
                           recipe.model.classes - 1, tokens, layers, layers > 1 ? "s" : "", hidden),
      .samples = "utterances",
      .make = make_steps<SpeechTask>(recipe),
      .settings = settings(),
      .loads = !load.empty(),
      .saves = !eval,
      .estimator_states = 4,
      .words = command_line_words()};
}

SpeechLoaderOptions AsrOptions::loader(const SpeechConfig& config, int64_t size,
                                       bool shuffle) const {
  return {.order = {.batch_size = size,
                    .shuffle = shuffle,
                    .drop_last = shuffle,
                    .bucket_batches = 8,
                    .seed = seed},
          .window = config.features.window,
          .hop = config.features.hop,
          .subsampling = SpeechEncoder::subsampling,
          .repeats_need_frames = config.loss == SpeechLoss::ctc};
}

}  // namespace rw
