#include "backends/cpu/loops.h"

#include <array>
#include <cstring>
#include <vector>

#include "core/base/environment.h"
#include "core/base/error.h"

namespace rw::cpu {

#define REWIND_DECLARE_LEVEL(level)                                               \
  namespace level {                                                               \
  extern const Loop table[];                                                      \
  extern const size_t table_size;                                                 \
  void to_floats(const std::byte* from, DType dtype, int64_t count, float* to);   \
  void from_floats(const float* from, int64_t count, DType dtype, std::byte* to); \
  extern const WinogradLoops winograd_loops;                                      \
  }
#if defined(__x86_64__)
REWIND_DECLARE_LEVEL(x86_64_v3)
REWIND_DECLARE_LEVEL(x86_64_v4)
#else
REWIND_DECLARE_LEVEL(machine)
#endif
#undef REWIND_DECLARE_LEVEL

std::vector<Level> levels() {
  std::vector<Level> found;
#if defined(__x86_64__)
  // Single features are asked for, since compilers before 2023 do not know the levels by name. A
  // processor with AVX2 has the rest of the third level, except for these.
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v4)
    found.push_back({"x86-64-v4", x86_64_v4::table, x86_64_v4::table_size, x86_64_v4::to_floats,
                     x86_64_v4::from_floats, &x86_64_v4::winograd_loops});
  if (v3)
    found.push_back({"x86-64-v3", x86_64_v3::table, x86_64_v3::table_size, x86_64_v3::to_floats,
                     x86_64_v3::from_floats, &x86_64_v3::winograd_loops});
#else
  found.push_back({"machine", machine::table, machine::table_size, machine::to_floats,
                   machine::from_floats, &machine::winograd_loops});
#endif
  std::erase_if(found, [](const Level& level) { return is_without(level.name); });
  return found;
}

Loops::Loops() {
  const std::vector<Level> all = levels();
  if (all.empty()) return;
  level_ = all.front().name;
  for (size_t i = 0; i < all.front().count; ++i) {
    const Loop& loop = all.front().loops[i];
    loops_.emplace(loop.kernel, &loop);
  }
}

bool run(const Loop& loop, const KernelCall& call, std::span<std::byte* const> memory) {
  LoopCall c{};
  c.params = call.params.data();
  for (size_t i = 0; i < call.bindings.size(); ++i) {
    const Binding& binding = call.bindings[i];
    uint32_t offset;  // every struct begins with one offset per binding
    std::memcpy(&offset, call.params.data() + i * sizeof offset, sizeof offset);
    const uint64_t bytes = uint64_t{offset} * size_of(binding.dtype);
    c.data[i] = memory[i] + bytes;
    c.dtype[i] = binding.dtype;
  }
  for (size_t i = 0; i < std::size(c.constant); ++i) c.constant[i] = call.constant(i);
  return loop.run(c);
}

}  // namespace rw::cpu
