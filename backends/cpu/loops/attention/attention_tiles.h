// The common part of attention and its gradients: tiles of scores, of up to 64 keys (rows) by 64
// queries (columns), so that no query needs a sum across the lanes of a register.
#pragma once

#include "../halves.h"
#include "../philox.h"
#include "../product.h"

namespace rw::cpu::REWIND_LEVEL {

constexpr int64_t span = 64;  // most queries and keys of a tile

struct alignas(64) Square {
  float at[span][span];
};
// Rows of heads, each of up to `ATTENTION_MAX_DIM` elements, or the transpose of such rows.
struct alignas(64) Panel {
  float at[span * ATTENTION_MAX_DIM];
};

// Calls f(i) for i in [0, count), a register at a time; count is a multiple of `lanes`.
template <class F>
inline void each_lane(int64_t count, F f) {
  for (int64_t at = 0; at < count; at += lanes) {
    REWIND_VECTORIZE
#pragma GCC unroll 1
    for (int64_t i = 0; i < lanes; ++i) f(at + i);
  }
}

// Rows [first, first + count) of a head.
struct HeadRows {
  Operand x;
  int64_t first, stride;  // in elements

  // Returns f32 rows of `wide` elements, with zeros after their own, where they are or in `buffer`.
  Rows read(int64_t count, int64_t dim, int64_t wide, Panel& buffer) const {
    if (x.dtype == DType::f32 && dim == wide) return {x.as<float>(first), stride};
    for (int64_t row = 0; row < count; ++row) {
      float* const to = buffer.at + row * wide;
      const float* from = REWIND_LEVEL::read(x, first + row * stride, dim, to);
      for (int64_t c = 0; c < dim && from != to; ++c) to[c] = from[c];
      for (int64_t c = dim; c < wide; ++c) to[c] = 0;
    }
    return {buffer.at, wide};
  }
  // Calls body(rows) with the first row as elements of its type, which load() converts.
  template <class Body>
  void with_elements(const Body& body) const {
    if (x.dtype == DType::f16) return body(x.as<const Half>(first));
    if (x.dtype == DType::bf16) return body(x.as<const Brain>(first));
    body(x.as<const float>(first));
  }
};

// Queries [first, first + count) of a head.
struct Queries {
  int64_t batch, head, first, count;
  int64_t wide() const { return divide_up(count, lanes) * lanes; }
};
struct Keys {
  int64_t first, count;
};

// A call of attention or of one of its gradients.
class Attention {
 public:
  // `mask` is its binding; the lengths have the next one.
  Attention(const LoopCall& call, size_t mask)
      : p_(params<AttentionParams>(call)),
        q_(operand(call, 0)),
        k_(operand(call, 1)),
        v_(operand(call, 2)),
        mask_(operand(call, mask).as<float>()),
        lengths_(operand(call, mask + 1).as<int32_t>()) {}

  const AttentionParams& p() const { return p_; }
  int64_t dim() const { return ATTENTION_DIM(p_); }
  int64_t wide() const { return divide_up(dim(), lanes) * lanes; }  // the width of rows as f32
  int64_t key_head(int64_t head) const { return head / ATTENTION_GROUP(p_); }

  HeadRows q(const Queries& q) const { return rows(q_, p_.q_stride, q.batch, q.head, q.first); }
  HeadRows k(int64_t batch, int64_t key_head, int64_t first) const {
    return rows(k_, p_.k_stride, batch, key_head, first);
  }
  HeadRows v(int64_t batch, int64_t key_head, int64_t first) const {
    return rows(v_, p_.v_stride, batch, key_head, first);
  }
  // Returns the rows of one head in a dense tensor [batch, queries, heads, dim].
  HeadRows dense(const Operand& x, const Queries& q) const {
    const int64_t row = (q.batch * p_.queries + q.first) * p_.heads + q.head;
    return {x, row * dim(), p_.heads * dim()};
  }
  // Returns the queries' first row in a tensor [batch, heads, queries].
  int64_t query_row(const Queries& q) const {
    return (q.batch * p_.heads + q.head) * p_.queries + q.first;
  }

