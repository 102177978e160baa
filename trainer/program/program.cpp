#include "trainer/program/program.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <memory>
#include <thread>
#include <unistd.h>

#include "backends/open.h"
#include "core/base/error.h"
#include "core/base/interrupt.h"
#include "core/base/last_words.h"
#include "core/memory/device.h"
#include "data/base/files.h"
#include "dist/world/rank_watch.h"
#include "planner/timeline/timeline.h"
#include "trainer/program/lasting_output.h"
#include "trainer/program/ranks.h"
#include "trainer/program/settings.h"
#include "trainer/program/shared_options.h"
#include "trainer/program/waiting.h"
#include "trainer/report/run_page.h"

namespace rw {

namespace {

// Standard error, too, may have no reader, which is no reason to end.
void complain(const std::string& line) {
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);
}

// This process's rank. Where mpirun started ranks and there is no MPI for them, each is the first.
int known_rank() {
  try {
    return world().rank();
  } catch (const RankError&) {
    return 0;
  }
}

// An error that all ranks have is printed by the first rank, which ends the others while they wait.
void tell(const std::string& line, std::chrono::seconds wait = std::chrono::seconds(2)) {
  const int rank = known_rank();
  if (rank > 0) std::this_thread::sleep_for(wait);
  complain(rank > 0 ? fmt::format("rank {}: {}", rank, line) : line);
}

// Stays silent if rank 0 prints the same. That rank also has the terminal.
void join_ranks() {
  if (is_first_rank()) return;
  const int nothing = open("/dev/null", O_WRONLY);
  if (nothing < 0) return;
  dup2(nothing, STDOUT_FILENO);
  close(nothing);
}

// A rank that is killed cannot say so, so the others watch it. Null: there are no others.
std::unique_ptr<RankWatch> watch_ranks() {
  if (!is_started_by_mpi()) return nullptr;
  return std::make_unique<RankWatch>(world(), [](int rank) {
    complain(fmt::format(
        "error: rank {} of {} has died, as after kill -9 or where memory ran out: the others end "
        "with it{}\n",
        rank, rank_count(),
        has_option("--resume") ? "; --resume continues from the last snapshot" : ""));
  });
}

std::string command_line;  // as a shell takes it

// Exceptions before run_program() and on other threads end a program with a line, too.
[[maybe_unused]] const bool has_last_line = (end_with_last_words(), true);

// Finds the subcommand that was called, if there is one.
const CLI::App& called(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : called(*commands.front());
}

// Quotes a word that a shell would read as something else.
std::string shell_word(const std::string& word) {
  constexpr const char* plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

bool wants_gpu = false;  // the cpu was opened because there is no GPU

void tell_of_other_devices() {
  if (!wants_gpu || !is_first_rank()) return;
  const std::string unused = unoffered_gpu();
  complain(fmt::format(
      "note: {}; this ran on the cpu. With --device vulkan the same command runs the kernels of "
      "GPUs on Vulkan's driver for CPUs: slowly, but it shows their results and memory\n",
      unused.empty() ? "no GPU is here" : unused));
}

// The base of numbers is ten: CLI11 reads 010 as 8. It also takes what is too large for the largest
// number, and -1 for the largest one without a sign.
template <class T>
std::string take_whole_number(std::string& text) {
  T value{};
  const char* const begin = text.data() + text.starts_with('+');
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return fmt::format("must be a whole number in [{}, {}], got '{}'",
                       std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), text);
  text = fmt::format("{}", value);
  return "";
}

std::string take_number(std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (!text.empty() && end == text.c_str() + text.size() && std::isfinite(value)) return "";
  return fmt::format("must be a finite number, got '{}'", text);
}

std::string take_text(std::string& text) {
  return text.empty() ? "must not be empty; leave the option out instead" : "";
}

// One rule for the values of all options of all programs. A text may be empty where the option's
// help says what this means.
void check_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool is_named = !option->get_lnames().empty();
    const bool may_be_empty = option->get_description().find("empty") != std::string::npos;
    std::string (*take)(std::string&) = nullptr;
    if (option->get_items_expected_max() == 0) continue;  // a flag
    if (type.starts_with("INT")) take = take_whole_number<int64_t>;
    if (type.starts_with("UINT")) take = take_whole_number<uint64_t>;
    if (type.starts_with("FLOAT")) take = take_number;
    if (type.starts_with("TEXT") && is_named && !may_be_empty) take = take_text;
    // Transforms come before the checks of the option itself.
    if (take != nullptr) option->transform(CLI::Validator(take, ""));
  }
  for (CLI::App* command : app.get_subcommands({})) check_values(*command);
}

int parse_and_run(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  try {
    join_ranks();
    command_line.clear();
    for (int i = 0; i < argc; ++i) command_line += (i ? " " : "") + shell_word(argv[i]);
    const std::unique_ptr<RankWatch> watch = watch_ranks();
    app.parse(argc, argv);
    set_running_command(&called(app));
    // Comes first, since what ranks send to each other depends on these.
    check_ranks_alike(settings_of(app));
    body();
    tell_of_other_devices();
    return 0;
  } catch (const CLI::ParseError& error) {
    if (!is_first_rank()) {
      if (error.get_exit_code() == 0) return 0;
      tell(fmt::format("error: {}\n", error.what()));
      return 1;
    }
    return app.exit(error) == 0 ? 0 : 1;
  } catch (const Interrupted& stop) {
    if (is_first_rank()) complain(fmt::format("stopped: {}\n", stop.what()));
    return 128 + stop.signal;
  } catch (const RankError& error) {
    // Every rank certainly has it, and mpirun may take seconds to end the others.
    tell(fmt::format("error: {}\n", last_words(error)), std::chrono::seconds(15));
    return 1;
  } catch (const std::exception& error) {
    tell(fmt::format("error: {}\n", last_words(error)));
    return 1;
  }
}

