// The stored results of self-checks: the verdict on a device, and until there is one the result of
// each check. So if a process is killed, or a busy machine gives it no time, its work is not lost:
// the next one continues.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../core/backend/backend.h"

namespace rw {

// The record lies in files of the cache, which several processes may write at once. Any thread may
// use it.
class CheckRecord {
 public:
  explicit CheckRecord(std::string file);  // empty: it lasts as long as this object

  std::optional<std::vector<RefusedFeature>> verdict() const;
  void conclude(const std::vector<RefusedFeature>& refused);

  // Returns the fault that a check of the device without some features found, which is empty if
  // there was none. Returns nothing if the check has not ended yet.
  std::optional<std::string> fault(const std::vector<RefusedFeature>& without,
                                   const std::string& check) const;
  void add(const std::vector<RefusedFeature>& without, const std::string& check,
           const std::string& fault);

 private:
  using Faults = std::map<std::string, std::string>;  // by check and features
  Faults stored() const;
  std::string checks_file() const { return file_ + "-checks"; }

  const std::string file_;
  mutable std::mutex mutex_;
  Faults faults_;
};

}  // namespace rw
