//! buffers: index:i32:read next:i32:write first:i32:write
//! params: IndexLinksParams
//! local: 64
#include "loops.glsl"

// The smallest j in [begin, end) with index[j] == value, else -1.
int find(int value, uint begin, uint end) {
  int found = -1;
  LONG_LOOP(j, begin, end, 1) {
    if (found >= 0) break;
    if (load_index(j) == value) found = int(j);
  }
  return found;
}

void main() {
  uint i = thread_id();
  if (i >= p.n) return;
  int value = load_index(i);
  store_next(i, find(value, i + 1, p.n));
  store_first(i, find(value, 0, i) < 0 ? 1 : 0);
}
