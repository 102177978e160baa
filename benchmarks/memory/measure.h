// Measures a workload: by dry runs on a device's profile, and really.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../../planner/follow/search.h"
#include "report.h"

namespace rw::memory {

// A device that dry runs predict.
struct Profile {
  std::string name;  // for the report
  Search::OpenDry open;
  std::shared_ptr<OpTimes> times = {};  // of that device; null: it is not at hand
};
// `device` as for open_backend("dry:..."): a profile's file or name, or a device; with a heap
// without end, since plain runs are measured that no device has the memory for.
Profile open_profile(const std::string& device);

// All ways to run one workload, predicted.
class Bench {
 public:
  // `candidates`: plans that the search measures.
  Bench(std::string row, Workload workload, Profile profile, int candidates = 12);

  Result plain();
  Result block(int every = 1);    // the model's own segments
  Result memory();                // least peak with every op run at most twice
  Result speed();                 // outputs of matrix products and convolutions are kept
  Result nested(int leaf = 8);    // halved again and again down to `leaf` records
  Result budget(uint64_t bytes);  // cheapest that keeps to it
  // Nothing if there is no such plan. By time: of the device's times, where the profile has them.
  std::optional<Result> try_budget(uint64_t bytes, bool by_time = false);
  // The cheapest whose dry run ends with blocks of at most `bytes`.
  std::optional<Result> fitting(uint64_t bytes);
  Result least();               // the least peak of all
  std::vector<Result> front();  // every choice between memory and work

 private:
  Search& search(bool by_time = false);
  Result budget(const std::string& method, Search& search, uint64_t bytes);
  Result predict(const std::string& method, const StepSettings& way) const;
  // `find`: the time that it takes counts.
  Result measure(const std::string& method, const std::function<StepSettings()>& find);

  std::string row_;
  Workload workload_;
  Profile profile_;
  int candidates_;
  std::optional<Search> search_, time_search_;
};

// Whether the device can hold the steps' blocks, and an eighth of its memory for all else.
bool has_room(const DeviceInfo& device, const Result& result);

// Adds a real run of the same steps, on a device of its own, where that has room.
void run_really(Result& result, const std::string& device);

// Whether the steps end without OutOfMemory where the device gives `limit` bytes of blocks.
bool fits(const Workload& workload, const Profile& profile, const StepSettings& settings,
          uint64_t limit);

}  // namespace rw::memory
