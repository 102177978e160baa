#include "io/models/classifier.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/files/json_file.h"

namespace rw {

namespace {

using nlohmann::json;

// An entry of the metadata as a list; empty if there is no such entry.
json list_of(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return json::array();
  constexpr size_t most = 1 << 20;
  json list = found->second.size() <= most ? json::parse(found->second, nullptr, false) : json();
  check<FileError>(list.is_array(), "load", "{:?} in the metadata of '{}' must be a list", key,
                   file.path());
  return list;
}

std::vector<float> numbers_of(const SafetensorsFile& file, const std::string& key, float low) {
  std::vector<float> numbers;
  for (const json& value : list_of(file, key))
    numbers.push_back(
        bounded_number<float>(value, low, 1e6f, fmt::format("{:?} of '{}'", key, file.path())));
  return numbers;
}

std::string shown(std::span<const std::string> names) {
  constexpr size_t most = 5;
  std::string text = fmt::format("{} classes (", names.size());
  for (size_t i = 0; i < std::min(most, names.size()); ++i) text += (i ? ", " : "") + names[i];
  return text + (names.size() > most ? ", ...)" : ")");
}

}  // namespace

Metadata to_metadata(const ImageClassifier& classifier) {
  Metadata metadata{{"model", classifier.model}};
  if (classifier.image > 0) metadata["image"] = std::to_string(classifier.image);
  if (!classifier.class_names.empty()) metadata["classes"] = json(classifier.class_names).dump();
  if (!classifier.mean.empty()) metadata["mean"] = json(classifier.mean).dump();
  if (!classifier.std.empty()) metadata["std"] = json(classifier.std).dump();
  return metadata;
}

ImageClassifier read_image_classifier(const SafetensorsFile& file) {
  constexpr int64_t largest = 4096;
  ImageClassifier classifier;
  const auto text_of = [&](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  classifier.model = text_of("model");
  if (const std::string image = text_of("image"); !image.empty())
    classifier.image = bounded_number<int64_t>(json::parse(image, nullptr, false), 1, largest,
                                               fmt::format("\"image\" of '{}'", file.path()));
  for (const json& name : list_of(file, "classes")) {
    check<FileError>(name.is_string(), "load", "the classes in '{}' must be names, got {}",
                     file.path(), describe_json(name));
    classifier.class_names.push_back(name);
  }
  classifier.mean = numbers_of(file, "mean", -1e6f);
  classifier.std = numbers_of(file, "std", 1e-6f);
  check<FileError>(classifier.mean.size() == classifier.std.size(), "load",
                   "mean and std in '{}' must be of as many channels, got {} and {}", file.path(),
                   classifier.mean.size(), classifier.std.size());
  return classifier;
}

void check_class_names(const SafetensorsFile& file, std::span<const std::string> of_data) {
  const std::vector<std::string> names = read_image_classifier(file).class_names;
  if (names.empty() || of_data.empty() || std::ranges::equal(names, of_data)) return;
  fail<FileError>("load",
                  "'{}' must be of the data's classes, got {} and {}; use the data that it "
                  "was trained on, or train without it",
                  file.path(), shown(names), shown(of_data));
}

}  // namespace rw
