#include "io/snapshot/snapshot.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <set>
#include <utility>

#include "core/files/file_calls.h"
#include "io/snapshot/other_dtype.h"
#include "io/snapshot/snapshot_files.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

const std::string optimizer_prefix = "optimizer.";

StateDict optimizer_tensors(const Optimizer::NamedState& optimizer) {
  StateDict tensors;
  for (const auto& [name, tensor] : optimizer) tensors.push_back({optimizer_prefix + name, tensor});
  return tensors;
}

// The names of what nothing trains.
std::set<std::string> frozen_in(const Module& model) {
  std::set<std::string> frozen;
  for (const auto& [name, parameter] : model.named_parameters())
    if (!parameter.requires_grad()) frozen.insert(name);
  for (const auto& [name, buffer] : model.named_buffers())
    if (buffer.dtype() == DType::u8) frozen.insert(name);
  return frozen;
}

// Everything keeps the model's own layout, so nothing is converted.
StateDict all_tensors(const TrainingState& state, const Optimizer::NamedState& optimizer,
                      bool has_base) {
  const std::set<std::string> left_out =
      has_base ? std::set<std::string>() : frozen_in(state.model);
  StateDict tensors;
  for (const auto& [name, tensor] : state_dict(state.model))
    if (!left_out.contains(name)) tensors.push_back({"model." + name, tensor});
  for (NamedTensor& t : optimizer_tensors(optimizer)) tensors.push_back(std::move(t));
  for (const auto& [name, tensor] : state.extra) tensors.push_back({"extra." + name, tensor});
  return tensors;
}

// FileError unless the snapshot has the frozen values, or those of the model are the same.
void check_base(const TrainingState& state, const SnapshotFiles& snapshot) {
  const std::string &now = state.base, &then = snapshot.base();
  check<FileError>(then.empty() || now == then, "snapshot",
                   "'{}' is of another base model: it holds the values that are trained, beside "
                   "frozen ones of {}, got {}",
                   snapshot.files().front().path(), then,
                   now.empty() ? "a model without base" : now);
}

// Checks everything before it changes anything. Other ranks load the states that they keep.
void fill(const TrainingState& state, const SnapshotFiles& snapshot) {
  std::vector<std::string> names;
  for (const SafetensorsFile& file : snapshot.files())
    for (const auto& [name, tensor] : file.tensors())
      if (name.starts_with(optimizer_prefix)) names.push_back(name.substr(optimizer_prefix.size()));
  std::set<std::string> elsewhere;
  for (const std::string& name : state.optimizer.states_elsewhere())
    elsewhere.insert(optimizer_prefix + name);
  check_base(state, snapshot);
  const bool other_dtype = has_other_dtype(snapshot, state.model, state.change_dtype);
  StateDict tensors =
      all_tensors(state, state.optimizer.state_to_fill(names), snapshot.base().empty());
  if (other_dtype) read_masters(snapshot, state.model, state.optimizer, tensors, elsewhere);
  load_tensors(snapshot.files(), tensors, elsewhere);
  if (other_dtype) round_masters(state.optimizer);
  state.optimizer.state_filled();
  if (other_dtype) state.optimizer.restart_scaler();
  snapshot.restore(state.generator);
}

// Runs `work` on each rank and returns its results by rank. A failure on one rank is a failure on
// all, so nobody waits for a rank that has thrown.
std::vector<std::string> together(const SnapshotRanks& ranks,
                                  const std::function<std::string()>& work) {
  if (ranks.ranks == 1) return {work()};
  std::string own;
  std::exception_ptr failure;
  try {
    own = '+' + work();
  } catch (const std::exception& error) {
    own = fmt::format("-{}", error.what());
    failure = std::current_exception();
  }
  std::vector<std::string> all = ranks.gather(own);
  if (failure) std::rethrow_exception(failure);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    check<FileError>(all[rank].front() == '+', "snapshot", "on rank {}: {}", rank,
                     all[rank].substr(1));
    all[rank].erase(0, 1);
  }
  return all;
}

