//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dkv:T:write
//! types: T = f16
//! params: AttentionParams
//! define: FACTORS=f16,bf16
//! local: 8 subgroups
//! grid: groups
//! requires: subgroup float16 cooperative
//! reference: none
// The same as `attention_dkv`, by a workgroup per tile, with cooperative matrices: rows are keys, columns are queries.
#include "attention/attention_cooperative.glsl"

#define GRADIENTS (ROWS * STRIDE)  // in panels, after the weights
SumMatrix dk[RESULTS * MATRICES], dv[RESULTS * MATRICES];
DEFINE_PRODUCTS(key_products, WORD_K, WORD_Q)
DEFINE_PRODUCTS(gradient_products, WORD_V, WORD_DOUT)
DEFINE_ACCUMULATE(add_gradients, dv, 0, WORD_DOUT)
DEFINE_ACCUMULATE(add_queries, dk, GRADIENTS, WORD_Q)

// A thread takes four keys by two queries at a time, since one draw is for four keys.
#define TASKS (ROWS / 4 * COLUMNS / 2 / THREADS)
#define FOR_MY_TASKS(n, row, column)                                                                  \
  [[unroll]] for (uint n = 0, row = thread / (COLUMNS / 2) * 4, column = thread % (COLUMNS / 2) * 2; n < TASKS; \
                  ++n, row += THREADS / (COLUMNS / 2) * 4)
vec4 weights[2 * TASKS];  // [task][query][key]
uint kept[2 * TASKS];     // [task][query], by bits: is the key kept?

// Takes the weights of the tile's queries from `query` on from their products.
void weigh(Work w, uint query, uint end, uint count) {
  const uint stats = (w.batch * p.heads + w.head) * p.queries;
  barrier();
  FOR_MY_TASKS(n, row, column)
    [[unroll]] for (uint j = 0; j < 2; ++j) {
      const uint at = query + column + j, key = w.row + row;
      const float lse = load_stats(2 * (stats + min(at, p.queries - 1)));
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        const float s = sum_of(row + i, column / 4)[column % 4 + j];
        weights[2 * n + j][i] = at < end ? exp(score(w, s, at, key + i, count) - lse) : 0.0;
      }
      kept[2 * n + j] = p.keep == 1.0 ? 15 : draw(w, at, key);
    }
}

// Puts the kept weights into panels, and the gradients of their scores without the scale, so that 16-bit floats hold
// more of them.
void differentiate(Work w, uint query) {
  const uint stats = (w.batch * p.heads + w.head) * p.queries;
  vec4 gradients[2 * TASKS];
  barrier();
  FOR_MY_TASKS(n, row, column)
    [[unroll]] for (uint j = 0; j < 2; ++j) {
      const float delta = load_stats(2 * (stats + min(query + column + j, p.queries - 1)) + 1);
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        const float ds = sum_of(row + i, column / 4)[column % 4 + j];
        gradients[2 * n + j][i] = score_gradient(weights[2 * n + j][i], drop(ds, kept[2 * n + j], i), delta);
      }
    }
  barrier();
  FOR_MY_TASKS(n, row, column)
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      const uint to = (row + i) * STRIDE + column / 8;
      const vec2 both = vec2(drop(weights[2 * n][i], kept[2 * n], i), drop(weights[2 * n + 1][i], kept[2 * n + 1], i));
      panels[to][column / 2 % 4] = pack_factors(both);
      panels[GRADIENTS + to][column / 2 % 4] = pack_factors(vec2(gradients[2 * n][i], gradients[2 * n + 1][i]));
    }
}

// Adds the part of the queries of one head.
void add_head(Work w) {
  const uint count = key_count(w.batch), begin = query_begin(w.row);
  // Keys that do not count have no gradient.
  const uint end = w.row < count ? query_end(w.batch, w.row, ROWS) : begin;
  const Rows q = query_rows(w), k = key_rows(w, p.keys), v = value_rows(w, p.keys), dout = gradient_rows(w);
  for (uint t = begin; t < end; t += COLUMNS) {
    key_products(k, w.row, q, t);
    weigh(w, t, end, count);
    gradient_products(v, w.row, dout, t);
    differentiate(w, t);
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
    FOR_MY_PIECES(n, c) {                                                                             \
      const uint column = r * 64 + c * 8;                                                             \
      if (key < p.keys && column < DIM)                                                               \
        store8_dkv((first) + row * DIM + column, factor * sum_of(my_row, 2 * c),                   \
                   factor * sum_of(my_row, 2 * c + 1));                                            \
    }                                                                                                 \
  }
  STORE(dk, 0, p.scale)
  STORE(dv, dv_part, 1.0)
}
