//! buffers: x:T:read y:U:write
//! types: T,U = f32,f32 f32,f16 f16,f16 f16,f32 i32,i32
//! params: ReduceParams
//! reference: reduce
//! local: subgroup
//! grid: groups
//! prefers: subgroup arithmetic
#include "common/reduce.glsl"
#include "reduce/reduce_op.glsl"
#include "common/rows.glsl"

#ifdef HAS_ARITHMETIC
T_value subgroup_join(T_value x) {
  return OP == SUM ? subgroupAdd(x) : subgroupMul(x);
}
#endif

WORKGROUP_REDUCE(workgroup_join, T_value, join_scratch, subgroup_join, join)

T_value workgroup_extreme(T_value x) {
  return unordered(OP == MAX ? workgroup_max(ordered(x)) : ~workgroup_max(~ordered(x)));
}

void main() {
  uint line = group_id(), row = line, first = 0;
  if (p.chunk < p.count) {  // avoids divisions, which are slow
    uint chunks = (p.count + p.chunk - 1) / p.chunk;
    row = line / chunks;
    first = (line - row * chunks) * p.chunk;
  }
  if (row >= p.outer) return;
  uint count = min(p.chunk, p.count - first);
  uint start = row * p.count + first, words = word_columns(count, p.offset[0] + start);
  T_vec4 total4 = T_vec4(identity()), lo, hi;
  FOR_WORDS(c, words) {
    load8_x(start + c, lo, hi);
    total4 = join(total4, join(lo, hi));
  }
  FOR_OTHERS(c, words, count) total4.x = join(total4.x, load_x(start + c));
  T_value total = join(join(total4.x, total4.y), join(total4.z, total4.w));
  if (OP == SUM || OP == PROD) {
    total = workgroup_join(total);
  } else {
#if T_FLOAT
    bool has_nan = workgroup_max(magnitude_bits(total)) > 0x7f800000u;
    total = has_nan ? NAN : workgroup_extreme(total);
#else
    total = workgroup_extreme(total);
#endif
  }
  if (gl_LocalInvocationID.x == 0) store_y(line, scaled(total));
}
