#include "rewind/io/snapshot.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "rewind/io/file_calls.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

const std::string optimizer_prefix = "optimizer.";
constexpr const char* format_name = "rewind-checkpoint-2";

// Everything in the model's own layout: nothing is converted on the way.
StateDict all_tensors(const TrainingState& state, const Optimizer::NamedState& optimizer) {
  StateDict tensors;
  const auto add = [&](const std::string& part, const std::string& name, const Tensor& tensor) {
    tensors.push_back({part + name, tensor});
  };
  for (const auto& [name, tensor] : state_dict(state.model)) add("model.", name, tensor);
  for (const auto& [name, tensor] : optimizer) add(optimizer_prefix, name, tensor);
  for (const auto& [name, tensor] : state.extra) add("extra.", name, tensor);
  return tensors;
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

bool is_complete(const fs::path& path) {
  try {
    return SafetensorsFile(path).metadata().contains("format");
  } catch (const FileError&) {
    return false;
  }
}

// Where the snapshot is, if it is one and every byte of it is what was written.
TrainingPosition checked_position(const SafetensorsFile& file) {
  check<FileError>(text_at(file, "format") == format_name, "snapshot",
                   "'{}' must be a training snapshot ({}), got {}", file.path(), format_name,
                   text_at(file, "format"));
  file.verify();
  const TrainingPosition position{.step = number_at<int64_t>(file, "step"),
                                  .epoch = number_at<int64_t>(file, "epoch"),
                                  .index = number_at<int64_t>(file, "index"),
                                  .json = text_at(file, "json")};
  check<FileError>(position.step >= 0 && position.epoch >= 0 && position.index >= 0, "snapshot",
                   "'{}' must have a step, an epoch and an index >= 0, got {}, {} and {}",
                   file.path(), position.step, position.epoch, position.index);
  number_at<uint64_t>(file, "rng_seed");
  number_at<uint64_t>(file, "rng_position");
  return position;
}

void fill(const TrainingState& state, const SafetensorsFile& file) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.tensors())
    if (name.starts_with(optimizer_prefix)) names.push_back(name.substr(optimizer_prefix.size()));
  load_tensors(file, all_tensors(state, state.optimizer.state_to_fill(names)));
  state.optimizer.state_filled();
  state.generator.seed(number_at<uint64_t>(file, "rng_seed"));
  state.generator.set_position(number_at<uint64_t>(file, "rng_position"));
}

// A file of a SnapshotDirectory, whole or not.
struct Entry {
  int64_t step;
  fs::path path;
  auto operator<=>(const Entry&) const = default;
};

constexpr std::string_view prefix = "step-", suffix = ".safetensors";

std::string file_name(int64_t step) {
  return fmt::format("{}{:012}{}", prefix, step, suffix);
}

std::optional<int64_t> step_of(const std::string& name) {
  if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) ||
      !name.ends_with(suffix))
    return {};
  int64_t step = 0;
  const char* const end = name.data() + name.size() - suffix.size();
  const auto [at, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || at != end) return {};
  return step;
}

// Everything in the folder; nothing if it is not there.
std::vector<fs::path> files_in(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  if (error == std::errc::no_such_file_or_directory) return files;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    files.push_back(entry->path());
  check<FileError>(!error, "snapshot", "cannot list '{}': {}", directory.string(), error.message());
  return files;
}

std::vector<Entry> entries_in(const fs::path& directory) {
  std::vector<Entry> entries;
  for (const fs::path& file : files_in(directory))
    if (const auto step = step_of(file.filename())) entries.push_back({*step, file});
  std::sort(entries.begin(), entries.end());
  return entries;
}

// What cannot be removed now is tried again the next time.
void discard(const fs::path& file) {
  file_calls::unlink(file.c_str());
}

// The folder is locked: no writer of these lives.
void remove_leftovers(const fs::path& directory) {
  for (const fs::path& file : files_in(directory))
    if (AtomicFile::is_temporary(file) && file.filename().string().starts_with(prefix))
      discard(file);
}

}  // namespace

