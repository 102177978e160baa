#include "data/images/photos.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <map>
#include <span>
#include <string_view>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "data/base/files.h"
#include "data/base/unicode.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// All that a listing leaves out, and folders where one may not expect them.
struct Findings {
  std::map<std::string, size_t> others;  // files that are not read, by their endings
  std::vector<std::string> inner, links, unused;
  size_t outside = 0;  // photographs beside the folders of classes

  static std::string some_of(std::vector<std::string> names) {
    std::ranges::sort(names);
    constexpr size_t most = 5;
    const std::span<const std::string> shown(names.data(), std::min(most, names.size()));
    const std::string rest =
        names.size() > most ? fmt::format(" and {} more", names.size() - most) : "";
    return fmt::format("{}{}", fmt::join(shown, ", "), rest);
  }
  std::string others_text() const {
    std::vector<std::string> kinds;
    for (const auto& [ending, n] : others)
      kinds.push_back(
          fmt::format("{} {} file{}", n, ending.empty() ? "nameless" : ending, n == 1 ? "" : "s"));
    return fmt::format("{}", fmt::join(kinds, ", "));
  }
  std::vector<std::string> notes() const;
};

std::vector<std::string> Findings::notes() const {
  std::vector<std::string> found;
  for (const auto& [ending, n] : others)
    found.push_back(fmt::format(
        "{} {} not read", n,
        ending.empty() ? (n == 1 ? "file without an ending is" : "files without an ending are")
                       : ending + (n == 1 ? " file is" : " files are")));
  if (!inner.empty())
    found.push_back(fmt::format("folders inside of the folder of a class belong to this class: {}",
                                some_of(inner)));
  if (!links.empty())
    found.push_back(fmt::format("links to folders inside of the folder of a class are left out: {}",
                                some_of(links)));
  if (!unused.empty())
    found.push_back(
        fmt::format("folders beside those of the splits are left out: {}", some_of(unused)));
  if (outside > 0)
    found.push_back(fmt::format("{} photograph{} left out, in no folder of a class", outside,
                                outside == 1 ? " is" : "s are"));
  return found;
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_folder(entry.path()) && !is_hidden(entry.path())) found.push_back(entry.path());
  std::ranges::sort(found, {}, [](const fs::path& p) { return p.filename().native(); });
  return found;
}

// Whether a folder with the name of a split is a class of this name: by photographs in it, or for
// want of folders.
bool is_class(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_image_name(entry.path()) && !is_hidden(entry.path()) && !is_folder(entry.path()))
      return true;
  return folders_in(folder).empty();
}

// The photographs of a class, sorted.
std::vector<fs::path> photos_in(const fs::path& folder, const PhotoOptions& options,
                                Findings& findings) {
  std::vector<fs::path> found;
  Findings own;
  for (auto at = fs::recursive_directory_iterator(folder); at != fs::end(at); ++at) {
    const fs::path& path = at->path();
    const bool is_directory = is_folder(path);
    const auto name = [&] { return path.lexically_relative(folder.parent_path()).string(); };
    if (is_hidden(path)) {
      if (is_directory) at.disable_recursion_pending();
    } else if (is_directory) {
      (at->is_symlink() ? findings.links : findings.inner).push_back(name());
    } else if (is_image_name(path)) {
      found.push_back(path);
    } else {
      check<FileError>(!options.refuse_others, "list_photos",
                       "'{}' must be a {} file, got another ending; remove it", path.string(),
                       image_format_names());
      ++own.others[lower(path.extension().string())];
    }
  }
  std::ranges::sort(
      found, {}, [](const fs::path& p) -> const auto& { return p.native(); });
  check<FileError>(!found.empty(), "list_photos",
                   "'{}' must hold {} files of its class, got {}; add some, or remove the folder",
                   folder.string(), image_format_names(),
                   own.others.empty() ? "none" : "only " + own.others_text());
  for (const auto& [ending, n] : own.others) findings.others[ending] += n;
  return found;
}

