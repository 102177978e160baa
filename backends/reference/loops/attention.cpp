#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/reference/kernels.h"
#include "backends/reference/random.h"

namespace rw::reference {

using namespace kernels;

namespace {

constexpr double no_score = -std::numeric_limits<double>::infinity();

// Returns the start of row `row` of head `head` of batch element `batch` in a tensor with these
// strides.
uint64_t row_at(const uint32_t (&stride)[3], uint64_t batch, uint64_t head, uint64_t row) {
  return batch * stride[0] + head * stride[1] + row * stride[2];
}

// Applies dropout to x: a dropped value is 0, whatever it was.
double kept(double x, double factor) {
  return factor == 0 ? 0 : x * factor;
}

uint64_t key_head(const AttentionParams& p, uint64_t head) {
  return head / ATTENTION_GROUP(p);
}

// The scores and weights of one query at a time.
class Rows {
 public:
  Rows(const Call& call, size_t mask)
      : p_(call.params<AttentionParams>()),
        q_(call.in(0)),
        k_(call.in(1)),
        mask_(call.in(mask)),
        lengths_(call.in(mask + 1)),
        dim_(ATTENTION_DIM(p_)) {}

  std::vector<double> scores(uint64_t batch, uint64_t head, uint64_t query) const {
    const std::vector<double> q = q_.to_doubles(row_at(p_.q_stride, batch, head, query), dim_);
    std::vector<double> scores(p_.keys, no_score);
    for (uint64_t key = first_key(batch, query); key < key_count(batch); ++key) {
      const int64_t behind = distance(query, key);
      if (!is_seen(behind)) continue;
      const uint64_t at = row_at(p_.k_stride, batch, key_head(p_, head), key);
      double s = 0;
      for (uint64_t d = 0; d < dim_; ++d) s += q[d] * k_.get(at + d);
      s *= p_.scale;
      if (has(ATTENTION_ALIBI))
        s -= double{mask_.get(row_at(p_.mask_stride, batch, head, 0))} *
             static_cast<double>(std::abs(behind));
      else if (has(ATTENTION_MASK))
        s += mask_.get(row_at(p_.mask_stride, batch, head, query) + key);
      scores[key] = s < ATTENTION_NO_SCORE ? no_score : s;
    }
    return scores;
  }

  // Returns the factors by which dropout multiplies the weights.
  std::vector<double> factors(uint64_t batch, uint64_t head, uint64_t query) const {
    std::vector<double> factors(p_.keys, 1);
    if (p_.keep == 1) return factors;
    const auto row = static_cast<uint32_t>(1 + (batch * p_.heads + head) * p_.queries + query);
    for (uint32_t key = 0; key < p_.keys; ++key) {
      const auto words = philox({p_.counter, 0, row, key / 4}, {p_.seed_lo, p_.seed_hi});
      const float uniform = static_cast<float>(words[key % 4] >> 8) * 0x1p-24f;
      factors[key] = uniform < p_.keep ? 1 / double{p_.keep} : 0;
    }
    return factors;
  }

 private:
  bool has(uint32_t flag) const { return (ATTENTION_FLAGS(p_) & flag) != 0; }

  uint64_t key_count(uint64_t batch) const {
    if (!has(ATTENTION_LENGTHS)) return p_.keys;
    return std::min<uint64_t>(p_.keys, std::max(0, lengths_.geti(batch)));
  }

  uint64_t first_key(uint64_t batch, uint64_t query) const {
    return has(ATTENTION_STARTS)
               ? static_cast<uint64_t>(std::max(0, lengths_.geti(batch * p_.queries + query)))
               : 0;
  }

  // Returns how far the key lies behind the query.
  int64_t distance(uint64_t query, uint64_t key) const {
    const int64_t shift =
        has(ATTENTION_LOWER_RIGHT) ? int64_t{p_.keys} - int64_t{p_.queries} : int64_t{0};
    return static_cast<int64_t>(query) + shift - static_cast<int64_t>(key);
  }

  bool is_seen(int64_t behind) const {
    if (has(ATTENTION_CAUSAL) && behind < 0) return false;
    return std::abs(behind) < int64_t{p_.window};
  }

