// Describes a speech recogniser beside its weights, as metadata of a safetensors file.
#pragma once

#include <string>
#include <vector>

#include "../../models/speech.h"
#include "../formats/safetensors.h"

namespace rw {

// The sizes of a recogniser, and the meaning of its labels.
struct StoredRecognizer {
  SpeechConfig config;             // its sizes
  bool has_words = true;           // its labels are words, or characters
  std::vector<std::string> units;  // of the labels from 1 on
};

Metadata to_metadata(const StoredRecognizer& recognizer);  // for save_model()
// FileError if the file is not of a recogniser, or has impossible values.
StoredRecognizer read_recognizer(const SafetensorsFile& file);

}  // namespace rw