void save_snapshot(const fs::path& path, const TrainingState& state,
                   const TrainingPosition& position) {
  const auto& shard = state.optimizer.parameters().shard();
  check<FileError>(
      !shard, "snapshot",
      "the optimizer's whole state is needed, got that of rank {} of {}: a run that is "
      "to be saved keeps it on every rank",
      shard ? shard->rank : 0, shard ? shard->ranks : 0);
  check(position.step >= 0 && position.epoch >= 0 && position.index >= 0, "snapshot",
        "step, epoch and index must be >= 0, got {}, {} and {}", position.step, position.epoch,
        position.index);
  write_safetensors(path, all_tensors(state, state.optimizer.state()),
                    {{"format", format_name},
                     {"step", std::to_string(position.step)},
                     {"epoch", std::to_string(position.epoch)},
                     {"index", std::to_string(position.index)},
                     {"json", position.json},
                     {"rng_seed", std::to_string(state.generator.seed())},
                     {"rng_position", std::to_string(state.generator.position())}},
                    {}, Checksums::crc32);
}

TrainingPosition load_snapshot(const fs::path& path, const TrainingState& state) {
  const SafetensorsFile file(path);
  const TrainingPosition position = checked_position(file);
  fill(state, file);
  return position;
}

SnapshotDirectory::SnapshotDirectory(fs::path directory, int keep)
    : directory_(std::move(directory)), keep_(keep) {
  check(keep > 0, "snapshot", "at least one snapshot is kept, got {}", keep);
}

void SnapshotDirectory::lock() {
  if (lock_) return;
  lock_ = std::make_unique<FolderLock>(directory_);
  remove_leftovers(directory_);
}

void SnapshotDirectory::save(const TrainingState& state, const TrainingPosition& position) {
  lock();
  for (const auto& [step, path] : entries_in(directory_))
    check<FileError>(step <= position.step || std::find(passed_over_.begin(), passed_over_.end(),
                                                        path) != passed_over_.end(),
                     "snapshot",
                     "'{}' is of a later step than {}: go on from there with load_latest(), start "
                     "from zero with clear(), or use another folder",
                     path.string(), position.step);
  const fs::path target = directory_ / file_name(position.step);
  save_snapshot(target, state, position);
  for (const fs::path& path : std::exchange(passed_over_, {}))
    if (path != target) discard(path);
  const std::vector<Entry> entries = entries_in(directory_);
  for (size_t i = 0; i + static_cast<size_t>(keep_) < entries.size(); ++i) discard(entries[i].path);
  remove_leftovers(directory_);
}

std::optional<LoadedSnapshot> SnapshotDirectory::load_latest(const TrainingState& state,
                                                             const Accept& accept) {
  lock();
  LoadedSnapshot loaded;
  passed_over_.clear();
  std::vector<Entry> entries = entries_in(directory_);
  for (; !entries.empty(); entries.pop_back()) {
    const auto& [step, path] = entries.back();
    std::optional<SafetensorsFile> file;
    try {
      file.emplace(path);
      loaded.position = checked_position(*file);
      check<FileError>(loaded.position.step == step, "snapshot", "'{}' must be of step {}, got {}",
                       path.string(), step, loaded.position.step);
    } catch (const FileError& error) {
      loaded.damaged.push_back(error.what());
      passed_over_.push_back(path);
      continue;
    }
    if (accept) accept(loaded.position);
    fill(state, *file);
    loaded.file = path;
    return loaded;
  }
  check<FileError>(loaded.damaged.empty(), "snapshot",
                   "none of the {} snapshots in '{}' is whole; put a copy of one there, or start "
                   "from zero (clear(), --restart). The newest: {}",
                   loaded.damaged.size(), directory_.string(),
                   loaded.damaged.empty() ? "" : loaded.damaged.front());
  return std::nullopt;
}

void SnapshotDirectory::clear() {
  lock();
  for (const auto& [step, path] : entries_in(directory_))
    check<FileError>(file_calls::unlink(path.c_str()) == 0, "snapshot", "cannot remove '{}': {}",
                     path.string(), std::strerror(errno));
  passed_over_.clear();
}

std::vector<fs::path> SnapshotDirectory::list() const {
  std::vector<fs::path> found;
  for (const auto& [step, path] : entries_in(directory_))
    if (is_complete(path)) found.push_back(path);
  return found;
}

}  // namespace rw
