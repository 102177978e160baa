// Log-mel features, the speech recogniser and its streams: against PyTorch, part by part, and
// wrong.
#include <cmath>
#include <numeric>

#include "io/models/model.h"
#include "io/models/speech.h"
#include "models/speech_stream.h"
#include "nn/speech/ctc_decode.h"
#include "ops/autocast.h"
#include "optim/adam.h"
#include "tests/fixtures/golden_rows.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/temporary_folder.h"

namespace rw::test {

namespace {

#include "tests/goldens/speech.inc"

constexpr int64_t mels = 10, frames = 23;

SpeechConfig small_speech(SpeechLoss loss) {
  return {.loss = loss,
          .classes = 7,
          .channels = 8,
          .kernel = 5,
          .hidden = 12,
          .layers = 2,
          .dropout = 0,
          .features = {.mels = mels}};
}

Tensor shaped_ints(const Labels& values, const Shape& shape) {
  return tensor(values, shape);
}

// The goldens' batch.
Tensor small_loss(SpeechRecognizer& model, DType dtype) {
  const Tensor x = cast(tensor(hashed("features", 3 * frames * mels), {3, frames, mels}), dtype);
  return model.loss(x, shaped_ints({23, 17, 12}, {3}),
                    shaped_ints({1, 2, 2, 3, 6, 0, 4, 0, 0}, {3, 3}), shaped_ints({3, 2, 1}, {3}));
}

void compare_speech_with_goldens(SpeechLoss kind, const std::vector<GoldenRow>& outputs,
                                 const std::vector<GoldenRow>& gradients, DType dtype,
                                 double tolerance) {
  SpeechRecognizer model(small_speech(kind));
  fill_from_hash(model, is_norm_weight);
  const float scale = dtype == DType::f32 ? 1 : 64;
  Tensor loss;
  {
    const Autocast autocast(dtype, dtype != DType::f32);
    const NoGrad guard;
    const Tensor x = tensor(hashed("features", 3 * frames * mels), {3, frames, mels});
    check_row(model.encoder(cast(x, dtype)), outputs.at(0), tolerance);
  }
  {
    const Autocast autocast(dtype, dtype != DType::f32);
    loss = small_loss(model, dtype);
  }
  check_row(loss, outputs.at(1), tolerance);
  affine(loss, scale, 0).backward();
  check_gradients(model, gradients, scale, tolerance);
}

std::vector<float> sound_of(int64_t samples) {
  std::vector<float> sound = hashed("sound", samples);
  // Louder and quieter, so that outputs are not all alike.
  for (size_t i = 0; i < sound.size(); ++i)
    sound[i] *= 0.5f * (1 + std::sin(static_cast<float>(i) * 7e-4f));
  return sound;
}

// A model that says something of noise: with large random weights.
void make_talkative(SpeechRecognizer& model) {
  for (const auto& [name, p] : model.named_parameters()) {
    std::vector<float> values = hashed(name, p.numel());
    if (is_norm_weight(name, p))
      for (float& v : values) v = 1 + 0.25f * v;
    p.detach().copy_(tensor(values, p.shape()));
  }
  model.eval();
}

Labels whole(SpeechRecognizer& model, const std::vector<float>& sound) {
  const NoGrad guard;
  const auto n = static_cast<int64_t>(sound.size());
  const int32_t count[] = {static_cast<int32_t>(model.features.frames(n))};
  return model.recognise(model.features(tensor(sound, {1, n})), count).at(0);
}

Labels in_parts(SpeechRecognizer& model, const std::vector<float>& sound, size_t part,
                int64_t step) {
  SpeechStream stream(model, step);
  for (size_t at = 0; at < sound.size(); at += part)
    stream.feed(std::span(sound).subspan(at, std::min(part, sound.size() - at)));
  stream.finish();
  return stream.labels();
}

}  // namespace

TEST_CASE("LogMel: as PyTorch computes it, in parts too") {
  on_each_device([] {
    const Tensor sound = affine(tensor(hashed("sound", 2 * 2000), {2, 2000}), 0.5f, 0);
    LogMel usual;
    const Tensor all = usual(sound);
    CHECK(all.shape() == Shape{2, 11, 40});
    check_row(all, features.at(0), 2e-5);
    LogMel other({.rate = 8000,
                  .window = 256,
                  .hop = 100,
                  .mels = 13,
                  .low = 0,
                  .high = 3500,
                  .floor = 1e-3f});
    check_row(other(sound), features.at(1), 2e-5);
    // Frames of a long sound are computed some at a time.
    const Tensor longer = tensor(hashed("long", 160 * 1500 + 240), {1, 160 * 1500 + 240});
    const Tensor far = usual(slice(longer, 1, 160 * 1400, 160 * 1499 + 400));
    const std::vector<float> there = usual(longer).to_vector(), here = far.to_vector();
    REQUIRE(there.size() == 1500 * 40);
    for (size_t i = 0; i < here.size(); ++i)
      CHECK(std::abs(here[i] - there[1400 * 40 + i]) <= 1e-5f);
  });
}

TEST_CASE("LogMel: statistics bring channels to 0 and 1") {
  LogMel features({.mels = 5});
  const Tensor sound = tensor(hashed("sound", 2 * 4000), {2, 4000});
  const Labels counts = {23, 9};  // the second row is padded from there on
  LogMel::Statistics statistics;
  statistics.add(features(sound), counts);
  features.set_statistics(statistics);
  const std::vector<float> x = features(sound).to_vector();
  for (size_t c = 0; c < 5; ++c) {
    double sum = 0, squares = 0;
    for (size_t row = 0; row < 2; ++row)
      for (size_t t = 0; t < static_cast<size_t>(counts[row]); ++t) {
        const double v = x[(row * 23 + t) * 5 + c];
        sum += v, squares += v * v;
      }
    CHECK(std::abs(sum / 32) < 1e-4);
    CHECK(std::abs(squares / 32 - 1) < 1e-3);
  }
  CHECK_THROWS_AS(statistics.add(features(sound), Labels{23}), ShapeError);
  CHECK_THROWS_AS(statistics.add(features(sound), Labels{23, 24}), ShapeError);
}

TEST_CASE("LogMel: what cannot be is refused") {
  CHECK_THROWS_AS(LogMel({.window = 0}), ValueError);
  CHECK_THROWS_AS(LogMel({.high = 9000}), ValueError);
  CHECK_THROWS_AS(LogMel({.floor = 0}), ValueError);
  LogMel features;
  CHECK_THROWS_AS(features(zeros({1, 399})), ShapeError);
  CHECK_THROWS_AS(features(zeros({400})), ShapeError);
  CHECK(features.frames(399) == 0);
  CHECK(features.frames(400) == 1);
  CHECK(features.samples(3) == 720);
}

TEST_CASE("SpeechRecognizer: losses and gradients as PyTorch's") {
  on_each_device([] {
    for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 2e-5}, {DType::f16, 4e-2}}) {
      INFO(name(dtype));
      compare_speech_with_goldens(SpeechLoss::ctc, ctc_outputs, ctc_gradients, dtype, tolerance);
      compare_speech_with_goldens(SpeechLoss::rnnt, rnnt_outputs, rnnt_gradients, dtype, tolerance);
    }
  });
}

