// Hashes that are the same on every machine and in every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rw {

// The FNV-1a hash of nothing.
inline constexpr uint64_t fnv1a_start = 0xcbf29ce484222325u;

// FNV-1a: extends the hash of earlier values by one value.
constexpr uint64_t fnv1a(uint64_t hash, uint64_t value) {
  return (hash ^ value) * 0x100000001b3u;
}

// Returns the hash of bytes.
constexpr uint64_t fnv1a(std::span<const std::byte> bytes) {
  uint64_t hash = fnv1a_start;
  for (const std::byte b : bytes) hash = fnv1a(hash, static_cast<uint64_t>(b));
  return hash;
}

// Hashes keys that say by hash() what to mix, for unordered containers.
struct KeyHash {
  // Returns key.hash().
  template <class Key>
  size_t operator()(const Key& key) const {
    return key.hash();
  }
};

// SplitMix64 (Steele et al. 2014): random bits as a function of a state. Successive states differ
// by splitmix64_step.
inline constexpr uint64_t splitmix64_step = 0x9e3779b97f4a7c15u;

// Returns the bits of a state.
constexpr uint64_t splitmix64(uint64_t state) {
  uint64_t z = state + splitmix64_step;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace rw
