// Runs the targets on mutated seeds, with any compiler: a fixed number of inputs from a fixed seed
// for tests, or for some time. A run ends when a reader does what it must never do: throw another
// exception than its own, crash, not end, or take far more memory than the input has bytes. The
// input is kept in a file, which --replay runs again.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <fstream>
#include <set>
#include <signal.h>
#include <unistd.h>

#include "tests/fuzz/memory_limit.h"
#include "tests/fuzz/mutate.h"

#if defined(__SANITIZE_ADDRESS__)
#define REWIND_FUZZ_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define REWIND_FUZZ_ASAN 1
#endif
#endif

// Errors that sanitizers find end in SIGABRT, whose handler keeps the input. Leaks are not looked
// for: that needs ptrace, which containers forbid.
extern "C" const char* __asan_default_options() {
  return "abort_on_error=1:detect_leaks=0";
}
extern "C" const char* __ubsan_default_options() {
  return "abort_on_error=1:print_stacktrace=1";
}

namespace rw::fuzz {

namespace {

constexpr size_t most_bytes = 200'000;

// The input being read, for handlers that run when the process cannot go on.
struct {
  const char* target = "none";
  const uint8_t* data = nullptr;
  size_t size = 0;
  char file[4096] = {};
} current;

// Calls only functions that signal handlers may call.
void say(const char* text) {
  [[maybe_unused]] const auto n = write(STDERR_FILENO, text, std::strlen(text));
}

void keep_input(const char* why) {
  const int file = open(current.file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file >= 0) {
    [[maybe_unused]] const auto n = write(file, current.data, current.size);
    close(file);
  }
  for (const char* part : {"\nfuzz: target ", current.target, ": ", why, "; the input is in "})
    say(part);
  say(current.file);
  say("\n");
}

extern "C" void on_signal(int signal) {
  keep_input(signal == SIGPROF ? "no end in time" : "the process crashed");
  _exit(1);
}

void watch_signals() {
  static char stack[64 << 10];
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = sizeof stack;
  sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  std::vector<int> signals = {SIGABRT, SIGPROF};
#ifndef REWIND_FUZZ_ASAN  // it has handlers of its own, and ends in SIGABRT
  signals.insert(signals.end(), {SIGSEGV, SIGBUS, SIGFPE, SIGILL});
#endif
  for (const int signal : signals) sigaction(signal, &action, nullptr);
}

// Messages tell which check refused an input, without digits, the folder and the offending text.
// With words of the input in them, each input would be of a new kind, and soon only these would be
// mutated.
std::string kind_of(std::string message) {
  const std::string folder = scratch_file("").string();
  if (const size_t at = message.find(folder); at != message.npos) message.erase(at, folder.size());
  message.resize(std::min({message.size(), message.find("got "), message.find('`')}));
  if (const size_t at = message.find('"'), end = message.rfind('"'); at != message.npos)
    message.erase(at, end > at ? end + 1 - at : message.npos);
  message.resize(std::min(message.size(), size_t{80}));
  std::erase_if(message, [](char c) { return c >= '0' && c <= '9'; });
  return message;
}

struct Options {
  std::vector<std::string> targets;
  uint64_t runs = 1500, seed = 1;
  double seconds = 0;
  int input_seconds = 20;
  std::string artifacts = ".", corpus, replay;
};

class Session {
 public:
  Session(const Target& target, const Options& options)
      : target_(target), options_(options), pool_(target.seeds()) {
    current.target = target.name;
    const std::string file = fmt::format("{}/fuzz-{}.input", options.artifacts, target.name);
    current.file[file.copy(current.file, sizeof current.file - 1)] = 0;
  }

