// Row kernels of GPUs: a team of threads keeps a row of whole 16-byte words in its registers, and so reads it once. A
// team is the workgroup, a subgroup (without barriers) or 8 lanes of one. A thread has ROUNDS times 8 columns. The host
// chooses (backends/vulkan/passes/rows.cpp).
#include "common/reduce.glsl"
layout(constant_id = 1) const uint TEAM = 0;  //! 0 1 8
layout(constant_id = 2) const uint ROUNDS = 4;  //! 1 2 4
#define MOST_ROUNDS 4

uint team_size() { return TEAM == 0 ? gl_WorkGroupSize.x : TEAM == 1 ? SUBGROUP_SIZE : TEAM; }

uint team_row() {
  if (TEAM == 0) return group_id();
  return (group_id() * gl_NumSubgroups + gl_SubgroupID) * (SUBGROUP_SIZE / team_size()) +
         gl_SubgroupInvocationID / team_size();
}

// Returns the thread's first column of a round.
uint team_column(uint round) {
  uint lane = TEAM == 0 ? gl_LocalInvocationID.x : gl_SubgroupInvocationID % team_size();
  return (round * team_size() + lane) * 8;
}

float team_sum(float x) {
  if (TEAM == 0) return workgroup_sum(x);
  if (TEAM == 1) return subgroupAdd(x);
  [[unroll]] for (uint bit = 0; bit < 3; ++bit) x += subgroupShuffleXor(x, 1u << bit);
  return x;
}

float team_max(float x) {
  if (TEAM == 0) return workgroup_max(x);
  if (TEAM == 1) return subgroupMax(x);
  [[unroll]] for (uint bit = 0; bit < 3; ++bit) x = max(x, subgroupShuffleXor(x, 1u << bit));
  return x;
}

uint team_max(uint x) {
  if (TEAM == 0) return workgroup_max(x);
  if (TEAM == 1) return subgroupMax(x);
  [[unroll]] for (uint bit = 0; bit < 3; ++bit) x = max(x, subgroupShuffleXor(x, 1u << bit));
  return x;
}

float team_sum(vec4 x) { return team_sum((x.x + x.y) + (x.z + x.w)); }

#define FOR_ROUNDS(r) [[unroll]] for (uint r = 0; r < ROUNDS; ++r)

// Loads lo[r], hi[r] = the columns of every round from element `start` on, `outside` beyond the row. All loads come
// first: instead of branches, their columns are clamped to the row.
#define KEEP_ROW(LOAD8, start, cols, outside, lo, hi)                   \
  FOR_ROUNDS(r) LOAD8((start) + min(team_column(r), (cols) - 8), lo[r], hi[r]); \
  FOR_ROUNDS(r) {                                                       \
    if (team_column(r) >= (cols)) lo[r] = hi[r] = vec4(outside);        \
  }
