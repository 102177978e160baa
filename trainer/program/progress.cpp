#include "trainer/program/progress.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "core/base/environment.h"
#include "core/memory/memory_report.h"
#include "trainer/program/lasting_output.h"
#include "trainer/program/ranks.h"
#include "trainer/program/waiting.h"

namespace rw {

namespace {

constexpr int64_t most_lines = 10;  // without a terminal

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours) return fmt::format("{} h {} min", hours, minutes);
  return minutes ? fmt::format("{} min {} s", minutes, whole % 60) : fmt::format("{} s", whole);
}

// A part of a line. Where there is no room, the parts with the highest rank are left out first.
struct Part {
  std::string text;
  int rank;
};

std::vector<Part> parts_of(int64_t step, int64_t total, const StepFigures& f, double seconds) {
  std::vector<Part> parts = {{fmt::format("step {}/{}", step, total), 0},
                             {fmt::format("loss {:.3f}", f.loss), 1}};
  if (f.accuracy) parts.push_back({fmt::format("accuracy {:.1f} %", 100 * *f.accuracy), 4});
  parts.push_back({fmt::format("{:.0f} {}/s", f.rate, f.unit), 5});
  parts.push_back({fmt::format("{} now", format_bytes(f.now)), 7});
  parts.push_back({fmt::format("{} peak", format_bytes(f.peak)), 3});
  if (f.most) parts.push_back({fmt::format("of {}", format_bytes(f.most)), 6});
  const std::string time = duration(seconds);
  parts.push_back({step == total ? "in " + time : time + " left", 2});
  return parts;
}

size_t width_of(const std::vector<Part>& parts) {
  size_t width = 0;
  for (const Part& part : parts) width += part.text.size() + 2;
  return width - 2;
}

std::string joined(const std::vector<Part>& parts) {
  std::string line;
  for (const Part& part : parts) line += (line.empty() ? "" : "  ") + part.text;
  return line;
}

std::string repeated(std::string_view text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

nlohmann::json json_of(int64_t step, int64_t total, const StepFigures& f, double past,
                       double left) {
  nlohmann::json json = {{"step", step},        {"steps", total},   {"loss", f.loss},
                         {"rate", f.rate},      {"unit", f.unit},   {"memory", f.now},
                         {"peak", f.peak},      {"budget", f.most}, {"seconds", past},
                         {"seconds_left", left}};
  if (f.accuracy) json["accuracy"] = *f.accuracy;
  return json;
}

BarStyle style_of_terminal() {
  std::string locale;
  for (const char* name : {"LANG", "LC_CTYPE", "LC_ALL"})
    if (const std::string value = env_text(name); !value.empty()) locale = value;
  const bool utf8 =
      locale.find("UTF-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  return {.columns = terminal_columns(STDOUT_FILENO),
          .colour = env_text("NO_COLOR").empty(),
          .utf8 = utf8};
}

}  // namespace

std::string progress_bar(int64_t step, int64_t total, const StepFigures& figures, double seconds,
                         const BarStyle& style) {
  constexpr size_t least = 8, most = 30, percent = 6;
  const auto room = static_cast<size_t>(std::max(2, style.columns) - 1);  // the cursor has the last
  std::vector<Part> parts = parts_of(step, total, figures, seconds);
  while (parts.size() > 1 && width_of(parts) + percent + least + 2 > room)
    parts.erase(std::ranges::max_element(parts, {}, &Part::rank));
  const size_t taken = width_of(parts) + percent + 2;
  if (taken + least > room) return joined(parts).substr(0, room);
  const size_t columns = std::min(most, room - taken);
  const double share = static_cast<double>(step) / static_cast<double>(total);
  const size_t done = static_cast<size_t>(share * static_cast<double>(columns));
  const std::string filled = repeated(style.utf8 ? "━" : "#", done),
                    rest = repeated(style.utf8 ? "─" : ".", columns - done);
  const std::string_view bright = style.colour ? "\x1b[36m" : "",
                         dim = style.colour ? "\x1b[2m" : "", plain = style.colour ? "\x1b[0m" : "";
  return fmt::format("{:3.0f} % {}{}{}{}{}  {}", 100 * share, bright, filled, plain, dim, rest,
                     std::string(plain) + joined(parts));
}

Progress::Progress(int64_t total, bool quiet, int64_t points)
    : total_(total),
      every_(std::max<int64_t>(1, total / points)),
      quiet_(quiet),
      terminal_(!has_json_lines() && rank_count() == 1 && terminal_columns(STDOUT_FILENO) > 0) {
  if (!quiet) waiting_ = show_waiting("the first step, which prepares the kernels");
}

bool Progress::due(int64_t step, int64_t at_once) {
  waiting_ = {};
  if (first_step_ == 0) first_step_ = step, first_time_ = Clock::now();
  if (step == total_) return true;
  if (quiet_ || !terminal_) return step / every_ > (step - at_once) / every_;
  return step == first_step_ || Clock::now() - shown_ > std::chrono::milliseconds(500);
}

// By the steps after the first, which kernels are compiled for.
double Progress::seconds_left(int64_t step) const {
  const std::chrono::duration<double> past = Clock::now() - first_time_;
  const auto taken = static_cast<double>(step - first_step_);
  return taken > 0 ? past.count() / taken * static_cast<double>(total_ - step)
                   : seconds() * static_cast<double>(total_ - step);
}

void Progress::show(int64_t step, const StepFigures& figures) {
  shown_ = Clock::now();
  const double seconds_or_left = step == total_ ? seconds() : seconds_left(step);
  if (has_json_lines())
    return print_json_line(
        json_of(step, total_, figures, seconds(), step == total_ ? 0 : seconds_or_left));
  if (quiet_) return;
  if (terminal_) {
    fmt::print("\r{}\x1b[K",
               progress_bar(step, total_, figures, seconds_or_left, style_of_terminal()));
  } else {
    // If there are more points than lines, those are shown that complete a line.
    const int64_t lines = step == total_ ? most_lines + 1 : step * most_lines / total_;
    if (std::exchange(lines_, lines) == lines) return;
    fmt::print("{}\n", joined(parts_of(step, total_, figures, seconds_or_left)));
  }
  std::fflush(stdout);
  line_open_ = terminal_;
}

void Progress::finish() {
  waiting_ = {};
  if (line_open_) fmt::print("\n");
  line_open_ = false;
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

}  // namespace rw
