// Attention takes tiles of keys one after the other, and keeps the largest score and the sum of
// weights of each query so far (Dao et al., "FlashAttention", 2022).
#include "backends/cpu/loops/attention/attention_tiles.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// The state of a tile of queries after the tiles of keys so far.
struct Seen {
  // The largest score, and the sum of weights relative to it.
  alignas(64) float top[span], total[span];
  Panel sum;  // [queries, dim] of weights times values
};

// Turns scores into weights, relative to the largest score so far, and rescales the sums to it. A
// score that does not count is so low that its weight is 0.
void weigh(const Queries& q, int64_t keys, int64_t wide, Square& s, Seen& seen) {
  alignas(64) float shrinks[span];
  const int64_t queries = q.wide();
  float *const top = seen.top, *const total = seen.total, *const shrink = shrinks;
  for (int64_t at = 0; at < queries; at += lanes) {
    Vec most = load(top + at);
    store(shrinks + at, most);
    for (int64_t key = 0; key < keys; ++key) most = max(load(s.at[key] + at), most);
    store(top + at, most);
  }
  each_lane(queries, [=](int64_t i) {
    shrink[i] = exp_below(shrink[i] - top[i]);
    total[i] *= shrink[i];
  });
  for (int64_t i = 0; i < q.count; ++i)
    if (shrinks[i] != 1)
      for (int64_t d = 0; d < wide; ++d) seen.sum.at[i * wide + d] *= shrinks[i];
  for (int64_t key = 0; key < keys; ++key) {
    float* const row = s.at[key];
    each_lane(queries, [=](int64_t i) {
      row[i] = exp_below(row[i] - top[i]);
      total[i] += row[i];
    });
  }
}

// The same for one query, as generation has it, with a weight in each lane: no sum has another
// order.
void weigh_one(int64_t keys, int64_t wide, Square& s, Seen& seen) {
  alignas(64) float weights[span];
  float most = seen.top[0], sum = seen.total[0];
  for (int64_t key = 0; key < keys; ++key) {
    weights[key] = s.at[key][0];
    most = weights[key] > most ? weights[key] : most;
  }
  for (int64_t key = keys; key < divide_up(keys, lanes) * lanes; ++key) weights[key] = most;
  const float shrink = exp_below(seen.top[0] - most);
  seen.top[0] = most;
  sum *= shrink;
  if (shrink != 1)
    for (int64_t d = 0; d < wide; ++d) seen.sum.at[d] *= shrink;
  float* const at = weights;
  each_lane(divide_up(keys, lanes) * lanes, [=](int64_t i) { at[i] = exp_below(at[i] - most); });
  for (int64_t key = 0; key < keys; ++key) sum += s.at[key][0] = weights[key];
  seen.total[0] = sum;
}

