// The tile of the matrix kernels for CPU drivers. One subgroup makes a tile without shared memory or
// barriers: its lanes lie LANES across the columns, WIDTH columns each, and the lane groups lie across
// the rows, ROWS rows each. Along k every lane reads DEPTH elements of each row of the left matrix and
// its group spreads them by subgroupShuffle. Loads are whole words: on these drivers a load costs one
// gather whatever its width.
layout(constant_id = 0) const uint LANES = 8;  //! 2 4 8
layout(constant_id = 1) const bool PAIRS = true;  // f16 results: rows begin at even elements, n is even

#define ROWS 24  // more, and compiling takes over half a second
#define WIDTH 4
#ifdef T_F16
#define DEPTH 2
#define WORD 4  // elements in 64 bits
#else
#define DEPTH 1
#define WORD 2
#endif
#define TILE_ROWS (SUBGROUP_SIZE / LANES * ROWS)
#define TILE_COLS (LANES * WIDTH)
#define STEP (LANES * DEPTH)  // values of k per round

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Words64 {
  uint64_t data[];
};
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Words32 { uint data[]; };

Words32 x32 = Words32(address_table[0]);
Words64 x64 = Words64(address_table[0]);
Words32 w32 = Words32(address_table[1]);
Words64 w64 = Words64(address_table[1]);

uint lane = gl_LocalInvocationID.x;
uint lane_n = lane % LANES;
uint first_lane = lane - lane_n;  // of this lane's group

float acc[ROWS][WIDTH];
float a[ROWS][DEPTH];  // this lane's part of the rows: k = DEPTH * lane_n + 0, 1, ...
float b[WORD][WIDTH];  // WORD values of k by this lane's columns

#ifdef T_F16
vec4 unpack64(uint64_t word) { return unpack_halves(unpackUint2x32(word)); }
float element32(uint word, uint i) { return unpack_pair(word >> ((i & 1) * 16)).x; }
#else
vec2 unpack64(uint64_t word) { return uintBitsToFloat(unpackUint2x32(word)); }
float element32(uint word, uint i) { return uintBitsToFloat(word); }
#endif

void clear_tile() {
  [[unroll]] for (uint i = 0; i < ROWS; ++i)
    [[unroll]] for (uint j = 0; j < WIDTH; ++j) acc[i][j] = 0.0;
}

// DEPTH values of k of row i, from element e on.
void load_row(uint i, uint e) {
#ifdef T_F16
  const vec2 v = unpack_pair(x32.data[e / 2]);
  a[i][0] = v.x;
  a[i][1] = v.y;
#else
  a[i][0] = uintBitsToFloat(x32.data[e]);
#endif
}

// The u-th k of rows i to i + WORD - 1, stored side by side from element e on; zero unless `inside`.
void load_rows(uint i, uint u, uint e, bool inside) {
  const uint64_t word = x64.data[e / WORD];
  [[unroll]] for (uint r = 0; r < WORD; ++r) a[i + r][u] = inside ? unpack64(word)[r] : 0.0;
}

// This lane's columns of the q-th k in hand, from element e on.
void load_columns(uint q, uint e) {
  [[unroll]] for (uint j = 0; j < WIDTH; j += WORD) {
    const uint64_t word = w64.data[e / WORD + j / WORD];
    [[unroll]] for (uint r = 0; r < WORD; ++r) b[q][j + r] = unpack64(word)[r];
  }
}

// WORD values of k of this lane's j-th column, from element e on.
void load_column(uint j, uint e) {
  const uint64_t word = w64.data[e / WORD];
  [[unroll]] for (uint q = 0; q < WORD; ++q) b[q][j] = unpack64(word)[q];
}

// acc += a @ b for the values of k in hand, the first of which is the `k`-th of this round.
void multiply_tile(uint k) {
  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    [[unroll]] for (uint q = 0; q < WORD; ++q) {
      const float s = subgroupShuffle(a[i][(k + q) % DEPTH], first_lane + (k + q) / DEPTH);
      [[unroll]] for (uint j = 0; j < WIDTH; ++j) acc[i][j] += s * b[q][j];
    }
  }
}

// Stores `columns` columns of row i from element e on, not counting p.offset.
void store_row(uint i, uint e, uint columns, float alpha) {
#ifdef U_F16
  if (PAIRS) {
    [[unroll]] for (uint j = 0; j < WIDTH; j += 2)
      if (j < columns)
        store2_y(e + j, alpha * vec2(acc[i][j], acc[i][j + 1]));
    return;
  }
#endif
  [[unroll]] for (uint j = 0; j < WIDTH; ++j)
    if (j < columns) store_y(e + j, alpha * acc[i][j]);
}
