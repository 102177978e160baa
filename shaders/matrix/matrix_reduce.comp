//! buffers: x:f32:read y:U:read_write
//! types: U = f32 f16
//! params: MatrixReduceParams
//! reference: none
//! local: 64
// Neighbours in x are neighbours in a column of y, else in a row.
layout(constant_id = 0) const bool ALONG_ROWS = false;
layout(constant_id = 1) const bool WORDS = true;        // 4 of them are one word
layout(constant_id = 2) const bool WORDS_OUT = true;    // 4 of them are one word in y, too
layout(constant_id = 3) const uint MEMBERS = 1;  //! 1 8
// MEMBERS is the size of a team of threads, which take turns at the parts of a result.

#define AHEAD 8  // parts that are loaded at once

vec4 load_part(uint at) { return WORDS ? load4_x(at) : vec4(load_x(at)); }

void put(uint to, float sum) { store_y(to, p.beta == 0.0 ? sum : sum + p.beta * load_y(to)); }

shared vec4 sums[64];

// Sums the parts first, first + MEMBERS, ... of the values from `from` on.
vec4 sum_parts(uint from, uint first) {
  vec4 sum = vec4(0.0);
  uint part = first;
  for (; part + (AHEAD - 1) * MEMBERS < p.parts; part += AHEAD * MEMBERS) {
    vec4 x[AHEAD];
    [[unroll]] for (uint k = 0; k < AHEAD; ++k) x[k] = load_part(from + (part + k * MEMBERS) * p.x_split);
    [[unroll]] for (uint k = 0; k < AHEAD; ++k) sum += x[k];
  }
  for (; part < p.parts; part += MEMBERS) sum += load_part(from + part * p.x_split);
  return sum;
}

// Sums partial products in a fixed order and writes them to their places.
void main() {
  const uint team = 64 / MEMBERS, thread = gl_LocalInvocationID.x, member = thread / team;
  const uint i = (group_id() * team + thread % team) * (WORDS ? 4 : 1);
  const uint length = ALONG_ROWS ? p.rows : p.cols, lines = ALONG_ROWS ? p.cols : p.rows;
  const uint line = i / length % lines, batch = i / length / lines;
  const uint row = ALONG_ROWS ? i % length : line, col = ALONG_ROWS ? line : i % length;
  const uint from =
      batch * p.x_batch + row * p.x_i + col / p.inner * p.x_outer + col % p.inner * p.x_inner;
  vec4 sum = i < p.n ? sum_parts(from, member) : vec4(0.0);
  if (MEMBERS > 1) {
    sums[thread] = sum;
    barrier();
    if (member == 0)
      for (uint m = 1; m < MEMBERS; ++m) sum += sums[m * team + thread];
  }
  if (i >= p.n || member > 0) return;
  const uint to = batch / p.batch_inner * p.y_batch[0] + batch % p.batch_inner * p.y_batch[1] +
                  row * p.y_row + col;
  sum *= p.alpha;
  if (WORDS_OUT) {
    store4_y(to, p.beta == 0.0 ? sum : sum + p.beta * load4_y(to));
  } else {
    [[unroll]] for (uint k = 0; k < (WORDS ? 4 : 1); ++k) put(to + k * (ALONG_ROWS ? p.y_row : 1), sum[k]);
  }
}
