#include "trainer/program/waiting.h"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <unistd.h>
#include <utility>

#include "core/base/environment.h"
#include "trainer/program/ranks.h"

namespace rw {

namespace {

void draw_until(const std::stop_token& stop, const std::function<std::string()>& what) {
  const auto start = std::chrono::steady_clock::now();
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  bool drawn = false;
  const auto waits = [&] {
    return !stopped.wait_for(lock, stop, std::chrono::seconds(1), [&] { return false; }) &&
           !stop.stop_requested();
  };
  while (waits()) {
    const std::chrono::duration<double> past = std::chrono::steady_clock::now() - start;
    const std::string line = fmt::format("{} ... {:.0f} s", what(), past.count());
    const auto columns = static_cast<size_t>(terminal_columns(STDERR_FILENO));
    fmt::print(stderr, "\r{}\x1b[K", line.substr(0, columns - 1));
    drawn = true;
  }
  if (drawn) fmt::print(stderr, "\r\x1b[K");
}

}  // namespace

std::jthread show_waiting(std::function<std::string()> what) {
  if (rank_count() > 1 || terminal_columns(STDERR_FILENO) == 0) return {};
  std::fflush(stdout);
  return std::jthread(draw_until, std::move(what));
}

std::jthread show_waiting(std::string what) {
  return show_waiting([what = std::move(what)] { return what; });
}

int terminal_columns(int file) {
  constexpr int usual = 80;
  if (!isatty(file) || env_text("TERM") == "dumb") return 0;
  winsize size = {};
  return ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : usual;
}

}  // namespace rw
