#include "data/content_hash.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "data/base/files.h"

namespace rw {

namespace {

// Hashes the parts in order, so that bytes that move from one part into the next change the hash.
class Content {
 public:
  template <class T>
  Content& add(const std::vector<T>& values) {
    hash_ = fnv1a(hash_, fnv1a(std::as_bytes(std::span(values))));
    return *this;
  }
  Content& add(const std::string& text) {
    hash_ = fnv1a(hash_, fnv1a(std::as_bytes(std::span(text))));
    return *this;
  }
  Content& add(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) add(text);
    return *this;
  }
  Content& add(uint64_t value) {
    hash_ = fnv1a(hash_, value);
    return *this;
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = fnv1a_start;
};

}  // namespace

uint64_t content_hash(const ImageDataset& data) {
  return Content().add(data.pixels).add(data.labels).add(data.class_names).hash();
}

uint64_t content_hash(const PhotoDataset& data) {
  check(data.headers.size() == data.size(), "content_hash",
        "check_photos() must have looked through all {} photographs, got {}", data.size(),
        data.headers.size());
  Content content;
  for (const auto& file : data.files) content.add(file.filename().string());
  for (const ImageHeader& header : data.headers) content.add(header.hash);
  return content.add(data.labels).add(data.class_names).hash();
}

uint64_t content_hash(const SpeechDataset& data) {
  constexpr size_t most = 16;
  const size_t every = std::max<size_t>(1, (data.size() + most - 1) / most);
  Content content;
  for (size_t i = 0; i < data.size(); ++i) {
    const Utterance& utterance = data.utterances[i];
    std::error_code error;
    const uint64_t size = std::filesystem::file_size(utterance.file, error);
    check<FileError>(!error, "content_hash", "cannot read '{}': {}", utterance.file.string(),
                     error.message());
    content.add(utterance.file.filename().string()).add(utterance.speaker).add(utterance.text);
    content.add(static_cast<uint64_t>(utterance.samples)).add(size);
    if (i % every == 0) content.add(file_hash(utterance.file));
  }
  return content.hash();
}

uint64_t content_hash(std::span<const int32_t> tokens) {
  Content content;
  content.add(std::vector(tokens.begin(), tokens.end()));
  return content.hash();
}

uint64_t content_hash(std::span<const TextExample> data) {
  Content content;
  for (const TextExample& example : data)
    content.add(example.ids)
        .add(static_cast<uint64_t>(example.second))
        .add(static_cast<uint64_t>(example.label));
  return content.hash();
}

uint64_t content_hash(std::span<const InstructionExample> data) {
  Content content;
  for (const InstructionExample& example : data) content.add(example.tokens).add(example.counts);
  return content.hash();
}

}  // namespace rw
