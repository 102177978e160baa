// A line of progress: redrawn in place on a terminal, a new line now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace rw {

// Shows how far a loop is; where there is no terminal, by ten lines in all.
class Progress {
 public:
  Progress(int64_t total, bool quiet);            // of so many steps; quiet: shows nothing
  ~Progress() { finish(); }                       // leaves the last line standing
  Progress(const Progress&) = delete;             // it owns a line of the terminal
  Progress& operator=(const Progress&) = delete;  // as above

  // Whether it is time to show step `step` (from 1), always true for the last step. Reading values
  // from the device waits for it, so ask first. `at_once` is the number of steps since the last
  // call.
  bool due(int64_t step, int64_t at_once = 1) const;
  // "step 30/75  TEXT  12 s left".
  void show(int64_t step, const std::string& text);
  void finish();           // leaves the last line standing
  double seconds() const;  // since the construction

 private:
  using Clock = std::chrono::steady_clock;

  int64_t total_, every_;
  bool quiet_, terminal_, line_open_ = false;
  Clock::time_point start_ = Clock::now(), shown_ = start_;
};

}  // namespace rw