TEST_CASE("SpeechRecognizer: features that are NaN and labels that do not fit show in the loss") {
  for (const SpeechLoss kind : {SpeechLoss::ctc, SpeechLoss::rnnt}) {
    SpeechRecognizer model(small_speech(kind));
    std::vector<float> x = hashed("features", frames * mels);
    const auto loss_of = [&](const Labels& labels) {
      const auto n = static_cast<int64_t>(labels.size());
      return model
          .loss(tensor(x, {1, frames, mels}), shaped_ints({frames}, {1}),
                shaped_ints(labels, {1, n}), shaped_ints({static_cast<int32_t>(n)}, {1}))
          .item();
    };
    CHECK(std::isfinite(loss_of({1, 2})));
    if (kind == SpeechLoss::ctc) CHECK(!std::isfinite(loss_of({1, 1, 1, 1, 1, 1, 1})));
    CHECK(!std::isfinite(loss_of({1, 7})));
    x[40] = std::nanf("");
    CHECK(!std::isfinite(loss_of({1, 2})));
  }
}

TEST_CASE("SpeechRecognizer: training lowers the loss" * doctest::test_suite("host")) {
  set_default_device(open_backend("cpu"));
  for (const SpeechLoss kind : {SpeechLoss::ctc, SpeechLoss::rnnt}) {
    manual_seed(3);
    SpeechRecognizer model(small_speech(kind));
    AdamW optimizer(model.parameters(), {.lr = 3e-2f});
    float first = 0, last = 0;
    for (int step = 0; step < 120; ++step) {
      const Tensor loss = small_loss(model, DType::f32);
      last = loss.item();
      if (step == 0) first = last;
      optimizer.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
    }
    CHECK(last < 0.1f * first);
    // It recognises the sounds with which it was trained.
    model.eval();
    const Tensor x = tensor(hashed("features", 3 * frames * mels), {3, frames, mels});
    const auto heard = model.recognise(x, Labels{23, 17, 12});
    CHECK(heard == std::vector<Labels>{{1, 2, 2}, {3, 6}, {4}});
    if (kind == SpeechLoss::ctc)
      CHECK(model.recognise(x, Labels{23, 17, 12}, 8) == heard);
    else
      CHECK_THROWS_AS(model.recognise(x, Labels{23, 17, 12}, 8), ValueError);
  }
}