  AttentionParams p_;
  Elements q_, k_, mask_, lengths_;
  uint64_t dim_;
};

// Returns the first element of a query's row of dense [batch, queries, heads, dim].
uint64_t query_row(const AttentionParams& p, uint64_t batch, uint64_t head, uint64_t query) {
  return ((batch * p.queries + query) * p.heads + head) * ATTENTION_DIM(p);
}

// The weights (before dropout) and the gradients of the masked scores of one query. The gradient of
// a score that does not count is 0, whatever its key holds.
struct Gradients {
  std::vector<double> weights, factors, scores;
};

Gradients gradients(const Call& call, const Rows& rows, uint64_t batch, uint64_t head,
                    uint64_t query) {
  const auto p = call.params<AttentionParams>();
  const Elements v = call.in(2), dout = call.in(3), stats = call.in(4);
  const uint64_t row = (batch * p.heads + head) * p.queries + query;
  const double lse = stats.get(2 * row), delta = stats.get(2 * row + 1);
  const std::vector<double> dy =
      dout.to_doubles(query_row(p, batch, head, query), ATTENTION_DIM(p));
  Gradients g{rows.scores(batch, head, query), rows.factors(batch, head, query), {}};
  for (double& w : g.weights) w = w == no_score ? 0 : std::exp(w - lse);
  for (uint64_t key = 0; key < p.keys; ++key) {
    double dweight = 0;
    for (uint64_t d = 0; d < ATTENTION_DIM(p); ++d)
      dweight += dy[d] * v.get(row_at(p.v_stride, batch, key_head(p, head), key) + d);
    const double weight = g.weights[key];
    g.scores.push_back(weight == 0 ? 0 : weight * (kept(dweight, g.factors[key]) - delta));
  }
  return g;
}

void add_scaled(std::vector<double>& sum, uint64_t sum_at, double factor, const Elements& x,
                uint64_t at, uint64_t count) {
  if (factor == 0) return;
  for (uint64_t i = 0; i < count; ++i) sum[sum_at + i] += factor * x.get(at + i);
}

// Writes dq from element `first` of the result on.
void write_dq(const Call& call, uint64_t first) {
  const auto p = call.params<AttentionParams>();
  const Rows rows(call, 5);
  const Elements k = call.in(1);
  Elements dq = call.out(7);
  for (uint64_t batch = 0; batch < p.batch; ++batch)
    for (uint64_t head = 0; head < p.heads; ++head)
      for (uint64_t query = 0; query < p.queries; ++query) {
        const Gradients g = gradients(call, rows, batch, head, query);
        std::vector<double> sum(ATTENTION_DIM(p));
        for (uint64_t key = 0; key < p.keys; ++key)
          add_scaled(sum, 0, g.scores[key] * p.scale, k,
                     row_at(p.k_stride, batch, key_head(p, head), key), ATTENTION_DIM(p));
        for (uint64_t d = 0; d < ATTENTION_DIM(p); ++d)
          dq.set(first + query_row(p, batch, head, query) + d, static_cast<Real>(sum[d]));
      }
}

}  // namespace

void attention(const Call& call) {
  const auto p = call.params<AttentionParams>();
  const Rows rows(call, 3);
  const Elements v = call.in(2);
  Elements out = call.out(5), lse = call.out(6);
  for (uint64_t batch = 0; batch < p.batch; ++batch)
    for (uint64_t head = 0; head < p.heads; ++head)
      for (uint64_t query = 0; query < p.queries; ++query) {
        const std::vector<double> scores = rows.scores(batch, head, query);
        const std::vector<double> factors = rows.factors(batch, head, query);
        const double top = *std::max_element(scores.begin(), scores.end());
        const double base = top == no_score ? 0 : top;
        double total = 0;
        std::vector<double> sum(ATTENTION_DIM(p));
        for (uint64_t key = 0; key < p.keys; ++key) {
          const double weight = scores[key] == no_score ? 0 : std::exp(scores[key] - base);
          total += weight;
          add_scaled(sum, 0, kept(weight, factors[key]), v,
                     row_at(p.v_stride, batch, key_head(p, head), key), ATTENTION_DIM(p));
        }
        for (uint64_t d = 0; d < ATTENTION_DIM(p); ++d)
          out.set(query_row(p, batch, head, query) + d,
                  static_cast<Real>(total == 0 ? 0 : sum[d] / total));
        lse.set((batch * p.heads + head) * p.queries + query,
                total == 0 ? -ATTENTION_NO_SCORE : static_cast<Real>(base + std::log(total)));
      }
}

void attention_delta(const Call& call) {
  const auto p = call.params<AttentionDeltaParams>();
  const Elements out = call.in(0), dout = call.in(1), lse = call.in(2);
  Elements stats = call.out(3);
  for (uint64_t row = 0; row < p.rows; ++row) {
    const uint64_t query = row % p.queries, head = row / p.queries;
    const uint64_t at = ((head / p.heads * p.queries + query) * p.heads + head % p.heads) * p.dim;
    double total = 0;
    for (uint64_t d = 0; d < p.dim; ++d) total += double{out.get(at + d)} * dout.get(at + d);
    stats.set(2 * row, lse.get(row));
    stats.set(2 * row + 1, static_cast<Real>(total));
  }
}

void attention_dq(const Call& call) {
  write_dq(call, 0);
}

void attention_dkv(const Call& call) {
  const auto p = call.params<AttentionParams>();
  const Rows rows(call, 5);
  const Elements q = call.in(0), dout = call.in(3);
  Elements dkv = call.out(7);
  const uint64_t dim = ATTENTION_DIM(p), group = ATTENTION_GROUP(p), key_heads = p.heads / group;
  const uint64_t half = uint64_t{p.batch} * p.keys * key_heads * dim;
  for (uint64_t batch = 0; batch < p.batch; ++batch)
    for (uint64_t key_head = 0; key_head < key_heads; ++key_head) {
      std::vector<double> dk(uint64_t{p.keys} * dim), dv(dk.size());
      for (uint64_t head = key_head * group; head < (key_head + 1) * group; ++head)
        for (uint64_t query = 0; query < p.queries; ++query) {
          const Gradients g = gradients(call, rows, batch, head, query);
          for (uint64_t key = 0; key < p.keys; ++key) {
            add_scaled(dk, key * dim, g.scores[key] * p.scale, q,
                       row_at(p.q_stride, batch, head, query), dim);
            add_scaled(dv, key * dim, kept(g.weights[key], g.factors[key]), dout,
                       query_row(p, batch, head, query), dim);
          }
        }
      for (uint64_t key = 0; key < p.keys; ++key)
        for (uint64_t d = 0; d < dim; ++d) {
          const uint64_t at = ((batch * p.keys + key) * key_heads + key_head) * dim + d;
          dkv.set(at, static_cast<Real>(dk[key * dim + d]));
          dkv.set(half + at, static_cast<Real>(dv[key * dim + d]));
        }
    }
}

void attention_grad(const Call& call) {
  const auto p = call.params<AttentionParams>();
  const uint64_t key_heads = p.heads / ATTENTION_GROUP(p);
  attention_dkv(call);
  write_dq(call, 2 * uint64_t{p.batch} * p.keys * key_heads * ATTENTION_DIM(p));
}

void attention_dmask(const Call& call) {
  const auto p = call.params<AttentionParams>();
  const Rows rows(call, 5);
  Elements dmask = call.out(7);
  const bool sums_rows = p.mask_stride[2] == 0;
  const uint64_t batches = !sums_rows && p.mask_stride[0] == 0 ? 1 : p.batch;
  const uint64_t heads = !sums_rows && p.mask_stride[1] == 0 ? 1 : p.heads;
  const uint64_t queries = sums_rows ? 1 : p.queries;
  std::vector<double> sums(batches * heads * queries * p.keys);
  for (uint64_t batch = 0; batch < p.batch; ++batch)
    for (uint64_t head = 0; head < p.heads; ++head)
      for (uint64_t query = 0; query < p.queries; ++query) {
        const Gradients g = gradients(call, rows, batch, head, query);
        const uint64_t row = (batch % batches * heads + head % heads) * queries + query % queries;
        for (uint64_t key = 0; key < p.keys; ++key) sums[row * p.keys + key] += g.scores[key];
      }
  for (uint64_t i = 0; i < sums.size(); ++i) dmask.set(i, static_cast<Real>(sums[i]));
}

}  // namespace rw::reference
