//! buffers: x:T:read y:i32:write
//! types: T = f32 f16 i32
//! params: ReduceParams
//! local: 64
#include "common/numbers.glsl"
layout(constant_id = 0) const uint MIN = 0;  //! 0 1
layout(constant_id = 1) const uint MEMBERS = 1;  //! 1 64
#define STEP 8  // elements per loop iteration, of which a thread has 65535

#if T_FLOAT
bool not_a_number(float x) { return is_nan(x); }
#else
bool not_a_number(int x) { return false; }
#endif

bool better(T_value x, T_value best) {
  if (not_a_number(best)) return false;
  return not_a_number(x) || (MIN == 1 ? x < best : x > best);
}

// Whether the element at x_at comes before that at best_at.
bool wins(T_value x, uint x_at, T_value best, uint best_at) {
  return better(x, best) || (!better(best, x) && x_at < best_at);
}

// The best of each member of a team, which is a workgroup.
shared T_value bests[64];
shared uint places[64];

uint best_of_team(uint member, T_value best, uint best_at) {
  bests[member] = best;
  places[member] = best_at;
  for (uint step = 1; step < MEMBERS; step *= 2) {
    barrier();
    const uint other = member + step;
    if (member % (2 * step) == 0 && wins(bests[other], places[other], bests[member], places[member])) {
      bests[member] = bests[other];
      places[member] = places[other];
    }
  }
  return places[member];
}

void main() {
  const bool in_team = MEMBERS > 1;
  const uint i = in_team ? group_id() : thread_id(), member = in_team ? gl_LocalInvocationID.x : 0;
  if (i >= p.outer * p.inner) return;
  uint outer = i / p.inner;
  uint start = outer * p.count * p.inner + (i - outer * p.inner);
  T_value best = load_x(start);
  uint best_at = 0;
  for (uint k = 1 + member; k < p.count; k += STEP * MEMBERS) {
    T_value x[STEP];
    [[unroll]] for (uint u = 0; u < STEP; ++u) x[u] = load_x(start + min(k + u * MEMBERS, p.count - 1) * p.inner);
    [[unroll]] for (uint u = 0; u < STEP; ++u)
      if (k + u * MEMBERS < p.count && better(x[u], best)) {
        best = x[u];
        best_at = k + u * MEMBERS;
      }
  }
  if (in_team) best_at = best_of_team(member, best, best_at);
  if (member == 0) store_y(i, int(best_at));
}
