// The gradients of attention, each of which recomputes the weights of a tile.
#include "backends/cpu/loops/attention/attention_tiles.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// A tile of queries, with the values that a tile of keys needs of it.
struct Turned {
  Panel q, dout;
};
// The gradients of one tile: the weights (before dropout until it is applied), and the gradients of
// the masked scores. The gradient of a score that does not count is 0, whatever its key holds.
struct Gradients {
  Square weights, scores;
};

class AttentionGrad : public Attention {
 public:
  explicit AttentionGrad(const LoopCall& call)
      : Attention(call, 5), dout_(operand(call, 3)), stats_(operand(call, 4).as<float>()) {}

  HeadRows dout(const Queries& q) const { return dense(dout_, q); }
  int64_t key_heads() const { return p().heads / ATTENTION_GROUP(p()); }
  // Returns the elements of the gradients of all keys, after which those of the values come.
  int64_t half() const { return int64_t{p().batch} * p().keys * key_heads() * dim(); }
  // Returns the gradients of the keys from `first` on.
  HeadRows keys_rows(const Operand& dkv, int64_t batch, int64_t key_head, int64_t first) const {
    const int64_t heads = key_heads();
    return {dkv, ((batch * p().keys + first) * heads + key_head) * dim(), heads * dim()};
  }

  void turn_all(const Queries& q, Turned& t) const {
    Panel buffer;
    turn(this->q(q), q, p().scale, t.q, buffer);
    turn(dout(q), q, 1, t.dout, buffer);
  }

  void make(const Queries& q, const Keys& k, const Turned& t, const Rows& keys, const Rows& values,
            Gradients& g) const {
    alignas(64) float lse[span], delta[span];
    const int64_t wide = q.wide();
    for (int64_t i = 0; i < wide; ++i) {
      const bool is_query = i < q.count;
      lse[i] = is_query ? stats_[2 * (query_row(q) + i)] : 0;
      delta[i] = is_query ? stats_[2 * (query_row(q) + i) + 1] : 0;
    }
    score(q, k, t.q, keys, g.weights);
    product<false>(k.count, wide, dim(), {values.at, values.step, 1}, t.dout.at, span,
                   g.scores.at[0], span);
    Square kept;
    if (drops()) factors(q, k, kept);
    for (int64_t key = 0; key < k.count; ++key) {
      float *const weights = g.weights.at[key], *const scores = g.scores.at[key];
      const float *const l = lse, *const d = delta;
      if (drops()) drop(q, kept.at[key], scores);
      each_lane(wide, [=](int64_t i) {
        const float weight = exp(weights[i] - l[i]), score = weight * (scores[i] - d[i]);
        scores[i] = weight == 0.0f ? 0.0f : score;
        weights[i] = weight;
      });
      if (drops()) drop(q, kept.at[key], weights);
    }
  }

 private:
  Operand dout_;
  const float* stats_;
};

void write_rows(const HeadRows& to, int64_t count, int64_t dim, int64_t wide, float factor,
                float* rows) {
  for (int64_t i = 0; i < count; ++i) {
    float* const row = rows + i * wide;
    for (int64_t d = 0; d < dim; ++d) row[d] *= factor;
    write(to.x, to.first + i * to.stride, dim, row);
  }
}

// Calls body(k, rows of the keys, g) for the tiles of keys that the queries see.
template <class Body>
inline void each_tile_of_keys(const AttentionGrad& a, const Queries& q, const Body& body) {
  const int64_t wide = a.wide(), dim = a.dim(), key_head = a.key_head(q.head);
  const int64_t count = a.key_count(q.batch);
  Turned t;
  Gradients g;
  Panel keys, values;
  a.turn_all(q, t);
  for (int64_t first = 0; first < count; first += span) {
    const Keys k{first, least(span, count - first)};
    if (a.is_unseen(q, k)) continue;
    const Rows of_keys = a.k(q.batch, key_head, first).read(k.count, dim, wide, keys);
    const Rows of_values = a.v(q.batch, key_head, first).read(k.count, dim, wide, values);
    a.make(q, k, t, of_keys, of_values, g);
    body(k, of_keys, g);
  }
}

