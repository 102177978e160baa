// Reductions over a workgroup. Every thread gets the result, and the device fixes the order. They are right for any
// subgroup size: a workgroup of one subgroup needs no shared memory, and larger ones join the subgroups' results in
// order. All threads must call them. The shader `prefers: subgroup arithmetic`; without it, all threads' values are
// joined in order.

// No workgroup of a kernel with `local: subgroup` is larger. gl_WorkGroupSize.x would not do, since Metal takes no size
// that is a specialization constant.
#define MOST_THREADS 128

// clang-format off
#ifdef HAS_ARITHMETIC
#define WORKGROUP_REDUCE(NAME, TYPE, SCRATCH, SUBGROUP_OP, JOIN)          \
  shared TYPE SCRATCH[MOST_THREADS];                                      \
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
#else
#define WORKGROUP_REDUCE(NAME, TYPE, SCRATCH, SUBGROUP_OP, JOIN)          \
  shared TYPE SCRATCH[MOST_THREADS];                                      \
  TYPE NAME(TYPE v) {                                                     \
    SCRATCH[gl_LocalInvocationID.x] = v;                                  \
    barrier();                                                            \
    v = SCRATCH[0];                                                       \
    for (uint s = 1; s < gl_WorkGroupSize.x; ++s) v = JOIN(v, SCRATCH[s]); \
    barrier();                                                            \
    return v;                                                             \
  }
#endif
// clang-format on

#define REDUCE_ADD(x, y) ((x) + (y))

WORKGROUP_REDUCE(workgroup_sum, float, sum_scratch, subgroupAdd, REDUCE_ADD)
WORKGROUP_REDUCE(workgroup_max, float, max_scratch, subgroupMax, max)
WORKGROUP_REDUCE(workgroup_max, uint, bits_scratch, subgroupMax, max)