  void run() {
    const auto start = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    for (const Bytes& seed : std::vector(pool_))
      if (!read(seed)) fault(fmt::format("a seed is refused: {}", error_).c_str());
    DataRandom random(options_.seed);
    const auto goes_on = [&] {
      return options_.seconds > 0 ? seconds() < options_.seconds : inputs_ < options_.runs;
    };
    while (goes_on()) {
      const Bytes bytes = mutate(pool_, target_, most_bytes, random);
      const bool accepted = read(bytes);
      // Inputs that are refused in a new way, and some of those that are accepted, are changed
      // further.
      if ((accepted ? random.below(20) == 0 : kinds_.insert(kind_of(error_)).second) &&
          pool_.size() < 300)
        pool_.push_back(bytes);
    }
    fmt::print(
        "{:<20}{:>9} inputs, {:>8} accepted, {:>3} kinds of errors, at most {:>9} bytes of memory, "
        "{:.1f} s\n",
        target_.name, inputs_, accepted_, kinds_.size(), most_memory_, seconds());
    std::fflush(stdout);
    current.size = 0;
    if (target_.refuses == kinds_.empty()) fault("it refuses nothing, or what it should not");
  }

  bool read(const Bytes& bytes) {
    current.data = bytes.data();
    current.size = bytes.size();
    const itimerval limit{{0, 0}, {options_.input_seconds, 0}};
    setitimer(ITIMER_PROF, &limit, nullptr);
    MemoryLimit memory(bytes.size());
    bool accepted = false;
    try {
      accepted = accepts(target_, bytes, error_);
    } catch (const std::bad_alloc&) {
      fault("wants far more memory than the input has bytes");
    } catch (const std::exception& error) {
      fault(error.what());
    }
    most_memory_ = std::max(most_memory_, memory.most());
    ++inputs_;
    accepted_ += accepted;
    return accepted;
  }

 private:
  [[noreturn]] void fault(const char* what) {
    keep_input(what);
    _exit(1);
  }

  const Target& target_;
  const Options& options_;
  std::vector<Bytes> pool_;
  std::set<std::string> kinds_;
  std::string error_;
  uint64_t inputs_ = 0, accepted_ = 0, most_memory_ = 0;
};

// Writes the seeds to the folder of --corpus, for libFuzzer.
void write_seeds(const Target& target, const std::filesystem::path& folder) {
  const std::filesystem::path own = folder / target.name;
  std::filesystem::create_directories(own);
  const std::vector<Bytes> seeds = target.seeds();
  for (size_t i = 0; i < seeds.size(); ++i)
    std::ofstream(own / fmt::format("seed-{}", i), std::ios::binary)
        .write(reinterpret_cast<const char*>(seeds[i].data()),
               static_cast<std::streamsize>(seeds[i].size()));
}

void run_all(const Options& options) {
  std::vector<Target> targets = all_targets();
  if (!options.targets.empty()) {
    for (Target& planted : planted_targets()) targets.push_back(std::move(planted));
    for (const std::string& name : options.targets)
      if (std::ranges::none_of(targets, [&](const Target& t) { return t.name == name; }))
        throw std::invalid_argument("no such target: " + name);
    std::erase_if(
        targets, [&](const Target& t) { return std::ranges::count(options.targets, t.name) == 0; });
  }
  for (const Target& target : targets) {
    if (!options.corpus.empty()) {
      write_seeds(target, options.corpus);
      fmt::print("{}\n", target.name);
    } else if (!options.replay.empty()) {
      Session session(target, options);
      fmt::print("{}: {}\n", target.name,
                 session.read(file_bytes(options.replay)) ? "accepted" : "refused");
    } else {
      Session(target, options).run();
    }
  }
}

}  // namespace

}  // namespace rw::fuzz

int main(int argc, char** argv) {
  CLI::App app("Feeds mutated inputs to every reader of files.");
  rw::fuzz::Options options;
  app.add_option("targets", options.targets, "some of the targets; without them all");
  app.add_option("--runs", options.runs, "inputs per target")->capture_default_str();
  app.add_option("--seconds", options.seconds, "of each target, instead of --runs");
  app.add_option("--input-seconds", options.input_seconds,
                 "of processor time, which no input may exceed")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of the mutations")->capture_default_str();
  app.add_option("--artifacts", options.artifacts, "folder for an input that shows a fault");
  app.add_option("--replay", options.replay, "this input only");
  app.add_option("--corpus", options.corpus,
                 "write the seeds below this folder, and list the targets");
  CLI11_PARSE(app, argc, argv);
  rw::fuzz::watch_signals();
  try {
    rw::fuzz::run_all(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "fuzz: {}\n", error.what());
    return 1;
  }
}