TEST_CASE("SpeechStream: the labels are those of the whole sound, whatever the parts") {
  on_each_device([] {
    for (const SpeechLoss kind : {SpeechLoss::ctc, SpeechLoss::rnnt}) {
      SpeechRecognizer model(small_speech(kind));
      make_talkative(model);
      const std::vector<float> sound = sound_of(30011);
      const Labels labels = whole(model, sound);
      REQUIRE(labels.size() > 3);
      CHECK(in_parts(model, sound, 30011, 1000) == labels);
      for (const auto& [part, step] : {std::pair<size_t, int64_t>{160, 1}, {701, 2}, {5000, 8}})
        CHECK(in_parts(model, sound, part, step) == labels);
    }
  });
}

TEST_CASE("SpeechStream: nothing of less than a frame, and no model that trains") {
  SpeechRecognizer model(small_speech(SpeechLoss::ctc));
  CHECK_THROWS_AS(SpeechStream(model, 8), ValueError);
  model.eval();
  CHECK_THROWS_AS(SpeechStream(model, 0), ValueError);
  CHECK(in_parts(model, std::vector<float>(399), 100, 4).empty());
  CHECK_THROWS_AS(model.transducer(), ValueError);
}

TEST_CASE("RnntGreedyDecoder: the likeliest class, frame by frame") {
  // The joint network sees the encoder alone: class by class its frames.
  const Tensor weight = tensor({1, 0, 0, 0, 1, 0, 0, 0, 1}, {3, 3});
  int told = 0;
  std::vector<float> likes_blank(2);
  const RnntPredict predict = [&](std::span<const int32_t> labels) {
    ++told;
    // After its first label a sample likes nothing but the blank.
    std::vector<float> out;
    for (size_t n = 0; n < labels.size(); ++n) {
      if (labels[n] > 0) likes_blank[n] = 9;
      out.insert(out.end(), {likes_blank[n], 0, 0});
    }
    return tensor(out, {static_cast<int64_t>(labels.size()), 3});
  };
  RnntGreedyDecoder decoder(2, predict, weight, {});
  CHECK(told == 1);
  const Tensor x = tensor({0, 2, 0, 0, 0, 2, 0, 2, 0, /**/ 2, 0, 0, 0, 0, 2, 0, 2, 0}, {2, 3, 3});
  const int64_t lengths[] = {3, 2};
  decoder.decode(x, lengths);
  CHECK(decoder.labels().at(0) == Labels{1});
  CHECK(decoder.labels().at(1) == Labels{2});
  CHECK_THROWS_AS(decoder.decode(zeros({3, 2, 3})), ShapeError);
  CHECK_THROWS_AS(decoder.decode(x, std::vector<int64_t>{1}), ValueError);
  CHECK_THROWS_AS(decoder.decode(x, std::vector<int64_t>{1, 4}), ValueError);
  CHECK_THROWS_AS(RnntGreedyDecoder(1, predict, weight, {}, 3), ValueError);

  // A sample that has ended says nothing while another one goes on.
  const RnntPredict silent = [](std::span<const int32_t>) { return zeros({2, 3}); };
  RnntGreedyDecoder ended(2, silent, weight, {}, 0, 1);
  const int64_t one_frame[] = {1, 0};
  ended.decode(tensor({0, 2, 0, /**/ 0, 2, 0}, {2, 1, 3}), one_frame);
  CHECK(ended.labels().at(0) == Labels{1});
  CHECK(ended.labels().at(1).empty());

  // A class that always wins is said `most` times a frame.
  const RnntPredict constant = [](std::span<const int32_t>) { return zeros({1, 3}); };
  RnntGreedyDecoder loud(1, constant, weight, {}, 0, 2);
  loud.decode(tensor({0, 0, 5, 0, 0, 5}, {1, 2, 3}));
  CHECK(loud.labels().at(0) == Labels{2, 2, 2, 2});
}

