#include "core/files/folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/files/file.h"
#include "core/files/file_calls.h"
#include "core/files/json_file.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr const char* list_name = "rewind-files.txt";
constexpr std::string_view staged_mark = "rewind-new-";

struct ListedFile {
  std::string name;
  uint64_t hash, size;  // of its bytes
};

// The list of a folder. While the files move, it also names the folder from which they come, and
// the files that go.
struct FileList {
  std::vector<ListedFile> files;
  std::string staged;
  std::vector<std::string> gone;
};

uint64_t hash_of(const InputFile& file) {
  std::vector<std::byte> piece(size_t{1} << 20);
  uint64_t hash = file.size();
  for (uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min<uint64_t>(piece.size(), file.size() - at));
    file.read(at, piece);
    for (size_t i = 0; i < piece.size(); i += sizeof hash) {
      uint64_t word = 0;
      std::memcpy(&word, piece.data() + i, std::min(sizeof word, piece.size() - i));
      hash = splitmix64(hash ^ word);
    }
  }
  return hash;
}

bool is_there(const fs::path& path) {
  struct stat status = {};
  if (file_calls::stat(path.c_str(), status) == 0) return true;
  check<FileError>(errno == ENOENT || errno == ENOTDIR, "folder", "cannot read '{}': {}",
                   path.string(), std::strerror(errno));
  return false;
}

// A name in a list stands for a file of the folder, on a line of its own.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         std::ranges::none_of(name, [](char c) { return static_cast<unsigned char>(c) < ' '; });
}

// The text up to the next `end`, which is taken off.
std::string_view next_part(std::string_view& text, char end) {
  const std::string_view part = text.substr(0, text.find(end));
  text.remove_prefix(std::min(part.size() + 1, text.size()));
  return part;
}

bool read_whole_number(std::string_view text, int base, uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size();
}

// False for a line that no writer writes.
bool read_line(std::string_view line, FileList& list) {
  const std::string_view word = next_part(line, ' ');
  if (word == "from" || word == "without") {
    const std::string name(line);
    if (word == "from") list.staged = name;
    if (word == "without") list.gone.push_back(name);
    return is_plain_name(name) && (word == "without" || name.starts_with(staged_mark));
  }
  ListedFile file = {};
  const std::string_view size = next_part(line, ' ');
  file.name = line;
  list.files.push_back(file);
  return read_whole_number(word, 16, list.files.back().hash) &&
         read_whole_number(size, 10, list.files.back().size) && is_plain_name(file.name);
}

std::optional<FileList> read_list(const fs::path& folder) {
  const fs::path file = folder / list_name;
  if (!is_there(file)) return {};
  const std::string text = read_config_text(file);
  FileList list;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = next_part(rest, '\n');
    check<FileError>(line.starts_with('#') || read_line(line, list), "folder",
                     "'{}' must have lines of a hash, bytes and a name, got {:?}; write the folder "
                     "again, or remove this file if you know that the others belong together",
                     file.string(), line);
  }
  return list;
}

void write_list(const fs::path& folder, const FileList& list) {
  std::string text =
      "# Rewind wrote these files together: hash, bytes, name. It refuses a mixture with others.\n";
  if (!list.staged.empty()) text += fmt::format("from {}\n", list.staged);
  for (const std::string& name : list.gone) text += fmt::format("without {}\n", name);
  for (const ListedFile& file : list.files)
    text += fmt::format("{:016x} {} {}\n", file.hash, file.size, file.name);
  AtomicFile file(folder / list_name);
  file.write(text);
  file.commit();
}

fs::path path_by(const std::optional<FileList>& list, const fs::path& folder,
                 const std::string& name) {
  if (!list || list->staged.empty()) return folder / name;
  const fs::path staged = folder / list->staged / name;
  const bool is_gone = std::ranges::find(list->gone, name) != list->gone.end();
  const bool is_new = std::ranges::find(list->files, name, &ListedFile::name) != list->files.end();
  return is_gone || (is_new && is_there(staged)) ? staged : folder / name;
}

[[noreturn]] void fail_to(const char* what, const fs::path& path, const char* more = "") {
  const int error = errno;
  fail<FileError>("folder", "cannot {} '{}': {}{}", what, path.string(), std::strerror(error),
                  more);
}