std::string on_first(const SnapshotRanks& ranks, const std::function<std::string()>& work) {
  return together(ranks, [&] { return ranks.rank == 0 ? work() : ""; })[0];
}

// The number of parts beside the index: one for each further rank that keeps states.
int parts_of(const TrainingState& state, const SnapshotRanks& ranks) {
  const std::optional<Shard>& shard = state.optimizer.parameters().shard();
  if (!shard) return 0;
  check<FileError>(shard->rank == ranks.rank && shard->ranks == ranks.ranks, "snapshot",
                   "an optimizer that keeps the states of rank {} of {} must be saved by all of "
                   "them (SnapshotRanks), got rank {} of {}",
                   shard->rank, shard->ranks, ranks.rank, ranks.ranks);
  return ranks.ranks - 1;
}

void check_position(const TrainingPosition& position) {
  check(position.step >= 0 && position.epoch >= 0 && position.index >= 0, "snapshot",
        "step, epoch and index must be >= 0, got {}, {} and {}", position.step, position.epoch,
        position.index);
}

// Writes the parts, and the index when all parts are safely stored: without the index they are
// nothing. The first rank runs `prepare` before anything is written and `finish` at the end.
void save(const fs::path& path, const TrainingState& state, const TrainingPosition& position,
          const SnapshotRanks& ranks, const std::function<void()>& prepare,
          const std::function<void()>& finish) {
  check_position(position);
  SnapshotId id{"", parts_of(state, ranks)};
  id.text = on_first(ranks, [&] {
    prepare();
    return SnapshotId::drawn(id.parts).text;
  });
  if (id.parts > 0)
    together(ranks, [&] {
      if (ranks.rank > 0)
        write_snapshot_part(path, id, ranks.rank, optimizer_tensors(state.optimizer.own_state()));
      return "";
    });
  on_first(ranks, [&] {
    write_snapshot_index(path, id,
                         all_tensors(state, state.optimizer.own_state(), state.base.empty()),
                         state.generator, position, state.base);
    finish();
    return "";
  });
}

// A file of a SnapshotDirectory, complete or not.
struct SnapshotEntry {
  int64_t step;
  fs::path path;
  auto operator<=>(const SnapshotEntry&) const = default;
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

// Everything in the folder; nothing if there is no folder.
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

std::vector<SnapshotEntry> entries_in(const fs::path& directory) {
  std::vector<SnapshotEntry> entries;
  for (const fs::path& file : files_in(directory))
    if (const auto step = step_of(file.filename())) entries.push_back({*step, file});
  std::sort(entries.begin(), entries.end());
  return entries;
}

// A file that cannot be removed now is tried again the next time.
void discard(const fs::path& file) {
  file_calls::unlink(file.c_str());
}

// The folder is locked, so no writer of these files is alive.
void remove_leftovers(const fs::path& directory) {
  for (const fs::path& file : files_in(directory)) {
    if (!file.filename().string().starts_with(prefix)) continue;
    const fs::path index = index_of_part(file);
    const bool is_part = !index.empty() && step_of(index.filename());
    if (AtomicFile::is_temporary(file) || (is_part && is_orphan(file))) discard(file);
  }
}

}  // namespace

void save_snapshot(const fs::path& path, const TrainingState& state,
                   const TrainingPosition& position, const SnapshotRanks& ranks) {
  save(
      path, state, position, ranks, [] {}, [] {});
}

TrainingPosition load_snapshot(const fs::path& path, const TrainingState& state) {
  const SnapshotFiles snapshot(path);
  fill(state, snapshot);
  return snapshot.position();
}

SnapshotDirectory::SnapshotDirectory(fs::path directory, int keep, SnapshotRanks ranks)
    : directory_(std::move(directory)), keep_(keep), ranks_(std::move(ranks)) {
  check(keep > 0, "snapshot", "at least one snapshot is kept, got {}", keep);
}

void SnapshotDirectory::lock() {
  if (lock_ && lock_->is_held()) return;
  lock_.reset();
  lock_ = std::make_unique<FolderLock>(directory_);
  remove_leftovers(directory_);
}

