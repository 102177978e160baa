// Small changes of inputs, as the fuzzers of compilers make them; equal random numbers give equal
// changes.
#pragma once

#include "../../data/base/random.h"
#include "target.h"

namespace rw::fuzz {

// A changed copy of one input of `pool`, of at most `most` bytes.
Bytes mutate(const std::vector<Bytes>& pool, const Target& target, size_t most, DataRandom& random);

}  // namespace rw::fuzz