  // Calls body(queries) for all tiles of queries, in parallel.
  template <class Body>
  void each_tile_of_queries(const Body& body) const {
    const int64_t tiles = divide_up(p_.queries, span), heads = p_.heads;
    parallel_for(tiles * heads * p_.batch, work(), [&](int64_t i) {
      const int64_t first = i % tiles * span;
      body(Queries{i / tiles / heads, i / tiles % heads, first, least(span, p_.queries - first)});
    });
  }
  // Returns the bytes of all scores, or of the rows that they are made of, if these are more.
  int64_t work() const {
    const int64_t heads = int64_t{p_.batch} * p_.heads;
    const int64_t scores = heads * p_.queries * p_.keys * int64_t{sizeof(float)};
    const int64_t rows = heads * p_.keys * dim() * (k_.width + v_.width);
    return scores > rows ? scores : rows;
  }

  int64_t key_count(int64_t batch) const {
    if (!has(ATTENTION_LENGTHS)) return p_.keys;
    const int64_t length = lengths_[batch];
    return least(p_.keys, length < 0 ? 0 : length);
  }
  // Tells whether no query sees any of the keys.
  bool is_unseen(const Queries& q, const Keys& k) const {
    const int64_t most = behind(q.first + q.count - 1, k.first);
    const int64_t smallest = behind(q.first, k.first + k.count - 1);
    return (has(ATTENTION_CAUSAL) && most < 0) || smallest >= p_.window || -most >= p_.window ||
           starts_after(q, k.first + k.count - 1);
  }

  // Sets x [dim, queries] to the transposed rows of the queries, times `factor`.
  void turn(const HeadRows& rows, const Queries& q, float factor, Panel& x, Panel& buffer) const;
  // Computes s [keys, queries] from transposed queries; `keys` has the rows of k.
  void score(const Queries& q, const Keys& k, const Panel& turned, const Rows& keys,
             Square& s) const;
  // The same of one query, as generation has it, whose scores are in all lanes.
  void score_one(const Queries& q, const Keys& k, const float* query, const HeadRows& keys,
                 Square& s) const;
  bool drops() const { return p_.keep != 1; }
  // Sets the factors by which dropout multiplies the weights.
  void factors(const Queries& q, const Keys& k, Square& f) const;

 private:
  bool has(uint32_t flag) const { return (ATTENTION_FLAGS(p_) & flag) != 0; }
  // Returns the first keys that the queries may see.
  const int32_t* starts(const Queries& q) const {
    return lengths_ + q.batch * p_.queries + q.first;
  }
  // Tells whether all queries start behind the key.
  bool starts_after(const Queries& q, int64_t key) const {
    if (!has(ATTENTION_STARTS)) return false;
    const int32_t* const first = starts(q);
    int32_t least_start = first[0];
    for (int64_t i = 1; i < q.count; ++i)
      least_start = first[i] < least_start ? first[i] : least_start;
    return least_start > key;
  }
  // Returns how far the key lies behind the query.
  int64_t behind(int64_t query, int64_t key) const {
    const int64_t shift = has(ATTENTION_LOWER_RIGHT) ? int64_t{p_.keys} - int64_t{p_.queries} : 0;
    return query + shift - key;
  }
  static HeadRows rows(const Operand& x, const uint32_t (&stride)[3], int64_t batch, int64_t head,
                       int64_t row) {
    return {x, batch * stride[0] + head * stride[1] + row * stride[2], stride[2]};
  }
  void adjust(const Queries& q, const Keys& k, Square& s) const;
  void add_mask(const Queries& q, const Keys& k, Square& s) const;
  void add_distance(const Queries& q, const Keys& k, Square& s) const;
  void hide_unseen(const Queries& q, const Keys& k, Square& s) const;
  void hide_earlier(const Queries& q, const Keys& k, Square& s) const;

  const AttentionParams& p_;
  Operand q_, k_, v_;
  const float* mask_;
  const int32_t* lengths_;
};

// Applies dropout to x: a dropped value is 0, whatever it was.
inline void drop(const Queries& q, const float* factor, float* x) {
  each_lane(q.wide(), [=](int64_t i) {
    const float kept = x[i] * factor[i];
    x[i] = factor[i] == 0.0f ? 0.0f : kept;
  });
}

}  // namespace rw::cpu::REWIND_LEVEL