// Moves the files of a list that counts to their places. Whatever was done of this before is no
// error.
void complete(const fs::path& folder, FileList list) {
  constexpr const char* advice =
      "; the new files count, and writing the folder again completes the move";
  for (const ListedFile& file : list.files) {
    const fs::path staged = folder / list.staged / file.name;
    if (file_calls::rename(staged.c_str(), (folder / file.name).c_str()) != 0 && errno != ENOENT)
      fail_to("put in its place", staged, advice);
  }
  for (const std::string& name : list.gone)
    if (file_calls::unlink((folder / name).c_str()) != 0 && errno != ENOENT)
      fail_to("remove", folder / name, advice);
  if (!file_calls::sync_folder(folder.c_str())) fail_to("store", folder, advice);
  const fs::path staged = folder / std::exchange(list.staged, "");
  list.gone.clear();
  write_list(folder, list);
  std::error_code ignored;  // it is empty, and the next writer removes it, too
  fs::remove_all(staged, ignored);
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    names.insert(entry->path().filename().string());
  check<FileError>(!error, "folder", "cannot list '{}': {}", folder.string(), error.message());
  return names;
}

// Whether the list of the folder may be the one that names these staged files: a disk may fail
// after the rename.
bool may_count(const fs::path& folder, const std::string& staged) {
  try {
    const std::optional<FileList> list = read_list(folder);
    return list && list->staged == staged;
  } catch (const FileError&) {
    return true;
  }
}

// The file that takes the place of another one gets its mode. Not every file system has modes and
// owners.
void keep_mode(const fs::path& old, const fs::path& successor) {
  struct stat status = {};
  if (file_calls::stat(old.c_str(), status) != 0) return;
  check<FileError>(S_ISREG(status.st_mode), "folder",
                   "'{}' must be a regular file, or there must be none", old.string());
  const int file = file_calls::open(successor.c_str(), O_RDONLY);
  if (file < 0) return;
  file_calls::set_mode(file, status.st_uid, status.st_gid, status.st_mode & 0777);
  file_calls::close(file);
}

}  // namespace

fs::path path_in(const fs::path& folder, const std::string& name) {
  return path_by(read_list(folder), folder, name);
}

void check_folder(const fs::path& folder) {
  const std::optional<FileList> list = read_list(folder);
  if (!list) return;
  for (const ListedFile& file : list->files) {
    const fs::path path = path_by(list, folder, file.name);
    const InputFile found(path);
    check<FileError>(found.size() == file.size && hash_of(found) == file.hash, "folder",
                     "'{}' must be the file that was written with the others of its folder: {} has "
                     "{} bytes with another hash, or another size than this one's {}; write the "
                     "folder again, or remove '{}' if you changed the file yourself",
                     path.string(), list_name, file.size, found.size(),
                     (folder / list_name).string());
  }
}

AtomicFolder::Lock::~Lock() {
  if (folder >= 0) file_calls::close(folder);
}

AtomicFolder::AtomicFolder(fs::path folder) : folder_(std::move(folder)) {
  if (file_calls::make_folders(folder_.c_str()) != 0) fail_to("make the folder", folder_);
  lock_.folder = file_calls::open(folder_.c_str(), O_RDONLY | O_DIRECTORY);
  if (lock_.folder < 0) fail_to("write in", folder_);
  constexpr auto pause = std::chrono::milliseconds(20);
  while (!(lock_.is_held = file_calls::lock(lock_.folder) == 0) && errno == EWOULDBLOCK)
    std::this_thread::sleep_for(pause);
  if (const auto list = read_list(folder_); list && !list->staged.empty()) complete(folder_, *list);
  // This removes what other writers have left that were killed. Without locks, they may be alive.
  std::error_code ignored;
  for (const std::string& name : names_in(folder_))
    if (lock_.is_held && name.starts_with(staged_mark)) fs::remove_all(folder_ / name, ignored);
  std::string made = (folder_ / staged_mark).string() + "XXXXXX";
  if (mkdtemp(made.data()) == nullptr) fail_to("make a folder in", folder_);
  staged_ = made;
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!staged_.empty()) fs::remove_all(staged_, ignored);
}

void AtomicFolder::commit(const std::function<bool(const std::string& name)>& is_of_old) {
  FileList list{.staged = staged_.filename()};
  const std::set<std::string> fresh = names_in(staged_);
  for (const std::string& name : fresh) {
    keep_mode(folder_ / name, staged_ / name);
    const InputFile file(staged_ / name);
    list.files.push_back({name, hash_of(file), file.size()});
  }
  for (const std::string& name : names_in(folder_))
    if (is_of_old(name) && !fresh.contains(name) && is_plain_name(name)) list.gone.push_back(name);
  if (!file_calls::sync_folder(folder_.c_str())) fail_to("store", folder_);
  try {
    write_list(folder_, list);
  } catch (const FileError&) {
    if (may_count(folder_, list.staged)) staged_.clear();
    throw;
  }
  staged_.clear();  // from here on the files in it count
  complete(folder_, list);
}

}  // namespace rw
