// Values that tests and tests/goldens/make_*.py both compute, so that no file has to hold them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rw::test {

// As in the scripts: 24 bits of a hash of name and index, in [-1, 1).
inline std::vector<float> hashed(const std::string& name, int64_t count) {
  uint32_t seed = 2166136261u;
  for (const char c : name) seed = (seed ^ static_cast<uint8_t>(c)) * 16777619u;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 0x9E3779B1u + seed;
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    x ^= x >> 16;
    values.push_back(static_cast<float>(x >> 8) * 0x1p-23f - 1);
  }
  return values;
}

}  // namespace rw::test
