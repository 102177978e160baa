//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dkv:T:write
//! types: T = f16
//! params: AttentionParams
//! define: FACTORS=f16,bf16
//! local: 8 subgroups
//! grid: groups
//! requires: subgroup float16 cooperative
//! reference: none
// The same as `attention_dkv`, by a workgroup per tile, with cooperative matrices: rows are keys, columns are queries.
#define SUMS_TILES 2
#include "attention_cooperative.glsl"

#define GRADIENTS (ROWS * STRIDE)  // in panels, after the weights
SumMatrix dk[RESULTS * MATRICES], dv[RESULTS * MATRICES];
DEFINE_PRODUCTS(key_products, 0, WORD_K, WORD_Q)
DEFINE_PRODUCTS(gradient_products, SUMS, WORD_V, WORD_DOUT)
DEFINE_ACCUMULATE(add_gradients, dv, 0, WORD_DOUT)
DEFINE_ACCUMULATE(add_queries, dk, GRADIENTS, WORD_Q)

// Computes the kept weights of the tile's queries from `query` on, and the gradients of their scores without the scale,
// so that 16-bit floats hold more of them. Takes four keys by two queries at a time, since one draw is for four keys.
void weigh(Work w, uint query, uint end, uint count) {
  const uint stats = (w.batch * p.heads + w.head) * p.queries;
  barrier();
  for (uint task = thread; task < ROWS / 4 * COLUMNS / 2; task += THREADS) {
    const uint row = task / (COLUMNS / 2) * 4, column = task % (COLUMNS / 2) * 2, key = w.row + row;
    float weights[4][2], gradients[4][2];
    [[unroll]] for (uint j = 0; j < 2; ++j) {
      const uint at = query + column + j, stat = stats + min(at, p.queries - 1);
      const float lse = load_stats(2 * stat), delta = load_stats(2 * stat + 1);
      const uint kept = p.keep == 1.0 ? 15 : draw(w, at, key);
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        const float s = sum_of(0, row + i, column / 4)[column % 4 + j], ds = sum_of(1, row + i, column / 4)[column % 4 + j];
        const float weight = at < end ? exp(score(w, s, at, key + i, count) - lse) : 0.0;
        weights[i][j] = drop(weight, kept, i);
        gradients[i][j] = score_gradient(weight, drop(ds, kept, i), delta);
      }
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      const uint to = (row + i) * STRIDE + column / 8;
      panels[to][column / 2 % 4] = pack_factors(vec2(weights[i][0], weights[i][1]));
      panels[GRADIENTS + to][column / 2 % 4] = pack_factors(vec2(gradients[i][0], gradients[i][1]));
    }
  }
}

// Adds the part of the queries of one head.
void add_head(Work w) {
  const uint count = key_count(w.batch), begin = query_begin(w.row);
  // Keys that do not count have no gradient.
  const uint end = w.row < count ? query_end(w.row, ROWS) : begin;
  const Rows q = query_rows(w), k = key_rows(w, p.keys), v = value_rows(w, p.keys), dout = gradient_rows(w);
  for (uint t = begin; t < end; t += COLUMNS) {
    key_products(k, w.row, q, t);
    gradient_products(v, w.row, dout, t);
    weigh(w, t, end, count);
    add_gradients(dout, t, end - t);
    add_queries(q, t, end - t);
  }
}

void main() {
  const uint heads = p.heads / GROUP;
  const Work tile = find_work(p.keys, heads);
  if (!tile.exists) return;
  CLEAR(dk)
  CLEAR(dv)
  for (uint member = 0; member < GROUP; ++member) {
    Work w = tile;
    w.head = tile.head * GROUP + member;
    add_head(w);
  }
  const uint key = tile.row + my_row, row = (tile.batch * p.keys + key) * heads + tile.head;
  const uint dv_part = p.batch * p.keys * heads * DIM;
#define STORE(acc, first, factor)                                                                     \
  FOR_RESULTS(r) {                                                                                    \
    PUT_RESULTS(acc, r)                                                                               \
    FOR_MY_PIECES(c) {                                                                                \
      const uint column = r * 64 + c * 8;                                                             \
      if (key < p.keys && column < DIM)                                                               \
        store8_dkv((first) + row * DIM + column, factor * sum_of(0, my_row, 2 * c),                   \
                   factor * sum_of(0, my_row, 2 * c + 1));                                            \
    }                                                                                                 \
  }
  STORE(dk, 0, p.scale)
  STORE(dv, dv_part, 1.0)
}
