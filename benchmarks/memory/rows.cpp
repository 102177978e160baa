#include "benchmarks/memory/rows.h"

#include "backends/open.h"
#include "benchmarks/memory/workloads.h"

namespace rw::memory {

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"real", "small networks, really run: predicted peaks are the measured ones", true, real_row},
      {"openai", "CIFAR ResNet v2 of depth 6k + 2, batch 1280, against OpenAI's curve", true,
       openai_row},
      {"depth122", "the same at depth 122, batch 128", true, depth122_row},
      {"resnet50", "ResNet-50, batch 184, against MONeT", false, resnet50_row},
      {"bert", "largest batches of BERT-base and -large in 8 GiB", false, bert_row},
      {"resnet1001", "1001 layers at 224 x 224, against Chen et al. 2016", false, resnet1001_row},
      {"chain", "40 000 ops on 100 000 floats in 64 MB", false, chain_row},
      {"steps", "ResNet-20 and -56, BERT-mini and a small decoder", false, steps_row},
      {"decoder", "GPT-2's 12 layers over 4096 tokens", false, decoder_row},
      {"language", "language models at their published shapes, 2048 tokens", false, language_row},
  };
  return all;
}

const Result& add(const RowOptions& options, Report& report, Result result) {
  if (options.measured) run_really(result, options.device);
  if (options.note) options.note(result);
  return report.results.emplace_back(std::move(result));
}

Result add_budget(const RowOptions& options, Report& report, Bench& bench, uint64_t bytes) {
  if (options.profile.times)
    if (auto quickest = bench.try_budget(bytes, true)) add(options, report, std::move(*quickest));
  const auto cheapest = bench.try_budget(bytes);
  return add(options, report, cheapest ? *cheapest : bench.least());
}

void add_front(const RowOptions& options, Report& report, Bench& bench) {
  if (options.measured) return;
  for (Result& choice : bench.front()) add(options, report, std::move(choice));
}

void add_ways(const RowOptions& options, Report& report, Bench& bench) {
  const Result plain = add(options, report, bench.plain());
  add(options, report, bench.block());
  add(options, report, bench.memory());
  for (const uint64_t part : {2, 3})
    add_budget(options, report, bench, plain.peak - plain.tape.saved_bytes / part * (part - 1));
}

std::string percent(double share) {
  return fmt::format("{:+.1f} %", 100 * share);
}

void add_bar(Report& report, const Result& ours, std::string what, std::string theirs,
             uint64_t bytes, double most_recompute) {
  std::string bar = fmt::format("<= {:.0f} MB", megabytes(bytes));
  if (most_recompute > 0) bar += fmt::format(" at <= {} FLOPs", percent(most_recompute));
  report.bars.push_back(
      {.row = ours.row,
       .what = std::move(what),
       .theirs = std::move(theirs),
       .bar = std::move(bar),
       .ours = fmt::format("{:.0f} MB at {} FLOPs", megabytes(ours.peak), percent(ours.recompute)),
       .met = ours.peak <= bytes && (most_recompute == 0 || ours.recompute <= most_recompute)});
}

std::vector<std::string> mispredictions(const Report& report) {
  std::vector<std::string> lines;
  for (const Result& r : report.results) {
    if (!r.real) continue;
    const TapeStats &dry = r.tape, &real = r.real->tape;
    const bool same_tape = dry.records == real.records && dry.saved_tensors == real.saved_tensors &&
                           dry.saved_bytes == real.saved_bytes;
    if (r.real->peak == r.peak && same_tape) continue;
    lines.push_back(
        fmt::format("{} {} {} ({}): predicted {} bytes and {} records, measured {} "
                    "and {}",
                    r.row, r.about.model, r.about.depth, r.method, r.peak, dry.records,
                    r.real->peak, real.records));
  }
  return lines;
}

void real_row(const RowOptions& given, Report& report) {
  RowOptions o = given;
  o.profile = open_profile(o.device);
  o.measured = true;
  const int64_t batch = o.all ? 16 : 8;
  std::vector<Workload> workloads;
  for (const int k : {1, 3, 5}) workloads.push_back(cifar_workload(k, batch, false, DType::f32));
  workloads.push_back(cifar_workload(2, batch, true, DType::f16));
  workloads.push_back(bert_workload({.preset = "tiny", .batch = 4, .dtype = DType::f32}));
  for (const Workload& workload : workloads) {
    Bench bench("real", workload, o.profile);
    const uint64_t plain = add(o, report, bench.plain()).peak;
    add(o, report, bench.block());
    add(o, report, bench.memory());
    add(o, report, bench.nested());
    add_budget(o, report, bench, plain * 2 / 3);
  }
}

