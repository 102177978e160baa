// A cache of what backends prepare for calls, by everything that decides them: a training
// step repeats its calls.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "../core/backend/backend.h"
#include "../core/base/error.h"

namespace rw {

// One thread at a time may use it.
template <class T>
class CallCache {
 public:
  // Returns the result of make(call) for this kernel, whose number the caller supplies, with these
  // dtypes, constants (two at most) and parameters. `more` has everything else that decides.
  template <class Make>
  std::shared_ptr<T> get(const KernelCall& call, size_t kernel, const Make& make,
                         std::array<uint64_t, 2> more = {}) {
    const Key key = key_of(call, kernel, more);
    if (const auto known = kept_.find(key); known != kept_.end()) return known->second;
    std::shared_ptr<T> made = make(call);
    if (kept_.size() == most_kept) kept_.clear();
    return kept_.emplace(key, std::move(made)).first->second;
  }

 private:
  static constexpr size_t most_kept = 4096;
  using Key = std::array<uint64_t, 21>;
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t hash = 0;
      for (const uint64_t word : key) hash = (hash ^ word) * 0x9e3779b97f4a7c15;
      return hash ^ hash >> 32;
    }
  };

  static Key key_of(const KernelCall& call, size_t kernel, std::array<uint64_t, 2> more) {
    check<ValueError>(call.params.size() <= 124 && call.variant.size() <= 2, call.kernel,
                      "must have at most 124 bytes of parameters and 2 constants, got {} and {}",
                      call.params.size(), call.variant.size());
    Key key{kernel, 0, call.constant(0) | uint64_t{call.constant(1)} << 32, more[0], more[1]};
    for (const Binding& b : call.bindings)
      key[1] = key[1] << 8 | (static_cast<uint64_t>(b.dtype) + 1);
    std::memcpy(&key[5], call.params.data(), call.params.size());
    return key;
  }

  std::unordered_map<Key, std::shared_ptr<T>, Hash> kept_;
};

}  // namespace rw
