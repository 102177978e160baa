// The common part of the losses over lattices of frames and labels (ctc.cpp, rnnt.cpp).
#pragma once

#include <algorithm>

#include "../detail.h"
#include "../layout/index.h"

namespace rw::detail {

// Calls `run` with [begin, end) of p set to one part of [0, length) after the other: on some
// drivers an invocation may make only 65535 loop iterations, and at least 4 lanes share a row's
// `width`.
template <class Params, class Run>
void for_each_part(Params p, uint32_t length, bool backwards, const Run& run) {
  const uint32_t chunk = std::max(1u, 32768 / (p.width / 4 + 2));
  const uint32_t parts = (length + chunk - 1) / chunk;
  for (uint32_t i = 0; i < parts; ++i) {
    p.begin = (backwards ? parts - 1 - i : i) * chunk;
    p.end = std::min(length, p.begin + chunk);
    run(p);
  }
}

// Checks targets [N, S], and how many of `most_frames` and of S each sample has.
inline void check_sequences(const char* op, const Tensor& targets, const Tensor& frames,
                            const Tensor& labels, int64_t most_frames, int64_t classes,
                            int32_t blank) {
  for (const Tensor* t : {&targets, &frames, &labels})
    check<DTypeError>(t->dtype() == DType::i32, op, "targets and lengths must be i32, got {}", *t);
  check(blank >= 0 && blank < classes, op, "the blank must be one of {} classes, got {}", classes,
        blank);
  check_indices(op, "targets", targets, classes - 1);
  check_indices(op, "input_lengths", frames, most_frames);
  check_indices(op, "target_lengths", labels, targets.size(1));
}

}  // namespace rw::detail
