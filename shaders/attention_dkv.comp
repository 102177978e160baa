//! buffers: q:T:read k:T:read v:T:read dout:T:read stats:f32:read mask:f32:read lengths:i32:read dkv:T:write
//! types: T = f32 f16
//! params: AttentionParams
//! local: subgroup
//! address: only
//! requires: subgroup shuffle
//! prefers: int64
// Rows are keys, columns are the queries of a group of heads, one head after the other.
#include "attention.glsl"

vec4 s[ROWS], ds[ROWS];
vec4 dk[ROWS][WORDS], dv[ROWS][WORDS];
DEFINE_PRODUCTS(key_products, s)
DEFINE_PRODUCTS(gradient_products, ds)
DEFINE_ACCUMULATE(add_gradients, dv, s)
DEFINE_ACCUMULATE(add_queries, dk, ds)

// kept_bits: bit j * ROWS + i is key i of the tile by this lane's query `query` + j.
#define COLUMN_DRAW(n) draw(w, query + n / (ROWS / 4), w.row + n % (ROWS / 4) * 4)
void draw_columns(Work w, uint query) { DRAW_TILE(COLUMN_DRAW) }

// What the queries of one head add.
void add_head(Work w) {
  const uint count = key_count(w.batch);
  Rows q = query_rows(w), k = key_rows(w, count), v = value_rows(w, count);
  Rows dout = dense_rows(w, Words64(address_table[3]), p.offset[3], p.queries);
  const uint stats = (w.batch * p.heads + w.head) * p.queries;
  const uint begin = query_begin(w.row);
  // Keys that do not count have no gradient.
  const uint end = w.row < count ? query_end(w.row, ROWS) : begin;
  for (uint t = begin; t < end; t += TILE_COLUMNS) {
    const uint query = t + lane * 4;
    key_products(k, w.row, q, query);
    gradient_products(v, w.row, dout, query);
    draw_columns(w, query);
    // A loop that turns the vectors: masks of all four queries at once do not fit Adreno's registers.
    [[dont_unroll]] for (uint j = 0; j < 4; ++j) {
      const uint row = stats + min(query + j, p.queries - 1);
      const float lse = load_stats(2 * row), delta = load_stats(2 * row + 1);
      const uint kept = (ROWS <= 8 ? kept_bits[0] : kept_bits[j * ROWS / 32]) >> j * ROWS % 32;
      [[unroll]] for (uint i = 0; i < ROWS; ++i) {
        float weight = exp(score(w, s[i].x, query + j, w.row + i, count) - lse);
        if (query + j >= p.queries) weight = 0.0;
        const bool is_kept = (kept >> i & 1) != 0;
        const float kept_weight = is_kept ? weight / p.keep : 0.0, kept_ds = is_kept ? ds[i].x / p.keep : 0.0;
        s[i] = vec4(s[i].yzw, kept_weight);
        ds[i] = vec4(ds[i].yzw, score_gradient(weight, kept_ds, delta) * p.scale);
      }
    }
    add_gradients(dout, t, end - t, w.column);
    add_queries(q, t, end - t, w.column);
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

  const uint dv_part = p.batch * p.keys * heads * DIM;
  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    const uint key = tile.row + i;
    if (key < p.keys && tile.column < DIM) {
      const uint e = ((tile.batch * p.keys + key) * heads + tile.head) * DIM + tile.column;
      [[unroll]] for (uint u = 0; u < WORDS; ++u) {
        store4_dkv(e + u * 4, dk[i][u]);
        store4_dkv(dv_part + e + u * 4, dv[i][u]);
      }
    }
  }
}
