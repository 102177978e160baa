//! buffers: index:i32:read next:i32:write first:i32:write
//! params: IndexLinksParams
//! local: 64
// Loops take this many indices at a time: a thread has 65535 loop iterations.
#define STEP 16

// The smallest j in [begin, end) with index[j] == value, else -1.
int find(int value, uint begin, uint end) {
  for (uint j = begin; j < end; j += STEP) {
    int found = -1;
    [[unroll]] for (uint u = STEP; u-- > 0;) {
      if (j + u < end && load_index(j + u) == value) found = int(j + u);
    }
    if (found >= 0) return found;
  }
  return -1;
}

void main() {
  uint i = thread_id();
  if (i >= p.n) return;
  int value = load_index(i);
  store_next(i, find(value, i + 1, p.n));
  store_first(i, find(value, 0, i) < 0 ? 1 : 0);
}
