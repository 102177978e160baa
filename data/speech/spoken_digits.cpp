#include "data/speech/spoken_digits.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <span>
#include <spawn.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "core/base/error.h"
#include "data/base/files.h"
#include "data/base/parallel.h"
#include "data/base/random.h"
#include "data/speech/audio.h"

extern char** environ;

namespace rw {

namespace fs = std::filesystem;

namespace {

// Change it whenever the spoken texts change: it distinguishes old folders.
constexpr int digits_version = 1;

using Names = std::span<const char* const>;
constexpr const char* digits[] = {"zero", "one", "two",   "three", "four",
                                  "five", "six", "seven", "eight", "nine"};
constexpr const char* accents[] = {"en-gb",  "en-us",          "en-gb-scotland", "en-gb-x-gbclan",
                                   "en-029", "en-gb-x-gbcwmd", "en-gb-x-rp",     "en-us-nyc"};
constexpr const char* train_voices[] = {
    "m1",  "m2",      "m4",    "m5",   "m6",    "m8",      "f1",    "f3",     "f4",   "Andy",
    "Lee", "Michael", "Annie", "Alex", "anika", "belinda", "david", "edward", "john", "linda"};
constexpr const char* test_voices[] = {"m3", "m7", "f2", "f5", "steph", "adam", "victor"};

// A string of digits, and how it is spoken.
struct Spoken {
  std::string name, voice, text;
  fs::path folder;
  int speed, pitch;
  float gain, snr;  // dB
  uint64_t noise;   // seed
};

Spoken draw_voice(DataRandom& random, Names voices, const fs::path& folder, int number) {
  const auto one_of = [&](Names names) { return std::string(names[random.below(names.size())]); };
  Spoken s;
  const std::string timbre = one_of(voices);
  s.voice = one_of(accents) + "+" + timbre;
  s.folder = folder / timbre / "0";
  s.name = fmt::format("{}-0-{:05}", timbre, number);
  for (auto count = 2 + random.below(5); count > 0; --count) {
    if (!s.text.empty()) s.text += ' ';
    s.text += one_of(digits);
  }
  s.speed = 130 + static_cast<int>(random.below(91));
  s.pitch = 35 + static_cast<int>(random.below(31));
  s.gain = random.uniform(-20, 0), s.snr = random.uniform(8, 30);
  s.noise = random.next();
  return s;
}

// Runs a program to its end and discards its output. Throws FileError unless it succeeds.
void run(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int output : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, output, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, command[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  check<FileError>(error == 0, "spoken_digits",
                   "the program {} must be there to speak with, got: {}; install the package of "
                   "that name, or give recordings (--data DIR)",
                   command[0], std::strerror(error));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  check<FileError>(WIFEXITED(status) && WEXITSTATUS(status) == 0, "spoken_digits",
                   "`{}` must succeed, got status {}; give recordings (--data DIR), or install "
                   "espeak-ng of version 1.51",
                   fmt::join(command, " "), WIFEXITED(status) ? WEXITSTATUS(status) : status);
}

void speak(const Spoken& s) {
  const fs::path file = s.folder / (s.name + ".wav");
  run({"espeak-ng", "-v", s.voice, "-s", std::to_string(s.speed), "-p", std::to_string(s.pitch),
       "-w", file.string(), s.text});
  Audio audio = read_audio(file);
  float peak = 0;
  double power = 0;
  for (const float x : audio.samples) {
    peak = std::max(peak, std::abs(x));
    power += static_cast<double>(x) * x;
  }
  check<FileError>(peak > 0, "spoken_digits", "espeak-ng must make sound of '{}', got silence",
                   s.voice);
  const float loudest = 0.7f, level = loudest / peak * std::pow(10.0f, s.gain / 20);
  const auto rms = static_cast<float>(std::sqrt(power / static_cast<double>(audio.samples.size())));
  const float noise = level * rms * std::pow(10.0f, -s.snr / 20);
  DataRandom random(s.noise);
  for (float& x : audio.samples) x = level * x + random.normal(0, noise);
  write_wav(file, audio);
}

void write_split(const fs::path& folder, Names voices, int count, uint64_t seed) {
  DataRandom random(seed);
  std::vector<Spoken> all;
  std::map<std::string, std::string> transcripts;  // by file
  for (int i = 0; i < count; ++i) {
    all.push_back(draw_voice(random, voices, folder, i));
    const Spoken& s = all.back();
    const std::string timbre = s.folder.parent_path().filename().string();
    transcripts[s.folder / (timbre + "-0.trans.txt")] += s.name + " " + s.text + "\n";
    fs::create_directories(s.folder);
  }
  parallel_for(all.size(), 0, [&](size_t i) { speak(all[i]); });
  for (const auto& [file, lines] : transcripts) write_file(file, lines);
}

}  // namespace

fs::path spoken_digits(const fs::path& root, const SyntheticSizes& sizes,
                       const std::function<void(const fs::path&)>& on_start) {
  check(sizes.train > 0 && sizes.test > 0, "spoken_digits",
        "needs at least one string of each split, got {} and {}", sizes.train, sizes.test);
  const fs::path folder = root / fmt::format("spoken-digits-v{}-{}-{}-{}", digits_version,
                                             sizes.train, sizes.test, sizes.seed);
  std::error_code unknown;
  if (fs::is_directory(folder, unknown)) return folder;
  if (on_start) on_start(folder);
  run({"espeak-ng", "--version"});
  fs::path unfinished = folder;
  unfinished += fmt::format(".{}.tmp", ::getpid());
  try {
    fs::create_directories(unfinished);
    // The streams 2 * seed and 2 * seed + 1 keep every string out of the other split.
    write_split(unfinished / "test", test_voices, sizes.test, 2 * sizes.seed + 1);
    write_split(unfinished / "train", train_voices, sizes.train, 2 * sizes.seed);
    fs::rename(unfinished, folder, unknown);  // another process may have been faster
  } catch (const fs::filesystem_error& error) {
    fs::remove_all(unfinished, unknown);
    fail<FileError>("spoken_digits", "'{}' must be writable, got: {}", folder.string(),
                    error.what());
  } catch (...) {
    fs::remove_all(unfinished, unknown);
    throw;
  }
  if (fs::exists(unfinished, unknown)) fs::remove_all(unfinished, unknown);
  check<FileError>(fs::is_directory(folder, unknown), "spoken_digits",
                   "'{}' must be writable, got no folder there", folder.string());
  return folder;
}

}  // namespace rw
