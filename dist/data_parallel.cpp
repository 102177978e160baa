#include "dist/data_parallel.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/base/hash.h"
#include "core/base/rng.h"
#include "dist/gradient_sums.h"
#include "dist/parameter_parts.h"
#include "ops/operators.h"
#include "optim/accumulation/gradient_hooks.h"

namespace rw {

namespace {

// [ranks, n]: the f32 [n] of all ranks.
Tensor gathered(Communicator& ranks, const Tensor& own) {
  const std::vector<float> here = own.to_vector();
  const std::vector<float> all = gather(ranks, std::span<const float>(here));
  Tensor t = empty({ranks.size(), own.numel()}, DType::f32, own.device().shared_from_this());
  t.copy_from(std::span<const float>(all));
  return t;
}

// Makes batch norms normalise over the rows of all ranks, as Lockstep's do over those of its parts,
// to the bit. Every rank keeps running statistics of its own, which are the same.
class JointStatistics : public StatisticsExchange {
 public:
  explicit JointStatistics(Communicator& ranks) : ranks_(ranks) {}
  int64_t rows(int64_t own) override;
  BatchStatistics combine(BatchStatistics own) override;
  Tensor sum(Tensor own) override;

 private:
  Communicator& ranks_;
  std::vector<int64_t> rows_;  // by rank, of the batch norm that runs
};

// Makes batch norms normalise over the rows of their own rank. Statistics for the running
// statistics are kept until share(), which takes in those of all ranks in their order, as one
// process would that has their micro-batches one after the other.
class OwnStatistics : public StatisticsExchange {
 public:
  explicit OwnStatistics(Communicator& ranks) : ranks_(ranks) {}
  int64_t rows(int64_t own) override { return own; }
  BatchStatistics combine(BatchStatistics own) override { return own; }
  Tensor sum(Tensor own) override { return own; }
  void update(const RunningStatistics& running, const BatchStatistics& batch) override;

  // Called once per micro-batch, also on ranks that have none. RankError if ranks ran other norms.
  void share();

 private:
  Communicator& ranks_;
  std::vector<RunningStatistics> running_;  // of the batch norms, in the order in which they run
  std::vector<BatchStatistics> batches_;    // statistics of this rank to take in
};

int64_t JointStatistics::rows(int64_t own) {
  rows_ = gather(ranks_, own);
  return std::accumulate(rows_.begin(), rows_.end(), int64_t{0});
}

BatchStatistics JointStatistics::combine(BatchStatistics own) {
  const NoGrad guard;
  const int64_t channels = own.mean.numel();
  const Tensor all = gathered(ranks_, concat({own.mean, own.var, own.rest}, 0));
  std::vector<BatchStatistics> parts;
  for (size_t rank = 0; rank < rows_.size(); ++rank) {
    const Tensor part = reshape(select(all, 0, static_cast<int64_t>(rank)), {3, channels});
    parts.push_back({select(part, 0, 0), select(part, 0, 1), rows_[rank], select(part, 0, 2)});
  }
  return combine_statistics(parts);
}

Tensor JointStatistics::sum(Tensor own) {
  const NoGrad guard;
  const Tensor all = gathered(ranks_, own);
  Tensor total = select(all, 0, 0);
  for (int64_t rank = 1; rank < ranks_.size(); ++rank) total = total + select(all, 0, rank);
  return reshape(total, own.shape());
}

void OwnStatistics::update(const RunningStatistics& running, const BatchStatistics& batch) {
  if (batches_.size() == running_.size()) running_.push_back(running);
  running_[batches_.size()] = running;
  batches_.push_back(batch);
}

void OwnStatistics::share() {
  const NoGrad guard;
  std::vector<int64_t> rows;
  TensorList parts;
  for (const BatchStatistics& batch : std::exchange(batches_, {})) {
    rows.push_back(batch.rows);
    parts.push_back(batch.mean);
    parts.push_back(batch.var);
  }
  const std::vector<int64_t> counts = gather(ranks_, static_cast<int64_t>(rows.size()));
  const auto most = static_cast<size_t>(std::ranges::max(counts));
  if (most == 0) return;
  const bool agree = std::ranges::all_of(
      counts, [&](int64_t n) { return n == 0 || static_cast<size_t>(n) == most; });
  check<RankError>(agree && running_.size() == most, "data_parallel",
                   "all ranks must run the same batch norms, got {} and {} of them", most,
                   running_.size());
  int64_t values = 0;
  for (const RunningStatistics& one : running_) values += 2 * one.mean.numel();
  const Tensor own = rows.empty() ? zeros({values}) : concat(std::move(parts), 0);
  rows.resize(most);
  const std::vector<int64_t> all_rows = gather(ranks_, std::span<const int64_t>(rows));
  const Tensor all = gathered(ranks_, own);
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    int64_t at = static_cast<int64_t>(rank) * values;
    for (size_t i = 0; counts[rank] > 0 && i < most; ++i) {
      const int64_t channels = running_[i].mean.numel();
      const Tensor mean = make_view(all, {channels}, {1}, at);
      const Tensor var = make_view(all, {channels}, {1}, at + channels);
      update_running(running_[i], {mean, var, all_rows[rank * most + i]});
      at += 2 * channels;
    }
  }
}

}  // namespace

