// The tile of the matrix kernels for CPU drivers. One subgroup makes a tile without shared memory or barriers: its
// lanes lie LANES across the columns, a word of columns each, and the lane groups lie across the rows, ROWS rows each.
// Along k, every lane reads a word of each row of the left matrix, and its group spreads it by subgroupShuffle. Words
// are texels of 16 bytes, each of which these drivers gather by a function call; if the sums are short, that takes half
// of the time.
layout(constant_id = 0) const uint LANES = 8;  //! 2 4 8
layout(constant_id = 1) const uint STORES = 4;  //! 1 2 4 8

#ifdef T_F16
#define PARTS 2  // of a word: 4 elements each
#define LOAD_WORD(load4, load8, e, word) load8(e, word[0], word[1])
#else
#define PARTS 1
#define LOAD_WORD(load4, load8, e, word) word[0] = load4(e)
#endif
#define ROWS 16  // with more, compilers give up
#define WIDTH (4 * PARTS)  // columns of a lane
#define DEPTH (4 * PARTS)  // values of k of a row that a lane holds
#define TILE_ROWS (SUBGROUP_SIZE / LANES * ROWS)
#define TILE_COLS (LANES * WIDTH)
#define STEP (LANES * DEPTH)  // values of k per round

uint lane = gl_LocalInvocationID.x;
uint lane_n = lane % LANES;
uint first_lane = lane - lane_n;  // of this lane's group

vec4 acc[ROWS][PARTS];  // this lane's columns
vec4 a[ROWS][PARTS];    // this lane's part of the rows: k = DEPTH * lane_n + 0, 1, ...
vec4 b[DEPTH][PARTS];   // values of k by this lane's columns

// Loads a word of x from element e on, zeros unless `inside`; only its part h unless `whole`. Choosing before 16-bit
// values are converted is faster; for f32 it is slower. These drivers fetch zeros past the end of a buffer.
void load_inside(uint e, bool inside, bool whole, uint h, inout vec4 word[PARTS]) {
#ifdef T_F16
  const uint from = inside ? e : 0x7fffffffu;
  if (whole)
    load8_x(from, word[0], word[1]);
  else
    word[h] = load4_x(from);
#else
  word[0] = load4_x(inside ? e : 0);
  word[0] = inside ? word[0] : vec4(0.0);
#endif
}

void clear_tile() {
  [[unroll]] for (uint i = 0; i < ROWS; ++i)
    [[unroll]] for (uint h = 0; h < PARTS; ++h) acc[i][h] = vec4(0.0);
}

// Computes acc += a @ b for the values of k that the l-th lane of each group holds.
void multiply_tile(uint l) {
  [[unroll]] for (uint i = 0; i < ROWS; ++i) {
    [[unroll]] for (uint q = 0; q < DEPTH; ++q) {
      const float value = subgroupShuffle(a[i][q / 4][q % 4], first_lane + l);
      [[unroll]] for (uint h = 0; h < PARTS; ++h) acc[i][h] += value * b[q][h];
    }
  }
}

// Stores `columns` columns of a row's part from element e on, STORES at a time.
void store_part(vec4 v, uint e, uint columns) {
  if (STORES >= 4) {
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
  [[unroll]] for (uint j = 0; j < 4; ++j)
    if (j < columns) store_y(e + j, v[j]);
}

// Stores all parts of a row.
void store_columns(vec4 row[PARTS], uint e, uint columns) {
#if PARTS == 2 && defined(U_F16)
  if (STORES == 8) {
    if (columns > 0) store8_y(e, row[0], row[1]);
    return;
  }
#endif
  [[unroll]] for (uint h = 0; h < PARTS; ++h) store_part(row[h], e + 4 * h, columns - min(4 * h, columns));
}
