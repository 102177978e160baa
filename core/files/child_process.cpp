#include "core/files/child_process.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <utility>

#include "core/base/error.h"

namespace rw {

namespace {

constexpr double most_times_longest = 8;

void write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) ::_exit(1);  // the parent is gone
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

// Everything that the child does.
[[noreturn]] void live(const std::function<void(const Send&)>& body, int file, pid_t parent) {
#ifdef __linux__
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
#endif
  // The parent reports a crash: there is no handler of the program and no core file.
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM})
    ::signal(signal, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  std::mutex mutex;
  const Send send = [&](const std::string& line) {
    std::string text = line + "\n";
    std::replace(text.begin(), text.end() - 1, '\n', ' ');
    const std::lock_guard lock(mutex);
    write_all(file, text);
  };
  try {
    body(send);
    write_all(file, "\n");  // an empty line: it returned
  } catch (const std::exception& e) {
    send(fmt::format("! {}", e.what()));
  }
  ::_exit(0);  // nothing of the parent's is closed, flushed or destroyed
}

double cpu_seconds(pid_t child) {
  clockid_t clock;
  timespec time;
  if (::clock_getcpuclockid(child, &clock) || ::clock_gettime(clock, &time)) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Whether one of its threads could run if it had a processor, or was stopped. Only Linux tells.
bool is_ready(pid_t child) {
  std::error_code gone;
  const std::filesystem::path threads = fmt::format("/proc/{}/task", child);
  for (const auto& thread : std::filesystem::directory_iterator(threads, gone)) {
    std::string line;
    std::getline(std::ifstream(thread.path() / "stat"), line);
    const size_t name_end = line.rfind(") ");  // PID (NAME) STATE ...
    if (name_end != line.npos && std::strchr("RTt", line[name_end + 2])) return true;
  }
  return false;
}

// The parent's end of the pipe.
struct Lines {
  int file;
  const std::function<void(const std::string&)>& receive;
  std::string rest = "";
  std::string exception = "";
  bool has_returned = false;

  // False at the end of the pipe.
  bool read() {
    char buffer[4096];
    const ssize_t count = ::read(file, buffer, sizeof buffer);
    if (count < 0) return errno == EINTR;
    rest.append(buffer, static_cast<size_t>(count));
    for (size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1)) {
      const std::string line = rest.substr(0, end);
      if (line.empty()) {
        has_returned = true;
      } else if (line.starts_with("! ")) {
        exception = line.substr(2);
      } else {
        receive(line);
      }
    }
    return count > 0;
  }
};

// Waits until the pipe ends or the child takes too long, and returns the time that it took. Time is
// the child's own, or the number of looks at it: when both wait for a processor, both are slow.
ChildEnd watch(Lines& lines, pid_t child, double seconds, double asleep_seconds) {
  constexpr double no_time = 1e-3, look_seconds = 0.1;
  double cpu = cpu_seconds(child), awake = cpu, longest = 0, asleep = 0;
  for (;;) {
    pollfd waiting{lines.file, POLLIN, 0};
    const bool is_heard = ::poll(&waiting, 1, static_cast<int>(1000 * look_seconds)) > 0;
    if (is_heard && !lines.read()) return {};
    const double now = cpu_seconds(child), most = std::max(seconds, most_times_longest * longest);
    if (is_heard) longest = std::max(longest, now - std::exchange(cpu, now));
    if (now - cpu > most) return {fmt::format("it did not end in {} s", most)};
    const bool is_awake = is_heard || now - awake > no_time || is_ready(child);
    asleep = is_awake ? 0 : asleep + look_seconds;
    if (is_awake) awake = now;
    if (asleep > asleep_seconds) return {fmt::format("it slept for {} s", asleep_seconds), true};
  }
}

}  // namespace

ChildEnd run_in_child(const std::function<void(const Send&)>& body,
                      const std::function<void(const std::string&)>& receive, double seconds,
                      double asleep_seconds) {
  int ends[2];
  check<Error>(::pipe(ends) == 0, "child process", "there must be a pipe to it: {}",
               std::strerror(errno));
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    live(body, ends[1], parent);
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return {fmt::format("no process could be started: {}", std::strerror(errno))};
  }
  Lines lines{ends[0], receive};
  const ChildEnd end = watch(lines, child, seconds, asleep_seconds);
  ::close(ends[0]);
  ::kill(child, SIGKILL);  // after its last line it is only on its way out
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!end.failure.empty()) return end;
  if (!lines.exception.empty()) return {lines.exception};
  if (lines.has_returned) return {};
  if (!WIFSIGNALED(status)) return {"it ended early"};
  return {fmt::format("it ended with {}", strsignal(WTERMSIG(status)))};
}

}  // namespace rw
