// Shows how busy all Vulkan devices are, their memory and who uses it, once or repeatedly.
#include <CLI/CLI.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/ioctl.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <thread>
#include <unistd.h>

#include "backends/monitor/nvml.h"
#include "backends/open.h"
#include "core/base/error.h"
#include "tools/top/report.h"
#include "trainer/program/program.h"
#include "trainer/program/shared_options.h"

using namespace rw;

namespace {

Snapshot look(const std::string& choice) {
  static const Nvml nvml;
  Snapshot snapshot;
  snapshot.time = fmt::format("{:%F %T}", fmt::localtime(std::time(nullptr)));
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  snapshot.seconds = now.count();
  snapshot.processes = gpu_processes();
  const std::vector<DeviceListing> devices = list_devices();
  for (size_t i = 0; i < devices.size(); ++i) {
    const std::string& address = devices[i].pci_address;
    const bool is_nvidia = nvml.knows(address);
    snapshot.devices.push_back(
        {i, devices[i], is_nvidia ? nvml.sensors(address) : read_gpu_sensors(address)});
    for (GpuProcess& process : nvml.processes(address)) {
      describe(process);
      snapshot.processes.push_back(std::move(process));
    }
  }
  select_devices(snapshot, choice);
  return snapshot;
}

// Looks twice, since rates need two looks.
Snapshot look_twice(const std::string& choice) {
  const Snapshot before = look(choice);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  Snapshot now = look(choice);
  add_rates(now, before);
  return now;
}

// The rule of https://no-color.org.
bool wants_colours() {
  const char* const refused = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && !(refused && *refused);
}

// One JSON document, on one line if more follow. Commands may hold bytes that are not UTF-8.
std::string json_text(const Snapshot& snapshot, int indent) {
  return to_json(snapshot).dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

// The terminal's second screen, without cursor and line breaks. The first one comes back when the
// program ends, in whatever way.
class Screen {
 public:
  Screen() { write("\x1b[?1049h\x1b[?25l\x1b[?7l"); }
  ~Screen() { write("\x1b[?7h\x1b[?25h\x1b[?1049l"); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Draws over the old contents, so that nothing flickers. Lines below the screen are left out.
  void show(const std::string& text) {
    winsize size{};
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
    int rows = known ? size.ws_row : 24;
    std::string drawn = "\x1b[H";
    for (size_t at = 0; at < text.size() && rows > 0; --rows) {
      const size_t end = std::min(text.find('\n', at), text.size());
      drawn += (at ? "\r\n" : "") + text.substr(at, end - at) + "\x1b[K";
      at = end + 1;
    }
    write(drawn + "\x1b[J");
  }

 private:
  static void write(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
};

// The signals that end the program, blocked so that the program can wait for them between two
// looks.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&signals_);
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  // Sleeps; true when it is time to end.
  bool wait(double seconds) const {
    const double whole = std::floor(seconds);
    const timespec timeout{static_cast<time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
    return sigtimedwait(&signals_, nullptr, &timeout) > 0;
  }

 private:
  sigset_t signals_;
};

void watch(const std::string& choice, double seconds, bool json) {
  const StopSignals signals;  // before the driver's threads begin, which hold them back, too
  Snapshot snapshot = look_twice(choice);  // an error is to be seen on the first screen
  std::optional<Screen> screen;
  if (!json && isatty(STDOUT_FILENO)) screen.emplace();
  do {
    if (screen)
      screen->show(to_text(snapshot, wants_colours()));
    else
      fmt::print("{}", json ? json_text(snapshot, -1) : to_text(snapshot) + "\n");
    std::fflush(stdout);
    if (signals.wait(seconds)) return;
    Snapshot next = look(choice);
    add_rates(next, snapshot);
    snapshot = std::move(next);
  } while (true);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Prints the load of the Vulkan devices, their memory, and the processes that use them.");
  std::string choice;
  double seconds = 2;
  bool json = false;
  shared_option(app, "--device", choice, "only this one");
  shared_flag(app, "--json", json, "with --watch one per line");
  CLI::Option* watching = app.add_option("--watch", seconds, "refresh every SECONDS, until Ctrl-C")
                              ->type_name("[SECONDS=2]")
                              ->expected(0, 1);
  return run_program(
      app, argc, argv,
      [&] {
        if (watching->count() == 0) {
          const Snapshot snapshot = look_twice(choice);
          fmt::print("{}", json ? json_text(snapshot, 2) : to_text(snapshot, wants_colours()));
          return;
        }
        check(seconds >= 0.1 && seconds <= 86400, "options", "--watch must be 0.1 to 86400, got {}",
              seconds);
        watch(choice, seconds, json);
      },
      true);
}
