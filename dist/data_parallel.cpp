#include "rewind/dist/data_parallel.h"

#include <fmt/format.h>

#include "rewind/core/base/hash.h"
#include "rewind/core/base/rng.h"
#include "rewind/dist/gradient_sums.h"
#include "rewind/dist/rank_statistics.h"

namespace rw {

// Gradients, running statistics and random numbers.
class DataParallel::Exchange : public GradientSums {
 public:
  Exchange(Communicator& ranks, const FlatParameters& parameters,
           const GradientSumsOptions& options, std::shared_ptr<OwnStatistics> statistics)
      : GradientSums(ranks, parameters, options), statistics_(std::move(statistics)) {
    next_stream_ = default_generator().next_stream() + static_cast<uint64_t>(ranks.rank());
    default_generator().begin_stream(next_stream_);
  }

  void add(const FlatParameters& parameters, const std::vector<bool>& counts) override {
    GradientSums::add(parameters, counts);
    if (statistics_) statistics_->share();
    next_stream_ += static_cast<uint64_t>(ranks().size());
    default_generator().begin_stream(next_stream_);
  }

 private:
  std::shared_ptr<OwnStatistics> statistics_;  // null: of all ranks already
  uint64_t next_stream_ = 0;
};

namespace {

// Names of the parameters with what their bits are.
std::vector<Claim> parameter_claims(const FlatParameters& parameters) {
  std::vector<Claim> claims = {{"optimizer state", parameters.shard() ? "in parts" : "whole"}};
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
    : optimizer_(optimizer), is_exact_(options.exact_batch_norm) {
  if (ranks.size() == 1) return;
  check_alike(ranks, parameter_claims(optimizer.parameters()));
  auto own = is_exact_ ? nullptr : std::make_shared<OwnStatistics>(ranks);
  exchange_ = std::make_shared<Exchange>(ranks, optimizer.parameters(),
                                         GradientSumsOptions{.bucket_bytes = options.bucket_bytes,
                                                             .transport = options.transport,
                                                             .overlaps = !is_exact_},
                                         own);
  optimizer.set_exchange(exchange_);
  if (is_exact_)
    statistics_.emplace(std::make_shared<JointStatistics>(ranks));
  else
    statistics_.emplace(std::move(own));
}

DataParallel::~DataParallel() {
  if (statistics_ && optimizer_.position() == 0) optimizer_.set_exchange(nullptr);
}

Traffic DataParallel::traffic() const {
  return exchange_ ? exchange_->traffic() : Traffic();
}

bool DataParallel::skip() {
  check<AutogradError>(!is_exact_, "data_parallel",
                       "with exact_batch_norm every rank must run every step");
  optimizer_.backward(Tensor(), 0);
  return optimizer_.step();
}

void check_alike(Communicator& ranks, const std::vector<Claim>& claims) {
  uint64_t hash = fnv1a_start;
  std::string text;
  for (const Claim& claim : claims) text += claim.what + '\n' + claim.value + '\n';
  hash = fnv1a(std::as_bytes(std::span(text)));
  const std::vector<uint64_t> hashes = gather(ranks, hash);
  size_t other = 0;
  while (other < hashes.size() && hashes[other] == hashes[0]) ++other;
  if (other == hashes.size()) return;
  // All ranks have seen that some differ: now they show what they have.
  std::vector<std::string> lines;
  for (const Claim& claim : claims) lines.push_back(claim.what + ": " + claim.value);
  const size_t count = std::ranges::max(gather(ranks, lines.size()));
  lines.resize(count, "nothing more");
  for (const std::string& line : lines) {
    const std::vector<std::string> all = gather_texts(ranks, line);
    if (all[0] == all[other]) continue;
    const auto shown = [](const std::string& text) {
      return text.size() > 200 ? text.substr(0, 200) + "..." : text;
    };
    fail<RankError>("ranks", "all ranks must have the same, got '{}' on rank 0 and '{}' on rank {}",
                    shown(all[0]), shown(all[other]), other);
  }
}

}  // namespace rw
