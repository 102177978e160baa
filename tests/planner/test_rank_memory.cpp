// Planning for ranks: predictions come true for each of them, and batches fit on all.
#include <map>
#include <optional>

#include "backends/open.h"
#include "dist/step_ranks.h"
#include "dist/world/thread_ranks.h"
#include "io/models/model.h"
#include "models/bert.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "optim/adam.h"
#include "planner/choices/remedies.h"
#include "planner/forecast/fit.h"
#include "planner/forecast/rank_memory.h"
#include "planner/forecast/savings.h"
#include "tests/fixtures/optim_fixture.h"
#include "tests/fixtures/tape_fixture.h"

using namespace rw;
using test::contains;
using test::CpuDevice;
using test::message_of;

namespace {

constexpr int64_t rank_width = 24;
thread_local Communicator* thread_ranks = nullptr;  // of a rank that is a thread

// Layers of unequal sizes, so that parts are unequal, too.
class Steps : public TrainingSteps {
 public:
  explicit Steps(const StepSettings& settings)
      : settings_(settings),
        ranks_(settings, thread_ranks ? *thread_ranks : world()),
        model_(make_model()),
        optimizer_(AdamW(ranks_.placed(model_->parameters())), settings.accumulate),
        parallel_(ranks_.share(optimizer_)) {
    optimizer_.set_max_norm(1);
  }

  void dry_step(const BatchShape& shape) override {
    optimizer_.backward(
        mean(square((*model_)(zeros({shape.rows_or(settings_.batch), rank_width})))));
    optimizer_.step();
    optimizer_.zero_grad();
    default_device()->end_step();
  }
  void save_weights(bool is_first) override {
    std::optional<DataParallel::Gathered> whole;
    if (parallel_) whole.emplace(*parallel_);
    if (is_first) copy_as_file(*model_);
  }

 private:
  static std::unique_ptr<Sequential> make_model() {
    auto model = std::make_unique<Sequential>();
    model->emplace<Linear>(rank_width, 8 * rank_width);
    model->emplace<GELU>();
    model->emplace<Linear>(8 * rank_width, rank_width);
    model->emplace<Linear>(rank_width, rank_width);
    return model;
  }

  const StepSettings settings_;
  StepRanks ranks_;
  const std::unique_ptr<Sequential> model_;
  Accumulate optimizer_;
  std::unique_ptr<DataParallel> parallel_;
};

TrainingProgram program(const StepSettings& settings) {
  TrainingProgram program = {
      .make = [](const StepSettings& s) { return std::make_unique<Steps>(s); },
      .settings = settings,
      .saves = true};
  program.words["shard"] = "--shard states";
  return program;
}

// Returns the real peaks, each on a device of its own.
std::vector<uint64_t> real_peaks(const StepSettings& settings) {
  std::vector<uint64_t> peaks(static_cast<size_t>(settings.ranks));
  const std::vector<StepSettings> by_rank = settings_by_rank(settings);
  run_ranks(settings.ranks, [&](Communicator& ranks) {
    const auto rank = static_cast<size_t>(ranks.rank());
    const auto device = Device::create(open_backend("reference"));
    const DeviceScope scope(device);
    thread_ranks = &ranks;
    {
      Steps steps(by_rank[rank]);
      for (uint32_t i = 0; i < 3 * settings.accumulate; ++i) steps.dry_step({});
      steps.save_weights(rank == 0);
      device->end_step();
    }
    thread_ranks = nullptr;
    peaks[rank] = device->memory_report().peak;
  });
  return peaks;
}

}  // namespace

TEST_CASE("rank memory: the table of ranks, and what it leaves out") {
  std::vector<MemoryReport> ranks(16);
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i].peak = 4096 + 1024 * (i * 7 % 16);
  const auto lines = [&] {
    const std::string table = rank_table(ranks);
    return std::count(table.begin(), table.end(), '\n');
  };
  CHECK(lines() == 2 + 16);
  CHECK(neediest_rank(ranks) == 9);
  ranks.push_back({});
  ranks.back().peak = 1024;
  CHECK(lines() == 2 + 2);
  CHECK(contains(rank_table(ranks), "  9 "));
  CHECK(contains(rank_table(ranks), "  most\n"));
  CHECK(contains(rank_table(ranks), "  16 "));
  CHECK(contains(rank_table(ranks), "  least\n"));
  for (MemoryReport& rank : ranks) rank.peak = 1024;
  CHECK(lines() == 2 + 2);
  CHECK(!contains(rank_table(ranks), "most"));
  CHECK(!contains(rank_table(ranks), "least"));
}

TEST_CASE("rank memory: the batches of samples in order") {
  const auto rows = [](int64_t samples, int64_t batch) {
    std::vector<int64_t> all;
    for (const BatchShape& shape : batches_of(samples)(batch)) all.push_back(shape.rows);
    return all;
  };
  using Rows = std::vector<int64_t>;
  CHECK(rows(10, 10) == Rows{10});
  CHECK(rows(10, 3) == Rows{3, 1});
  CHECK(rows(9, 3) == Rows{3});
  CHECK(rows(2, 3) == Rows{2});
}

