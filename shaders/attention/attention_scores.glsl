// Scores and dropout, for the kernels that make tiles of scores.
#include "attention/attention_keys.glsl"

// The place of a tile. A tile is made by a workgroup (attention_tile.glsl, attention_cooperative.glsl), or for a mask
// by a subgroup or a thread.
struct Work {
  uint batch, head;
  uint row;     // the first row of the tile
  uint column;  // the first column of the result, for this lane or the tile
  bool exists;
};

uint at(Work w, uint stride[3]) { return w.batch * stride[0] + w.head * stride[1]; }
uint shared_at(Work w, uint stride[3]) { return w.batch * stride[0] + w.head / GROUP * stride[1]; }

// Returns the score of a product, LOWEST for one that does not count. NaN stays NaN.
float score(Work w, float product, uint query, uint key, uint count) {
  float s = p.scale * product;
  const int distance = behind(query, key);
  if (MASKED)
    s += load_mask(at(w, p.mask_stride) + min(query, p.queries - 1) * p.mask_stride[2] +
                   mask_column(min(key, p.keys - 1))) * mask_factor(distance);
  const bool is_hidden = key >= count || int(key) < start(w.batch, query) || !is_seen(distance);
  return is_hidden || s < ATTENTION_NO_SCORE ? LOWEST : s;
}

// Returns bits 0 to 3, which say whether the query keeps the keys `key` (a multiple of 4) to key + 3.
uint draw(Work w, uint query, uint key) {
  const uint row = 1 + (w.batch * p.heads + w.head) * p.queries + query;
  const uvec4 words = philox(uvec4(p.counter, 0, row, key / 4), uvec2(p.seed_lo, p.seed_hi));
  const uvec4 kept = uvec4(lessThan(uniform_from(words), vec4(p.keep)));
  return kept.x | kept.y << 1 | kept.z << 2 | kept.w << 3;
}
