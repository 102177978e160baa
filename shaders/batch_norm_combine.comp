//! buffers: partial:f32:read mean:f32:write var:f32:write
//! params: BatchNormCombineParams
//! local: 8,16
//! grid: 3d
#define AHEAD 4  // chunks whose values are loaded at once

struct Moments {
  float count, mean, squares;
};

shared Moments moments[128];  // of 8 channels, 16 runs of chunks each

// Chan et al. 1979: `b` comes after `a`.
Moments joined(Moments a, Moments b) {
  if (b.count == 0.0) return a;
  float count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
  return Moments(count, a.mean + delta * share, a.squares + (b.squares + delta * delta * a.count * share));
}

Moments of_chunks(uint c, uint begin, uint end) {
  Moments all = Moments(0.0, 0.0, 0.0);
  for (uint first = begin; first < end; first += AHEAD) {
    float means[AHEAD], squares[AHEAD];
    [[unroll]] for (uint k = 0; k < AHEAD; ++k) {
      uint at = min(first + k, end - 1) * 2 * p.channels + c;
      means[k] = load_partial(at);
      squares[k] = load_partial(at + p.channels);
    }
    [[unroll]] for (uint k = 0; k < AHEAD; ++k) {
      uint chunk = first + k;
      float count = chunk < end ? float(min(p.chunk_rows, p.rows - chunk * p.chunk_rows)) : 0.0;
      all = joined(all, Moments(count, means[k], squares[k]));
    }
  }
  return all;
}

void main() {
  uint c = gl_GlobalInvocationID.x, run = gl_LocalInvocationID.y, place = run * 8 + gl_LocalInvocationID.x;
  uint length = (p.chunks + 15) / 16, begin = min(run * length, p.chunks);
  moments[place] = c < p.channels ? of_chunks(c, begin, min(begin + length, p.chunks)) : Moments(0.0, 0.0, 0.0);
  for (uint step = 1; step < 16; step *= 2) {
    barrier();
    if (run % (2 * step) == 0) moments[place] = joined(moments[place], moments[place + 8 * step]);
  }
  if (run > 0 || c >= p.channels) return;
  store_mean(c, moments[place].mean);
  store_var(c, moments[place].squares / p.rows);
}
