// Flat kernels: thread t has elements 8 t to 8 t + 7 of dense tensors.

// True when the thread's 8 elements exist and can move in 16-byte words. `offsets` is the bitwise or
// of the tensors' element offsets.
bool is_whole(uint i, uint n, uint offsets) {
  return i + REWIND_FLAT <= n && offsets % REWIND_FLAT == 0;
}

// One past the thread's last element.
uint flat_end(uint i, uint n) { return n - i < REWIND_FLAT ? n : i + REWIND_FLAT; }
