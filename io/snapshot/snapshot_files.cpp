#include "io/snapshot/snapshot_files.h"

#include <algorithm>
#include <charconv>
#include <random>

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr const char *whole_format = "rewind-checkpoint-2", *index_format = "rewind-checkpoint-3",
                     *part_format = "rewind-checkpoint-part-3";
constexpr size_t id_digits = 16;
constexpr std::string_view part_mark = ".part-";

bool is_id(std::string_view text) {
  return text.size() == id_digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

const std::string& text_at(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  check<FileError>(found != file.metadata().end(), "snapshot", "'{}' has no '{}'", file.path(),
                   key);
  return found->second;
}

template <class T>
T number_at(const SafetensorsFile& file, const char* key) {
  const std::string& text = text_at(file, key);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check<FileError>(error == std::errc() && end == text.data() + text.size(), "snapshot",
                   "'{}' must have a number as '{}'", file.path(), key);
  return value;
}

SnapshotId id_of(const SafetensorsFile& index) {
  const std::string& format = text_at(index, "format");
  check<FileError>(format == whole_format || format == index_format, "snapshot",
                   "'{}' must be a training snapshot ({} or {}), got {}", index.path(),
                   whole_format, index_format, format);
  if (format == whole_format) return {};
  const SnapshotId id{text_at(index, "id"), number_at<int>(index, "parts")};
  check<FileError>(is_id(id.text) && id.parts > 0, "snapshot",
                   "'{}' must have an id of {} digits and a number of parts, got '{}' and {}",
                   index.path(), id_digits, id.text, id.parts);
  return id;
}

// The index, and the parts that belong to it by their names and their contents.
std::list<SafetensorsFile> open_all(const fs::path& index) {
  std::list<SafetensorsFile> files;
  files.emplace_back(index);
  const SnapshotId id = id_of(files.front());
  for (int part = 1; part <= id.parts; ++part) {
    const SafetensorsFile& file = files.emplace_back(id.path_of(index, part));
    check<FileError>(text_at(file, "format") == part_format && text_at(file, "id") == id.text &&
                         number_at<int>(file, "part") == part,
                     "snapshot", "'{}' must be part {} of '{}'", file.path(), part, index.string());
  }
  return files;
}

}  // namespace

SnapshotId SnapshotId::drawn(int parts) {
  if (parts == 0) return {};
  std::random_device device;
  return {fmt::format("{:08x}{:08x}", device(), device()), parts};
}

fs::path SnapshotId::path_of(const fs::path& index, int part) const {
  return fmt::format("{}.{}{}{}-of-{}", index.string(), text, part_mark, part, parts);
}

void write_snapshot_part(const fs::path& index, const SnapshotId& id, int part,
                         const StateDict& tensors) {
  write_safetensors(id.path_of(index, part), tensors,
                    {{"format", part_format}, {"id", id.text}, {"part", std::to_string(part)}}, {},
                    Checksums::crc32);
}

void write_snapshot_index(const fs::path& index, const SnapshotId& id, const StateDict& tensors,
                          const Generator& generator, const TrainingPosition& position,
                          const std::string& base) {
  Metadata metadata = {{"format", id.parts > 0 ? index_format : whole_format},
                       {"step", std::to_string(position.step)},
                       {"epoch", std::to_string(position.epoch)},
                       {"index", std::to_string(position.index)},
                       {"json", position.json},
                       {"rng_seed", std::to_string(generator.seed())},
                       {"rng_position", std::to_string(generator.position())}};
  if (!base.empty()) metadata.emplace("base", base);
  if (id.parts > 0) {
    metadata.emplace("id", id.text);
    metadata.emplace("parts", std::to_string(id.parts));
  }
  write_safetensors(index, tensors, metadata, {}, Checksums::crc32);
}

SnapshotFiles::SnapshotFiles(const fs::path& index) : files_(open_all(index)) {
  for (const SafetensorsFile& file : files_) file.verify();
  const SafetensorsFile& first = files_.front();
  position_ = {.step = number_at<int64_t>(first, "step"),
               .epoch = number_at<int64_t>(first, "epoch"),
               .index = number_at<int64_t>(first, "index"),
               .json = text_at(first, "json")};
  check<FileError>(position_.step >= 0 && position_.epoch >= 0 && position_.index >= 0, "snapshot",
                   "'{}' must have a step, an epoch and an index >= 0, got {}, {} and {}",
                   first.path(), position_.step, position_.epoch, position_.index);
  if (first.metadata().contains("base")) base_ = text_at(first, "base");
  rng_seed_ = number_at<uint64_t>(first, "rng_seed");
  rng_position_ = number_at<uint64_t>(first, "rng_position");
}

void SnapshotFiles::restore(Generator& generator) const {
  generator.seed(rng_seed_);
  generator.set_position(rng_position_);
}

bool is_complete_snapshot(const fs::path& index) {
  try {
    open_all(index);
    return true;
  } catch (const FileError&) {
    return false;
  }
}

fs::path index_of_part(const fs::path& file) {
  const std::string name = file.string();
  const size_t mark = name.rfind(part_mark);
  if (mark == std::string::npos || mark < id_digits + 1) return {};
  const size_t id = mark - id_digits;
  if (name[id - 1] != '.' || !is_id(std::string_view(name).substr(id, id_digits))) return {};
  return name.substr(0, id - 1);
}

bool is_orphan(const fs::path& part) {
  const fs::path index = index_of_part(part);
  std::error_code unknown;
  if (!fs::exists(index, unknown)) return !unknown;
  try {
    const SnapshotId id = id_of(SafetensorsFile(index));
    for (int i = 1; i <= id.parts; ++i)
      if (id.path_of(index, i) == part) return false;
    return true;
  } catch (const FileError&) {
    return false;
  }
}

}  // namespace rw
