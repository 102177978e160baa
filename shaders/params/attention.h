// Attention and positions.

// Attention of each head: scores[i, j] = scale * q[i] . k[j] + mask[i, j], P = softmax of the
// scores over j, and out[i] = sum of P[i, j] * kept[i, j] / keep * v[j].
//
// Query i sees the keys j < lengths[b] with behind < window, where behind = i - j (LOWER_RIGHT: i +
// keys - queries - j); CAUSAL also requires behind >= 0, otherwise behind > -window. With STARTS
// the lengths are starts [batch, queries] instead, which do not decrease: query i sees the keys j
// >= starts[b, i]. Scores below ATTENTION_NO_SCORE do not count, and a row without any other score
// is zero. `group` neighbouring query heads share a head of k and v. With ALIBI the mask is one
// slope per head, and -slope * |behind| is added to the scores.
//
// kept[i, j] is whether word j % 4 of the Philox block (counter, 1 + (b * heads + h) * queries + i,
// j / 4) lies below keep, as in dropout.
//
// out, dout and dq are [batch, queries, heads, dim], lse is [batch, heads, queries]. Rows of q, k,
// v and mask are dense, and the call gives their other strides. Offsets and strides of q, k and v
// are multiples of 4 (of 8 in 16 bits), and dim is a multiple of 8.
#define ATTENTION_CAUSAL 1
#define ATTENTION_MASK 2
#define ATTENTION_LENGTHS 4
#define ATTENTION_ALIBI 8
#define ATTENTION_LOWER_RIGHT 16
#define ATTENTION_STARTS 32
// Packs AttentionParams.head.
#define ATTENTION_HEAD(dim, flags, group) ((dim) | (flags) << 9 | (group) << 16)
#define ATTENTION_DIM(p) ((p).head & 0x1ffu)
#define ATTENTION_FLAGS(p) ((p).head >> 9 & 0x7fu)
#define ATTENTION_GROUP(p) ((p).head >> 16)
#define ATTENTION_NO_SCORE -1e38f
#define ATTENTION_MAX_DIM 256
#define ATTENTION_PER_LANE 4       // columns of scores, of attention_dmask
#define ATTENTION_TILE_COLUMNS 64  // of scores, of a workgroup's tile
// The variant is {masked, results}, for attention_dmask {masked}. Mask and lengths are read only
// where the flags say so.
//
// attention: bindings q, k, v, mask, lengths, out, lse. lse is the log-sum-exp of a row's scores,
// or -ATTENTION_NO_SCORE for rows without any.
//
// The gradients use dP = dout . v * kept / keep and dS = P * (dP - delta).
//
// attention_dq: bindings q, k, v, dout, stats, mask, lengths, dq. dq[i] = sum of scale * dS[i, j]
// k[j].
//
// attention_dkv: bindings q, k, v, dout, stats, mask, lengths, dkv [2, batch, keys, heads / group,
// dim]. dkv holds dk[j] = sum of scale * dS[i, j] q[i], then dv[j] = sum of P[i, j] kept / keep *
// dout[i], over the queries of all heads of the group.
//
// attention_grad: bindings q, k, v, dout, stats, mask, lengths, dqkv: dkv as above, and after it dq
// [batch, queries, heads, dim]. Only devices with the feature joint_attention_grad have it.
//
// attention_dmask: bindings q, k, v, dout, stats, mask, lengths, dmask [batch, heads, queries,
// keys]. dmask is the sum of dS[i, j] over the axes where mask_stride is 0, which have size 1 in
// it. Where the stride of rows is 0, the sum is over the rows alone: [batch, heads, 1, keys].
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
// rotary: x [batch, heads, rows, dim] has any strides, y is dense. Pair i of row s is the elements
// (2 i, 2 i + 1) or (i, i + dim / 2). It turns by its position times frequencies[i] radians, or
// back by as much, and grows by `scale`. The position is first + s, or positions[b, s] where
// `placed` is not 0; otherwise these are not read. threads.x = pairs.
struct RotaryParams {
  uint offset[4];  // x, frequencies f32 [dim / 2], positions i32 [batch, rows], y
  uint heads, rows, dim, pairs;
  uint x_stride[4];
  uint first;
  uint placed, interleaved, backward;
  float scale;
};