// Exchanges gradients, running statistics and random numbers.
class DataParallel::Exchange : public GradientSums {
 public:
  Exchange(Communicator& ranks, const FlatParameters& parameters,
           const GradientSumsOptions& options, std::shared_ptr<OwnStatistics> statistics)
      : GradientSums(ranks, parameters, options),
        statistics_(std::move(statistics)),
        hooks_(parameters.slots(), [this](size_t slot, const Tensor&) { take(slot); }) {
    next_stream_ = default_generator().next_stream() + static_cast<uint64_t>(ranks.rank());
    default_generator().begin_stream(next_stream_);
  }

  void add(const std::vector<bool>& counts) override {
    GradientSums::add(counts);
    if (statistics_) statistics_->share();
    next_stream_ += static_cast<uint64_t>(ranks().size());
    default_generator().begin_stream(next_stream_);
  }

  std::vector<float> all(float own) override {
    check<RankError>(!parts_ || !parts_->is_gathered(), "data_parallel",
                     "gathered parameters must be released before training continues");
    return GradientSums::all(own);
  }
  // Sends away the parameters that forward fetched. They are not part of the next step, so that all
  // steps are alike and place their values as the last one did (StepLayouts).
  void end_pass() override {
    GradientSums::end_pass();
    if (parts_) parts_->drop();
  }
  void share_parameters() override {
    if (parts_) return parts_->end_window();
    GradientSums::share_parameters();
  }

  void keep_parts(const FlatParameters& parameters, const StreamOptions& options) {
    parts_ = std::make_unique<ParameterParts>(ranks(), thread(), parameters, options);
  }
  ParameterParts* parts() const { return parts_.get(); }

 private:
  std::unique_ptr<ParameterParts> parts_;      // null: all ranks have all parameters
  std::shared_ptr<OwnStatistics> statistics_;  // null: of all ranks already
  uint64_t next_stream_ = 0;
  GradientHooks hooks_;
};

namespace {

// Everything that results depend on: if one rank rounded, scaled or skipped otherwise, the ranks
// would drift apart.
std::vector<Claim> claims_of(const Accumulate& optimizer, const DataParallelOptions& options) {
  const FlatParameters& parameters = optimizer.parameters();
  const DeviceInfo& device = parameters.device().info();
  const bool voids_window = optimizer.overflow() == Accumulate::Overflow::voids_window;
  std::vector<Claim> claims = {
      {"the device", fmt::format("{} {} ({})", device.backend, device.name, device.driver),
       "devices and drivers of other kinds round differently: give all ranks one kind"},
      {"the device's features", fmt::format("{}", fmt::join(device.features, ", "))},
      {"the device's tuning", device.tuning.empty() ? "none" : device.tuning},
      {"micro-batches per window", std::to_string(optimizer.micro_batches())},
      {"what an overflow voids", voids_window ? "the window" : "its micro-batch"},
      {"the loss scale", loss_scale_text(optimizer.scaler())},
      {"exact_batch_norm", options.exact_batch_norm ? "true" : "false"},
      {"bucket_bytes", std::to_string(options.bucket_bytes)},
      {"transport", std::string(name(options.transport))},
      {"gathered_bytes", std::to_string(options.gathered_bytes)},
      {"optimizer state", parameters.shard() ? "in parts" : "whole"}};
  if (parameters.device().backend().is_dry()) return claims;  // there are no values
  for (const FlatParameters::Slot& slot : parameters.slots()) {
    const std::vector<float> values = slot.parameter.to_vector();
    claims.push_back({slot.name, fmt::format("{} {} {:016x}", name(slot.parameter.dtype()),
                                             slot.parameter.shape().str(),
                                             fnv1a(std::as_bytes(std::span(values))))});
  }
  return claims;
}

}  // namespace

