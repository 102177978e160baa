// The panels of tile.glsl in shared memory in their own type, multiplied by cooperative matrices. 2 x 2, 2 x 4 or 4 x 4
// subgroups make ROWS x COLUMNS elements each.
#include "common/cooperative.glsl"

#define SUBGROUPS_ACROSS (MATRIX_SUBGROUPS == 4 ? 2 : 4)
#define ROWS (TILE / (MATRIX_SUBGROUPS / SUBGROUPS_ACROSS))  // of a subgroup's part
#define COLUMNS (TILE / SUBGROUPS_ACROSS)
#define DOWN (ROWS / MATRIX_M)  // matrices of a subgroup
#define ACROSS (COLUMNS / MATRIX_N)
// The words from line to line of a panel; one more than needed spreads the lines over the banks.
#define STRIDE_K (TILE_K / 8 + 1)
#define STRIDE_LINE (TILE / 8 + 1)
#define PANEL (TILE * STRIDE_K)  // in words, for the larger layout
// Sums on their way to memory: a row of a subgroup's matrices. The panels have room for those of all subgroups.
#define STRIDE_SUMS (COLUMNS / 4 + 1)
#define SUMS (MATRIX_M * STRIDE_SUMS)
#define ROW_PARTS (MATRIX_M * COLUMNS / 4)  // of four columns, in that row of matrices
#define PARTS ((ROW_PARTS + SUBGROUP_SIZE - 1) / SUBGROUP_SIZE)  // of them, for each thread

#define TWO_PAIRS 1  // pairs of panels: one is filled while the other is multiplied
#define PUTS_FIRST FEW_REGISTERS  // words wait for their loads, instead of in registers for the products

shared uvec4 panels[2 * 2 * PANEL];  // [pair][side][line][k] or [pair][side][k][line]

uint pair = 0;  // where the pair begins that is multiplied; the other one is filled

SumMatrix sums[DOWN * ACROSS];

uint first_row() { return gl_SubgroupID / SUBGROUPS_ACROSS * ROWS; }
uint first_column() { return gl_SubgroupID % SUBGROUPS_ACROSS * COLUMNS; }

void clear_tile() {
  [[unroll]] for (uint i = 0; i < DOWN * ACROSS; ++i) sums[i] = SumMatrix(0.0);
}

uint word_index(uint w, bool along_k) {
  const uvec2 at = word_place(w, along_k);
  return along_k ? at.x * STRIDE_K + at.y / 8 : at.y * STRIDE_LINE + at.x / 8;
}
void put_left(uint w, uvec4 word) { panels[2 * PANEL - pair + word_index(w, LEFT_ALONG_K)] = word; }
void put_right(uint w, uvec4 word) { panels[3 * PANEL - pair + word_index(w, RIGHT_ALONG_K)] = word; }
void turn_panels() { pair = 2 * PANEL - pair; }

void load_left(out LeftMatrix m, uint row, uint k) {
  if (LEFT_ALONG_K)
    load_rows(m, panels, pair + row * STRIDE_K + k / 8, STRIDE_K);
  else
    load_columns(m, panels, pair + k * STRIDE_LINE + row / 8, STRIDE_LINE);
}
void load_right(out RightMatrix m, uint k, uint column) {
  if (RIGHT_ALONG_K)
    load_columns(m, panels, pair + PANEL + column * STRIDE_K + k / 8, STRIDE_K);
  else
    load_rows(m, panels, pair + PANEL + k * STRIDE_LINE + column / 8, STRIDE_LINE);
}

// Where they fit into registers, all factors are loaded before the first product, which waits for some of them only.
void multiply_panels() {
  [[unroll]] for (uint k = 0; k < TILE_K; k += MATRIX_K) {
    LeftMatrix a[DOWN];
    RightMatrix b[ACROSS];
    if (!FEW_REGISTERS)
      [[unroll]] for (uint i = 0; i < DOWN; ++i) load_left(a[i], first_row() + i * MATRIX_M, k);
    [[unroll]] for (uint j = 0; j < ACROSS; ++j) load_right(b[j], k, first_column() + j * MATRIX_N);
    [[unroll]] for (uint i = 0; i < DOWN; ++i) {
      if (FEW_REGISTERS) load_left(a[i], first_row() + i * MATRIX_M, k);
      [[unroll]] for (uint j = 0; j < ACROSS; ++j) sums[i * ACROSS + j] = multiply_add(a[i], b[j], sums[i * ACROSS + j]);
    }
  }
}

bool has_part(uint part) { return ROW_PARTS % SUBGROUP_SIZE == 0 || part < ROW_PARTS; }

// Stores by way of shared memory, since the places of a matrix's elements in registers are unknown; so neighbours in a
// subgroup store neighbours in memory.
void store_tile() {
  const uint mine = gl_SubgroupID * SUMS;
  [[unroll]] for (uint i = 0; i < DOWN; ++i) {
    [[unroll]] for (uint j = 0; j < ACROSS; ++j)
      store_rows(sums[i * ACROSS + j], panels, mine + j * (MATRIX_N / 4), STRIDE_SUMS);
    barrier();
    vec4 part[PARTS];
    [[unroll]] for (uint n = 0; n < PARTS; ++n) {
      const uint e = n * SUBGROUP_SIZE + gl_SubgroupInvocationID, row = e / (COLUMNS / 4), word = e % (COLUMNS / 4);
      if (has_part(e))
        part[n] = finish_part(first_row() + i * MATRIX_M + row, first_column() + word * 4,
                              uintBitsToFloat(panels[mine + row * STRIDE_SUMS + word]));
    }
    [[unroll]] for (uint n = 0; n < PARTS; ++n) {
      const uint e = n * SUBGROUP_SIZE + gl_SubgroupInvocationID, row = e / (COLUMNS / 4), word = e % (COLUMNS / 4);
      if (has_part(e)) store_part(first_row() + i * MATRIX_M + row, first_column() + word * 4, part[n]);
    }
    barrier();
  }
}