TEST_CASE("word_errors: insertions, deletions and substitutions of words" *
          doctest::test_suite("host")) {
  const auto rate = [](const char* heard, const char* said) {
    const WordErrors e = word_errors(heard, said);
    return std::pair(e.errors, e.words);
  };
  CHECK(rate("one two three", "one two three") == std::pair<int64_t, int64_t>(0, 3));
  CHECK(rate("one three", "one two three") == std::pair<int64_t, int64_t>(1, 3));
  CHECK(rate("one two two three four", "one two three") == std::pair<int64_t, int64_t>(2, 3));
  CHECK(rate("", "  one  two ") == std::pair<int64_t, int64_t>(2, 2));
  CHECK(rate("ones", "one") == std::pair<int64_t, int64_t>(1, 1));
  WordErrors sum = word_errors("a b", "a c");
  sum += word_errors("", "a b c");
  CHECK(sum.rate() == doctest::Approx(0.8));
  CHECK(WordErrors{}.rate() == 0);
  CHECK(std::isinf(word_errors("a", "").rate()));
}

TEST_CASE("recognisers in files: all that is needed to use them, and what cannot be") {
  const TemporaryFolder folder;
  const SpeechConfig config = small_speech(SpeechLoss::rnnt);
  SpeechRecognizer model(config);
  model.features.mean.copy_from(hashed("mean", mels));
  const std::vector<std::string> units = {"a", "b", "c", "d", "e", "\""};
  const StoredRecognizer about{.config = config, .has_words = false, .units = units};
  save_model(folder / "model", model, to_metadata(about));
  const SafetensorsFile file(folder / "model");
  const StoredRecognizer read = read_recognizer(file);
  CHECK(read.units == units);
  CHECK(!read.has_words);
  SpeechRecognizer again(read.config);
  load_model(folder / "model", again);
  CHECK(again.features.mean.to_vector() == hashed("mean", mels));
  CHECK(again.named_parameters().size() == model.named_parameters().size());

  const auto fault = [&](const std::string& from, const std::string& to) {
    Metadata metadata = to_metadata(about);
    std::string& text = metadata.begin()->second;
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    save_model(folder / "other", model, metadata);
    return fault_of([&] { read_recognizer(SafetensorsFile(folder / "other")); });
  };
  CHECK(fault("\"rnnt\"", "\"other\"").find("must be ctc or rnnt, got \"other\"") !=
        std::string::npos);
  CHECK(fault("\"hidden\":12", "\"hidden\":0").find("\"hidden\"") != std::string::npos);
  CHECK(fault("\"a\",", "1,").find("must be texts") != std::string::npos);
  save_model(folder / "other", model);
  CHECK(fault_of([&] {
          read_recognizer(SafetensorsFile(folder / "other"));
        }).find("must hold a speech recogniser") != std::string::npos);
}

}  // namespace rw::test
