// Describes an image classifier beside its weights, as metadata of a safetensors file.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "../formats/safetensors.h"

namespace rw {

// How to show images to a classifier, and the names of its classes.
struct ImageClassifier {
  std::string model;                     // "resnet18"
  int64_t image = 0;                     // height and width of what it sees, 0: unknown
  std::vector<std::string> class_names;  // empty: unknown
  std::vector<float> mean, std;          // of the channels, as it was trained; empty: unknown
};

// For save_model(); what is unknown is left out.
Metadata to_metadata(const ImageClassifier& classifier);
// Fields that the file does not state are unknown. Throws FileError for impossible values.
ImageClassifier read_image_classifier(const SafetensorsFile& file);

// Throws FileError unless the classes of the file are those of the data, or one of the two is
// unknown.
void check_class_names(const SafetensorsFile& file, std::span<const std::string> of_data);

}  // namespace rw