TEST_CASE_FIXTURE(CpuDevice, "rank memory: what each rank needs is predicted to the byte" *
                                 doctest::test_suite("host")) {
  for (const std::string& shard : sharding_words())
    for (const int ranks : {2, 3, 5}) {
      CAPTURE(shard);
      CAPTURE(ranks);
      const StepSettings settings{.batch = 4, .accumulate = 2, .ranks = ranks, .shard = shard};
      const Planner planner(program(settings));
      const auto memory = memory_of(planner, settings_by_rank(settings), 2);
      const std::vector<uint64_t> real = real_peaks(settings);
      REQUIRE(memory.size() == real.size());
      for (size_t rank = 0; rank < real.size(); ++rank) CHECK(memory[rank].peak == real[rank]);
      const auto most = std::ranges::max_element(real) - real.begin();
      CHECK(neediest_rank(memory) == most);
      // Among three ranks the last one needs most, and the largest batch is its batch.
      StepSettings one = settings, largest = settings;
      one.batch = 1;
      const int neediest = neediest_rank(memory_of(planner, settings_by_rank(one), 2));
      CHECK(largest_batch_of_ranks(planner, largest, 1 << 20, 4) > 0);
      if (ranks == 3) CHECK(largest.rank == neediest);
      CHECK((rank_table(memory).find("most") != std::string::npos) == (shard != "none"));
    }
}

// The table of words is two thirds of BERT-mini.
TEST_CASE_FIXTURE(CpuDevice,
                  "rank memory: ranks keep equal parts of a model that is mostly a table" *
                      doctest::test_suite("host")) {
  const int64_t row = row_elements(11'000'000);
  constexpr uint64_t gaps = 16 << 10;  // parameters begin at multiples of 8 elements
  for (const char* shard : {"states", "parameters"}) {
    CAPTURE(shard);
    std::vector<uint64_t> states, parameters;
    for (int rank = 0; rank < 4; ++rank)
      dry_run(open_backend("dry:reference"), [&] {
        const StepRanks ranks({.rank = rank, .ranks = 4, .shard = shard});
        const BertForPreTraining model(BertConfig::preset("mini"));
        Accumulate optimizer(AdamW(ranks.placed(model.parameters())), 1);
        const auto parallel = ranks.share(optimizer);
        const MemoryReport report = default_device()->memory_report();
        states.push_back(report.live_by_purpose[static_cast<size_t>(Purpose::optimizer)]);
        parameters.push_back(report.live_by_purpose[static_cast<size_t>(Purpose::parameter)]);
      });
    const auto spread = [](const std::vector<uint64_t>& bytes) {
      return std::ranges::max(bytes) - std::ranges::min(bytes);
    };
    CHECK(spread(states) <= 2 * static_cast<uint64_t>(row) * sizeof(float) + gaps);
    CHECK(spread(parameters) <= static_cast<uint64_t>(row) * sizeof(float) + gaps);
    const uint64_t all = uint64_t{11'000'000} * sizeof(float);
    CHECK(states[0] > all / 2);
    CHECK(states[0] < all / 2 + all / 20);
    CHECK((parameters[0] < all / 3) == (shard == std::string("parameters")));
  }
}

TEST_CASE_FIXTURE(CpuDevice,
                  "rank memory: the largest batches fit on every rank, and no larger ones do" *
                      doctest::test_suite("host")) {
  const StepSettings settings{.batch = 4, .ranks = 4};
  const Planner planner(program(settings));
  const uint64_t bytes = 400 << 10;
  const auto fits = [&](StepSettings tried, int64_t batch) {
    tried.batch = batch;
    for (const StepSettings& one : settings_by_rank(tried)) try {
        planner.forecast(one, {.memory = DryMemory::blocks_of_device, .memory_limit = bytes});
      } catch (const OutOfMemory&) {
        return false;
      }
    return true;
  };
  const std::vector<FitRow> rows =
      fit(planner, bytes, {.dtypes = {DType::f32}, .shards = sharding_words(), .candidates = 2});
  std::map<std::string, int64_t> largest;
  for (const FitRow& row : rows) {
    CAPTURE(row.mode);
    CHECK(row.settings.batch > 0);
    CHECK(fits(row.settings, row.settings.batch));
    CHECK_FALSE(fits(row.settings, row.settings.batch + 1));
    int64_t& most = largest[row.settings.shard];
    most = std::max(most, row.settings.batch);
  }
  CHECK(largest.at("none") > 0);
  CHECK(largest.at("states") > largest.at("none"));
  CHECK(largest.at("parameters") > 0);
  const std::string table = fit_table(rows, bytes);
  CHECK(contains(table, "in 400.00 KiB on each of 4 ranks"));
  CHECK(contains(table, "states"));
}

TEST_CASE_FIXTURE(CpuDevice,
                  "rank memory: savings and remedies know ranks" * doctest::test_suite("host")) {
  StepSettings settings{.batch = 2, .accumulate = 2, .ranks = 4, .shard = "states"};
  const Planner planner(program(settings));
  const std::vector<Saving> savings = attribute_savings(planner);
  CHECK(savings.back().technique == "parts instead of all on each rank");
  CHECK(savings.back().peak == planner.peak(settings));
  CHECK(savings.back().peak < savings[savings.size() - 2].peak);
  settings.shard = "none";
  const uint64_t limit =
      planner.forecast(settings, {.memory = DryMemory::unlimited}).memory.peak_reserved - 4096;
  const std::string text = remedies_text(Planner(program(settings)), settings, limit);
  CHECK(contains(text, "--shard states"));
}

TEST_CASE_FIXTURE(CpuDevice, "rank memory: settings of ranks that are not there are refused" *
                                 doctest::test_suite("host")) {
  CHECK(contains(message_of<ValueError>([] { StepRanks({.ranks = 2}); }),
                 "[ranks] the settings must be of this rank, 0 of 1, got 0 of 2"));
  CHECK(contains(message_of<ValueError>([] { StepRanks({.shard = "everything"}); }),
                 "must be none or states or parameters, got 'everything'"));
  CHECK_THROWS_AS(
      dry_run(open_backend("dry:reference"), [] { StepRanks({.rank = 2, .ranks = 2}); }),
      ValueError);
}
