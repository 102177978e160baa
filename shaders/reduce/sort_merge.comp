//! buffers: key:i32:read order:i32:read y:i32:write y_order:i32:write
//! params: SortParams
//! local: 64

// Returns how many keys of the sorted places [first, last) come before `key`: those below it, and with `equal` those
// that equal it.
uint count_before(uint key, uint first, uint last, bool equal) {
  uint low = first, high = last;
  while (low < high) {
    uint middle = low + (high - low) / 2, k = uint(load_key(middle));
    if (k < key || (equal && k == key)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - first;
}

void main() {
  uint i = thread_id();
  if (i >= p.n) return;
  uint line = i / p.count * p.count, place = i - line;
  uint first = place / p.run / 2 * p.run * 2, middle = min(first + p.run, p.count);
  uint last = min(middle + p.run, p.count), key = uint(load_key(i));
  bool is_second = place >= middle;
  uint before = is_second ? count_before(key, line + first, line + middle, true)
                          : count_before(key, line + middle, line + last, false);
  uint to = line + place - (is_second ? middle - first : 0) + before;
  store_y(to, int(key));
  store_y_order(to, load_order(i));
}
