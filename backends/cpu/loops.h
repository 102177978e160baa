// Vector loops of the cpu backend: kernels that the compiler vectorizes, compiled once for each
// level of x86-64. A backend chooses the level when it is made.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../../core/backend/backend.h"
#include "loop_call.h"
#include "winograd_call.h"

namespace rw::cpu {

// The loops of one level, in any order.
struct Level {
  const char* name;  // "x86-64-v3"
  const Loop* loops;
  size_t count;
  // These do the same as those of halves.h.
  void (*to_floats)(const std::byte* from, DType dtype, int64_t count, float* to);
  void (*from_floats)(const float* from, int64_t count, DType dtype, std::byte* to);
  const WinogradLoops* winograd;
};

// Returns the levels that this processor has and REWIND_WITHOUT=x86-64-v4,... does not exclude, the
// best one first.
std::vector<Level> levels();

// The loops of the best level.
class Loops {
 public:
  Loops();
  std::string_view level() const { return level_; }  // empty: there is none
  // Returns the loop of a kernel, or null if there is none.
  const Loop* find(std::string_view kernel) const {
    const auto found = loops_.find(kernel);
    return found == loops_.end() ? nullptr : found->second;
  }

 private:
  std::string_view level_;
  std::unordered_map<std::string_view, const Loop*> loops_;
};

// Runs the loop if it has a form of this call, and tells whether it has. The call must be one that
// the reference backend takes.
bool run(const Loop& loop, const KernelCall& call, std::span<std::byte* const> memory);

}  // namespace rw::cpu
