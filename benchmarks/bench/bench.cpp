// Measurements that stand by themselves, each a subcommand: `./rewind bench NAME`. Most write the
// rows of a table in benchmarks/results/.
#include "benchmarks/bench/bench.h"

#include <utility>

#include "trainer/program/program.h"

namespace rw::bench {

Tensor data(const Shape& shape, DType dtype) {
  const PurposeScope scope(Purpose::data);
  return zeros(shape, dtype);
}

double mib(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

namespace {

constexpr std::pair<const char*, Run (*)(CLI::App&)> all[] = {
    {"data_parallel", data_parallel}, {"eight_bits", eight_bits},
    {"lora_step", lora_step},         {"model_choices", model_choices},
    {"models_fit", models_fit},       {"offloads", offloads},
    {"op_overhead", op_overhead},     {"plain_step", plain_step},
    {"plan_costs", plan_costs},       {"sharding", sharding}};

}  // namespace

}  // namespace rw::bench

int main(int argc, char** argv) {
  using namespace rw::bench;
  CLI::App app("Benchmarks, each with its own --help; of kernels and steps: benchmarks/speed.py.");
  app.require_subcommand(1);
  Run run;
  for (const auto& [name, add_to] : all) {
    CLI::App& command = *app.add_subcommand(name);
    command.callback([&run, body = add_to(command)] { run = body; });
  }
  return rw::run_program(app, argc, argv, [&] { run(); });
}
