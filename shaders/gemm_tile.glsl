// The tile of the matrix kernels for CPU drivers. One subgroup makes a tile without shared memory or
// barriers: its lanes lie LANES across the columns, four columns each, and the lane groups lie across
// the rows, ROWS rows each. Along k every lane reads four elements of each row of the left matrix and
// its group spreads them by subgroupShuffle. Loads are texels of 16 bytes, which these drivers gather.
layout(constant_id = 0) const uint LANES = 8;  //! 2 4 8
layout(constant_id = 1) const uint STORES = 4;  //! 1 2 4

#define ROWS 16  // more, and the sums leave the registers
#define WIDTH 4  // columns of a lane
#define DEPTH 4  // values of k that a lane holds of a row
#define TILE_ROWS (SUBGROUP_SIZE / LANES * ROWS)
#define TILE_COLS (LANES * WIDTH)
#define STEP (LANES * DEPTH)  // values of k per round

uint lane = gl_LocalInvocationID.x;
uint lane_n = lane % LANES;
uint first_lane = lane - lane_n;  // of this lane's group

vec4 acc[ROWS];  // this lane's columns
vec4 a[ROWS];    // this lane's part of the rows: k = DEPTH * lane_n + 0, 1, 2, 3
vec4 b[DEPTH];   // values of k by this lane's columns

void clear_tile() {
  [[unroll]] for (uint i = 0; i < ROWS; ++i) acc[i] = vec4(0.0);
}

// The u-th k of rows i to i + 3, stored side by side from element e on; zero unless `inside`.
void load_rows(uint i, uint u, uint e, bool inside) {
  const vec4 v = load4_x(e);
  [[unroll]] for (uint r = 0; r < 4; ++r) a[i + r][u] = inside ? v[r] : 0.0;
}

// Values of k of this lane's j-th column, from element e on.
void load_column(uint j, uint e) {
  const vec4 v = load4_w(e);
  [[unroll]] for (uint q = 0; q < DEPTH; ++q) b[q][j] = v[q];
}

// acc += a @ b for the values of k that the l-th lane of each group holds.
void multiply_tile(uint l) {
  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    [[unroll]] for (uint q = 0; q < DEPTH; ++q)
      acc[i] += subgroupShuffle(a[i][q], first_lane + l) * b[q];
  }
}

// Stores `columns` columns of a row from element e on.
void store_columns(vec4 v, uint e, uint columns) {
  if (STORES == 4) {
    if (columns > 0) store4_y(e, v);
    return;
  }
#ifdef U_F16
  if (STORES == 2) {
    if (columns > 0) store2_y(e, v.xy);
    if (columns > 2) store2_y(e + 2, v.zw);
    return;
  }
#endif
  [[unroll]] for (uint j = 0; j < WIDTH; ++j)
    if (j < columns) store_y(e + j, v[j]);
}