void SnapshotDirectory::save(const TrainingState& state, const TrainingPosition& position) {
  const fs::path target = directory_ / file_name(position.step);
  const auto prepare = [&] {
    lock();
    for (const auto& [step, path] : entries_in(directory_))
      check<FileError>(step <= position.step || std::find(passed_over_.begin(), passed_over_.end(),
                                                          path) != passed_over_.end(),
                       "snapshot",
                       "'{}' is of a later step than {}: resume from it with load_latest(), start "
                       "from zero with clear(), or use another folder",
                       path.string(), position.step);
  };
  const auto finish = [&] {
    lock();  // somebody may have removed the folder meanwhile, which the write has made again
    for (const fs::path& path : std::exchange(passed_over_, {}))
      if (path != target) discard(path);
    discard_old(target);
  };
  rw::save(target, state, position, ranks_, prepare, finish);
}

void SnapshotDirectory::discard_old(const fs::path& whole) {
  std::vector<SnapshotEntry> entries = entries_in(directory_);
  // Nobody knows whether a later one is whole, so it does not count.
  while (!entries.empty() && entries.back().path != whole) entries.pop_back();
  for (size_t i = 0; i + static_cast<size_t>(keep_) < entries.size(); ++i) discard(entries[i].path);
  remove_leftovers(directory_);
}

// The faults of newer snapshots go to `damaged`.
std::optional<SnapshotFiles> SnapshotDirectory::find_latest(std::vector<std::string>& damaged) {
  lock();
  passed_over_.clear();
  std::vector<SnapshotEntry> entries = entries_in(directory_);
  for (; !entries.empty(); entries.pop_back()) {
    const auto& [step, path] = entries.back();
    try {
      SnapshotFiles snapshot(path);
      check<FileError>(snapshot.position().step == step, "snapshot",
                       "'{}' must be of step {}, got {}", path.string(), step,
                       snapshot.position().step);
      return snapshot;
    } catch (const FileError& error) {
      damaged.push_back(error.what());
      passed_over_.push_back(path);
    }
  }
  check<FileError>(damaged.empty(), "snapshot",
                   "none of the {} snapshots in '{}' is whole; put a copy of one there, or start "
                   "from zero (clear(), --restart). The newest: {}",
                   damaged.size(), directory_.string(), damaged.empty() ? "" : damaged.front());
  return std::nullopt;
}

std::optional<LoadedSnapshot> SnapshotDirectory::load_latest(const TrainingState& state,
                                                             const Accept& accept) {
  LoadedSnapshot loaded;
  std::optional<SnapshotFiles> snapshot;
  loaded.file = on_first(ranks_, [&] {
    snapshot = find_latest(loaded.damaged);
    return snapshot ? snapshot->files().front().path() : std::string();
  });
  if (loaded.file.empty()) return std::nullopt;
  together(ranks_, [&] {
    if (!snapshot) snapshot.emplace(loaded.file);
    loaded.position = snapshot->position();
    if (accept) accept(loaded.position);
    fill(state, *snapshot);
    return "";
  });
  // A process that was killed between its last write and this call has left one snapshot too many.
  on_first(ranks_, [&] {
    discard_old(loaded.file);
    return "";
  });
  return loaded;
}

void SnapshotDirectory::clear() {
  on_first(ranks_, [&] {
    lock();
    for (const auto& [step, path] : entries_in(directory_)) {
      const bool is_gone = file_calls::unlink(path.c_str()) == 0;
      check<FileError>(is_gone, "snapshot", "cannot remove '{}': {}", path.string(),
                       std::strerror(errno));
    }
    remove_leftovers(directory_);
    passed_over_.clear();
    return "";
  });
}

std::vector<fs::path> SnapshotDirectory::list() const {
  std::vector<fs::path> found;
  for (const auto& [step, path] : entries_in(directory_))
    if (is_complete_snapshot(path)) found.push_back(path);
  return found;
}

}  // namespace rw