DataParallel::DataParallel(Accumulate& optimizer, Communicator& ranks,
                           const DataParallelOptions& options)
    : optimizer_(optimizer),
      is_exact_(options.exact_batch_norm),
      exceptions_(std::uncaught_exceptions()) {
  if (ranks.size() == 1) return;
  check_alike(ranks, claims_of(optimizer, options));
  auto own = is_exact_ ? nullptr : std::make_shared<OwnStatistics>(ranks);
  exchange_ = std::make_shared<Exchange>(ranks, optimizer.parameters(),
                                         GradientSumsOptions{.bucket_bytes = options.bucket_bytes,
                                                             .transport = options.transport,
                                                             .overlaps = !is_exact_},
                                         own);
  optimizer.set_exchange(exchange_);
  const std::optional<Shard>& shard = optimizer.parameters().shard();
  if (shard && shard->gathered_bytes > 0)
    exchange_->keep_parts(
        optimizer.parameters(),
        {.most_bytes = static_cast<uint64_t>(options.gathered_bytes), .ahead = !is_exact_});
  if (is_exact_)
    statistics_.emplace(std::make_shared<JointStatistics>(ranks));
  else
    statistics_.emplace(std::move(own));
}

DataParallel::~DataParallel() {
  if (!exchange_ || optimizer_.position() > 0) return;
  // A rank that fails does not wait for the others.
  if (exchange_->parts() && std::uncaught_exceptions() == exceptions_) {
    try {
      exchange_->parts()->gather();
    } catch (...) {  // another rank has failed: reading values that are away is an error
    }
  }
  optimizer_.set_exchange(nullptr);
}

DataParallel::Gathered::Gathered(DataParallel& parallel) : parallel_(parallel) {
  if (parallel.exchange_ && parallel.exchange_->parts()) parallel.exchange_->parts()->gather();
}

DataParallel::Gathered::~Gathered() {
  if (parallel_.exchange_ && parallel_.exchange_->parts()) parallel_.exchange_->parts()->release();
}

Traffic DataParallel::traffic() const {
  if (!exchange_) return {};
  Traffic traffic = exchange_->traffic();
  if (exchange_->parts()) exchange_->parts()->add_to(traffic);
  return traffic;
}

bool DataParallel::skip() {
  check<AutogradError>(!is_exact_, "data_parallel",
                       "with exact_batch_norm every rank must run every step");
  check<AutogradError>(!exchange_ || !exchange_->parts(), "data_parallel",
                       "with parameters in parts every rank must run every step");
  optimizer_.backward(Tensor(), 0);
  return optimizer_.step();
}

void check_alike(Communicator& ranks, const std::vector<Claim>& claims) {
  std::string text;
  for (const Claim& claim : claims) text += claim.what + '\n' + claim.value + '\n';
  const std::vector<uint64_t> hashes = gather(ranks, fnv1a(std::as_bytes(std::span(text))));
  size_t other = 0;
  while (other < hashes.size() && hashes[other] == hashes[0]) ++other;
  if (other == hashes.size()) return;
  // All ranks have seen that some differ. Now they show their claims.
  std::vector<std::string> lines;
  for (const Claim& claim : claims) lines.push_back(claim.what + ": " + claim.value);
  const size_t count = std::ranges::max(gather(ranks, lines.size()));
  lines.resize(count, "nothing more");
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::vector<std::string> all = gather_texts(ranks, lines[i]);
    const std::string remedy = i < claims.size() ? claims[i].remedy : Claim().remedy;
    if (all[0] == all[other]) continue;
    const auto shown = [](const std::string& text) {
      return text.size() > 200 ? fmt::format("{:.200}...", text) : text;
    };
    fail<RankError>("ranks",
                    "all ranks must have the same, got '{}' on rank 0 and '{}' on rank {}; {}",
                    shown(all[0]), shown(all[other]), other, remedy);
  }
}

}  // namespace rw