// A rank that has failed must not keep the others waiting.
int run_rank(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  const int status = parse_and_run(app, argc, argv, body);
  set_running_command(nullptr);
  std::fflush(stdout);
  if (status != 1 || !is_started_by_mpi()) return status;
  // mpirun passes on what a rank wrote, unless the rank is gone before mpirun has read it.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  try {
    world().abort(status);
  } catch (const RankError&) {  // there is no MPI, as the line above says
  }
  return status;
}

}  // namespace

int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& body,
                bool only_prints) {
  signal(SIGXFSZ, SIG_IGN);  // a file that `ulimit -f` forbids is an error of its writer
  check_values(app);
  if (only_prints) return run_rank(app, argc, argv, body);
  LastingOutput lasting;
  const int status = run_rank(app, argc, argv, body);
  const int error = lasting.finish();
  if (error == 0 || error == EPIPE) return status;
  complain(fmt::format("error: cannot write to standard output: {}\n", std::strerror(error)));
  return std::max(status, 1);
}

void keep_earlier(const CLI::App& command, const std::string& place) {
  std::error_code unknown;
  const bool is_named = command.get_option("--save")->count() > 0;
  check<FileError>(is_named || !std::filesystem::exists(place, unknown), "save",
                   "there must be no model in '{}' for this run to save there, got one, which is "
                   "kept: --save names another place, or this one to replace it",
                   place);
}

void warn(const std::string& text) {
  if (!is_first_rank()) return;
  complain(fmt::format("warning: {}\n", text));
}

void DeviceOptions::add_to(CLI::App& app) {
  shared_option(app, "--device", device,
                "%r in it is the rank's number on its machine; to plan, dry:FILE.json, a saved "
                "profile, or the name of one that comes with Rewind, as dry:rx7900xtx.json")
      ->capture_default_str();
  CLI::Option* const type =
      shared_option(app, "--dtype", dtype,
                    dtype.empty() ? "default: as the model's files say, f16 for a new one" : "");
  if (!dtype.empty()) type->capture_default_str();
  app.add_option("--memory-limit", memory_limit, "the most device memory to use, as 512MiB");
}

void DeviceOptions::open() const {
  if (!dtype.empty()) parsed_dtype();
  check(!device.starts_with("dry"), "options", "'{}' {}", device,
        has_option("--plan") ? "cannot train, only --plan"
                             : "computes nothing: it is for the plans of training programs");
  const std::string chosen = device_of_rank(device);
  wants_gpu = device == "auto" && chosen == "cpu";
  const auto waiting = show_waiting("opening the device and checking its kernels");
  set_default_device(open_backend(chosen), limit());
}

std::unique_ptr<Backend> DeviceOptions::open_dry() const {
  return open_backend(device.starts_with("dry") ? device : "dry:" + device);
}

uint64_t DeviceOptions::limit() const {
  return memory_limit.empty() ? 0 : parse_bytes(memory_limit);
}

DType DeviceOptions::parsed_dtype() const {
  const DType parsed = parse_dtype(dtype);
  check(is_float(parsed), "options", "--dtype must be f16, bf16 or f32, got {}", dtype);
  return parsed;
}

nlohmann::json memory_json(const MemoryReport& memory) {
  return nlohmann::json::parse(memory.json());
}

nlohmann::json device_json(const MemoryReport& memory) {
  const DeviceInfo& info = default_device()->info();
  return {{"backend", info.backend},
          {"name", info.name},
          {"driver", info.driver},
          {"memory", memory_json(memory)}};
}

void write_json(const std::string& file, const nlohmann::json& json) {
  write_file(file, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::string ReportFile::folder() const {
  std::error_code unknown;
  const auto type = std::filesystem::status(path_, unknown).type();
  const bool is_file = path_.ends_with(".json") || (type != std::filesystem::file_type::directory &&
                                                    type != std::filesystem::file_type::not_found);
  return is_file ? "" : path_;
}

void ReportFile::write_so_far(const nlohmann::json& json) const {
  std::error_code unknown;
  const auto type = std::filesystem::status(path_, unknown).type();
  if (type == std::filesystem::file_type::regular ||
      type == std::filesystem::file_type::not_found ||
      type == std::filesystem::file_type::directory)
    write_files(json);
}

void ReportFile::write(const nlohmann::json& json) const {
  if (has_json_lines()) print_json_line({{"report", json}});
  write_files(json);
}

void ReportFile::write_files(const nlohmann::json& json) const {
  if (path_.empty() || !is_first_rank()) return;
  const std::filesystem::path pages = folder();
  if (pages.empty()) return write_json(path_, json);
  nlohmann::json report = json;
  report["command"] = command_line;
  write_json(pages / "report.json", report);
  const std::string text = report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  write_file(pages / "index.html",
             run_page(nlohmann::json::parse(text), std::filesystem::exists(pages / "memory.html")));
}

void ReportFile::write_timeline(const MemoryTrace& trace) const {
  if (folder().empty()) return;
  write_timeline_html(std::filesystem::path(folder()) / "memory.html", trace);
}

}  // namespace rw