// Also calls also(k, g) for the tiles of keys.
template <class Body>
inline void queries_grad(const AttentionGrad& a, const Queries& q, Panel& dq, const Body& also) {
  const int64_t wide = a.wide();
  for (int64_t i = 0; i < q.count * wide; ++i) dq.at[i] = 0;
  each_tile_of_keys(a, q, [&](const Keys& k, const Rows& keys, const Gradients& g) {
    product<true>(q.count, wide, k.count, {g.scores.at[0], 1, span}, keys.at, keys.step, dq.at,
                  wide);
    also(k, g);
  });
}

void keys_grad(const AttentionGrad& a, int64_t batch, int64_t key_head, const Keys& k, Panel& dk,
               Panel& dv) {
  const int64_t wide = a.wide(), dim = a.dim(), group = ATTENTION_GROUP(a.p());
  Turned t;
  Gradients g;
  Panel keys, values, queries, douts;
  const Rows of_keys = a.k(batch, key_head, k.first).read(k.count, dim, wide, keys);
  const Rows of_values = a.v(batch, key_head, k.first).read(k.count, dim, wide, values);
  for (int64_t i = 0; i < k.count * wide; ++i) dk.at[i] = dv.at[i] = 0;
  for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head)
    for (int64_t first = 0; first < a.p().queries; first += span) {
      const Queries q{batch, head, first, least(span, a.p().queries - first)};
      if (a.is_unseen(q, k)) continue;
      a.turn_all(q, t);
      a.make(q, k, t, of_keys, of_values, g);
      const Rows of_queries = a.q(q).read(q.count, dim, wide, queries);
      const Rows of_dout = a.dout(q).read(q.count, dim, wide, douts);
      product<true>(k.count, wide, q.count, {g.scores.at[0], span, 1}, of_queries.at,
                    of_queries.step, dk.at, wide);
      product<true>(k.count, wide, q.count, {g.weights.at[0], span, 1}, of_dout.at, of_dout.step,
                    dv.at, wide);
    }
}

// Adds the gradient of the queries' masked scores to to[i * step + key].
void add_mask_grad(const AttentionGrad& a, const Queries& q, float* to, int64_t step) {
  each_tile_of_keys(a, q, [&](const Keys& k, const Rows&, const Gradients& g) {
    for (int64_t key = 0; key < k.count; ++key)
      for (int64_t i = 0; i < q.count; ++i) to[i * step + k.first + key] += g.scores.at[key][i];
  });
}

void write_queries_grad(const AttentionGrad& a, const Operand& dq) {
  a.each_tile_of_queries([&](const Queries& q) {
    Panel sums;
    queries_grad(a, q, sums, [](const Keys&, const Gradients&) {});
    write_rows(a.dense(dq, q), q.count, a.dim(), a.wide(), a.p().scale, sums.at);
  });
}

void write_keys_grad(const AttentionGrad& a, const Operand& dkv) {
  const AttentionParams& p = a.p();
  const int64_t heads = a.key_heads(), dim = a.dim(), tiles = divide_up(p.keys, span);
  parallel_for(p.batch * heads * tiles, a.work(), [&](int64_t i) {
    const int64_t first = i % tiles * span, head = i / tiles % heads, batch = i / tiles / heads;
    const int64_t rows = least(span, p.keys - first);
    // Keys after the last one are not read, since they have no gradient.
    const int64_t known = a.key_count(batch) - first;
    const Keys k{first, known < 0 ? 0 : least(rows, known)};
    Panel dk, dv;
    keys_grad(a, batch, head, k, dk, dv);
    for (int64_t c = k.count * a.wide(); c < rows * a.wide(); ++c) dk.at[c] = dv.at[c] = 0;
    const HeadRows to = a.keys_rows(dkv, batch, head, first);
    write_rows(to, rows, dim, a.wide(), p.scale, dk.at);
    write_rows({dkv, a.half() + to.first, to.stride}, rows, dim, a.wide(), 1, dv.at);
  });
}

