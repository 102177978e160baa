// Attention and positions.

// Over each head: scores[i, j] = scale * q[i] . k[j] + mask[i, j] for the keys j < lengths[b] that
// lie less than `window` behind the query, behind = i - j (i + keys - queries - j where
// LOWER_RIGHT), and 0 or more when causal, else more than -window. P = softmax over j; out[i] = sum
// of P[i, j] * kept[i, j] / keep * v[j]. `group` query heads in a row share a head of k and v. With
// ALIBI the mask is one slope per head: -slope * |behind| is added. Scores below ATTENTION_NO_SCORE
// do not count; a row without any is zero. kept: word j % 4 of the Philox block (counter, 1 + (b *
// heads + h) * queries + i, j / 4) below keep, as in dropout. Rows of q, k, v and mask are dense,
// their other strides are the call's; offsets and strides of q, k, v are
// multiples of 4 (of 8 in 16 bits), dim of 8.
// out, dout, dq [batch, queries, heads, dim]; lse [batch, heads, queries].
#define ATTENTION_CAUSAL 1
#define ATTENTION_MASK 2
#define ATTENTION_LENGTHS 4
#define ATTENTION_ALIBI 8
#define ATTENTION_LOWER_RIGHT 16
// What is packed into AttentionParams.head.
#define ATTENTION_HEAD(dim, flags, group) ((dim) | (flags) << 9 | (group) << 16)
#define ATTENTION_DIM(p) ((p).head & 0x1ffu)
#define ATTENTION_FLAGS(p) ((p).head >> 9 & 0x7fu)
#define ATTENTION_GROUP(p) ((p).head >> 16)
#define ATTENTION_NO_SCORE -1e38f
#define ATTENTION_MAX_DIM 256
#define ATTENTION_PER_LANE 4       // columns of scores, of attention_dmask
#define ATTENTION_TILE_COLUMNS 64  // of scores, of a workgroup's tile
// variant {masked, results}, of attention_dmask {masked}. attention: q, k, v, mask, lengths, out,
// lse. Mask and lengths are read where the flags say so. lse is the scores' log-sum-exp,
// -ATTENTION_NO_SCORE for rows without any. attention_dq: q, k, v, dout, stats, mask, lengths, dq.
// With dP = dout . v * kept / keep, dS = P * (dP - delta): dq[i] = sum of scale * dS[i, j] k[j].
// attention_dkv: q, k, v, dout, stats, mask, lengths, dkv [2, batch, keys, heads / group, dim]:
// first dk[j] = sum of scale * dS[i, j] q[i], then dv[j] = sum of P[i, j] kept / keep * dout[i],
// over the queries of all heads of the group. attention_dmask: q, k, v, dout, stats, mask, lengths,
// dmask [batch, heads, queries, keys]: the sum of dS[i, j] over the axes where mask_stride is 0,
// which have size 1; where that of rows is 0, over the rows alone: [batch, heads, 1, keys].
struct AttentionParams {
  uint offset[8];
  uint batch, heads, queries, keys;
  uint head;                                   // ATTENTION_HEAD(dim, ATTENTION_*, group)
  uint window;                                 // queries + keys: all
  uint q_stride[3], k_stride[3], v_stride[3];  // of batch, head, row
  uint mask_stride[3];
  float scale, keep;               // keep 1: no dropout
  uint seed_lo, seed_hi, counter;  // of dropout: a key and a counter of Philox
};
// attention_delta: stats [batch, heads, queries, 2] = lse, delta = sum of out * dout.
// threads.x = batch * heads * queries.
struct AttentionDeltaParams {
  uint offset[4];  // out, dout, lse, stats
  uint rows, heads, queries, dim;
};

// ---- positions -------------------------------------------------------------------------------
// rotary: x of any strides, y dense, [batch, heads, rows, dim]. The pair i of a row s, elements
// (2 i, 2 i + 1) or else (i, i + dim / 2), turns by (first + s) * theta^(-2 i / dim) radians, or
// as far back. threads.x = pairs.
struct RotaryParams {
  uint offset[2];  // x, y
  uint heads, rows, dim, pairs;
  uint x_stride[4];
  uint first;
  uint interleaved, backward;
  float log2_step;  // log2(theta) * 2 / dim
};
