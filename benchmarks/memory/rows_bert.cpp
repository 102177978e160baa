// Largest batches in 8 GiB. A batch fits when a dry run whose blocks are limited to 8 GiB ends:
// parameters, gradients, Adam's state, activations, workspaces, padding and holes between them.
#include "benchmarks/memory/rows.h"
#include "benchmarks/memory/workloads.h"
#include "planner/forecast/largest.h"

namespace rw::memory {

namespace {

constexpr uint64_t limit = uint64_t{8} << 30;
constexpr double asked_for = 8;  // ratio to the plain batch

struct Model {
  BertWorkload options;
  double reached;  // ratio to the plain batch, by bert4keras

  Workload at(int64_t batch) const {
    BertWorkload o = options;
    o.batch = batch;
    return bert_workload(o);
  }
};

// The cheapest choice at this batch that fits; nothing if none does.
std::optional<Result> cheapest(const RowOptions& o, const Model& model, int64_t batch) {
  Bench bench("bert", model.at(batch), o.profile, 48);
  return bench.fitting(limit);
}

void measure_bert(const RowOptions& o, Report& report, const Model& model) {
  const auto largest_batch = [&](const StepSettings& way, int64_t guess) {
    return largest_within(
        [&](int64_t n) { return peak_within(model.at(n), o.profile, way, limit); }, limit, guess);
  };
  const int64_t plain = largest_batch({}, 4);
  const int64_t block = largest_batch({.checkpoint = "block"}, 4 * plain);
  add(o, report, Bench("bert", model.at(plain), o.profile).plain());
  add(o, report, Bench("bert", model.at(block), o.profile).block());

  const std::string what = fmt::format("{}, {} tokens, {}", model.at(1).about.model,
                                       model.options.length, name(model.options.dtype));
  for (const double ratio : {model.reached, asked_for}) {
    if (o.measured && ratio != asked_for) continue;
    const auto batch = static_cast<int64_t>(ratio * static_cast<double>(plain));
    const auto r = cheapest(o, model, batch);
    if (r) add(o, report, *r);
    const double most = ratio == model.reached ? 0.12 : 0.25;
    report.bars.push_back(
        {.row = "bert",
         .what = fmt::format("{}: {:.0f}x the plain batch of {}", what, ratio, plain),
         .theirs = ratio == model.reached ? "+25 % time a sample" : "",
         .bar = fmt::format("<= {} FLOPs a sample", percent(most)),
         .ours = r ? fmt::format("{} FLOPs at batch {}", percent(r->recompute), batch) : "no plan",
         .met = r && r->recompute <= most});
  }
}

}  // namespace

void bert_row(const RowOptions& o, Report& report) {
  for (const char* preset : {"base", "large"})
    for (const int64_t length : {128, 512})
      for (const DType dtype : {DType::f32, DType::f16}) {
        if (o.measured && (length != 128 || dtype != DType::f32)) continue;
        const bool base = preset == std::string("base");
        measure_bert(o, report,
                     {.options = {.preset = preset, .length = length, .dtype = dtype},
                      .reached = base ? 3.0 : 4.0});
      }
}

}  // namespace rw::memory
