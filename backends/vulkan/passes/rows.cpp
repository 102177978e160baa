#include "backends/vulkan/passes/rows.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>

#include "backends/vulkan/device/shader_table.h"
#include "shaders/params.h"

namespace rw::vulkan {

namespace {

// The number of threads that share a row.
struct Teams {
  uint64_t groups;
  uint32_t team;    // constant TEAM: 0 the workgroup, 1 a subgroup, 8 lanes
  uint32_t rounds;  // constant ROUNDS
};

// CPU drivers read rows again: these lie in a cache, while registers lie on the stack.
std::optional<Teams> teams_of(const Caps& caps, uint64_t rows, uint64_t cols) {
  constexpr uint32_t needed = feature::arithmetic | feature::shuffle;
  if (caps.is_cpu || cols == 0 || cols % REWIND_FLAT != 0 || (caps.features & needed) != needed)
    return {};
  constexpr uint64_t most_rounds = 4, few_rows = 512;
  const uint64_t lanes = caps.subgroup_size, words = cols / REWIND_FLAT;
  const uint64_t threads = multiple_of(lanes, 128);  // of a workgroup
  uint64_t size = threads;
  uint32_t team = 0;
  if (words <= 16 && lanes % 8 == 0) {
    team = 8;
    size = 8;
  } else if (words <= lanes || (words <= most_rounds * lanes && rows >= few_rows)) {
    team = 1;
    size = lanes;
  } else if (words > most_rounds * threads) {
    return {};
  }
  const uint64_t rounds = divide_up(words, size);
  return Teams{divide_up(rows, threads / size), team,
               rounds > 2 ? 4 : static_cast<uint32_t>(rounds)};
}

}  // namespace

void add_rows(Passes& passes, const Caps& caps, const KernelCall& call) {
  std::array<uint32_t, 31> words{};  // offsets, rows, cols, others
  std::memcpy(words.data(), call.params.data(), call.params.size());
  const size_t count = call.bindings.size();
  bool are_flat = true;
  for (size_t i = 0; i < count; ++i) are_flat = are_flat && words[i] % REWIND_FLAT == 0;
  const uint32_t rows = words[count], cols = words[count + 1];
  if (const auto teams = are_flat ? teams_of(caps, rows, cols) : std::nullopt)
    return passes.add_whole(fmt::format("{}_kept", call.kernel), call, teams->groups,
                            {call.constant(0), teams->team, teams->rounds});
  passes.add_whole(std::string(call.kernel), call, rows, {call.constant(0)});
}

}  // namespace rw::vulkan
