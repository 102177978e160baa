// The progress of a loop: a bar that is redrawn in place on a terminal, and lines now and then
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

namespace rw {

// The figures of a step that are shown.
struct StepFigures {
  double loss = 0;                       // the mean since the last figures
  std::optional<double> accuracy = {};   // the share of hits
  double rate = 0;                       // samples per second
  std::string unit = "samples";          // the name of the samples
  uint64_t now = 0, peak = 0, most = 0;  // bytes in use, the most so far, and the limit or 0
};

// Shows the steps of a loop. With --json-lines it prints a JSON object for each step that is due.
class Progress {
 public:
  // The loop has `total` steps. With `quiet`, nothing is shown. Without a terminal, `points` steps
  // are due.
  Progress(int64_t total, bool quiet, int64_t points = 10);
  ~Progress() { finish(); }                       // leaves the last line standing
  Progress(const Progress&) = delete;             // it owns a line of the terminal
  Progress& operator=(const Progress&) = delete;  // as above

  // Tells whether it is time to show step `step` (from 1), which is always true for the last step.
  // Reading values from the device waits for it, so ask first, after each step. `at_once` is the
  // number of steps since the last call.
  bool due(int64_t step, int64_t at_once = 1);
  void show(int64_t step, const StepFigures& figures);
  void finish();           // leaves the last line standing
  double seconds() const;  // since construction

 private:
  using Clock = std::chrono::steady_clock;

  double seconds_left(int64_t step) const;

  int64_t total_, every_, lines_ = 0, first_step_ = 0;
  bool quiet_, terminal_, line_open_ = false;
  Clock::time_point start_ = Clock::now(), shown_ = start_, first_time_ = start_;
  std::jthread waiting_;  // shows until the first step that it is awaited
};

// The look of a bar on a terminal.
struct BarStyle {
  int columns = 80;     // of the terminal
  bool colour = false;  // it may have colours
  bool utf8 = false;    // it may have characters beyond ASCII
};

// Returns the line of a bar. Figures that have no room are left out, the least important ones
// first. `seconds` are those that remain, or, after the last step, those that the loop took.
std::string progress_bar(int64_t step, int64_t total, const StepFigures& figures, double seconds,
                         const BarStyle& style);

}  // namespace rw
