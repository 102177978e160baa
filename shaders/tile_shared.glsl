// The tile of the matrix kernels for GPUs: 256 threads make TILE x TILE elements, PER x PER each,
// through shared memory, TILE_K values of k per round. A kernel loads the two panels with
// put_left(row, k, v) and put_right(k, column, v) in turn with multiply_panels().
#define TILE_K 16
#define PER (TILE / 16)
#define STRIDE (TILE + 4)  // spreads the rows over the banks

shared float left[TILE_K * STRIDE];   // [k][row]
shared float right[TILE_K * STRIDE];  // [k][column]

float acc[PER][PER];

uint thread_row() { return gl_LocalInvocationID.x / 16 * PER; }
uint thread_col() { return gl_LocalInvocationID.x % 16 * PER; }

void clear_tile() {
  [[unroll]] for (uint i = 0; i < PER; ++i)
    [[unroll]] for (uint j = 0; j < PER; ++j) acc[i][j] = 0.0;
}

void put_left(uint row, uint k, float v) { left[k * STRIDE + row] = v; }
void put_right(uint k, uint col, float v) { right[k * STRIDE + col] = v; }

// Waits for the panels, multiplies them, and waits until they may be replaced.
void multiply_panels() {
  barrier();
  for (uint k = 0; k < TILE_K; ++k) {
    float a[PER], b[PER];
    [[unroll]] for (uint i = 0; i < PER; ++i) a[i] = left[k * STRIDE + thread_row() + i];
    [[unroll]] for (uint j = 0; j < PER; ++j) b[j] = right[k * STRIDE + thread_col() + j];
    [[unroll]] for (uint i = 0; i < PER; ++i)
      [[unroll]] for (uint j = 0; j < PER; ++j) acc[i][j] += a[i] * b[j];
  }
  barrier();
}