void depth122_row(const RowOptions& o, Report& report) {
  for (const bool norm : {false, true}) {
    Bench bench("depth122", cifar_workload(20, 128, norm, DType::f32), o.profile, 24);
    add_front(o, report, bench);
    add(o, report, bench.plain());
    add(o, report, bench.block());
    add(o, report, bench.memory());
    const Result r = add_budget(o, report, bench, 230 * MB);
    if (!norm) add_bar(report, r, "depth 122, batch 128", "236.5 MB", 230 * MB, 0);
  }
}

void resnet50_row(const RowOptions& o, Report& report) {
  Bench bench("resnet50", resnet50_workload(184, DType::f32), o.profile, 64);
  add_front(o, report, bench);
  const uint64_t plain = add(o, report, bench.plain()).peak;
  add(o, report, bench.block());
  add(o, report, bench.memory());
  add(o, report, bench.speed());
  struct Point {
    uint64_t bytes;
    const char* theirs;
    double most;
  };
  for (const auto& [bytes, theirs, most] : {Point{10'010 * MB, "10.01 GB at +3.2 % time", 0.032},
                                            {8'010 * MB, "8.01 GB at +5.6 %", 0.056},
                                            {6'000 * MB, "6.00 GB at +9.3 %", 0.093},
                                            {plain / 3, "3x at about +12 %", 0.12},
                                            {4'990 * MB, "4.99 GB at +12.0 %", 0.12}}) {
    const std::string what =
        fmt::format("ResNet-50 in {:.2f} GB", static_cast<double>(bytes) / 1e9);
    add_bar(report, add_budget(o, report, bench, bytes), what, theirs, bytes, most);
  }
}

void resnet1001_row(const RowOptions& o, Report& report) {
  // Real runs must fit: plain steps of 32 images need 44 GB.
  const bool small =
      o.measured && open_backend("dry:" + o.device)->info().memory_bytes < 50'000 * MB;
  Bench bench("resnet1001", resnet1001_workload(small ? 8 : 32, DType::f32), o.profile, 16);
  if (o.measured) return add_ways(o, report, bench);
  add_front(o, report, bench);
  add(o, report, bench.plain());
  add(o, report, bench.block());
  add(o, report, bench.memory());
  add(o, report, bench.speed());
  add(o, report, bench.nested());
  for (const uint64_t bytes : {6000 * MB, 4000 * MB})
    add_bar(report, add(o, report, bench.budget(bytes)), "1001 layers, batch 32",
            "48 GB to 7 GB at +30 % time", bytes, 0.3);
}

void chain_row(const RowOptions& o, Report& report) {
  constexpr int64_t ops = 40'000, elements = 100'000;
  const uint64_t limit = 64 * MB;
  Bench bench("chain", chain_workload(ops, elements), o.profile, 12);
  add(o, report, bench.plain());
  add(o, report, bench.block(200));
  add(o, report, bench.nested(100));
  const Result r = add(o, report, bench.budget(limit));
  report.bars.push_back({.row = "chain",
                         .what = "40 000 ops on 100 000 floats",
                         .theirs = "runs in a GTX 1070 Ti's 8 GB",
                         .bar = "<= 64 MB",
                         .ours = fmt::format("{:.1f} MB at {} modelled time", megabytes(r.reserved),
                                             percent(r.modelled)),
                         .met = r.reserved <= limit});
}

void steps_row(const RowOptions& o, Report& report) {
  const GptConfig decoder{.vocab_size = 8000, .n_positions = 256, .n_embd = 256, .n_head = 4};
  for (const Workload& workload :
       {cifar_workload(3, 64, true, DType::f32), cifar_workload(9, 64, true, DType::f32),
        bert_workload({.preset = "mini", .batch = 16}), gpt_workload(decoder, 4, 256)}) {
    Bench bench("steps", workload, o.profile, 24);
    add_ways(o, report, bench);
  }
}

void decoder_row(const RowOptions& o, Report& report) {
  constexpr int64_t tokens = 4096;
  Bench bench("decoder", gpt_workload({.n_positions = tokens}, 1, tokens), o.profile, 24);
  add_ways(o, report, bench);
}

}  // namespace rw::memory
