#include "data/speech/speech.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "data/base/files.h"
#include "data/speech/audio.h"
#include "data/speech/transcripts.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view ending = ".trans.txt";

// The folders of a split, such as train-clean-100 and train-clean-360.
std::vector<fs::path> folders_named(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_folder(entry.path()) && entry.path().filename().native().starts_with(prefix))
      found.push_back(entry.path());
  return found;
}

fs::path sound_of(const fs::path& transcripts, const std::string& name, size_t line) {
  const fs::path stem = transcripts.parent_path() / name;
  for (const char* kind : {".flac", ".wav"}) {
    fs::path file = stem;
    file += kind;
    std::error_code unknown;
    if (fs::is_regular_file(file, unknown)) return file;
  }
  fail<FileError>("list_speech", "line {} of '{}' must name a sound file, got no '{}.flac' or .wav",
                  line, transcripts.string(), stem.string());
}

void read_transcripts(const fs::path& file, std::vector<Utterance>& utterances) {
  constexpr uint64_t most = uint64_t{1} << 26;
  const std::string content = read_text(file, most);
  const std::string_view text = content;
  size_t line = 1;
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view row = text.substr(at, end - at);
    at = end + 1;
    const size_t space = std::min(row.find(' '), row.size());
    if (row.empty() || row == "\r") continue;
    Utterance utterance{.file = sound_of(file, std::string(row.substr(0, space)), line),
                        .speaker = file.parent_path().parent_path().filename().string(),
                        .text = normalised_transcript(row.substr(space))};
    utterance.samples = audio_length(utterance.file);
    utterances.push_back(std::move(utterance));
  }
}

std::vector<Utterance> utterances_in(const std::vector<fs::path>& folders) {
  std::vector<fs::path> transcripts;
  for (const fs::path& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.path().native().ends_with(ending)) transcripts.push_back(entry.path());
  std::ranges::sort(
      transcripts, {}, [](const fs::path& p) -> const auto& { return p.native(); });
  std::vector<Utterance> utterances;
  for (const fs::path& file : transcripts) read_transcripts(file, utterances);
  return utterances;
}

// The recordings of the speakers with the lowest hashes are for testing.
std::vector<Utterance> part_of(std::vector<Utterance> all, Split split, double test_share,
                               uint64_t seed) {
  const std::vector<std::string> speakers = SpeechDataset{all}.speakers();
  std::vector<std::pair<uint64_t, std::string>> order;
  for (const std::string& name : speakers)
    order.emplace_back(splitmix64(fnv1a(std::as_bytes(std::span(name))) ^ seed), name);
  std::ranges::sort(order);
  const auto n = static_cast<double>(order.size());
  const auto tested = order.size() < 2
                          ? 0
                          : std::clamp<size_t>(static_cast<size_t>(std::lround(test_share * n)), 1,
                                               order.size() - 1);
  std::set<std::string> names;
  for (size_t i = 0; i < tested; ++i) names.insert(order[i].second);
  std::erase_if(
      all, [&](const Utterance& u) { return names.contains(u.speaker) != (split == Split::test); });
  return all;
}

std::vector<Utterance> list_split(const fs::path& folder, Split split, double test_share,
                                  uint64_t seed) {
  const std::vector<fs::path> train = folders_named(folder, "train");
  if (train.empty()) return part_of(utterances_in({folder}), split, test_share, seed);
  std::vector<fs::path> held_out = folders_named(folder, "dev");
  if (held_out.empty()) held_out = folders_named(folder, "test");
  if (held_out.empty()) return part_of(utterances_in(train), split, test_share, seed);
  return utterances_in(split == Split::train ? train : held_out);
}

}  // namespace

std::vector<std::string> SpeechDataset::texts() const {
  std::vector<std::string> texts;
  for (const Utterance& u : utterances) texts.push_back(u.text);
  return texts;
}

std::vector<std::string> SpeechDataset::speakers() const {
  std::set<std::string> names;
  for (const Utterance& u : utterances) names.insert(u.speaker);
  return {names.begin(), names.end()};
}

double SpeechDataset::seconds() const {
  double samples = 0;
  for (const Utterance& u : utterances) samples += static_cast<double>(u.samples);
  return samples / speech_rate;
}

SpeechDataset list_speech(const fs::path& folder, Split split, double test_share,
                          uint64_t split_seed) {
  check(test_share > 0 && test_share < 1, "list_speech", "test_share must be in (0, 1), got {}",
        test_share);
  check<FileError>(is_folder(folder), "list_speech", "'{}' must be a folder of speech, got {}",
                   folder.string(), fs::exists(folder) ? "a file" : "nothing");
  SpeechDataset data;
  try {
    data.utterances = list_split(folder, split, test_share, split_seed);
  } catch (const fs::filesystem_error& error) {
    fail<FileError>("list_speech", "'{}' must be readable, got: {}", folder.string(), error.what());
  }
  check<FileError>(
      data.size() > 0, "list_speech",
      "'{}' must hold SPEAKER/CHAPTER/*.trans.txt with sound files beside them, of two "
      "speakers or more, got none to {} with",
      folder.string(), split == Split::train ? "train" : "test");
  return data;
}

}  // namespace rw
