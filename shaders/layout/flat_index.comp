//! buffers: index:i32:read y:i32:write
//! params: FlatIndexParams
//! local: 64
layout(constant_id = 0) const uint SHARED = 0;  //! 0 1

void main() {
  uint at = thread_id();
  if (at >= p.n) return;
  uint line = at / p.inner, i = at - line * p.inner, o = line / p.count;
  uint row = uint(load_index(SHARED == 1 ? line - o * p.count : at));
  store_y(at, row < p.rows ? int((o * p.rows + row) * p.inner + i) : -1);
}
