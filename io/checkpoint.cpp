#include "io/checkpoint.h"

#include <algorithm>
#include <charconv>

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr const char* format_name = "rewind-checkpoint-1";

// Everything in the model's own layout: nothing is converted on the way.
StateDict all_tensors(const TrainingState& state) {
  StateDict tensors;
  const auto add = [&](const char* part, const std::string& name, const Tensor& tensor) {
    tensors.push_back({part + name, tensor});
  };
  for (const auto& [name, tensor] : state_dict(state.model)) add("model.", name, tensor);
  for (const auto& [name, tensor] : state.optimizer.state()) add("optimizer.", name, tensor);
  for (const auto& [name, tensor] : state.extra) add("extra.", name, tensor);
  return tensors;
}

const std::string& text_at(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  check<FileError>(found != file.metadata().end(), "checkpoint", "'{}' has no '{}'", file.path(),
                   key);
  return found->second;
}

template <class T>
T number_at(const SafetensorsFile& file, const char* key) {
  const std::string& text = text_at(file, key);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check<FileError>(error == std::errc() && end == text.data() + text.size(), "checkpoint",
                   "'{}' must have a number as '{}'", file.path(), key);
  return value;
}

bool is_complete(const fs::path& path) {
  try {
    return SafetensorsFile(path).metadata().contains("format");
  } catch (const FileError&) {
    return false;
  }
}

}  // namespace

void save_checkpoint(const fs::path& path, const TrainingState& state,
                     const TrainingPosition& position) {
  write_safetensors(path, all_tensors(state),
                    {{"format", format_name},
                     {"step", std::to_string(position.step)},
                     {"epoch", std::to_string(position.epoch)},
                     {"index", std::to_string(position.index)},
                     {"json", position.json},
                     {"rng_seed", std::to_string(state.generator.seed())},
                     {"rng_position", std::to_string(state.generator.position())}});
}

TrainingPosition load_checkpoint(const fs::path& path, const TrainingState& state) {
  const SafetensorsFile file(path);
  check<FileError>(text_at(file, "format") == format_name, "checkpoint",
                   "'{}' must be a training checkpoint ({}), got {}", file.path(), format_name,
                   text_at(file, "format"));
  const TrainingPosition position{.step = number_at<int64_t>(file, "step"),
                                  .epoch = number_at<int64_t>(file, "epoch"),
                                  .index = number_at<int64_t>(file, "index"),
                                  .json = text_at(file, "json")};
  const auto seed = number_at<uint64_t>(file, "rng_seed");
  const auto drawn = number_at<uint64_t>(file, "rng_position");
  load_tensors(file, all_tensors(state));
  state.generator.seed(seed);
  state.generator.set_position(drawn);
  return position;
}

CheckpointDirectory::CheckpointDirectory(fs::path directory, int keep)
    : directory_(std::move(directory)), keep_(keep) {
  check(keep > 0, "checkpoint", "at least one checkpoint is kept, got {}", keep);
}

void CheckpointDirectory::save(const TrainingState& state, const TrainingPosition& position) const {
  save_checkpoint(directory_ / fmt::format("step-{:012}.safetensors", position.step), state,
                  position);
  std::error_code ignored;  // what cannot be removed now is tried again the next time
  const std::vector<fs::path> complete = list();
  for (size_t i = 0; i + static_cast<size_t>(keep_) < complete.size(); ++i)
    fs::remove(complete[i], ignored);
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_))
    if (AtomicFile::is_temporary(entry.path())) fs::remove(entry.path(), ignored);
}

std::optional<TrainingPosition> CheckpointDirectory::load_latest(const TrainingState& state) const {
  const std::vector<fs::path> complete = list();
  if (complete.empty()) return std::nullopt;
  return load_checkpoint(complete.back(), state);
}

std::vector<fs::path> CheckpointDirectory::list() const {
  std::vector<fs::path> found;
  if (!fs::is_directory(directory_)) return found;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".safetensors") && is_complete(entry.path()))
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace rw
