// What self-checks found, kept: the verdict on a device, and until there is one what each check
// said. So a process that is killed, or that a busy machine gives no time, has not worked in vain:
// the next one goes on where it was.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../core/backend/backend.h"

namespace rw {

// In files of the cache, which several processes may write at once. Any thread may use it.
class CheckRecord {
 public:
  explicit CheckRecord(std::string file);  // empty: kept as long as this lives

  std::optional<std::vector<RefusedFeature>> verdict() const;
  void conclude(const std::vector<RefusedFeature>& refused);

  // What was wrong in a check of the device without some features, empty where all was right.
  // Nothing: it has not ended yet.
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
