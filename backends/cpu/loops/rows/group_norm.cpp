// Group norm over x [samples, rows, channels].
#include "backends/cpu/loops/rows/columns.h"

namespace rw::cpu::REWIND_LEVEL {

namespace {

// Calls body(sample, chunk, tile) for each sample's chunks of rows, in strips of channels; the
// tile's rows are counted over all samples.
template <class P, class Body>
void each_chunk(const P& p, int64_t width, const Body& body) {
  const int64_t chunks = divide_up(p.rows, p.chunk_rows), strips = divide_up(p.channels, strip);
  const int64_t bytes = int64_t{p.samples} * p.rows * p.channels * width;
  parallel_for(p.samples * chunks * strips, bytes, [&](int64_t i) {
    const int64_t chunk = i / strips % chunks, sample = i / strips / chunks;
    const int64_t col = i % strips * strip, first = chunk * p.chunk_rows;
    const int64_t end = least(p.rows, first + p.chunk_rows), before = sample * p.rows;
    body(sample, chunk, Tile{before + first, before + end, col, least(strip, p.channels - col)});
  });
}

// The first element of the group of a channel.
template <class P>
float first_of(const P& p, const Operand& x, int64_t sample, int64_t channel) {
  return element(x, sample * p.rows * p.channels + channel / p.width * p.width);
}

template <class Body>
void each_tile(const Tile& t, const Body& body) {
  for (int64_t at = t.first; at < t.end; at += tile_rows)
    body(Tile{at, least(t.end, at + tile_rows), t.col, t.width});
}

}  // namespace

bool group_norm_stats(const LoopCall& call) {
  const auto& p = params<GroupNormParams>(call);
  const Operand x = operand(call, 0);
  float* const moments = operand(call, 1).as<float>();
  const int64_t merged = p.merged, across = p.width / merged, groups = p.channels / p.width;
  const int64_t blocks = divide_up(p.rows, p.chunk_rows) * across;
  each_chunk(p, x.width, [&](int64_t sample, int64_t chunk, const Tile& all) {
    alignas(64) double sums[2][strip] = {};
    alignas(64) float firsts[strip];
    for (int64_t c = 0; c < all.width; ++c) firsts[c] = first_of(p, x, sample, all.col + c);
    TileBuffer values;
    each_tile(all, [&](const Tile& t) {
      const Rows v = read_rows(x, t, p.channels, values);
      add_moments(
          t, [&](int64_t row, int64_t c) { return (v(row, c) - firsts[c]) * NORM_SCALE; }, sums);
    });
    // Strips are whole blocks: their width is a multiple of 8, and so of `merged`.
    for (int64_t c = 0; c < all.width; c += merged) {
      double totals[2] = {};
      for (int64_t k = 0; k < merged; ++k)
        for (int64_t j = 0; j < 2; ++j) totals[j] += sums[j][c + k];
      const double count = static_cast<double>((all.end - all.first) * merged);
      const double mean = totals[0] / count, squares = totals[1] - mean * totals[0];
      const int64_t channel = all.col + c, group = sample * groups + channel / p.width;
      float* const to =
          moments + 3 * (group * blocks + chunk * across + channel % p.width / merged);
      to[0] = static_cast<float>(count);
      to[1] = static_cast<float>(mean);
      to[2] = static_cast<float>(squares < 0 ? 0 : squares);
    }
  });
  return true;
}

bool group_norm_combine(const LoopCall& call) {
  const auto& p = params<GroupNormCombineParams>(call);
  const bool last = call.constant[0] != 0;
  const float* const moments = operand(call, 0).as<float>();
  float* const combined = operand(call, 1).as<float>();
  const int64_t runs = divide_up(p.blocks, GROUP_NORM_BLOCKS);
  parallel_for(p.groups * runs, int64_t{p.groups} * p.blocks * 12, [&](int64_t run) {
    const int64_t group = run / runs, begin = run % runs * GROUP_NORM_BLOCKS;
    const int64_t end = least(p.blocks, begin + GROUP_NORM_BLOCKS);
    double count = 0, mean = 0, squares = 0;
    for (int64_t b = begin; b < end; ++b) {
      const float* const at = moments + 3 * (group * p.blocks + b);
      const double more = at[0], delta = at[1] - mean, share = more / (count + more);
      squares += at[2] + delta * delta * count * share;
      mean += delta * share;
      count += more;
    }
    if (last) {
      const double variance = squares / count / NORM_SCALE / NORM_SCALE;
      combined[2 * run] = static_cast<float>(mean / NORM_SCALE);
      combined[2 * run + 1] = static_cast<float>(1 / __builtin_sqrt(variance + p.eps));
    } else {
      combined[3 * run] = static_cast<float>(count);
      combined[3 * run + 1] = static_cast<float>(mean);
      combined[3 * run + 2] = static_cast<float>(squares);
    }
  });
  return true;
}

bool group_norm(const LoopCall& call) {
  const auto& p = params<GroupNormParams>(call);
  const Operand x = operand(call, 0), y = operand(call, 4);
  const float *stats = operand(call, 1).as<float>(), *weight = operand(call, 2).as<float>();
  const float* bias = operand(call, 3).as<float>();
  const int64_t groups = p.channels / p.width;
  const auto prepare = [&](int64_t sample, int64_t c, int64_t lane, Block* v) {
    const float* const of = stats + 2 * (sample * groups + c / p.width);
    v[of_first].at[lane] = first_of(p, x, sample, c);
    v[of_mean].at[lane] = of[0];
    v[of_scale].at[lane] = of[1] * weight[c];
    v[of_shift].at[lane] = bias[c];
  };
  normalize_columns(p.samples, p.rows, p.channels, x, y, prepare);
  return true;
}

bool group_norm_grad_stats(const LoopCall& call) {
  const auto& p = params<GroupNormParams>(call);
  const Operand x = operand(call, 0), dy = operand(call, 1);
  const float* const stats = operand(call, 2).as<float>();
  float* const partial = operand(call, 3).as<float>();
  const int64_t chunks = divide_up(p.rows, p.chunk_rows), groups = p.channels / p.width;
  each_chunk(p, x.width + dy.width, [&](int64_t sample, int64_t chunk, const Tile& all) {
    alignas(64) double sums[2][strip] = {};
    alignas(64) float firsts[strip], mean[strip], rstd[strip];
    for (int64_t c = 0; c < all.width; ++c) {
      const float* const of = stats + 2 * (sample * groups + (all.col + c) / p.width);
      firsts[c] = first_of(p, x, sample, all.col + c);
      mean[c] = of[0];
      rstd[c] = of[1];
    }
    TileBuffer values, grads;
    each_tile(all, [&](const Tile& t) {
      const Rows v = read_rows(x, t, p.channels, values), g = read_rows(dy, t, p.channels, grads);
      add_rows(t, sums[0], [&](int64_t row, int64_t c) {
        return g(row, c) * (v(row, c) - firsts[c] - mean[c]);
      });
      add_rows(t, sums[1], g);
    });
    float* const to = partial + (sample * chunks + chunk) * 2 * p.channels + all.col;
    for (int64_t c = 0; c < all.width; ++c) {
      to[c] = static_cast<float>(sums[0][c] * double{rstd[c]});
      to[p.channels + c] = static_cast<float>(sums[1][c]);
    }
  });
  return true;
}

bool group_norm_grad(const LoopCall& call) {
  const auto& p = params<GroupNormParams>(call);
  const Operand x = operand(call, 0), dy = operand(call, 1), dx = operand(call, 5);
  const float *stats = operand(call, 2).as<float>(), *weight = operand(call, 3).as<float>();
  const float* sums = operand(call, 4).as<float>();
  enum { of_first, of_mean, of_rstd, of_weight, of_slope, of_shift };
  const int64_t groups = p.channels / p.width;
  const float size = static_cast<float>(int64_t{p.rows} * p.width);
  const auto prepare = [&](int64_t sample, int64_t c, int64_t lane, Block* v) {
    const int64_t group = c / p.width;
    const float* const of = stats + 2 * (sample * groups + group);
    const float* const total = sums + sample * 2 * groups + group;
    v[of_first].at[lane] = first_of(p, x, sample, c);
    v[of_mean].at[lane] = of[0];
    v[of_rstd].at[lane] = of[1];
    v[of_weight].at[lane] = weight[c];
    v[of_slope].at[lane] = total[0] / size * of[1];
    v[of_shift].at[lane] = total[groups] / size;
  };
  const auto body = [&](int64_t at, int64_t count, const Block* v) {
    Block values, grads, result;
    const float *from = read(x, at, count, values.at), *g = read(dy, at, count, grads.at);
    float* to = place(dx, at, result.at);
    REWIND_VECTORIZE
    for (int64_t i = 0; i < count; ++i)
      to[i] = v[of_rstd].at[i] *
              (v[of_weight].at[i] * g[i] - mul_add(from[i] - v[of_first].at[i] - v[of_mean].at[i],
                                                   v[of_slope].at[i], v[of_shift].at[i]));
    write(dx, at, count, to);
  };
  column_tiles<6>(p.samples, p.rows, p.channels, x.width + dy.width + dx.width, prepare, body);
  return true;
}

}  // namespace rw::cpu::REWIND_LEVEL