// Adds the weights times columns [at, at + registers * lanes) of values that are converted in
// registers.
template <int registers, class T>
void add_columns(int64_t keys, const Square& s, const T* values, int64_t step, float* to) {
  Vec sums[registers] = {};
  for (int64_t key = 0; key < keys; ++key, values += step) {
    const Vec weight = all(s.at[key][0]);
#pragma GCC unroll 8
    for (int v = 0; v < registers; ++v)
      sums[v] = mul_add(weight, load(values + v * lanes), sums[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < registers; ++v) store(to + v * lanes, load(to + v * lanes) + sums[v]);
}

// Adds the weights of one query times values of whole registers.
template <class T>
void add_values(int64_t keys, int64_t wide, const Square& s, const T* values, int64_t step,
                float* to) {
  int64_t at = 0;
  const auto add = [&]<int registers>() {
    add_columns<registers>(keys, s, values + at, step, to + at);
    at += registers * lanes;
  };
  while (at + 8 * lanes <= wide) add.template operator()<8>();
  while (at + 4 * lanes <= wide) add.template operator()<4>();
  while (at < wide) add.template operator()<1>();
}

// As product() of weights and values.
void weigh_values(const Attention& a, const Queries& q, const Keys& k, const Square& s,
                  Panel& buffer, Seen& seen) {
  const int64_t wide = a.wide();
  const HeadRows values = a.v(q.batch, a.key_head(q.head), k.first);
  if (q.count == 1 && a.dim() == wide)
    return values.with_elements(
        [&](const auto* rows) { add_values(k.count, wide, s, rows, values.stride, seen.sum.at); });
  const Rows v = values.read(k.count, a.dim(), wide, buffer);
  product<true>(q.count, wide, k.count, {s.at[0], 1, span}, v.at, v.step, seen.sum.at, wide);
}

void attend(const Attention& a, const Queries& q, Seen& seen) {
  const int64_t wide = a.wide(), key_head = a.key_head(q.head), count = a.key_count(q.batch);
  Panel turned, buffer;
  Square s;
  float query[ATTENTION_MAX_DIM];
  if (q.count == 1) {
    const float factor = a.p().scale, *from = a.q(q).read(1, a.dim(), wide, buffer).at;
    for (int64_t d = 0; d < a.dim(); ++d) query[d] = factor * from[d];
  } else {
    a.turn(a.q(q), q, a.p().scale, turned, buffer);
  }
  for (int64_t i = 0; i < span; ++i) seen.top[i] = ATTENTION_NO_SCORE, seen.total[i] = 0;
  for (int64_t i = 0; i < q.count * wide; ++i) seen.sum.at[i] = 0;
  for (int64_t first = 0; first < count; first += span) {
    const Keys k{first, least(span, count - first)};
    if (a.is_unseen(q, k)) continue;
    const HeadRows keys = a.k(q.batch, key_head, first);
    if (q.count == 1) {
      a.score_one(q, k, query, keys, s);
      weigh_one(k.count, wide, s, seen);
    } else {
      a.score(q, k, turned, keys.read(k.count, a.dim(), wide, buffer), s);
      weigh(q, k.count, wide, s, seen);
    }
    if (a.drops()) {
      Square factors;
      a.factors(q, k, factors);
      for (int64_t key = 0; key < k.count; ++key) drop(q, factors.at[key], s.at[key]);
    }
    weigh_values(a, q, k, s, buffer, seen);
  }
}

}  // namespace

bool attention(const LoopCall& call) {
  const Attention a(call, 3);
  const Operand out = operand(call, 5);
  float* const lse = operand(call, 6).as<float>();
  a.each_tile_of_queries([&](const Queries& q) {
    Seen seen;
    attend(a, q, seen);
    const HeadRows to = a.dense(out, q);
    for (int64_t i = 0; i < q.count; ++i) {
      float* const row = seen.sum.at + i * a.wide();
      const float total = seen.total[i], factor = total == 0 ? 0 : 1 / total;
      for (int64_t d = 0; d < a.dim(); ++d) row[d] = total == 0 ? 0 : row[d] * factor;
      write(out, to.first + i * to.stride, a.dim(), row);
      const double sum = __builtin_log(double{total}) + double{seen.top[i]};
      lse[a.query_row(q) + i] = total == 0 ? -ATTENTION_NO_SCORE : static_cast<float>(sum);
    }
  });
  return true;
}

bool attention_delta(const LoopCall& call) {
  const auto& p = params<AttentionDeltaParams>(call);
  const Operand out = operand(call, 0), dout = operand(call, 1);
  const float* const lse = operand(call, 2).as<float>();
  float* const stats = operand(call, 3).as<float>();
  const int64_t dim = p.dim, heads = p.heads, queries = p.queries;
  parallel_for(p.rows, p.rows * dim * (out.width + dout.width), [&](int64_t row) {
    const int64_t query = row % queries, head = row / queries;
    const int64_t at = ((head / heads * queries + query) * heads + head % heads) * dim;
    Block values, grads;
    stats[2 * row] = lse[row];
    stats[2 * row + 1] = sum(
        dim, [](auto a, auto b) { return a * b; }, read(out, at, dim, values.at),
        read(dout, at, dim, grads.at));
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
