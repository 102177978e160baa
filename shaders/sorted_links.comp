//! buffers: key:i32:read order:i32:read next:i32:write first:i32:write
//! params: SortedLinksParams
//! local: 64

void main() {
  uint i = thread_id();
  if (i >= p.n) return;
  int key = load_key(i);
  uint at = uint(load_order(i));
  bool is_last = i + 1 == p.n || load_key(i + 1) != key;
  store_next(at, is_last ? -1 : load_order(i + 1));
  store_first(at, i == 0 || load_key(i - 1) != key ? 1 : 0);
}
