// A chain: up to three ops after a kernel, on each of its elements, that overwrite their input, as steps of
// params/chain.h. An includer has p.steps, the operands s and t, and writes y, all of type T. The bits are those of the
// kernels one after the other, so the results in between are rounded to T.
#include "elementwise/elementwise.glsl"
#include "common/flat.glsl"
#define COUNTERS p.steps
#include "random/drop.glsl"
layout(constant_id = 0) const uint STEP0 = 0;  //! 0 8 others
layout(constant_id = 1) const uint STEP1 = 0;  //! 0 64 others
layout(constant_id = 2) const uint STEP2 = 0;  //! 0 384 others

#define HAS_OPERAND(step) ((step & CHAIN_OPERAND) != 0)
#define PERIODIC(step) (step >= CHAIN_BINARY && (step - CHAIN_BINARY) % 6 / 2 == 1)
#define SCALAR(step) (step >= CHAIN_BINARY && (step - CHAIN_BINARY) % 6 / 2 == 2)
#define OPERANDS1 (STEP0 / CHAIN_OPERAND & 1)
#define OPERANDS2 (OPERANDS1 + (STEP1 / CHAIN_OPERAND & 1))

#define STEP STEP0
#define NUMBER 0
#define OPERAND 0
#define ONE chain_one0
#define ELEMENT chain_element0
#define FOUR chain_four0
#define EIGHT chain_eight0
#include "elementwise/chain_step.glsl"
#define STEP STEP1
#define NUMBER 1
#define OPERAND OPERANDS1
#define ONE chain_one1
#define ELEMENT chain_element1
#define FOUR chain_four1
#define EIGHT chain_eight1
#include "elementwise/chain_step.glsl"
#define STEP STEP2
#define NUMBER 2
#define OPERAND OPERANDS2
#define ONE chain_one2
#define ELEMENT chain_element2
#define FOUR chain_four2
#define EIGHT chain_eight2
#include "elementwise/chain_step.glsl"

// Rounds as storing and loading in a kernel of its own would. For f16 it uses integers, since compilers leave out a
// pair of conversions.
vec4 stored(vec4 v) {
#if T_F32
  return v;
#else
  if (BRAIN) return unpack_halves(pack_halves(v));
  uvec4 bits = floatBitsToUint(v), magnitude = bits & 0x7fffffffu;
  uvec4 rounded = (magnitude + 0xfffu + (magnitude >> 13 & 1u)) & ~0x1fffu;
  vec4 subnormal = (uintBitsToFloat(magnitude) + 0.5) - 0.5;
  rounded = mix(rounded, floatBitsToUint(subnormal), lessThan(magnitude, uvec4(0x38800000u)));
  rounded = mix(rounded, uvec4(0x7f800000u), greaterThanEqual(rounded, uvec4(0x47800000u)));
  rounded = mix(rounded, magnitude, greaterThan(magnitude, uvec4(0x7f800000u)));  // NaN stays NaN
  return uintBitsToFloat(rounded | (bits ^ magnitude));
#endif
}

float chain(uint k, float v) {
  v = chain_element0(k, v);
  if (STEP1 != CHAIN_NONE) v = chain_element1(k, stored(vec4(v)).x);
  if (STEP2 != CHAIN_NONE) v = chain_element2(k, stored(vec4(v)).x);
  return v;
}

// Returns elements i to i + 3. `place` is where the first one stands in an operand that repeats.
vec4 chain4(uint i, uint place, vec4 v) {
  v = chain_four0(i, place, v);
  if (STEP1 != CHAIN_NONE) v = chain_four1(i, place, stored(v));
  if (STEP2 != CHAIN_NONE) v = chain_four2(i, place, stored(v));
  return v;
}

void chain8(uint i, inout vec4 lo, inout vec4 hi) {
  chain_eight0(i, lo, hi);
  if (STEP1 != CHAIN_NONE) {
    lo = stored(lo);
    hi = stored(hi);
    chain_eight1(i, lo, hi);
  }
  if (STEP2 != CHAIN_NONE) {
    lo = stored(lo);
    hi = stored(hi);
    chain_eight2(i, lo, hi);
  }
}
