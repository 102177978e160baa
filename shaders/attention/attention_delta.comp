//! buffers: out:T:read dout:T:read lse:f32:read stats:f32:write
//! types: T = f32 f16
//! params: AttentionDeltaParams
//! local: 64
void main() {
  const uint row = thread_id();  // row of [batch, heads, queries]
  if (row >= p.rows) return;
  const uint query = row % p.queries, head = row / p.queries;
  const uint e = ((head / p.heads * p.queries + query) * p.heads + head % p.heads) * p.dim;
  vec4 total = vec4(0.0);
  for (uint d = 0; d < p.dim; d += 4) total += load4_out(e + d) * load4_dout(e + d);
  store_stats(2 * row, load_lse(row));
  store_stats(2 * row + 1, (total.x + total.y) + (total.z + total.w));
}
