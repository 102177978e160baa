//! buffers: x:T:read y:U:write
//! types: T,U = f32,f32 f32,f16 f16,f16 f16,f32 i32,i32
//! params: ReduceParams
//! reference: reduce
//! local: 64
#include "reduce/reduce_op.glsl"
#include "common/some.glsl"
layout(constant_id = 1) const uint FLAT = 0;  //! 0 1
layout(constant_id = 2) const uint MEMBERS = 1;  //! 1 8 32

#define AHEAD 4  // words that are loaded at once

// The totals of 8 outputs.
struct Totals {
  T_vec4 lo, hi;
};

shared Totals totals[64];

// The elements of an output: begin, begin + p.inner, ...
struct Run {
  uint begin, count;
};

uint chunks() { return p.chunk < p.count ? (p.count + p.chunk - 1) / p.chunk : 1; }
uint outputs() { return p.outer * chunks() * p.inner; }

Run run_of(uint i) {
  uint line = i / p.inner, outer = line, first = 0;
  if (p.chunk < p.count) {  // avoids divisions, which are slow
    outer = line / chunks();
    first = (line - outer * chunks()) * p.chunk;
  }
  return Run((outer * p.count + first) * p.inner + (i - line * p.inner), min(p.chunk, p.count - first));
}

void add(inout Totals all, Totals other) {
  all.lo = join(all.lo, other.lo);
  all.hi = join(all.hi, other.hi);
}

Totals load_totals(uint at, bool whole) {
  Totals t;
  if (whole) {
    load8_x(at, t.lo, t.hi);
  } else {
    LOAD_SOME(load_x, at, 8, t.lo, t.hi)
  }
  return t;
}

// Reduces elements first, first + MEMBERS, ... of the run, of outputs i to i + 7, which lie in one row of `inner`.
Totals reduce_eight(Run run, uint first, bool whole) {
  uint k = first;
  Totals all = Totals(T_vec4(identity()), T_vec4(identity()));
  for (; k + (AHEAD - 1) * MEMBERS < run.count; k += AHEAD * MEMBERS) {
    Totals next[AHEAD];
    [[unroll]] for (uint a = 0; a < AHEAD; ++a) next[a] = load_totals(run.begin + (k + a * MEMBERS) * p.inner, whole);
    [[unroll]] for (uint a = 0; a < AHEAD; ++a) add(all, next[a]);
  }
  for (; k < run.count; k += MEMBERS) add(all, load_totals(run.begin + k * p.inner, whole));
  return all;
}

void reduce_flat() {
  const uint words = 64 / MEMBERS, thread = gl_LocalInvocationID.x, member = thread / words;
  const uint i = (group_id() * words + thread % words) * REWIND_FLAT;
  const bool whole = (p.offset[0] | p.offset[1]) % 8 == 0, is_output = i < outputs();
  Totals all = reduce_eight(run_of(is_output ? i : 0), is_output ? member : p.chunk, whole);
  if (MEMBERS > 1) {
    totals[thread] = all;
    barrier();
    if (member == 0)
      for (uint m = 1; m < MEMBERS; ++m) add(all, totals[m * words + thread]);
  }
  if (!is_output || member > 0) return;
  all.lo = scaled(all.lo);
  all.hi = scaled(all.hi);
  if (whole) {
    store8_y(i, all.lo, all.hi);
  } else {
    STORE_SOME(store_y, i, 8, all.lo, all.hi)
  }
}

void reduce_one(uint i) {
  Run run = run_of(i);
  T_value total = identity();
  for (uint k = 0; k < run.count; ++k) total = join(total, load_x(run.begin + k * p.inner));
  store_y(i, scaled(total));
}

void main() {
  if (FLAT == 1) {
    reduce_flat();
  } else if (thread_id() < outputs()) {
    reduce_one(thread_id());
  }
}
