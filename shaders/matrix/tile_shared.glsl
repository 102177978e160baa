// The panels of tile.glsl in shared memory as f32, multiplied by plain arithmetic. Every 32 threads make a compact part
// of the tile, as 4 x 8 threads, each with groups of 4 rows and 4 columns: at any time they read few words of a panel,
// which lie side by side.
#define STRIDE (TILE + 4)  // spreads the values of k over the banks
#define ROW_GROUPS (TILE / 64 > 0 ? 2 : 1)
#define COL_GROUPS (TILE / 128 > 0 ? 2 : 1)

shared float panels[2 * TILE_K * STRIDE];  // [side][k][line]

vec4 acc[4 * ROW_GROUPS][COL_GROUPS];

// Returns the first row and column of one of this thread's groups.
uint group_row(uint group) {
  const uint warp_rows = 16 * ROW_GROUPS, warp_row = thread / 32 / (TILE / (32 * COL_GROUPS));
  return warp_row * warp_rows + group * 16 + thread % 32 / 8 * 4;
}
uint group_col(uint group) {
  const uint warp_cols = 32 * COL_GROUPS, warp_col = thread / 32 % (TILE / warp_cols);
  return warp_col * warp_cols + group * 32 + thread % 8 * 4;
}

void clear_tile() {
  [[unroll]] for (uint i = 0; i < 4 * ROW_GROUPS; ++i)
    [[unroll]] for (uint j = 0; j < COL_GROUPS; ++j) acc[i][j] = vec4(0.0);
}

void put_word(uint panel, uvec2 at, bool along_k, uvec4 word) {
  float v[WORD];
  unpack_word(word, v);
  [[unroll]] for (uint i = 0; i < WORD; ++i)
    panels[panel + at.y * STRIDE + at.x + i * (along_k ? STRIDE : 1)] = v[i];
}
void put_left(uint w, uvec4 word) { put_word(0, word_place(w, LEFT_ALONG_K), LEFT_ALONG_K, word); }
void put_right(uint w, uvec4 word) {
  put_word(TILE_K * STRIDE, word_place(w, RIGHT_ALONG_K), RIGHT_ALONG_K, word);
}

vec4 panel_part(uint i) { return vec4(panels[i], panels[i + 1], panels[i + 2], panels[i + 3]); }

void multiply_line(uint k) {
  vec4 a[ROW_GROUPS], b[COL_GROUPS];
  [[unroll]] for (uint i = 0; i < ROW_GROUPS; ++i) a[i] = panel_part(k * STRIDE + group_row(i));
  [[unroll]] for (uint j = 0; j < COL_GROUPS; ++j)
    b[j] = panel_part((TILE_K + k) * STRIDE + group_col(j));
  [[unroll]] for (uint i = 0; i < 4 * ROW_GROUPS; ++i)
    [[unroll]] for (uint j = 0; j < COL_GROUPS; ++j) acc[i][j] = fma(vec4(a[i / 4][i % 4]), b[j], acc[i][j]);
}

#define PUTS_FIRST false  // there is one pair of panels
void turn_panels() {}

void multiply_panels() {
  for (uint k = 0; k < TILE_K; k += UNROLL)
    [[unroll]] for (uint i = 0; i < UNROLL; ++i) multiply_line(k + i);
}

// Four rows at a time, since the steps of many parts together need more registers than an Apple GPU has.
void store_tile() {
  [[unroll]] for (uint g = 0; g < ROW_GROUPS; ++g) {
    [[unroll]] for (uint i = 0; i < 4; ++i)
      [[unroll]] for (uint j = 0; j < COL_GROUPS; ++j)
        acc[4 * g + i][j] = finish_part(group_row(g) + i, group_col(j), acc[4 * g + i][j]);
    [[unroll]] for (uint i = 0; i < 4; ++i)
      [[unroll]] for (uint j = 0; j < COL_GROUPS; ++j)
        store_part(group_row(g) + i, group_col(j), acc[4 * g + i][j]);
  }
}
