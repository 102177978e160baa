// Reductions over a workgroup, result in every thread, order fixed by the device. Right for any
// subgroup size: a workgroup of one subgroup needs no shared memory, larger ones join the subgroups'
// results in order. Must be called by all threads. The shader `requires: subgroup arithmetic`.

// clang-format off
#define WORKGROUP_REDUCE(NAME, TYPE, SCRATCH, SUBGROUP_OP, JOIN)          \
  shared TYPE SCRATCH[gl_WorkGroupSize.x];                                \
  TYPE NAME(TYPE v) {                                                     \
    v = SUBGROUP_OP(v);                                                   \
    if (gl_WorkGroupSize.x > SUBGROUP_SIZE) {                             \
      if (subgroupElect()) SCRATCH[gl_SubgroupID] = v;                    \
      barrier();                                                          \
      v = SCRATCH[0];                                                     \
      for (uint s = 1; s < gl_NumSubgroups; ++s) v = JOIN(v, SCRATCH[s]); \
      barrier();                                                          \
    }                                                                     \
    return v;                                                             \
  }
// clang-format on

#define REDUCE_ADD(x, y) ((x) + (y))

WORKGROUP_REDUCE(workgroup_sum, float, sum_scratch, subgroupAdd, REDUCE_ADD)
WORKGROUP_REDUCE(workgroup_max, float, max_scratch, subgroupMax, max)
WORKGROUP_REDUCE(workgroup_max, uint, bits_scratch, subgroupMax, max)
