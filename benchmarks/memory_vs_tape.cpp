// Memory against tape size: the bytes that training steps keep, their peaks and the cost of
// recomputation, for the networks for which others published figures. Most runs are dry; some are
// real, to show that the predictions hold.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <optional>
#include <span>
#include <unistd.h>

#include "backends/open.h"
#include "benchmarks/memory/report.h"
#include "benchmarks/memory/rows.h"
#include "benchmarks/memory/times.h"
#include "core/base/error.h"
#include "trainer/program/program.h"
#include "trainer/program/shared_options.h"

using namespace rw;
using namespace rw::memory;

namespace {

std::string machine() {
  std::ifstream info("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) model = line.substr(line.find(':') + 2);
  return fmt::format("{} x {}", sysconf(_SC_NPROCESSORS_ONLN), model);
}

struct Options {
  std::string device = "auto", profile = "rx7900xtx.json", output, name = "memory";
  std::vector<std::string> rows;
  bool all = false, dry_only = false, measured = false;
  std::optional<size_t> rounds;

  void add_to(CLI::App& app);
  bool wants(const Row& row) const;
};

void Options::add_to(CLI::App& app) {
  std::string list;
  for (const Row& row : memory::rows()) list += fmt::format("\n  {}: {}", row.name, row.what);
  shared_option(app, "--row", rows, list);
  app.add_flag("--all", all, "every row in every configuration; minutes");
  shared_option(app, "--device", device, "for real runs")->capture_default_str();
  shared_option(app, "--profile", profile, "or a device of this machine")->capture_default_str();
  auto* dry = shared_flag(app, "--dry", dry_only, "predict only");
  app.add_flag("--measured", measured,
               "run every row on the device, take its profile, and time the steps; "
               "tens of minutes on a CPU")
      ->excludes(dry);
  shared_option(
      app, "--rounds", rounds,
      "of the steps of the chosen rows, all ways of a model in turn; 0: none (default 5, on a "
      "CPU only for the small networks)");
  app.add_option("--output", output, "the folder for NAME.json, .csv, .md and .html");
  app.add_option("--name", name, "the name of these files")->capture_default_str();
}

bool Options::wants(const Row& row) const {
  if (dry_only && row.run == real_row) return false;
  if (!rows.empty()) return std::find(rows.begin(), rows.end(), row.name) != rows.end();
  return all || measured || row.quick;
}

void note(const Result& r) {
  const Case& c = r.about;
  fmt::print(
      "{:10} {} {:>5}  batch {:<5} {:22} {:7} tape {:>6} / {:>6} / {:>9.1f} MB  peak {:>9.1f} MB  "
      "{:>+6.1f} % FLOPs{}\n",
      r.row, c.model, c.depth, c.batch, variant(c), r.method, r.tape.records, r.tape.saved_tensors,
      megabytes(r.tape.saved_bytes), megabytes(r.peak), 100 * r.recompute,
      r.real ? fmt::format("  run: {}, {:.3f} s", r.real->peak == r.peak ? "equal" : "DIFFERS",
                           r.real->seconds)
             : "");
  std::fflush(stdout);
}

void note_times(std::span<const Result> results) {
  for (const Result& r : results)
    if (r.times)
      fmt::print("{:10} {} {:>5}  batch {:<5} {:22} {:7} step {:>9}  time on top {}\n", r.row,
                 r.about.model, r.about.depth, r.about.batch, variant(r.about), r.method,
                 step_time(r), time_on_top(r));
}

// Unasked, steps that take minutes are not timed: those of large networks on a CPU driver.
bool times_large_networks(const Options& o) {
  if (o.dry_only || o.rounds || o.measured) return !o.dry_only;
  return !open_backend(o.device)->info().is_cpu;
}

// Returns how many rows failed.
int run(const Options& o, Report& report) {
  RowOptions options{.profile = open_profile(o.measured ? o.device : o.profile),
                     .device = o.device,
                     .all = o.all || (!o.rows.empty() && !o.measured),
                     .measured = o.measured,
                     .note = note};
  if (o.measured)
    options.profile.times = std::make_shared<OpTimes>(Device::create(open_backend(o.device)));
  for (const std::string& name : o.rows)
    check(
        std::any_of(rows().begin(), rows().end(), [&](const Row& row) { return row.name == name; }),
        "options", "there is no row '{}'; see --help", name);
  report.profile = options.profile.name;
  fmt::print("dry runs predict: {}\ntape: records / saved tensors / saved bytes\n\n",
             report.profile);
  // A row that fails leaves the others their results.
  int failed = 0;
  const bool times_all = times_large_networks(o);
  for (const Row& row : rows()) {
    if (!o.wants(row)) continue;
    const size_t first = report.results.size();
    try {
      row.run(options, report);
      const std::span results = std::span(report.results).subspan(first);
      if (!times_all && row.run != real_row) continue;
      time_steps(results, o.device, o.rounds.value_or(5));
      note_times(results);
    } catch (const Error& error) {
      fmt::print("row {} failed: {}\n", row.name, error.what());
      ++failed;
    }
  }
  return failed;
}

void conclude(const Options& o, const Report& report) {
  for (const Chart& chart : charts_of(report)) fmt::print("{}", to_text(chart));
  if (!report.bars.empty()) fmt::print("\nBars:\n");
  for (const Bar& b : report.bars)
    fmt::print("  {:6} {}: {} (bar {}; published: {})\n", b.met ? "met" : "MISSED", b.what, b.ours,
               b.bar, b.theirs.empty() ? "-" : b.theirs);
  for (const Fit& f : report.fits)
    fmt::print("  fit of {}: {:.0f} MB * k^{:.2f}; {:.0f} MB * sqrt(k)\n", f.series, f.factor,
               f.exponent, f.sqrt_factor);
  if (!o.output.empty()) {
    write_report(report, o.output, o.name);
    fmt::print("\nwritten: {0}/{1}.html, .json, .csv, .md\n", o.output, o.name);
  }
  const std::vector<std::string> wrong = mispredictions(report);
  size_t real = 0;
  for (const Result& r : report.results) real += r.real.has_value();
  fmt::print("\n{} of {} real runs have the predicted tape and the predicted peak to the byte\n",
             real - wrong.size(), real);
  for (const std::string& line : wrong) fmt::print("  wrong: {}\n", line);
  check(wrong.empty(), "memory", "predictions must hold, {} did not", wrong.size());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Memory against tape size: plain, block, memory, nested and budget.");
  Options options;
  options.add_to(app);
  Report report{.machine = machine()};
  for (int i = 0; i < argc; ++i)
    report.command += i ? fmt::format(" {}", argv[i]) : std::string("./rewind memory");
  return run_program(app, argc, argv, [&] {
    const int failed = run(options, report);
    conclude(options, report);
    check(failed == 0, "memory", "all rows must run, {} failed", failed);
  });
}
