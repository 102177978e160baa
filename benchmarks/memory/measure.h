// Measures a workload in dry runs on a device's profile, and in real runs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../../planner/search/search.h"
#include "report.h"

namespace rw::memory {

// A device whose behaviour dry runs predict.
struct Profile {
  std::string name;  // for the report
  Search::OpenDry open;
  std::shared_ptr<OpTimes> times = {};  // measured on that device; null where there are none
};
// `device` is what open_backend("dry:...") takes: a profile's file or name, or a device. The heap
// has no limit, since the benchmark also measures plain runs that fit on no device.
Profile open_profile(const std::string& device);

// Predicts one workload, run in all ways.
class Bench {
 public:
  // `candidates` is the number of plans that the search measures.
  Bench(std::string row, Workload workload, Profile profile, int candidates = 12);

  Result plain();
  Result block(int every = 1);    // the model's own segments
  Result memory();                // the least peak with every op run at most twice
  Result speed();                 // keeps the outputs of matrix products and convolutions
  Result nested(int leaf = 8);    // segments halved again and again, down to `leaf` records
  Result budget(uint64_t bytes);  // the cheapest plan within it
  // Nothing if there is no such plan. The cost is the device's time, where the profile has times.
  std::optional<Result> try_budget(uint64_t bytes, bool by_time = false);
  // The cheapest plan whose dry run ends with blocks of at most `bytes`.
  std::optional<Result> fitting(uint64_t bytes);
  Result least();               // the least peak of all
  std::vector<Result> front();  // every choice between memory and work

 private:
  Search& search(bool by_time = false);
  Result budget(const std::string& method, Search& search, uint64_t bytes);
  Result predict(const std::string& method, const StepSettings& way) const;
  // The time that `find` takes counts.
  Result measure(const std::string& method, const std::function<StepSettings()>& find);

  std::string row_;
  Workload workload_;
  Profile profile_;
  int candidates_;
  std::optional<Search> search_, time_search_;
};

// Whether the device can hold the blocks of the steps, with an eighth of its memory left for
// everything else.
bool has_room(const DeviceInfo& device, const Result& result);

// Adds a real run of the same steps, on a device of its own, if that device has room.
void run_really(Result& result, const std::string& device);

// The peak of steps that end within `limit` bytes of blocks; nothing if they do not.
std::optional<uint64_t> peak_within(const Workload& workload, const Profile& profile,
                                    const StepSettings& settings, uint64_t limit);

}  // namespace rw::memory
