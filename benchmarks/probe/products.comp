// A product of f16 matrices by cooperative matrices, as shaders/matrix/tile_cooperative.glsl makes it, of which parts can be left
// out: what a GPU takes without them is what they cost. For whole tiles only. products.py lists the macros.
#version 460
#pragma use_vulkan_memory_model
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_buffer_reference : require

#define THREADS (DOWN * ACROSS * SUBGROUP)  // DOWN x ACROSS subgroups make a tile
#define ROWS (TILE_M / DOWN)
#define COLUMNS (TILE_N / ACROSS)
#define LEFT (ROWS / MATRIX_M)  // matrices of a subgroup
#define RIGHT (COLUMNS / MATRIX_N)
// Words of 16 bytes from line to line of a panel; one more than needed spreads the lines over the banks.
#define STRIDE_A ((A_ALONG_K == 1 ? TILE_K : TILE_M) / 8 + 1)
#define STRIDE_B ((B_ALONG_K == 1 ? TILE_K : TILE_N) / 8 + 1)
#define PANEL_A ((A_ALONG_K == 1 ? TILE_M : TILE_K) * STRIDE_A)
#define PAIR (PANEL_A + (B_ALONG_K == 1 ? TILE_N : TILE_K) * STRIDE_B)
#define WORDS_A (TILE_M * TILE_K / 8 / THREADS)
#define WORDS_B (TILE_N * TILE_K / 8 / THREADS)
#define STEPS (TILE_K / MATRIX_K)

layout(local_size_x = THREADS) in;
layout(buffer_reference, std430, buffer_reference_align = 16) readonly restrict buffer Words { uvec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) restrict buffer Sums { float at[]; };
layout(push_constant) uniform Push { uint m, n, k, unused; Words a, b; Sums c; } p;

shared uvec4 panels[PAIRS * PAIR + UNUSED_WORDS];
coopmat<SUM, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator> sums[LEFT * RIGHT];
coopmat<float16_t, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA> a[2][LEFT];
coopmat<float16_t, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB> b[2][RIGHT];
uvec4 next_a[WORDS_A], next_b[WORDS_B];
uint a_at, b_at, a_step, b_step, a_down, b_down, a_put, b_put, a_load, b_load;

void fetch() {
  [[unroll]] for (uint w = 0; w < WORDS_A; ++w) next_a[w] = p.a.at[a_at + w * a_down];
  [[unroll]] for (uint w = 0; w < WORDS_B; ++w) next_b[w] = p.b.at[b_at + w * b_down];
#if !SAME_PANELS
  a_at += a_step;
  b_at += b_step;
#endif
}

void put(uint pair) {
  [[unroll]] for (uint w = 0; w < WORDS_A; ++w)
    panels[a_put + pair + w * (THREADS / (A_ALONG_K == 1 ? TILE_K / 8 : TILE_M / 8)) * STRIDE_A] = next_a[w];
  [[unroll]] for (uint w = 0; w < WORDS_B; ++w)
    panels[b_put + pair + w * (THREADS / (B_ALONG_K == 1 ? TILE_K / 8 : TILE_N / 8)) * STRIDE_B] = next_b[w];
}

void load(uint set, uint pair, uint k) {
  [[unroll]] for (uint i = 0; i < LEFT; ++i)
    if (A_ALONG_K == 1)
      coopMatLoad(a[set][i], panels, a_load + pair + i * MATRIX_M * STRIDE_A + k / 8, STRIDE_A, gl_CooperativeMatrixLayoutRowMajor);
    else
      coopMatLoad(a[set][i], panels, a_load + pair + k * STRIDE_A + i * MATRIX_M / 8, STRIDE_A, gl_CooperativeMatrixLayoutColumnMajor);
  [[unroll]] for (uint j = 0; j < RIGHT; ++j)
    if (B_ALONG_K == 1)
      coopMatLoad(b[set][j], panels, b_load + pair + j * MATRIX_N * STRIDE_B + k / 8, STRIDE_B, gl_CooperativeMatrixLayoutColumnMajor);
    else
      coopMatLoad(b[set][j], panels, b_load + pair + k * STRIDE_B + j * MATRIX_N / 8, STRIDE_B, gl_CooperativeMatrixLayoutRowMajor);
}

void multiply(uint set) {
#if FEW_PRODUCTS
  [[unroll]] for (uint i = 0; i < max(LEFT, RIGHT); ++i)
    sums[i] = coopMatMulAdd(a[set][i % LEFT], b[set][i % RIGHT], sums[i]);
#else
  [[unroll]] for (uint i = 0; i < LEFT; ++i)
    [[unroll]] for (uint j = 0; j < RIGHT; ++j)
      sums[i * RIGHT + j] = coopMatMulAdd(a[set][i], b[set][j], sums[i * RIGHT + j]);
#endif
}