// The photographs of a class that belong to a split: the ones with the lowest hashes are for
// testing.
std::vector<fs::path> part_of(const fs::path& folder, std::vector<fs::path> files, Split split,
                              const PhotoOptions& options) {
  const size_t n = files.size();
  const auto wanted = static_cast<size_t>(std::lround(options.test_share * static_cast<double>(n)));
  const size_t tested = n > 1 && options.test_share > 0 ? std::clamp<size_t>(wanted, 1, n - 1) : 0;
  std::vector<std::pair<uint64_t, size_t>> order;
  for (size_t i = 0; i < n; ++i) {
    const std::string name = folder.filename() / files[i].lexically_relative(folder);
    order.emplace_back(splitmix64(fnv1a(std::as_bytes(std::span(name))) ^ options.split_seed), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<bool> is_test(n);
  for (size_t i = 0; i < tested; ++i) is_test[order[i].second] = true;
  std::vector<fs::path> part;
  for (size_t i = 0; i < n; ++i)
    if (is_test[i] == (split == Split::test)) part.push_back(std::move(files[i]));
  return part;
}

// The folders whose subfolders are classes: one, or one for each split.
struct Roots {
  fs::path train, test;  // test: empty where train is to be split
};

// Those folders that have one of these names, by the order of the names.
std::vector<fs::path> named(const std::vector<fs::path>& folders,
                            std::initializer_list<std::string_view> names) {
  constexpr std::string_view endings[] = {"", "set", "_set", "-set", " set"};
  std::vector<fs::path> found;
  for (const std::string_view name : names) {
    for (const fs::path& folder : folders) {
      const std::string own = lower(folder.filename().string());
      if (own.starts_with(name) && std::ranges::count(endings, own.substr(name.size())))
        found.push_back(folder);
    }
  }
  return found;
}

// A class, too, may be called "train" or "test": then it is beside others that are no splits.
Roots roots_of(const fs::path& folder, Findings& findings) {
  const std::vector<fs::path> folders = folders_in(folder);
  std::vector<fs::path> train = named(folders, {"train", "training"});
  std::vector<fs::path> test =
      named(folders, {"val", "validation", "valid", "dev", "eval", "test", "testing"});
  if (train.size() + test.size() < folders.size())
    for (std::vector<fs::path>* const split : {&train, &test}) std::erase_if(*split, is_class);
  if (train.empty() && test.empty()) return {folder, {}};
  check<FileError>(!train.empty(), "list_photos",
                   "'{}' must hold a folder train beside {}, got none; put the folders of classes "
                   "to train with into it, or give '{}' another name if it is a class",
                   folder.string(), test[0].filename().string(), test[0].string());
  const Roots roots{train[0], test.empty() ? fs::path() : test[0]};
  for (const fs::path& other : folders)
    if (other != roots.train && other != roots.test)
      findings.unused.push_back(other.filename().string());
  return roots;
}

std::vector<std::string> class_names_in(const fs::path& root) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders_in(root)) {
    names.push_back(folder.filename().string());
    check<FileError>(is_valid_utf8(names.back()), "list_photos",
                     "'{}' must have a name in UTF-8, as it is that of a class; rename it",
                     folder.string());
  }
  check<FileError>(names.size() > 1, "list_photos",
                   "'{}' must hold folders of 2 classes or more, got {}; put the photographs of "
                   "each class in a folder of its name",
                   root.string(), names.size());
  return names;
}

void count_outside(const fs::path& root, Findings& findings) {
  for (const auto& entry : fs::directory_iterator(root)) {
    const fs::path& path = entry.path();
    findings.outside += is_image_name(path) && !is_hidden(path) && !is_folder(path);
  }
}

PhotoDataset list_split(const fs::path& folder, Split split, const PhotoOptions& options) {
  Findings findings;
  const Roots roots = roots_of(folder, findings);
  PhotoDataset data{.class_names = class_names_in(roots.train)};
  const bool own_split = !roots.test.empty();
  const fs::path& root = own_split && split == Split::test ? roots.test : roots.train;
  count_outside(root, findings);
  if (root != folder) count_outside(folder, findings);
  for (const fs::path& of_class : folders_in(root)) {
    const auto found = std::ranges::find(data.class_names, of_class.filename().string());
    check<FileError>(found != data.class_names.end(), "list_photos",
                     "'{}' must be one of the classes of '{}', got another; remove it",
                     of_class.string(), roots.train.string());
    std::vector<fs::path> files = photos_in(of_class, options, findings);
    if (!own_split) files = part_of(of_class, std::move(files), split, options);
    for (fs::path& file : files) {
      data.files.push_back(std::move(file));
      data.labels.push_back(static_cast<int32_t>(found - data.class_names.begin()));
    }
  }
  check<FileError>(data.size() > 0, "list_photos",
                   "'{}' must hold photographs to test with, got none; add more, or a folder val",
                   root.string());
  data.notes = findings.notes();
  return data;
}

}  // namespace

PhotoDataset list_photos(const fs::path& folder, Split split, const PhotoOptions& options) {
  check(options.test_share >= 0 && options.test_share < 1, "list_photos",
        "test_share must be in [0, 1), got {}", options.test_share);
  check<FileError>(is_folder(folder), "list_photos", "'{}' must be a folder of photographs, got {}",
                   folder.string(), fs::exists(folder) ? "a file" : "nothing");
  try {
    return list_split(folder, split, options);
  } catch (const fs::filesystem_error& error) {
    fail<FileError>("list_photos", "'{}' must be readable, got: {}", folder.string(), error.what());
  }
}

}  // namespace rw
