#include "backends/check_record.h"

#include <algorithm>
#include <span>
#include <sstream>
#include <utility>

#include "core/files/cache.h"

namespace rw {

namespace {

constexpr const char* verdict_head = "self-check";
constexpr const char* checks_head = "self-check, not at its end";

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// A file is a head and pairs of lines.
using Pairs = std::vector<std::pair<std::string, std::string>>;

std::optional<Pairs> read_pairs(const std::string& file, const char* head) {
  if (file.empty()) return std::nullopt;
  const std::vector<std::byte> bytes = read_cache(file);
  std::istringstream in(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  std::string line;
  if (!std::getline(in, line) || line != head) return std::nullopt;
  Pairs pairs;
  for (std::string key, value; std::getline(in, key) && std::getline(in, value);)
    pairs.emplace_back(key, value);
  return pairs;
}

void write_pairs(const std::string& file, const char* head, const auto& pairs) {
  std::string text = std::string(head) + "\n";
  for (const auto& [key, value] : pairs) text += one_line(key) + "\n" + one_line(value) + "\n";
  write_cache(file, std::as_bytes(std::span(text)));
}

std::string key_of(const std::vector<RefusedFeature>& without, const std::string& check) {
  std::string key = check;
  for (const RefusedFeature& feature : without) key += " without " + feature.name;
  return key;
}

}  // namespace

CheckRecord::CheckRecord(std::string file) : file_(std::move(file)), faults_(stored()) {}

CheckRecord::Faults CheckRecord::stored() const {
  const Pairs pairs =
      file_.empty() ? Pairs() : read_pairs(checks_file(), checks_head).value_or(Pairs());
  return {pairs.begin(), pairs.end()};
}

std::optional<std::vector<RefusedFeature>> CheckRecord::verdict() const {
  const auto pairs = read_pairs(file_, verdict_head);
  if (!pairs) return std::nullopt;
  std::vector<RefusedFeature> refused;
  for (const auto& [name, fault] : *pairs) refused.push_back({name, fault});
  return refused;
}

void CheckRecord::conclude(const std::vector<RefusedFeature>& refused) {
  if (file_.empty()) return;
  Pairs pairs;
  for (const RefusedFeature& feature : refused) pairs.emplace_back(feature.name, feature.fault);
  write_pairs(file_, verdict_head, pairs);
  remove_cache(checks_file());
}

std::optional<std::string> CheckRecord::fault(const std::vector<RefusedFeature>& without,
                                              const std::string& check) const {
  const std::lock_guard lock(mutex_);
  const auto found = faults_.find(key_of(without, check));
  return found == faults_.end() ? std::nullopt : std::optional(found->second);
}

void CheckRecord::add(const std::vector<RefusedFeature>& without, const std::string& check,
                      const std::string& fault) {
  const std::lock_guard lock(mutex_);
  faults_[key_of(without, check)] = fault;
  if (file_.empty()) return;
  faults_.merge(stored());  // found by other processes
  write_pairs(checks_file(), checks_head, faults_);
}

}  // namespace rw
