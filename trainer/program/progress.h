// How far a loop is: a bar that is redrawn in place on a terminal, lines now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "waiting.h"

namespace rw {

// What is shown of a step.
struct StepFigures {
  double loss = 0;                       // mean since the last one
  std::optional<double> accuracy = {};   // share of hits
  double rate = 0;                       // samples per second
  std::string unit = "samples";          // what they are called
  uint64_t now = 0, peak = 0, most = 0;  // bytes of memory: in use, at most so far, allowed or 0
};

// Shows the steps of a loop. With --json-lines it prints an object of JSON for each that is due.
class Progress {
 public:
  // `total` steps; quiet: it shows nothing. `points`: so many are due where there is no terminal.
  Progress(int64_t total, bool quiet, int64_t points = 10);
  ~Progress() { finish(); }                       // leaves the last line standing
  Progress(const Progress&) = delete;             // it owns a line of the terminal
  Progress& operator=(const Progress&) = delete;  // as above

  // Whether it is time to show step `step` (from 1), always true for the last step. Reading values
  // from the device waits for it, so ask first, after each step. `at_once` is the number of steps
  // since the last call.
  bool due(int64_t step, int64_t at_once = 1);
  void show(int64_t step, const StepFigures& figures);
  void finish();           // leaves the last line standing
  double seconds() const;  // since the construction

 private:
  using Clock = std::chrono::steady_clock;

  double seconds_left(int64_t step) const;

  int64_t total_, every_, lines_ = 0, first_step_ = 0;
  bool quiet_, terminal_, line_open_ = false;
  Clock::time_point start_ = Clock::now(), shown_ = start_, first_time_ = start_;
  std::optional<Waiting> waiting_;  // for the first step
};

// What the bar of a terminal looks like.
struct BarStyle {
  int columns = 80;     // that the terminal has
  bool colour = false;  // it may have some
  bool utf8 = false;    // it shows other characters than ASCII
};

// The line of a bar: figures that have no room are left out, the least important ones first.
// `seconds`: that are left, or after the last step that it took.
std::string progress_bar(int64_t step, int64_t total, const StepFigures& figures, double seconds,
                         const BarStyle& style);

}  // namespace rw
