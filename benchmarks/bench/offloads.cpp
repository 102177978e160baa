// Recomputation alone against plans that may also keep values in host memory or in 8 bits: the time
// on top of a step at the same bytes, for the networks of `./rewind memory`, by dry runs on the
// profile of a GPU. Copies are charged as if nothing else ran meanwhile.
#include <fmt/format.h>

#include "benchmarks/bench/bench.h"
#include "benchmarks/memory/measure.h"
#include "benchmarks/memory/workloads.h"
#include "trainer/program/shared_options.h"

namespace rw::bench {

namespace {

using namespace rw::memory;

struct OffloadNetwork {
  const char* row;  // of `./rewind memory`
  Workload workload;
};

std::vector<OffloadNetwork> offload_networks() {
  std::vector<OffloadNetwork> all;
  for (const int k : {1, 5, 10, 15, 19})
    all.push_back({"openai", cifar_workload(k, 1280, false, DType::f32)});
  for (const bool norm : {false, true})
    all.push_back({"depth122", cifar_workload(20, 128, norm, DType::f32)});
  all.push_back({"resnet50", resnet50_workload(184, DType::f32)});
  for (const DType dtype : {DType::f32, DType::f16}) {
    all.push_back({"bert", bert_workload({.preset = "base", .batch = 744, .dtype = dtype})});
    all.push_back(
        {"bert", bert_workload({.preset = "large", .batch = 40, .length = 512, .dtype = dtype})});
  }
  all.push_back({"decoder", gpt_workload({.n_positions = 4096}, 1, 4096)});
  all.push_back({"resnet1001", resnet1001_workload(32, DType::f32)});
  all.push_back({"chain", chain_workload(40'000, 100'000)});
  return all;
}

// The modelled time of forward and backward in all steps of the program, as FLOPs.
double step_cost(const Candidate& plain) {
  double sum = 0;
  for (const Phase phase : {Phase::forward, Phase::backward}) {
    const Work& work = plain.forecast.work[static_cast<size_t>(phase)];
    sum += OpCost{work.flops, work.bytes}.total();
  }
  return sum;
}

std::string figures(const Candidate& choice, double step) {
  return fmt::format(" {:.0f} | {:+.1f} % |", megabytes(choice.peak()), 100 * choice.cost / step);
}

// Returns how many rows have values elsewhere that make the step slower than recomputation alone.
size_t compare_offloads(const OffloadNetwork& network, const Profile& profile,
                        const std::vector<double>& shares, const AutoRecomputeOptions& options) {
  AutoRecomputeOptions alone = options;
  alone.host_bytes = 0;
  alone.keep_8_bits = false;
  const auto program = [&] { network.workload.run(); };
  Search recompute(profile.open, program, alone), both(profile.open, program, options);
  const double step = step_cost(recompute.plain());
  const Case& about = network.workload.about;
  size_t above = 0;
  for (const double share : shares) {
    const auto bytes = static_cast<uint64_t>(share * static_cast<double>(recompute.plain().peak()));
    const auto within = [&](Search& search) -> std::optional<Candidate> {
      if (search.candidates().back().peak() > bytes) return std::nullopt;
      return search.budget(bytes);
    };
    const auto less = within(recompute), more = within(both);
    fmt::print("| {} | {} {} | {} | {} | {} | {:.0f} |", network.row, about.model, about.depth,
               about.batch, about.input, variant(about), megabytes(bytes));
    fmt::print("{}", less ? figures(*less, step) : " - | - |");
    fmt::print("{}", more ? figures(*more, step) : " - | - |");
    fmt::print(" {:.0f} | {:.0f} |\n", more ? megabytes(more->forecast.memory.host_peak) : 0,
               more ? megabytes(more->plan.in_8_bits) : 0);
    std::fflush(stdout);
    above += less && (!more || more->cost > less->cost);
  }
  return above;
}

}  // namespace

Run offloads(CLI::App& app) {
  app.description(
      "Plans that recompute values or keep them in host memory or in 8 bits, against "
      "recomputation.");
  struct Options {
    std::string profile = "nvk-ampere.json";
    std::string host = "64GiB", only;
    std::vector<double> shares = {0.5, 0.25, 0.15, 0.1, 0.07};
    double effort = 2;
    bool keep_8_bits = false;
  };
  const auto o = std::make_shared<Options>();
  shared_option(app, "--profile", o->profile)->capture_default_str();
  app.add_option("--host", o->host, "the most host memory, or 0")->capture_default_str();
  shared_option(app, "--share", o->shares)->check(CLI::Range(0.0, 1.0));
  shared_option(app, "--row", o->only, "one of `./rewind memory`");
  app.add_option("--effort", o->effort, "of each search")->capture_default_str();
  shared_flag(app, "--keep-8-bits", o->keep_8_bits);
  return [o] {
    const Profile profile = open_profile(o->profile);
    const HostBandwidth copies = profile.open()->info().host_bandwidth;
    fmt::print(
        "Profile {}; copies at {:.1f} GB/s to the host and {:.1f} GB/s back, of at most {}{}.\n\n"
        "| row | model | batch | input | variant | budget MB | recompute: peak MB | time on top | "
        "more ways: peak MB | time on top | host MB | in 8 bits MB |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        profile.name, copies.to_host / 1e9, copies.from_host / 1e9, o->host,
        o->keep_8_bits ? "; values may be kept in 8 bits" : "");
    size_t above = 0;
    for (const OffloadNetwork& network : offload_networks())
      if (o->only.empty() || network.row == o->only)
        above += compare_offloads(network, profile, o->shares,
                                  {.effort = o->effort,
                                   .host_bytes = o->host == "0" ? 0 : parse_bytes(o->host),
                                   .keep_8_bits = o->keep_8_bits});
    fmt::print("\n{} budgets in which these ways made a step slower.\n", above);
  };
}

}  // namespace rw::bench
