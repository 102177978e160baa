// Sound files, transcripts, LibriSpeech's folders, batches of speech, spoken digits.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <numbers>
#include <set>
#include <sndfile.h>

#include "data/base/files.h"
#include "data/speech/audio.h"
#include "data/speech/speech_loader.h"
#include "data/speech/spoken_digits.h"
#include "tests/fixtures/message_of.h"
#include "tests/fixtures/temporary_folder.h"

namespace rw::test {

namespace {

namespace fs = std::filesystem;

using Labels = std::vector<int32_t>;

std::vector<float> sine(double hz, int rate, int64_t samples) {
  std::vector<float> wave;
  for (int64_t i = 0; i < samples; ++i)
    wave.push_back(static_cast<float>(
        0.5 * std::sin(2 * std::numbers::pi * hz * static_cast<double>(i) / rate)));
  return wave;
}

// Writes a sound with libsndfile itself; `samples` is [frames, channels].
void write_sound(const fs::path& file, std::vector<float> samples, int rate, int channels,
                 int format) {
  SF_INFO info{};
  info.samplerate = rate, info.channels = channels, info.format = format;
  SNDFILE* sound = sf_open(file.c_str(), SFM_WRITE, &info);
  REQUIRE(sound != nullptr);
  const auto frames = static_cast<sf_count_t>(samples.size()) / channels;
  CHECK(sf_writef_float(sound, samples.data(), frames) == frames);
  sf_close(sound);
}

constexpr int wav16 = SF_FORMAT_WAV | SF_FORMAT_PCM_16, flac = SF_FORMAT_FLAC | SF_FORMAT_PCM_16;
constexpr int wav_float = SF_FORMAT_WAV | SF_FORMAT_FLOAT;

// Writes SPEAKER/CHAPTER with a transcript and silence of so many samples for each line.
void write_chapter(const fs::path& root, const std::string& speaker,
                   const std::vector<std::pair<std::string, int64_t>>& lines,
                   const char* ending = ".wav") {
  const fs::path folder = root / speaker / "7";
  fs::create_directories(folder);
  std::ofstream transcripts(folder / (speaker + "-7.trans.txt"));
  int number = 0;
  for (const auto& [text, samples] : lines) {
    const std::string name = speaker + "-7-" + std::to_string(number++);
    transcripts << name << ' ' << text << '\n';
    write_sound(folder / (name + ending), std::vector<float>(static_cast<size_t>(samples), 0.25f),
                speech_rate, 1, std::string(ending) == ".wav" ? wav16 : flac);
  }
}

}  // namespace

TEST_CASE("audio: files of several kinds, channels and rates" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  const std::vector<float> wave = sine(440, speech_rate, 4000);
  for (const int format : {wav16, flac, wav_float}) {
    write_sound(folder / "sound", wave, speech_rate, 1, format);
    const Audio audio = read_audio(folder / "sound");
    CHECK(audio.rate == speech_rate);
    REQUIRE(audio.samples.size() == wave.size());
    CHECK(audio_length(folder / "sound") == 4000);
    for (size_t i = 0; i < wave.size(); ++i) CHECK(std::abs(audio.samples[i] - wave[i]) < 1e-4f);
  }
  std::vector<float> both;
  for (const float x : wave) both.insert(both.end(), {x, -0.5f * x});
  write_sound(folder / "sound", both, speech_rate, 2, wav16);
  CHECK(read_audio(folder / "sound").samples[30] ==
        doctest::Approx(0.25f * wave[30]).epsilon(1e-3));

  write_wav(folder / "own.wav", {wave, speech_rate});
  CHECK(std::abs(read_audio(folder / "own.wav").samples[77] - wave[77]) < 1e-4f);
  write_wav(folder / "own.wav", {{2, -3}, 8000});
  const Audio clipped = read_audio(folder / "own.wav", 8000);
  CHECK(clipped.samples.at(0) == doctest::Approx(1).epsilon(1e-3));
  CHECK(clipped.samples.at(1) == doctest::Approx(-1).epsilon(1e-3));
}

TEST_CASE("resample_audio: tones keep their pitch, what is too high is gone" *
          doctest::test_suite("host")) {
  for (const auto& [from, to] :
       {std::pair{22050, 16000}, {8000, 16000}, {44100, 16000}, {16000, 16000}}) {
    const Audio tone = resample_audio({sine(1000, from, from / 2), from}, to);
    const std::vector<float> wanted = sine(1000, to, to / 2);
    REQUIRE(tone.samples.size() == wanted.size());
    for (size_t i = 200; i + 200 < wanted.size(); ++i)
      CHECK(std::abs(tone.samples[i] - wanted[i]) < 2e-3f);
  }
  const Audio high = resample_audio({sine(10000, 44100, 22050), 44100}, 16000);
  for (size_t i = 200; i + 200 < high.samples.size(); ++i) CHECK(std::abs(high.samples[i]) < 2e-3f);
  CHECK_THROWS_AS(resample_audio({{0}, 16000}, 0), ValueError);
  CHECK(resample_audio({{}, 8000}, 16000).samples.empty());
}

TEST_CASE("audio: what cannot be read is an error that names it" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  const auto fault = [&](const char* name) {
    const std::string text = fault_of([&] { read_audio(folder / name); });
    CHECK(contains(text, name));
    return text;
  };
  CHECK(contains(fault("nothing"), "is not there"));
  std::ofstream(folder / "text.wav") << "no sound at all";
  CHECK(contains(fault("text.wav"), "must be a sound file"));
  write_sound(folder / "empty.wav", {}, speech_rate, 1, wav16);
  CHECK(contains(fault("empty.wav"), "must hold samples"));
  std::vector<float> broken = sine(100, speech_rate, 100);
  broken[42] = std::numeric_limits<float>::quiet_NaN();
  write_sound(folder / "nan.wav", broken, speech_rate, 1, wav_float);
  CHECK(contains(fault("nan.wav"), "got nan at sample 42"));
  write_sound(folder / "cut.flac", sine(100, speech_rate, 50000), speech_rate, 1, flac);
  fs::resize_file(folder / "cut.flac", fs::file_size(folder / "cut.flac") / 2);
  CHECK(contains(fault("cut.flac"), "must be whole"));
}

TEST_CASE("SpeechUnits: words or characters, and back" * doctest::test_suite("host")) {
  const std::vector<std::string> texts = {"two one", "one three"};
  const SpeechUnits words = SpeechUnits::of(SpeechUnit::word, texts);
  CHECK(words.classes() == 4);
  CHECK(words.encode("three  two") == Labels{2, 3});
  CHECK(words.decode(Labels{2, 0, 3, 3}) == "three two two");
  const SpeechUnits letters = SpeechUnits::of(SpeechUnit::character, texts);
  CHECK(letters.names().front() == " ");
  CHECK(letters.decode(letters.encode("two one")) == "two one");
  CHECK(contains(message_of<ValueError>([&] { words.encode("one four"); }), "\"four\""));
  CHECK(contains(message_of<ValueError>([&] { words.decode(Labels{4}); }), "got 4"));
  CHECK(contains(message_of<ValueError>([&] { words.decode(Labels{-1}); }), "got -1"));
  CHECK_THROWS_AS(SpeechUnits(SpeechUnit::word, {}), ValueError);
  CHECK_THROWS_AS(SpeechUnits(SpeechUnit::word, {"a", "a"}), ValueError);
  CHECK_THROWS_AS(SpeechUnits(SpeechUnit::word, {"a b"}), ValueError);
  CHECK_THROWS_AS(SpeechUnits(SpeechUnit::character, {"ab"}), ValueError);
  CHECK_THROWS_AS(SpeechUnits(SpeechUnit::character, {"\xc3"}), ValueError);
  CHECK(normalised_transcript("  ONE\tTwo \r\n") == "one two");
}

TEST_CASE("list_speech: LibriSpeech's folders, with and without a split" *
          doctest::test_suite("host")) {
  const TemporaryFolder folder;
  write_chapter(folder / "all", "19", {{"ONE TWO", 4000}, {"THREE", 3000}}, ".flac");
  write_chapter(folder / "all", "26", {{"FOUR", 2000}});
  write_chapter(folder / "all", "32", {{"FIVE", 2000}});
  const SpeechDataset train = list_speech(folder / "all", Split::train);
  const SpeechDataset test = list_speech(folder / "all", Split::test);
  CHECK(train.size() + test.size() == 4);
  CHECK(train.speakers().size() == 2);
  REQUIRE(test.speakers().size() == 1);
  for (const std::string& name : train.speakers()) CHECK(name != test.speakers()[0]);
  CHECK(list_speech(folder / "all", Split::test).texts() == test.texts());

  write_chapter(folder / "split/train-clean-1", "1", {{"ONE TWO", 4000}});
  write_chapter(folder / "split/train-clean-2", "2", {{"SIX", 3000}});
  write_chapter(folder / "split/dev-clean", "3", {{"SEVEN", 16000}});
  const SpeechDataset both = list_speech(folder / "split", Split::train);
  CHECK(both.texts() == std::vector<std::string>{"one two", "six"});
  const SpeechDataset held_out = list_speech(folder / "split", Split::test);
  CHECK(held_out.texts() == std::vector<std::string>{"seven"});
  CHECK(held_out.seconds() == 1);
  CHECK(held_out.utterances[0].speaker == "3");
}

TEST_CASE("list_speech: folders that are not as they should be" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  const auto fault = [&](const char* name) {
    return fault_of([&] { list_speech(folder / name, Split::test); });
  };
  // A mark at the start of a transcript is no part of a name.
  write_chapter(folder / "marked", "1", {{"ONE", 2000}});
  write_chapter(folder / "marked", "2", {{"TWO", 2000}});
  std::ofstream(folder / "marked/1/7/1-7.trans.txt") << "\xef\xbb\xbf"
                                                        "1-7-0 ONE\n\n";
  CHECK(list_speech(folder / "marked", Split::train).size() == 1);
  std::ofstream(folder / "marked/1/7/1-7.trans.txt") << "1-7-0 CAF\xe9\n";
  CHECK(contains(fault("marked"), "1-7.trans.txt:1 must be UTF-8"));
  CHECK(contains(fault("nothing"), "must be a folder of speech, got nothing"));
  fs::create_directories(folder / "empty");
  CHECK(contains(fault("empty"), "none to test with"));
  write_chapter(folder / "one", "1", {{"ONE", 2000}});
  CHECK(contains(fault("one"), "two speakers or more"));
  write_chapter(folder / "gone", "1", {{"ONE", 2000}, {"TWO", 2000}});
  fs::remove(folder / "gone/1/7/1-7-1.wav");
  const std::string gone = fault("gone");
  CHECK(contains(gone, "line 2 of"));
  CHECK(contains(gone, "1-7-1"));
  write_chapter(folder / "bad", "1", {{"ONE", 2000}});
  std::ofstream(folder / "bad/1/7/1-7-0.wav") << "no sound";
  CHECK(contains(fault("bad"), "1-7-0.wav' must be a sound file"));
}

TEST_CASE("SpeechLoader: padded batches of similar length" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  write_chapter(folder / "train", "1",
                {{"A B", 5000}, {"B", 4007}, {"A B A", 20000}, {"C", 19000}});
  write_chapter(folder / "test", "2", {{"A", 4000}});
  const SpeechDataset data = list_speech(folder.path, Split::train);
  const SpeechUnits units = SpeechUnits::of(SpeechUnit::word, data.texts());
  SpeechLoader loader(data, units,
                      {.order = {.batch_size = 2, .shuffle = false, .bucket_batches = 2}});
  REQUIRE(loader.batches() == 2);
  CHECK(loader.width() == 3);
  const SpeechBatch batch = loader.batch(0, 0);
  CHECK(batch.rows == 2);
  CHECK(batch.length == 32);
  CHECK(batch.frames == Labels{23, 29});  // 4007 and 5000 samples
  CHECK(batch.labels == Labels{2, 0, 0, 1, 2, 0});
  CHECK(batch.label_counts == Labels{1, 2});
  REQUIRE(batch.samples.size() == 2 * (31 * 160 + 400));
  CHECK(batch.samples[4006] == doctest::Approx(0.25f));
  CHECK(batch.samples[4007] == 0);
  const SpeechBatch longer = loader.batch(0, 1), shape = loader.shape(0, 1);
  CHECK(longer.length == 128);
  CHECK((shape.rows == longer.rows && shape.length == longer.length && shape.width == 3));
  CHECK(shape.samples.empty());
  CHECK_THROWS_AS(loader.batch(0, 2), ValueError);
}

TEST_CASE("SpeechLoader: what cannot be trained with is named" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  write_chapter(folder / "train", "1", {{"A A A", 1360}});  // 7 frames: two outputs
  write_chapter(folder / "test", "2", {{"A", 300}});
  const SpeechDataset data = list_speech(folder.path, Split::train);
  const SpeechDataset tiny = list_speech(folder.path, Split::test);
  const SpeechUnits a(SpeechUnit::word, {"a"}), b(SpeechUnit::word, {"b"});
  const auto fault = [](const SpeechDataset& of, const SpeechUnits& units, bool repeats) {
    return fault_of([&] {
      SpeechLoader(of, units, {.order = {.batch_size = 1}, .repeats_need_frames = repeats});
    });
  };
  const std::string repeated = fault(data, a, true);
  CHECK(contains(repeated, "1-7-0.wav"));
  CHECK(contains(repeated, "got 2 outputs of 4 frames for 3 labels"));
  CHECK(fault(data, a, false) == "no FileError");  // a transducer may say more than one
  CHECK(contains(fault(data, b, true), "\"a\" must be one of 1 known words"));
  const std::string hasty = fault(tiny, a, true);
  CHECK((contains(hasty, "2-7-0.wav") && contains(hasty, "got 300")));
}

TEST_CASE("spoken_digits: once, whole, voices held out" * doctest::test_suite("host")) {
  const TemporaryFolder folder;
  int starts = 0;
  const auto count = [&](const fs::path&) { ++starts; };
  const SyntheticSizes sizes{.train = 6, .test = 3, .seed = 4};
  const char* path = std::getenv("PATH");
  const std::string before = path ? path : "";
  ::setenv("PATH", "/nonexistent", 1);
  const std::string missing = fault_of([&] { spoken_digits(folder.path, sizes, count); });
  ::setenv("PATH", before.c_str(), 1);
  CHECK((contains(missing, "espeak-ng must be there") && contains(missing, "--data DIR")));
  CHECK(fs::is_empty(folder.path));
  CHECK(starts == 1);
  if (std::system("command -v espeak-ng > /dev/null") != 0) {
    MESSAGE("espeak-ng is not installed: nothing is spoken");
    return;
  }
  const fs::path made = spoken_digits(folder.path, sizes, count);
  CHECK(spoken_digits(folder.path, sizes, count) == made);
  CHECK(starts == 2);
  const SpeechDataset train = list_speech(made, Split::train);
  const SpeechDataset test = list_speech(made, Split::test);
  CHECK((train.size() == 6 && test.size() == 3));
  std::set<std::string> voices;
  for (const std::string& name : train.speakers()) voices.insert(name);
  for (const std::string& name : test.speakers()) CHECK(!voices.contains(name));
  for (const Utterance& u : train.utterances) {
    CHECK(u.samples > 8000);
    float loudest = 0;
    for (const float x : read_audio(u.file).samples) loudest = std::max(loudest, std::abs(x));
    CHECK(loudest > 0.03f);
  }
  // The same seed says the same: byte by byte.
  const TemporaryFolder other;
  const SpeechDataset again = list_speech(spoken_digits(other.path, sizes), Split::train);
  CHECK(again.texts() == train.texts());
  CHECK(read_file(again.utterances[5].file) == read_file(train.utterances[5].file));
}

}  // namespace rw::test
