// Speech with its transcripts: LibriSpeech's folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "../base/dataset.h"

namespace rw {

// One sound file and its transcript.
struct Utterance {
  std::filesystem::path file;
  std::string speaker;  // name of the folder of all that one voice says
  std::string text;     // as normalised_transcript() has it
  int64_t samples = 0;  // at speech_rate
};

// The utterances of one split, sorted by their names. Samples stay on the disk until a SpeechLoader
// needs them.
struct SpeechDataset {
  std::vector<Utterance> utterances;

  size_t size() const { return utterances.size(); }  // utterances
  std::vector<std::string> texts() const;            // in order
  std::vector<std::string> speakers() const;         // each once, sorted
  double seconds() const;                            // of sound
};

// Lists FOLDER/SPEAKER/CHAPTER/*.trans.txt, whose lines are "NAME TRANSCRIPT" for the files
// NAME.flac or NAME.wav beside them (Panayotov et al. 2015, "LibriSpeech"). FOLDER/train*/ and
// FOLDER/dev*/ (or test*/) are a split; otherwise `test_share` of the speakers are held out to test
// with, by hashes of their names and `split_seed`. It reads only the headers of the sound files.
// FileError: no such folder, no transcripts, none for one of the splits, a line without a sound
// file, or a file that cannot be read.
SpeechDataset list_speech(const std::filesystem::path& folder, Split split, double test_share = 0.1,
                          uint64_t split_seed = 0);

}  // namespace rw
