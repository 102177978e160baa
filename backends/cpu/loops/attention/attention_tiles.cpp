#include "backends/cpu/loops/attention/attention_tiles.h"

namespace rw::cpu::REWIND_LEVEL {

void Attention::turn(const HeadRows& rows, const Queries& q, float factor, Panel& x,
                     Panel& buffer) const {
  const Rows from = rows.read(q.count, dim(), wide(), buffer);
  const int64_t last = q.wide() - lanes;  // where the register begins that queries do not fill
  if (q.count < q.wide())
    for (int64_t d = 0; d < dim(); ++d) store(x.at + d * span + last, Vec{});
  transpose(q.count, dim(), from.at, from.step, factor, x.at, span);
}

namespace {

// Sets the scores of one query in all lanes, from rows that are converted in registers.
template <class T>
void dot_rows(int64_t count, int64_t dim, const float* query, const T* rows, int64_t step,
              Square& s) {
  for (int64_t key = 0; key < count; key += lanes) {
    const int64_t some = least(lanes, count - key);
    const Vec scores = dots<false>(some, dim, query, rows + key * step, step);
    for (int64_t i = 0; i < some; ++i) store(s.at[key + i], all(scores[i]));
  }
}

}  // namespace

void Attention::score(const Queries& q, const Keys& k, const Panel& turned, const Rows& keys,
                      Square& s) const {
  if (q.count == 1) {
    float query[ATTENTION_MAX_DIM];
    for (int64_t d = 0; d < dim(); ++d) query[d] = turned.at[d * span];
    dot_rows(k.count, dim(), query, keys.at, keys.step, s);
  } else {
    product<false>(k.count, q.wide(), dim(), {keys.at, keys.step, 1}, turned.at, span, s.at[0],
                   span);
  }
  adjust(q, k, s);
}

void Attention::score_one(const Queries& q, const Keys& k, const float* query, const HeadRows& keys,
                          Square& s) const {
  keys.with_elements(
      [&](const auto* rows) { dot_rows(k.count, dim(), query, rows, keys.stride, s); });
  adjust(q, k, s);
}

// Masks scores, and what the queries do not see.
void Attention::adjust(const Queries& q, const Keys& k, Square& s) const {
  if (has(ATTENTION_ALIBI))
    add_distance(q, k, s);
  else if (has(ATTENTION_MASK))
    add_mask(q, k, s);
  hide_unseen(q, k, s);
  if (has(ATTENTION_STARTS)) hide_earlier(q, k, s);
}

void Attention::add_mask(const Queries& q, const Keys& k, Square& s) const {
  const float* const mask = mask_ + q.batch * p_.mask_stride[0] + q.head * p_.mask_stride[1] +
                            q.first * p_.mask_stride[2] + k.first;
  const int64_t step = p_.mask_stride[2];
  if (step == 0) {
    for (int64_t key = 0; key < k.count; ++key)
      for (int64_t i = 0; i < q.wide(); ++i) s.at[key][i] += mask[key];
    return;
  }
  Square turned;
  transpose(q.count, k.count, mask, step, 1, turned.at[0], span);
  for (int64_t key = 0; key < k.count; ++key)
    for (int64_t i = 0; i < q.count; ++i) s.at[key][i] += turned.at[key][i];
}

void Attention::add_distance(const Queries& q, const Keys& k, Square& s) const {
  const int32_t wide = static_cast<int32_t>(q.wide());
  const float slope = mask_[q.batch * p_.mask_stride[0] + q.head * p_.mask_stride[1]];
  for (int64_t key = 0; key < k.count; ++key) {
    const int32_t first = static_cast<int32_t>(behind(q.first, k.first + key));
    REWIND_VECTORIZE
    for (int32_t i = 0; i < wide; ++i) s.at[key][i] -= slope * abs(static_cast<float>(first + i));
  }
}

void Attention::hide_unseen(const Queries& q, const Keys& k, Square& s) const {
  const int32_t wide = static_cast<int32_t>(q.wide());
  const int64_t window = p_.window;
  const bool is_causal = has(ATTENTION_CAUSAL);
  const int64_t smallest = behind(q.first, k.first + k.count - 1);
  const int64_t most = behind(q.first + q.count - 1, k.first);
  const int64_t low = is_causal ? 0 : 1 - window;  // visible keys lie at distances in [low, window)
  if (smallest >= low && most < window) return;
  for (int64_t key = 0; key < k.count; ++key) {
    const int32_t first = static_cast<int32_t>(behind(q.first, k.first + key));
    const int32_t from = static_cast<int32_t>(low < 1 - window ? 1 - window : low);
    const int32_t to = static_cast<int32_t>(window);
    REWIND_VECTORIZE
    for (int32_t i = 0; i < wide; ++i) {
      const float score = s.at[key][i];
      const int32_t distance = first + i;
      s.at[key][i] = distance >= from && distance < to ? score : -infinity;
    }
  }
}

// Hides the keys before each query's start. No key is that of a query beyond the last one.
void Attention::hide_earlier(const Queries& q, const Keys& k, Square& s) const {
  alignas(64) int32_t first[span];
  const int32_t* const given = starts(q);
  const int32_t wide = static_cast<int32_t>(q.wide());
  for (int32_t i = 0; i < wide; ++i) first[i] = i < q.count ? given[i] : 0;
  for (int64_t key = 0; key < k.count; ++key) {
    const int32_t at = static_cast<int32_t>(k.first + key);
    REWIND_VECTORIZE
    for (int32_t i = 0; i < wide; ++i) {
      const float score = s.at[key][i];
      s.at[key][i] = at >= first[i] ? score : -infinity;
    }
  }
}

void Attention::factors(const Queries& q, const Keys& k, Square& f) const {
  const uint32_t wide = static_cast<uint32_t>(q.wide());
  const uint32_t row = static_cast<uint32_t>(1 + query_row(q));
  const uint32_t counter = p_.counter, key0 = p_.seed_lo, key1 = p_.seed_hi;
  const float keep = p_.keep, factor = 1 / keep;
  for (int64_t key = 0; key < k.count; key += 4) {
    const uint32_t four = static_cast<uint32_t>(k.first + key) / 4;
    float(*const to)[span] = f.at + key;
    REWIND_VECTORIZE
    for (uint32_t i = 0; i < wide; ++i) {
      const Words words = philox({{counter, 0, row + i, four}}, key0, key1);
#pragma GCC unroll 4
      for (int w = 0; w < 4; ++w) to[w][i] = uniform(words.word[w]) < keep ? factor : 0.0f;
    }
  }
}

}  // namespace rw::cpu::REWIND_LEVEL
