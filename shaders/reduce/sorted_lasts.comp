//! buffers: key:i32:read order:i32:read last:i32:write
//! params: SortParams
//! local: 64

void main() {
  uint i = thread_id();
  if (i >= p.n) return;
  bool is_last = i + 1 == p.n || load_key(i + 1) != load_key(i);
  store_last(uint(load_order(i)), is_last ? 1 : 0);
}
