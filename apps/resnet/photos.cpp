#include "apps/resnet/photos.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>

#include "core/base/hash.h"
#include "trainer/program/program.h"
#include "trainer/program/ranks.h"
#include "trainer/program/waiting.h"

namespace rw {

namespace {

constexpr size_t most_named = 10;

void warn_of(std::span<const std::string> faults) {
  for (const std::string& fault : faults.first(std::min(most_named, faults.size())))
    warn("left out: " + fault);
  if (faults.size() > most_named)
    warn(fmt::format("{} more are left out", faults.size() - most_named));
}

std::string cache_of(const std::string& folder, Split split) {
  const std::string place = std::filesystem::absolute(folder).lexically_normal();
  return fmt::format("photos-{:016x}-{}", fnv1a(std::as_bytes(std::span(place))),
                     split == Split::train ? "train" : "test");
}

}  // namespace

std::vector<std::string> look_through(PhotoDataset& data, PhotoCheck check, bool quiet) {
  std::atomic<size_t> done = 0;
  check.progress = [&](size_t n) { done = n; };
  std::jthread waiting;
  if (!quiet)
    waiting = show_waiting([&, all = data.size()] {
      return fmt::format("looking at photographs: {:3.0f} % of {}",
                         100 * static_cast<double>(done) / static_cast<double>(all), all);
    });
  std::vector<std::string> faults = check_photos(data, check);
  waiting = {};
  if (!is_first_rank()) return {};  // others find the same
  warn_of(faults);
  return faults;
}

PhotoFolder::PhotoFolder(const std::string& folder, const PhotoFolderOptions& options)
    : train(list_photos(folder, Split::train, {.test_share = options.test_share})),
      test(list_photos(folder, Split::test, {.test_share = options.test_share})),
      strict_(options.strict) {
  std::vector<std::string> notes = train.notes;
  for (const std::string& note : test.notes)
    if (std::ranges::count(notes, note) == 0) notes.push_back(note);
  if (is_first_rank())  // the others find the same
    for (const std::string& note : notes) warn(fmt::format("'{}': {}", folder, note));
  if (options.trains) look(train, cache_of(folder, Split::train), options.quiet);
  look(test, cache_of(folder, Split::test), options.quiet);
}

void PhotoFolder::look(PhotoDataset& data, const std::string& cache, bool quiet) {
  const auto bad = strict_ ? BadPhotos::are_refused : BadPhotos::are_skipped;
  for (const std::string& fault : look_through(data, {.bad = bad, .cache = cache}, quiet))
    left_out_.push_back(fault);
}

std::string PhotoFolder::str(int64_t image) const {
  const std::vector<std::string>& names = train.class_names;
  std::vector<int64_t> counts(names.size());
  for (const PhotoDataset* split : {&train, &test})
    for (const int32_t label : split->labels) ++counts[static_cast<size_t>(label)];
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(most_named, names.size()); ++i)
    shown.push_back(fmt::format("{} ({})", names[i], counts[i]));
  if (names.size() > most_named)
    shown.push_back(fmt::format("and {} more", names.size() - most_named));
  return fmt::format(
      "{} classes: {}; {} photographs to train with and {} to test with, scaled to {} x {} pixels: "
      "half of them have {} or more on the shorter side",
      names.size(), fmt::join(shown, ", "), train.size(), test.size(), image, image, usual_side());
}

int PhotoFolder::usual_side() const {
  std::vector<int> sides;
  for (const ImageHeader& header : (train.headers.empty() ? test : train).headers)
    sides.push_back(std::min(header.size.height, header.size.width));
  const auto middle = sides.begin() + static_cast<ptrdiff_t>(sides.size() / 2);
  std::nth_element(sides.begin(), middle, sides.end());
  return *middle;
}

void PhotoFolder::tell_left_out() const {
  std::vector<std::string> found = left_out_;
  for (const auto& [file, fault] : faults_.all()) found.push_back(fault);
  const size_t count = found.size();
  if (count == 0) return;
  warn_of(found);
  warn(
      fmt::format("{} photograph{} could not be read and {} left out; --strict makes this an error",
                  count, count == 1 ? "" : "s", count == 1 ? "was" : "were"));
}

int64_t PhotoFolder::unreadable_tests() const {
  const auto faults = faults_.all();
  return std::ranges::count_if(test.files, [&](const auto& file) { return faults.contains(file); });
}

}  // namespace rw
