// What a file of a speech recogniser says of it besides the weights: metadata of safetensors.
#pragma once

#include <string>
#include <vector>

#include "../../models/speech.h"
#include "../formats/safetensors.h"

namespace rw {

// The sizes of a recogniser, and what its labels stand for.
struct StoredRecognizer {
  SpeechConfig config;             // its sizes
  bool has_words = true;           // its labels are words, or characters
  std::vector<std::string> units;  // of the labels from 1 on
};

Metadata to_metadata(const StoredRecognizer& recognizer);  // for save_model()
// FileError where the file is of no recogniser, or says what cannot be.
StoredRecognizer read_recognizer(const SafetensorsFile& file);

}  // namespace rw