// The places of this thread's words and of its subgroup's matrices; tiles come in blocks of 8 rows.
uvec2 begin() {
  const uint tiles = p.n / TILE_N, block = gl_WorkGroupID.x / (8 * tiles), in_block = gl_WorkGroupID.x % (8 * tiles);
  const uint rows = min(8, p.m / TILE_M - block * 8), thread = gl_LocalInvocationID.x;
  const uint m = (block * 8 + in_block % rows) * TILE_M, n = in_block / rows * TILE_N;
  const uint width_a = (A_ALONG_K == 1 ? TILE_K : TILE_M) / 8, width_b = (B_ALONG_K == 1 ? TILE_K : TILE_N) / 8;
  const uint pitch_a = (A_ALONG_K == 1 ? p.k : p.m) / 8, pitch_b = (B_ALONG_K == 1 ? p.k : p.n) / 8;
  a_put = thread / width_a * STRIDE_A + thread % width_a;
  b_put = PANEL_A + thread / width_b * STRIDE_B + thread % width_b;
  a_at = thread / width_a * pitch_a + thread % width_a + (A_ALONG_K == 1 ? m * pitch_a : m / 8);
  b_at = thread / width_b * pitch_b + thread % width_b + (B_ALONG_K == 1 ? n * pitch_b : n / 8);
  a_down = THREADS / width_a * pitch_a;
  b_down = THREADS / width_b * pitch_b;
  a_step = A_ALONG_K == 1 ? TILE_K / 8 : TILE_K * pitch_a;
  b_step = B_ALONG_K == 1 ? TILE_K / 8 : TILE_K * pitch_b;
  const uint row = gl_SubgroupID / ACROSS * ROWS, column = gl_SubgroupID % ACROSS * COLUMNS;
  a_load = A_ALONG_K == 1 ? row * STRIDE_A : row / 8;
  b_load = PANEL_A + (B_ALONG_K == 1 ? column * STRIDE_B : column / 8);
  return uvec2(m + row, n + column);
}

#if PIPELINED
// Factors are loaded while those before them are multiplied, and panels are fetched two rounds ahead.
void multiply_all() {
  fetch();
  barrier();
  load(0, 0, 0);
  for (uint k = 0; k < p.k; k += 2 * TILE_K)
    [[unroll]] for (uint side = 0; side < 2; ++side)
      [[unroll]] for (uint step = 0; step < STEPS; ++step) {
        const uint set = (side * STEPS + step) % 2;
        if (step < STEPS - 1) {
          load(1 - set, side * PAIR, (step + 1) * MATRIX_K);
        } else {
          put((1 - side) * PAIR);
          if (k + (side + 2) * TILE_K < p.k) fetch();
          barrier();
          load(1 - set, (1 - side) * PAIR, 0);
        }
        multiply(set);
      }
}
#else
void multiply_all() {
  uint pair = 0;
#if !LOADS
  barrier();
  load(0, 0, 0);
#endif
  for (uint k = 0; k < p.k; k += TILE_K) {
    const bool has_next = k + TILE_K < p.k;
#if PUTS
    barrier();
#endif
#if PUTS && FETCHES
    if (has_next) fetch();
#endif
    [[unroll]] for (uint step = 0; step < STEPS; ++step) {
#if LOADS
      load(0, pair, step * MATRIX_K);
#endif
      multiply(0);
    }
#if PUTS && PAIRS == 1
    barrier();
#endif
#if PUTS
    if (has_next) put(PAIRS == 1 ? 0 : PAIR - pair);
#endif
    if (PAIRS == 2) pair = PAIR - pair;
  }
}
#endif

void main() {
  const uvec2 at = begin();
  [[unroll]] for (uint i = 0; i < LEFT * RIGHT; ++i)
    sums[i] = coopmat<SUM, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>(0.0);
  fetch();
  put(0);
#if PAIRS == 2 && !PUTS
  put(PAIR);
#endif
  multiply_all();
  [[unroll]] for (uint i = 0; i < LEFT; ++i)
    [[unroll]] for (uint j = 0; j < RIGHT; ++j)
      coopMatStore(coopmat<float, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>(sums[i * RIGHT + j]),
                   p.c.at, (at.x + i * MATRIX_M) * p.n + at.y + j * MATRIX_N, p.n, gl_CooperativeMatrixLayoutRowMajor);
}
