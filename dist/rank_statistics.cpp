#include "dist/rank_statistics.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "ops/operators.h"

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

}  // namespace

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

}  // namespace rw
