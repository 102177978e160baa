#include "trainer/program/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <unistd.h>

#include "trainer/program/ranks.h"

namespace rw {

Progress::Progress(int64_t total, bool quiet)
    : total_(total),
      every_(std::max<int64_t>(1, total / 10)),
      quiet_(quiet),
      terminal_(rank_count() == 1 && isatty(STDOUT_FILENO) != 0) {}

bool Progress::due(int64_t step, int64_t at_once) const {
  if (step == total_) return true;
  if (quiet_ || !terminal_) return step / every_ > (step - at_once) / every_;
  return Clock::now() - shown_ > std::chrono::milliseconds(500);
}

void Progress::show(int64_t step, const std::string& text) {
  shown_ = Clock::now();
  if (quiet_) return;
  const double left = seconds() / static_cast<double>(step) * static_cast<double>(total_ - step);
  const std::string line = fmt::format("step {}/{}  {}  {:.0f} s left", step, total_, text, left);
  if (terminal_)
    fmt::print("\r{}\x1b[K", line);
  else
    fmt::print("{}\n", line);
  std::fflush(stdout);
  line_open_ = terminal_;
}

void Progress::finish() {
  if (line_open_) fmt::print("\n");
  line_open_ = false;
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

}  // namespace rw