// Makes all gradients of a key head, whose weights are computed once. Each sum has the terms of
// queries_grad or keys_grad in their order, and so their bits; those of keys and values grow where
// they lie, in f32.
void head_grad(const AttentionGrad& a, int64_t batch, int64_t key_head, const Operand& dkv,
               const Operand& dq) {
  const int64_t dim = a.dim(), group = ATTENTION_GROUP(a.p()), keys = a.p().keys;
  const HeadRows to = a.keys_rows(dkv, batch, key_head, 0);
  float *const dk = dkv.as<float>(to.first), *const dv = dkv.as<float>(a.half() + to.first);
  const auto each_row = [&](auto&& f) {
    for (int64_t row = 0; row < keys; ++row) f(row * to.stride);
  };
  each_row([&](int64_t at) { each(dim, [=](int64_t d) { dk[at + d] = dv[at + d] = 0; }); });
  for (int64_t head = key_head * group; head / group == key_head; ++head)
    for (int64_t first = 0; first < a.p().queries; first += span) {
      const Queries q{batch, head, first, least(span, a.p().queries - first)};
      Panel sums, queries, douts;
      const Rows of_queries = a.q(q).read(q.count, dim, dim, queries);
      const Rows of_dout = a.dout(q).read(q.count, dim, dim, douts);
      queries_grad(a, q, sums, [&](const Keys& k, const Gradients& g) {
        const int64_t at = k.first * to.stride;
        product<true>(k.count, dim, q.count, {g.scores.at[0], span, 1}, of_queries.at,
                      of_queries.step, dk + at, to.stride);
        product<true>(k.count, dim, q.count, {g.weights.at[0], span, 1}, of_dout.at, of_dout.step,
                      dv + at, to.stride);
      });
      write_rows(a.dense(dq, q), q.count, dim, dim, a.p().scale, sums.at);
    }
  const float scale = a.p().scale;
  each_row([&](int64_t at) { each(dim, [=](int64_t d) { dk[at + d] *= scale; }); });
}

}  // namespace

bool attention_dq(const LoopCall& call) {
  write_queries_grad(AttentionGrad(call), operand(call, 7));
  return true;
}

bool attention_dkv(const LoopCall& call) {
  write_keys_grad(AttentionGrad(call), operand(call, 7));
  return true;
}

bool attention_grad(const LoopCall& call) {
  const AttentionGrad a(call);
  const Operand dkv = operand(call, 7), dq = dkv.from(2 * a.half());
  const int64_t heads = a.key_heads(), tasks = a.p().batch * heads, most = cpu::threads();
  // Heads in turn need five products, not seven, but may leave threads without work.
  const bool keeps_busy = 5 * divide_up(tasks, most) * most <= 7 * tasks;
  if (keeps_busy && dkv.dtype == DType::f32 && a.dim() == a.wide()) {
    parallel_for(tasks, a.work(), [&](int64_t i) { head_grad(a, i / heads, i % heads, dkv, dq); });
  } else {
    write_queries_grad(a, dq);
    write_keys_grad(a, dkv);
  }
  return true;
}

bool attention_dmask(const LoopCall& call) {
  const AttentionGrad a(call);
  const AttentionParams& p = a.p();
  float* const dmask = operand(call, 7).as<float>();
  const bool sums_rows = p.mask_stride[2] == 0;
  const int64_t batches = !sums_rows && p.mask_stride[0] == 0 ? 1 : p.batch;
  const int64_t heads = !sums_rows && p.mask_stride[1] == 0 ? 1 : p.heads;
  const int64_t tiles = sums_rows ? 1 : divide_up(p.queries, span), keys = p.keys;
  // There is one item for each row of tiles of the result, which is summed in the order of the
  // inputs.
  parallel_for(batches * heads * tiles, a.work(), [&](int64_t item) {
    const int64_t tile = item % tiles, head = item / tiles % heads, batch = item / tiles / heads;
    const int64_t begin = tile * span, end = sums_rows ? p.queries : least(p.queries, begin + span);
    float* const to =
        dmask +
        (sums_rows ? batch * heads + head : (batch * heads + head) * p.queries + begin) * keys;
    for (int64_t i = 0; i < (sums_rows ? 1 : end - begin) * keys; ++i) to[i] = 0;
    for (int64_t b = batch; b < p.batch; b += batches)
      for (int64_t h = head; h < p.heads; h += heads)
        for (int64_t first = begin; first < end; first += span) {
          const Queries q{b, h, first, least(span, end - first)};
          add_mask_grad(a, q, to, sums_rows ? 0 : keys);
        }
  });
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
