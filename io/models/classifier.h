// What a file of an image classifier says of it besides the weights: metadata of safetensors.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "../formats/safetensors.h"

namespace rw {

// How to show images to a classifier, and what its classes are called.
struct ImageClassifier {
  std::string model;                     // "resnet18"
  int64_t image = 0;                     // height and width of what it sees, 0: unknown
  std::vector<std::string> class_names;  // empty: unknown
  std::vector<float> mean, std;          // of the channels, as it was trained; empty: unknown
};

// For save_model(): what is unknown is left out.
Metadata to_metadata(const ImageClassifier& classifier);
// What the file does not say is unknown. Throws FileError for what cannot be.
ImageClassifier read_image_classifier(const SafetensorsFile& file);

// Throws FileError unless a file's classes are those of the data, or one of them is unknown.
void check_class_names(const SafetensorsFile& file, std::span<const std::string> of_data);

}  // namespace rw
